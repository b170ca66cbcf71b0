"""What several bookies on one machine give: one and two instances, with one and two clients.

    python -m bench.instances [--seconds 10] [--size 100] [--instances 1 2] [--clients 1 2]

Each row starts `bookkeeper bookie --instances N` and as many writing clients as it says, each a process with ten
ledgers of one copy. It tells the appends of all clients a second, and the processor time that bookies and clients took
for one. On a machine with fewer cores than processes the rate says how cores are shared, processor time what one gives.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bookkeeper.metadata import open_driver
from bookkeeper.runtime import Runtime
from bookkeeper.runtime.real import run

from .processor_time import of_ended_children, of_process

PORT = 23181
WARM_UP = 3.0
LEDGERS = 10
SETTINGS = {
    "advertisedAddress": "127.0.0.1",
    "allowLoopback": "true",
    "dbStorage_writeCacheMaxSizeMb": 128,
    "dbStorage_readAheadCacheMaxSizeMb": 32,
    "diskUsageThreshold": 0.999,
    "diskUsageWarnThreshold": 0.998,
}


@asynccontextmanager
async def machine(runtime: Runtime, folder: Path, instances: int) -> AsyncIterator[tuple[str, list[int]]]:
    """A cluster of instances: where its metadata is, and the bookies' processes."""
    uri = f"sqlite://{folder}/meta.db"
    driver = open_driver(uri, runtime)
    await driver.open(create=True)
    await driver.admin.init_new_cluster()
    await driver.close()
    settings = {**SETTINGS, "metadataServiceUri": uri, "bookiePort": PORT}
    settings |= {"journalDirectories": f"{folder}/journal", "ledgerDirectories": f"{folder}/ledgers"}
    conf = folder / "bk_server.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = ("-m", "bookkeeper", "bookie", "--conf", str(conf), "--instances", str(instances), "--log-level", "ERROR")
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        while not (line := await process.stdout.readline()).startswith(b"all "):
            if not line:
                raise SystemExit("the bookies did not start")
        yield uri, children_of(process.pid)
    finally:
        process.terminate()
        await process.communicate()


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def write(uri: str, size: int, seconds: float) -> dict[str, Any]:
    """One client; what it tells."""
    command = (
        f"bench write --uri {uri} --json --size {size} --ledgers {LEDGERS} --seconds {seconds} --warm {WARM_UP} "
        "-e 1 -w 1 -a 1"
    )
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bookkeeper", *command.split(), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await client.communicate()
    if client.returncode:
        raise SystemExit(f"a client ended with exit code {client.returncode}")
    found: dict[str, Any] = json.loads(output)
    return found


async def measure(runtime: Runtime, instances: int, clients: int, options: argparse.Namespace) -> None:
    """One row."""
    with tempfile.TemporaryDirectory(prefix="bookkeeper-instances-", dir=options.dir) as folder:
        async with machine(runtime, Path(folder), instances) as (uri, bookies):
            served, written = sum(map(of_process, bookies)), of_ended_children()
            found = await asyncio.gather(*(write(uri, options.size, options.seconds) for _ in range(clients)))
            appends = sum(one["total"] for one in found)
            served, written = sum(map(of_process, bookies)) - served, of_ended_children() - written
            rate = sum(one["entries_per_second"] for one in found)
            p99 = max(one["p99_ms"] for one in found)
            print(
                f"{instances:9} {clients:7} {rate:12,.0f} {p99:8.1f} {served / appends * 1e6:12.2f} "
                f"{written / appends * 1e6:12.2f}",
                flush=True,
            )


async def main(runtime: Runtime) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--size", type=int, default=100, help="bytes of an entry")
    parser.add_argument("--instances", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--dir", default=None, help="where the directories go")
    options = parser.parse_args()
    print(f"entries of {options.size} B on {os.cpu_count()} processors")
    print("instances clients    appends/s   p99 ms    bookies us    clients us")
    for instances in options.instances:
        for clients in options.clients:
            await measure(runtime, instances, clients, options)


if __name__ == "__main__":
    run(main)
