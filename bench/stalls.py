"""What stops a bookie's loop, at full load: each standstill, who had the processor then, and what ran.

    python -m bench.stalls [--seconds 60] [--rate N] [--ledgers 1] [--size 100] [--least 2] [--stacks 5]

One bookie in this process, and one client in another, which appends to ledgers of one copy as fast as it can. Every
millisecond a timer on the loop asks how late it is (`bookkeeper.runtime.stalls`); a thread looks at the stacks of all
threads while it is late. Of each standstill of `--least` ms and more the table says what most of it was:

    garbage collection   Python's collector ran
    no processor         the loop's thread, or who had the interpreter, was ready to run and had no processor
    the loop: FUNCTION   the loop's own thread worked for so long
    THREAD: FUNCTION     another thread had the interpreter
    nobody ran           none of it: the host took the processors away, or the loop waits for the disk

*Own* is what is left of a standstill without the time for which threads of this process waited for a processor. Beside
it runs a process that does nothing but ask how late its own empty loop is: what it finds is the machine's doing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from bookkeeper.bookie.bookie import Bookie
from bookkeeper.config import ServerConfiguration
from bookkeeper.metadata import open_driver
from bookkeeper.runtime import Runtime
from bookkeeper.runtime.real import run
from bookkeeper.runtime.stalls import StallMeter

TICK = 0.001
SHOWN_FRAMES = 6
WARM_UP = 3.0


@dataclass
class Stall:
    """One standstill. All times in milliseconds."""

    at: float
    late: float
    own: float
    """Without what threads waited for a processor."""
    cause: str
    used: dict[str, tuple[float, float]]
    """Of each thread that ran or wanted to: processor time, and time it waited for a processor."""
    stack: list[str] = field(default_factory=list)


class Scheduling:
    """What the kernel says of the threads of this process: nanoseconds on a processor, and waiting for one."""

    def __init__(self) -> None:
        self._files: dict[int, int] = {}
        self._last: dict[int, tuple[int, int]] = {}
        self.find()

    def find(self) -> None:
        """Look for threads that have come or gone."""
        living = {int(name) for name in os.listdir("/proc/self/task")}
        for thread in living - self._files.keys():
            with contextlib.suppress(OSError):  # it has ended
                self._files[thread] = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)
        for thread in self._files.keys() - living:
            os.close(self._files.pop(thread))

    def since_last(self) -> dict[int, tuple[float, float]]:
        """Milliseconds of each thread that changed since the last call: on a processor, waiting for one."""
        changed = {}
        for thread, file in self._files.items():
            try:
                words = os.pread(file, 100, 0).split()
            except OSError:  # it has ended
                continue
            now = int(words[0]), int(words[1])
            before = self._last.get(thread, now)
            if now != before:
                changed[thread] = (now[0] - before[0]) / 1e6, (now[1] - before[1]) / 1e6
            self._last[thread] = now
        return changed


class Collections:
    """How long Python's collector took since it was asked last, in milliseconds."""

    def __init__(self) -> None:
        self.longest: Counter[int] = Counter()
        self.count: Counter[int] = Counter()
        self._began = 0.0
        self._taken = 0.0
        gc.callbacks.append(self._heard)

    def _heard(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.monotonic()
            return
        taken = (time.monotonic() - self._began) * 1000
        generation = info["generation"]
        self._taken += taken
        self.count[generation] += 1
        self.longest[generation] = max(self.longest[generation], taken)  # type: ignore[assignment]

    def since_last(self) -> float:
        taken, self._taken = self._taken, 0.0
        return taken


class Watcher:
    """A thread that looks at all stacks when the loop is late."""

    def __init__(self, least: float) -> None:
        self.ticked = time.monotonic()
        self.seen: dict[int, list[str]] = {}
        """Of each thread: where it was, the outermost frame last. Of the standstill that is now."""
        self._least = least
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        self._thread.join()

    def _watch(self) -> None:
        own = threading.get_ident()
        while not self._ends.wait(TICK):
            if time.monotonic() - self.ticked > self._least and not self.seen:
                self.seen = {thread: _frames(frame) for thread, frame in sys._current_frames().items() if thread != own}


def _frames(frame: FrameType | None) -> list[str]:
    found = []
    while frame is not None and len(found) < SHOWN_FRAMES:
        code = frame.f_code
        found.append(f"{Path(code.co_filename).stem}.{code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return found


class Bench:
    """Measures the loop it was made on."""

    def __init__(self, runtime: Runtime, least: float) -> None:
        self.least = least
        self.ticks = 0
        self.stalls: list[Stall] = []
        self.collections = Collections()
        self._began = time.monotonic()
        self._loop_thread = threading.get_native_id()
        self._scheduling = Scheduling()
        self._watcher = Watcher(least)
        self._meter = StallMeter(runtime, self._heard, TICK)

    def start(self) -> None:
        self._meter.start()

    def stop(self) -> None:
        self._meter.stop()
        self._watcher.end()

    def _heard(self, late: float) -> None:
        self.ticks += 1
        used, collected = self._scheduling.since_last(), self.collections.since_last()
        stacks, self._watcher.seen = self._watcher.seen, {}
        self._watcher.ticked = time.monotonic()
        if late >= self.least:
            self._note(late * 1000, used, collected, stacks)
        elif self.ticks % 1000 == 0:
            self._scheduling.find()

    def _note(
        self, late: float, used: dict[int, tuple[float, float]], collected: float, stacks: dict[int, list[str]]
    ) -> None:
        names = {thread.native_id: (thread.name, thread.ident) for thread in threading.enumerate()}
        at = time.monotonic() - self._began
        named = {names[thread][0]: times for thread, times in used.items() if thread in names}
        named.pop("watcher", None)
        ran, waited = named.get("MainThread", (0.0, 0.0))
        others = [(name, *times) for name, times in named.items() if name != "MainThread"]
        holder, held, unheld = max(others, key=lambda other: other[1], default=("nobody", 0.0, 0.0))
        busiest = "MainThread" if ran >= min(late / 2, held) else holder
        idents = dict(names.values())
        stack = stacks.get(idents.get(busiest) or 0, [])
        where = stack[0].rpartition(":")[0] if stack else "?"
        own = max(0.0, late - waited - unheld)
        if collected >= late / 2:
            cause = "garbage collection"
        elif own < late / 2:
            cause = "no processor"
        elif max(ran, held) < late / 4:
            cause = "nobody ran"
        else:
            cause = f"{'the loop' if busiest == 'MainThread' else busiest}: {where}"
        self.stalls.append(Stall(at, late, own, cause, named, stack))


async def serve(runtime: Runtime, directory: Path) -> Bookie:
    uri = f"sqlite://{directory}/meta.db"
    driver = open_driver(uri, runtime)
    await driver.open(create=True)
    await driver.admin.init_new_cluster()
    await driver.close()
    config = ServerConfiguration.from_mapping(
        {
            "metadataServiceUri": uri,
            "bookiePort": 0,
            "allowEphemeralPorts": True,
            "bookieId": "stalls",
            "advertisedAddress": "127.0.0.1",
            "allowLoopback": True,
            "journalDirectories": [str(directory / "journal")],
            "ledgerDirectories": [str(directory / "ledgers")],
            "dbStorage_writeCacheMaxSizeMb": 256,
            "dbStorage_readAheadCacheMaxSizeMb": 64,
            "diskUsageThreshold": 0.999,
            "diskUsageWarnThreshold": 0.998,
        }
    )
    bookie = Bookie(runtime, config)
    await bookie.start()
    return bookie


async def load(uri: str, options: argparse.Namespace) -> dict[str, float]:
    """What the client saw."""
    command = (
        f"bench write --uri {uri} --json --size {options.size} --ledgers {options.ledgers} --window {options.window} "
        f"--seconds {options.seconds} --warm {WARM_UP} -e 1 -w 1 -a 1"
    )
    if options.rate:
        command += f" --rate {options.rate}"
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bookkeeper", *command.split(), stdout=subprocess.PIPE
    )
    output, _ = await client.communicate()
    if client.returncode:
        raise SystemExit(f"the client ended with exit code {client.returncode}")
    found: dict[str, float] = json.loads(output)
    return found


def tell(bench: Bench, seen: dict[str, float], options: argparse.Namespace) -> None:
    print(f"the client: {json.dumps(seen)}")
    for generation, count in bench.collections.count.items():
        print(f"generation {generation}: {count} collections, {bench.collections.longest[generation]:.1f} ms at most")
    by_cause: dict[str, list[Stall]] = {}
    for stall in bench.stalls:
        by_cause.setdefault(stall.cause, []).append(stall)
    print(f"{bench.ticks:,} ticks")
    print(f"{'late by, ms':>50} {options.least:>6g} {5:>6} {10:>6} longest; own {options.least:>6g} {5:>6} longest")
    for cause, found in sorted(by_cause.items(), key=lambda item: -len(item[1])):
        tell_row(cause, found, options.least)
    tell_row("all", bench.stalls, options.least)
    for stall in sorted(bench.stalls, key=lambda stall: -stall.own)[: options.stacks]:
        print(f"\n{stall.late:.1f} ms at {stall.at:.1f} s, own {stall.own:.1f} ms, {stall.cause}")
        for name, (ran, waited) in sorted(stall.used.items(), key=lambda item: -sum(item[1]))[:5]:
            print(f"    {name}: ran {ran:.1f} ms, waited {waited:.1f} ms for a processor")
        for frame in stall.stack:
            print(f"      {frame}")


def tell_row(cause: str, found: list[Stall], least: float) -> None:
    late, own = [stall.late for stall in found], [stall.own for stall in found]
    counts = [sum(value >= limit for value in late) for limit in (least, 5, 10)]
    owns = [sum(value >= limit for value in own) for limit in (least, 5)]
    longest, longest_own = max(late, default=0.0), max(own, default=0.0)
    print(
        f"{cause[:50]:>50} {counts[0]:6} {counts[1]:6} {counts[2]:6} {longest:7.1f}     {owns[0]:6} {owns[1]:6}"
        f" {longest_own:7.1f}"
    )


@contextlib.asynccontextmanager
async def control() -> AsyncIterator[None]:
    """The empty loop beside; says at the end how late it was."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.stalls", "--control")
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def idle(runtime: Runtime) -> None:
    """What the empty loop does until it is told to end."""
    late: list[float] = []
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    meter = StallMeter(runtime, late.append, TICK)
    meter.start()
    await ended.wait()
    meter.stop()
    counts = [sum(value * 1000 >= limit for value in late) for limit in (2, 5, 10)]
    print(
        f"an empty loop beside: {len(late):,} ticks, late by 2, 5, 10 ms: {counts}, longest {max(late) * 1000:.1f} ms",
        flush=True,
    )


async def main(runtime: Runtime) -> None:
    options = parse()
    if options.control:
        await idle(runtime)
        return
    with tempfile.TemporaryDirectory(prefix="bookkeeper-stalls-", dir=options.dir) as folder:
        bookie = await serve(runtime, Path(folder))
        bench = Bench(runtime, options.least / 1000)
        async with control():
            bench.start()
            seen = await load(f"sqlite://{folder}/meta.db", options)
            bench.stop()
        tell(bench, seen, options)
        await bookie.stop()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of full load")
    parser.add_argument("--ledgers", type=int, default=1, help="written at the same time")
    parser.add_argument("--size", type=int, default=100, help="bytes of an entry")
    parser.add_argument("--window", type=int, default=5000, help="appends under way")
    parser.add_argument("--least", type=float, default=2.0, help="ms: shorter standstills are left out")
    parser.add_argument("--stacks", type=int, default=5, help="how many of the longest are shown whole")
    parser.add_argument("--rate", type=int, help="appends a second, at most")
    parser.add_argument("--control", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--dir", default=None, help="where the bookie's directories go")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
