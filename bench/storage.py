"""What the storage costs, stage by stage: microseconds of CPU for one entry, and memory under sustained load.

    python bench/storage.py [--size BYTES] [--entries N] [--directory DIR] [--sustain SECONDS]

Each line is the best of several rounds. CPU is that of the loop's thread for what happens on the loop, and of the whole
process for what runs on workers. The last lines show how long the event loop had to wait while flushes ran.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import shutil
import struct
import tempfile
import time
from collections.abc import Awaitable, Callable

from bookkeeper.bookie.storage.db_storage import DbLedgerStorage
from bookkeeper.config import ServerConfiguration
from bookkeeper.runtime import Runtime
from bookkeeper.runtime.real import run

IDS = struct.Struct(">qqqq")
ROUNDS = 3


def entry(ledger_id: int, entry_id: int, size: int) -> bytes:
    """A packaged entry with `size` bytes of data and a 4-byte digest."""
    return IDS.pack(ledger_id, entry_id, entry_id - 1, size) + bytes(4 + size)


def show(stage: str, seconds: float, count: int, note: str = "") -> None:
    print(f"{stage:<44}{seconds / count * 1e6:8.3f} us/entry  {note}", flush=True)


def resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / (1 << 20)


async def timed(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Wall and process CPU seconds of one run."""
    wall, cpu = time.perf_counter(), time.process_time()
    await work()
    return time.perf_counter() - wall, time.process_time() - cpu


class LoopProbe:
    """Measures how long the loop waits for the interpreter: the delay of a callback that is due at once."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            before = time.perf_counter()
            time.sleep(0)  # noqa: ASYNC251 - lets the interpreter go, as any system call of the loop does
            self.delays.append(time.perf_counter() - before)
            await asyncio.sleep(0.0002)

    async def stop(self) -> str:
        self._task.cancel()
        await asyncio.wait([self._task])
        delays = sorted(self.delays)
        return " ".join(
            f"{name} {delays[min(len(delays) - 1, int(len(delays) * q))] * 1e3:.2f} ms"
            for name, q in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
        )


async def stages(runtime: Runtime, configuration: ServerConfiguration, size: int, count: int) -> None:
    storage = DbLedgerStorage(runtime, configuration)
    await storage.open()
    length = len(entry(0, 0, size))
    best: dict[str, float] = {}

    def note(stage: str, seconds: float) -> None:
        best[stage] = min(best.get(stage, 1e9), seconds)

    for number in range(ROUNDS):
        ledger = number
        storage.set_master_key(ledger, b"k" * 20)
        entries = [entry(ledger, i, size) for i in range(count)]
        add = storage.add_entry
        start = time.thread_time()
        for i, data in enumerate(entries):
            add(ledger, i, data)
        note("add_entry", time.thread_time() - start)
        batches = [(range(i, min(i + 100, count)), entries[i : i + 100]) for i in range(0, count, 100)]
        storage.set_master_key(ROUNDS + number, b"k" * 20)
        start = time.thread_time()
        for ids, part in batches:
            storage.add_entries(ROUNDS + number, ids, part)
        note("add_entries, 100 together", time.thread_time() - start)
        storage.delete_ledger(ROUNDS + number)
        start = time.thread_time()
        for i in range(count):
            storage.cached_entry(ledger, i)
        note("read, write cache", time.thread_time() - start)
        _, cpu = await timed(lambda ledger=ledger: runs(storage, ledger, count, length))
        note("read_run, write cache", cpu)
        wall, cpu = await timed(storage.flush)
        note("flush, CPU of the process", cpu)
        note("flush, wall", wall)
        del entries
        _, cpu = await timed(lambda ledger=ledger: runs(storage, ledger, count, length))
        note("read_run, log", cpu)
    await storage.close()
    await cold_reads(runtime, configuration.model_copy(update={"dbStorage_readAheadCacheMaxSizeMb": 1}), count, best)
    for stage, seconds in best.items():
        show(stage, seconds, count)


async def cold_reads(runtime: Runtime, configuration: ServerConfiguration, count: int, best: dict[str, float]) -> None:
    """Single reads from the entry log, with next to no read cache (but a warm page cache)."""
    storage = DbLedgerStorage(runtime, configuration)
    await storage.open()
    reads = 5000
    for ledger in range(ROUNDS):
        for stage, step in (("in order", 1), ("scattered", 7919)):
            wall, cpu = await timed(lambda ledger=ledger, step=step: singles(storage, ledger, count, step, reads))
            for kind, seconds in (("CPU", cpu), ("wall", wall)):
                name = f"read {stage} from the log, {kind}"
                best[name] = min(best.get(name, 1e9), seconds * count / reads)
    await storage.close()


async def runs(storage: DbLedgerStorage, ledger: int, count: int, length: int) -> None:
    done = 0
    while done < count:
        done += len(await storage.read_run(ledger, done, count, 1 << 20)) // (length + 4)


async def singles(storage: DbLedgerStorage, ledger: int, count: int, step: int, reads: int) -> None:
    for i in range(reads):
        if storage.cached_entry(ledger, i * step % count) is None:
            await storage.read_entry(ledger, i * step % count)


async def sustain(runtime: Runtime, configuration: ServerConfiguration, size: int, seconds: float) -> None:
    """Add as fast as the storage lets us, on 100 ledgers; flushes start by themselves."""
    storage = DbLedgerStorage(runtime, configuration)
    await storage.open()
    ledgers = range(1000, 1100)
    for ledger in ledgers:
        storage.set_master_key(ledger, b"k" * 20)
    template = bytes(4 + size)
    length = len(template) + 32
    first = resident_mib()
    peak = 0.0
    probe = LoopProbe()
    end = time.perf_counter() + seconds
    number = waits = 0
    while time.perf_counter() < end:
        for ledger in ledgers:
            if not storage.has_room(ledger, 20 * length, 20):
                waits += 1
                await storage.wait_for_room(ledger, 20 * length, 20, 10)
            for i in range(number, number + 20):
                storage.add_entry(ledger, i, IDS.pack(ledger, i, i - 1, size) + template)
        number += 20
        await asyncio.sleep(0)
        peak = max(peak, resident_mib())
    delays = await probe.stop()
    total = number * len(ledgers)
    print(f"sustained {total / seconds:,.0f} entries/s, {waits} waits for room")
    print(f"memory before {first:.0f} MiB, peak {peak:.0f} MiB")
    print(f"loop's wait for the interpreter: {delays}")
    await storage.close()
    print(f"memory after close {resident_mib():.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100, help="bytes of data in an entry")
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--directory", help="where to write; default: a temporary directory")
    parser.add_argument("--sustain", type=float, default=0, help="seconds of sustained adds")
    parser.add_argument("--write-cache", type=int, default=256)
    parser.add_argument("--read-cache", type=int, default=64)
    options = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="bench-storage-", dir=options.directory)

    async def work(runtime: Runtime) -> None:
        configuration = ServerConfiguration(
            ledgerDirectories=[directory],
            dbStorage_writeCacheMaxSizeMb=options.write_cache,
            dbStorage_readAheadCacheMaxSizeMb=options.read_cache,
            dbStorage_rocksDB_blockCacheSize=16 << 20,
        )
        if options.entries:
            await stages(runtime, configuration, options.size, options.entries)
        if options.sustain:
            await sustain(runtime, configuration, options.size, options.sustain)

    try:
        run(work)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
