"""How many ledgers a second the metadata store creates, opens and closes, one at a time and many at once.

    python -m bench.metadata [--uri sqlite:///tmp/x/metadata.db] [--ledgers 2000] [--at-once 1 100]

Without an address an SQLite file in a temporary directory is used; `zk://...` must be an initialised cluster. Only
records are made, as a client's `create_ledger`, `open_ledger` and `close` do; no bookie is asked.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from bookkeeper.metadata import open_driver
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId, LedgerState

ENSEMBLE = tuple(BookieId(f"127.0.0.1:{port}") for port in (3181, 3182, 3183))


async def rate(count: int, at_once: int, work: Callable[[int], Awaitable[object]]) -> float:
    """Do `work` for each number below `count`, so many at once; how many a second."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await work(number)

    started = time.perf_counter()
    await asyncio.gather(*[worker() for _ in range(at_once)])
    return count / (time.perf_counter() - started)


async def measure(uri: str, count: int, at_once: int) -> None:
    driver = open_driver(uri, RealRuntime())
    await driver.open(create=True)
    await driver.admin.init_new_cluster()
    ledgers = driver.ledgers
    ids: list[int] = []

    async def create(_: int) -> None:
        ledger_id = await driver.ids.allocate()
        await ledgers.create(ledger_id, LedgerMetadata(ledger_id, 3, 3, 2, {0: ENSEMBLE}))
        ids.append(ledger_id)

    async def read(number: int) -> None:
        await ledgers.read(ids[number])

    async def close(number: int) -> None:
        found = await ledgers.read(ids[number])
        closed = replace(found.value, state=LedgerState.CLOSED, last_entry_id=-1, length=0)
        await ledgers.write(ids[number], closed, found.version)

    for what, work in (("created", create), ("opened", read), ("closed", close)):
        print(f"{at_once:5} at once: {await rate(count, at_once, work):8.0f} ledgers {what} a second", flush=True)
    await driver.close()


async def main(options: argparse.Namespace) -> None:
    for at_once in options.at_once:
        with tempfile.TemporaryDirectory(dir=options.dir) as directory:
            await measure(options.uri or f"sqlite://{directory}/metadata.db", options.ledgers, at_once)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uri", default=None)
    parser.add_argument("--dir", default=None, help="where the temporary directory goes")
    parser.add_argument("--ledgers", type=int, default=2000)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 100])
    asyncio.run(main(parser.parse_args()))
