"""Memory of many ledgers that are open for writing: what each costs the client, and what it costs a bookie.

    python -m bench.open_ledgers [--ledgers 100000] [--bookies 1]

One client creates the ledgers and appends an entry to each, and keeps them open. Printed is by how much the resident
memory of the client and of the fullest bookie grew, and how much of it a ledger is. What a bookie caches is kept small
here, so that the ledgers are what is seen.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import tempfile
from pathlib import Path

import bookkeeper
from bookkeeper.cli.local.cluster import LocalCluster
from bookkeeper.client.writer import LedgerWriter
from bookkeeper.runtime import Runtime
from bookkeeper.runtime.real import run

AT_ONCE = 200
ROUND = 10_000
SETTINGS = {
    "dbStorage_writeCacheMaxSizeMb": 16,
    "dbStorage_readAheadCacheMaxSizeMb": 8,
    "dbStorage_rocksDB_writeBufferSizeMB": 8,
    "flushInterval": 1000,
}


def resident() -> int:
    """Bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def open_some(bk: bookkeeper.BookKeeper, count: int, copies: int) -> list[LedgerWriter]:
    """So many more ledgers, each with one entry."""
    opened: list[LedgerWriter] = []

    async def some(share: int) -> None:
        for _ in range(share):
            writer = await bk.create_ledger(ensemble_size=copies, write_quorum=copies, ack_quorum=copies)
            await writer.append(b"an entry")
            opened.append(writer)

    async with asyncio.TaskGroup() as group:
        for i in range(AT_ONCE):
            group.create_task(some(count // AT_ONCE + (i < count % AT_ONCE)))
    return opened


async def main(runtime: Runtime) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledgers", type=int, default=100_000)
    parser.add_argument("--bookies", type=int, default=1, help="each ledger has a copy on all of them")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bookkeeper-open-") as folder:
        cluster = LocalCluster(runtime, Path(folder), options.bookies, settings=SETTINGS)
        async with cluster, bookkeeper.connect(cluster.uri, runtime=runtime) as bk:
            opened = await open_some(bk, AT_ONCE, options.bookies)  # what is made once is there then
            before = _look(cluster)
            print(f"{'ledgers':>8} {'client':>18} {'bookie':>18}", flush=True)
            while len(opened) < options.ledgers:
                opened += await open_some(bk, min(ROUND, options.ledgers - len(opened)), options.bookies)
                grown = [after - start for start, after in zip(before, _look(cluster), strict=True)]
                row = "  ".join(f"{more / 1e6:6.0f} MB {more / len(opened):6.0f} B" for more in grown)
                print(f"{len(opened):8}  {row}", flush=True)


def _look(cluster: LocalCluster) -> tuple[int, int]:
    gc.collect()
    return resident(), max(map(cluster.resident_bytes, cluster.bookies))


if __name__ == "__main__":
    run(main)
