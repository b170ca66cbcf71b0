"""How many ledgers a second a client creates, closes and opens, so many at once; JSON lines.

    python -m bench.metadata [URI] [--count 2000] [--at-once 100] [--rounds 3]

Without a URI three bookies are started for it, on a SQLite file. Ledgers stay empty, so bookies have next to nothing to
do: it is the metadata store and the client that take the time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import bookkeeper
from bookkeeper.cli.local.cluster import LocalCluster
from bookkeeper.client.client import BookKeeper
from bookkeeper.client.reader import LedgerReader
from bookkeeper.client.writer import LedgerWriter
from bookkeeper.runtime import Runtime
from bookkeeper.runtime.real import run

PASSWORD = b"bench"

T = TypeVar("T")
R = TypeVar("R")


async def rate(
    runtime: Runtime, at_once: int, work: Callable[[T], Awaitable[R]], items: Iterable[T]
) -> tuple[float, list[R]]:
    """Do `work` for each item, so many at once; how many a second, and what came of them."""
    waiting = iter(items)
    results: list[R] = []

    async def worker() -> None:
        for item in waiting:
            results.append(await work(item))  # noqa: PERF401

    started = runtime.now()
    await asyncio.gather(*[worker() for _ in range(at_once)])
    return len(results) / (runtime.now() - started), results


async def measure(runtime: Runtime, bk: BookKeeper, count: int, at_once: int) -> dict[str, float]:
    async def create(_: int) -> LedgerWriter:
        return await bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2, password=PASSWORD)

    async def close(writer: LedgerWriter) -> int:
        await writer.close()
        return writer.id

    async def open_(ledger_id: int) -> LedgerReader:
        return await bk.open_ledger(ledger_id, password=PASSWORD)

    async def delete(reader: LedgerReader) -> None:
        await reader.close()
        await bk.delete_ledger(reader.id)

    created, writers = await rate(runtime, at_once, create, range(count))
    closed, ids = await rate(runtime, at_once, close, writers)
    opened, readers = await rate(runtime, at_once, open_, ids)
    deleted, _ = await rate(runtime, at_once, delete, readers)
    rates = {"created": created, "closed": closed, "opened": opened, "deleted": deleted}
    return {name: round(value, 1) for name, value in rates.items()}


async def main(runtime: Runtime, words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("uri", nargs="?", help="of a cluster that runs already")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args(words)
    async with AsyncExitStack() as held:
        if (uri := arguments.uri) is None:
            directory = Path(held.enter_context(TemporaryDirectory(prefix="bookkeeper-bench-")))
            uri = (await held.enter_async_context(LocalCluster(runtime, directory, 3))).uri
        bk = await held.enter_async_context(bookkeeper.connect(uri, runtime=runtime))
        for _ in range(arguments.rounds):
            print(json.dumps(await measure(runtime, bk, arguments.count, arguments.at_once)), flush=True)


if __name__ == "__main__":
    run(main)
