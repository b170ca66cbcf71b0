"""What the journal costs: CPU per record, syncs per second, latency.

    python bench/journal.py [--directory DIR] [--size 100] [--seconds 2]

Three loads are put on one journal in a directory of a real disk:

- alone: the next record is appended when the last one is durable;
- window N: N records are under way at any time, appended one by one as earlier ones complete;
- rate R: R records a second, appended in runs of what came due, however long they take.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable

from bookkeeper.bookie.journal.format import entry_prefix
from bookkeeper.bookie.journal.journal import Journal
from bookkeeper.bookie.journal.last_mark import MarkFiles
from bookkeeper.config import ServerConfiguration
from bookkeeper.runtime import Runtime
from bookkeeper.runtime.real import run


class Load:
    """Appends records of one size and notes how long each took."""

    def __init__(self, journal: Journal, size: int) -> None:
        self.journal = journal
        self.pieces = [entry_prefix(size), bytes(16) + os.urandom(size - 16)]
        self.size = size + 4
        self.delays: list[float] = []

    def append(self, count: int, then: Callable[[], None] | None = None) -> None:
        start = time.perf_counter()

        def done() -> None:
            self.delays.append(time.perf_counter() - start)
            if then is not None:
                then()

        self.journal.append(self.pieces * count, self.size * count, count, done)


async def alone(load: Load, seconds: float) -> None:
    await window(load, seconds, 1)


async def window(load: Load, seconds: float, width: int) -> None:
    end = time.perf_counter() + seconds
    finished = asyncio.Event()
    under_way = width

    def again() -> None:
        nonlocal under_way
        if time.perf_counter() < end:
            load.append(1, again)
        else:
            under_way -= 1
            if under_way == 0:
                finished.set()

    for _ in range(width):
        load.append(1, again)
    await finished.wait()


async def rate(load: Load, seconds: float, per_second: float) -> None:
    start = time.perf_counter()
    sent = 0
    while (passed := time.perf_counter() - start) < seconds:
        due = int(passed * per_second) - sent
        if due and load.journal.room.has(due * load.size):
            load.append(due)
            sent += due
        await asyncio.sleep(0.001)
    finished = asyncio.Event()
    load.append(1, finished.set)
    await finished.wait()


async def measure(
    runtime: Runtime, directory: str, name: str, size: int, seconds: float, body: Callable[[Load, float], object]
) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    config = ServerConfiguration(journalQueueSize=1_000_000)
    marks = MarkFiles(runtime.files, [directory], "lastMark")

    def fatal(error: BaseException) -> None:
        raise SystemExit(str(error))

    journal = Journal(runtime, config, 0, directory, marks, fatal)
    await journal.replay(lambda _: None)
    journal.start()
    load = Load(journal, size)
    gc.collect()
    gc.disable()  # the pauses would be those of this load's closures
    cpu, start = time.process_time(), time.perf_counter()
    await body(load, seconds)  # type: ignore[misc]
    cpu, wall = time.process_time() - cpu, time.perf_counter() - start
    gc.enable()
    await journal.close()
    stats, delays = journal.stats, sorted(load.delays)
    print(
        f"{name:14} {stats.records / wall:9.0f} records/s  {cpu / stats.records * 1e6:7.2f} us CPU/record  "
        f"{cpu / wall * 100:4.0f}% CPU  {stats.batches / wall:6.0f} batches/s  "
        f"{stats.sync.succeeded / wall:6.0f} syncs/s  "
        f"p50 {delays[len(delays) // 2] * 1e3:6.2f} ms  p99 {delays[int(len(delays) * 0.99)] * 1e3:6.2f} ms"
    )


async def main(runtime: Runtime, directory: str, size: int, seconds: float) -> None:
    await measure(runtime, directory, "alone", size, seconds, alone)
    for width in (4, 16, 100, 500, 2000):
        await measure(runtime, directory, f"window {width}", size, seconds, functools.partial(window, width=width))
    for per_second in (1000, 10_000, 50_000, 100_000, 200_000, 400_000):
        body = functools.partial(rate, per_second=per_second)
        await measure(runtime, directory, f"rate {per_second}", size, seconds, body)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", help="on the disk to measure; a new one is made in it")
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as temporary:
        run(lambda runtime: main(runtime, temporary + "/journal", options.size, options.seconds))
