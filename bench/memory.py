"""Memory of bookies during a long write at full speed: does it stay within the configured caches?

    python -m bench.memory [SECONDS]

Three bookies with 256 MB of write cache and 64 MB of read cache each; prints their resident memory every few seconds
and the greatest at the end. Reads run along, so that the read cache fills too.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import bookkeeper
from bookkeeper.cli.local.cluster import LocalCluster
from bookkeeper.runtime import Runtime
from bookkeeper.runtime.real import run

SETTINGS = {
    "dbStorage_writeCacheMaxSizeMb": 256,
    "dbStorage_readAheadCacheMaxSizeMb": 64,
    "journalMaxBackups": 0,
    "journalMaxSizeMB": 512,
}
INTERVAL = 5.0


async def write(runtime: Runtime, uri: str, seconds: float) -> int:
    """Append for a while, a new ledger every million entries; returns how many were appended."""
    deadline = runtime.now() + seconds
    total = 0
    async with bookkeeper.connect(uri, runtime=runtime) as bk:
        while runtime.now() < deadline:
            async with bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2) as ledger:
                while runtime.now() < deadline and ledger.last_add_pushed < 1_000_000:
                    await ledger.append_many([bytes(100)] * 5000)
                total += ledger.last_add_confirmed + 1
    return total


async def read(runtime: Runtime, uri: str, seconds: float) -> None:
    """Read the oldest ledger again and again."""
    deadline = runtime.now() + seconds
    async with bookkeeper.connect(uri, runtime=runtime) as bk:
        while runtime.now() < deadline:
            async with bk.open_ledger(0) as reader:
                async for _ in reader.entries():
                    if runtime.now() > deadline:
                        return
            await asyncio.sleep(1)


async def main(runtime: Runtime) -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 300.0
    with tempfile.TemporaryDirectory(prefix="bookkeeper-memory-") as directory:
        async with LocalCluster(runtime, Path(directory), 3, settings=SETTINGS) as cluster:
            writing = asyncio.ensure_future(write(runtime, cluster.uri, seconds))
            await asyncio.sleep(3)
            reading = asyncio.ensure_future(read(runtime, cluster.uri, seconds - 5))
            greatest = 0
            started = runtime.now()
            while not writing.done():
                await asyncio.wait([writing], timeout=INTERVAL)
                held = [cluster.resident_bytes(bookie) for bookie in cluster.bookies]
                greatest = max(greatest, *held)
                shown = ", ".join(f"{size / 1e6:.0f}" for size in held)
                print(f"{runtime.now() - started:6.0f} s  resident MB: {shown}", flush=True)
            await reading
            print(f"{writing.result():,} entries; greatest resident memory of a bookie: {greatest / 1e6:.0f} MB")


if __name__ == "__main__":
    run(main)
