"""Apache BookKeeper and this one on the same machine, in turn: `make bench-compare`.

Both have a ZooKeeper root in one server, three bookies with fsync on, one client process; ledgers are 3/3/2. Each
measurement is a pair, Java's and ours one after the other, first one first and then the other; a pair is repeated
`--pairs` times. What counts is the ratio within a pair; the report has its median, least and greatest.

Nothing is measured while bookies work off what they were given, garbage collection included: reads come first, and
what a measurement of writes wrote is deleted and collected before the next one begins.

    python -m bench.compare --pairs 3 --seconds 10 --json compare.json --svg compare.svg
    python -m bench.compare --quick                   does it work?

A ratio above 1 is in our favour, whatever was measured: rates are ours / Java's, times and memory Java's / ours.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

import bookkeeper.sync
from bookkeeper.metadata.zookeeper.local_server import LocalZooKeeper
from tests.interop.support import peer
from tests.interop.support.cluster import JAVA, OURS, Bookie, Cluster
from tests.support.waiting import wait_until

from . import processor_time
from .compare_report import HIGHER, LOWER, Figure, add_outputs, lines_of, show, write

PAGE = os.sysconf("SC_PAGE_SIZE")
ATTEMPTS = 3
"""How often a pair is begun if a run of it fails."""

IDLE_CPU = 0.10
"""CPU seconds a second that count as nothing to do, for the bookies of one cluster together."""
IDLE_LIMIT_SECONDS = 60.0

BOOKIE_JVM = "-Xmx1g -XX:MaxDirectMemorySize=1g"
CLIENT_JVM = "-Xmx2g -XX:MaxDirectMemorySize=1g"

LOG_BYTES = 256 << 20

SETTINGS: dict[str, object] = {
    "dbStorage_writeCacheMaxSizeMb": 256,
    "dbStorage_readAheadCacheMaxSizeMb": 128,
    "dbStorage_rocksDB_blockCacheSize": 32 << 20,
    "journalPreAllocSizeMB": 16,
    "flushInterval": 10_000,
    # What was written is deleted at once, and collected before the next measurement begins.
    "journalMaxSizeMB": 512,
    "journalMaxBackups": 1,
    "logSizeLimit": LOG_BYTES,
    # For Java's bookies. One that is slow for a moment gets behind its two peers by more than the default of 10,000,
    # refuses what comes, and Java's client gives it up. (Ours stops reading from the connection.)
    "maxPendingAddRequestsPerThread": 100_000,
    "gcWaitTime": 3_000,
    "minorCompactionThreshold": 0,
    "majorCompactionThreshold": 0,
}

COLLECTION_LIMIT_SECONDS = 180.0

COLD_ENTRIES = 100_000
WARM_ENTRIES = 200_000

SHORT_WARM_SECONDS = 8.0
"""Enough where no compiler is measured: for our client (bookies get to their first flush), and for a ledger to read."""

ADD_TIMEOUT_SECONDS = 30
"""How long Java's client waits before it gives up a bookie: its 5 seconds may pass while a shared host is busy."""


@dataclass
class System:
    """One of the two, with its running cluster."""

    name: str
    cluster: Cluster
    readable: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Entry size -> a closed ledger to read, and how many entries it has."""

    @property
    def bookies(self) -> list[Bookie]:
        return self.cluster.bookies

    def cpu(self) -> float:
        """CPU seconds that the bookies have used."""
        return sum(processor_time.of_process(_pid(bookie)) for bookie in self.bookies)

    def resident(self) -> float:
        """Megabytes that a bookie holds, on average."""
        pages = [int(Path(f"/proc/{_pid(bookie)}/statm").read_text().split()[1]) for bookie in self.bookies]
        return sum(pages) * PAGE / len(pages) / 1e6

    def forget_pages(self) -> None:
        """Take what the bookies have on disk out of the page cache."""
        for path in self.cluster.directory.rglob("*"):
            if path.is_file():
                with contextlib.suppress(FileNotFoundError), path.open("rb") as file:  # collected meanwhile
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def log_bytes(self) -> int:
        """What the entry logs of all bookies take."""
        total = 0
        for path in self.cluster.directory.rglob("*.log"):
            with contextlib.suppress(FileNotFoundError):  # collected meanwhile
                total += path.stat().st_size
        return total

    def discard(self, log_bytes: int) -> None:
        """Delete the ledgers that are not to be read, and wait until garbage collection is through with them:
        `log_bytes` is what there was before they were written."""
        kept = {ledger for ledger, _ in self.readable.values()}
        with bookkeeper.sync.connect(self.cluster.uri) as bk:
            for ledger in list(bk.list_ledgers()):
                if ledger not in kept:
                    bk.delete_ledger(ledger)
        most = log_bytes + 2 * LOG_BYTES * len(self.bookies)
        collected = f"{self.name}: deleted ledgers are collected"
        wait_until(lambda: self.log_bytes() <= most, collected, COLLECTION_LIMIT_SECONDS)

    def wait_idle(self) -> None:
        """Until the bookies have worked off what they were given."""
        deadline = time.monotonic() + IDLE_LIMIT_SECONDS
        while time.monotonic() < deadline:
            before = self.cpu()
            time.sleep(1)
            if self.cpu() - before <= IDLE_CPU:
                return


def _pid(bookie: Bookie) -> int:
    assert bookie.process is not None
    return bookie.process.pid


@dataclass(frozen=True)
class Run:
    """What a client process printed, and the CPU seconds it used."""

    lines: list[dict[str, Any]]
    cpu: float

    @property
    def last(self) -> dict[str, Any]:
        return self.lines[-1]


def client(*argv: str) -> Run:
    """Run a client to its end."""
    before = processor_time.of_ended_children()
    done = subprocess.run(argv, capture_output=True, text=True, env=peer.environment(CLIENT_JVM))
    used = processor_time.of_ended_children() - before
    lines = _json_in(done.stdout)
    if done.returncode or not lines:
        raise RuntimeError(f"{' '.join(argv)} failed: {_ends(done.stdout)} {_ends(done.stderr)}")
    return Run(lines, used)


def _ends(text: str, length: int = 1500) -> str:
    """Its beginning, where a log tells the cause, and its end."""
    return text if len(text) <= 2 * length else f"{text[:length]}\n...\n{text[-length:]}"


def _json_in(text: str) -> list[dict[str, Any]]:
    """The JSON objects in a program's output: the whole of it, or one a line."""
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


class Clients:
    """The same measurements with either client. Results are in the terms of `Measurement`.

    Each run is a new process, and a JVM's is slow until its code is compiled: for Java `warm` seconds go by before
    anything counts. After 10 seconds the compiler still takes a third of a core, after 30 next to nothing.
    """

    def __init__(self, seconds: float, warm: float) -> None:
        self.seconds = seconds
        self.warm = warm
        self.short_warm = min(warm, SHORT_WARM_SECONDS)

    def java(self, system: System, command: str, protocol: str, **options: object) -> Run:
        words = [f"{key}={value}" for key, value in options.items()]
        v2 = str(protocol == "v2").lower()
        return client(
            *(str(peer.SCRIPT), "drive", command, f"uri={system.cluster.uri}", f"v2={v2}", "password=bench"),
            *(f"conf.addEntryTimeoutSec={ADD_TIMEOUT_SECONDS}", *words),
        )

    def ours(self, system: System, command: str, protocol: str, *arguments: object) -> Run:
        return client(
            *(sys.executable, "-m", "bookkeeper", "bench", command, *map(str, arguments)),
            *("--uri", system.cluster.uri, "--protocol", protocol, "--json"),
        )

    def write(self, system: System, who: str, protocol: str, size: int, ledgers: int, window: int) -> dict[str, float]:
        """New ledgers, deleted when they were measured."""
        before, bookies = system.log_bytes(), system.cpu()
        warm = self.warm if who == JAVA else self.short_warm
        try:
            run = self._write(system, who, protocol, size, ledgers, window, warm)
            cpu = (system.cpu() - bookies + run.cpu) / run.last["total"] * 1e6
        finally:
            system.discard(before)
        rate = run.last["adds_per_s" if who == JAVA else "entries_per_second"]
        return {"rate": rate, "p50_ms": run.last["p50_ms"], "p99_ms": run.last["p99_ms"], "cpu_s_per_million": cpu}

    def _write(self, system: System, who: str, protocol: str, size: int, ledgers: int, window: int, warm: float) -> Run:
        if who == JAVA:
            shape = {"size": size, "ledgers": ledgers, "window": window}
            return self.java(system, "write-bench", protocol, **shape, warm=warm, seconds=self.seconds)
        settings = ("--size", size, "-n", ledgers, "--window", window, "-s", self.seconds, "--warm", warm)
        return self.ours(system, "write", protocol, *settings)

    def _readable(self, system: System, who: str, size: int) -> tuple[int, int]:
        """A ledger to read, written when it is first asked for; and how many entries it has."""
        if size not in system.readable:
            last = self._write(system, who, "v2", size, 1, 2000, self.short_warm).last
            system.readable[size] = (last["ledger"] if who == JAVA else last["ledgers"][0], last["total"])
            system.wait_idle()
        return system.readable[size]

    def read(
        self, system: System, who: str, protocol: str, size: int, *, batch: bool = False, cold: bool = False
    ) -> dict[str, float]:
        """Warm: again and again after a first time that does not count (Java: the best of five times).
        Cold: once, from the disk, `COLD_ENTRIES` of them, by a client that has just started."""
        ledger, entries = self._readable(system, who, size)
        step = 1000 if batch else 100
        window = 1 if batch else 20  # Java's driver has one batch read under way
        limit = min(entries, COLD_ENTRIES if cold else WARM_ENTRIES)
        if cold:
            system.forget_pages()
        if who == JAVA:
            rounds = 1 if cold else 5
            run = self.java(
                system,
                "read-bench",
                protocol,
                ledger=ledger,
                step=step,
                window=window,
                rounds=rounds,
                batchread=str(batch).lower(),
                limit=limit,
            )
            return {"rate": max(line["reads_per_s"] for line in run.lines)}
        mode = "--batch" if batch else "--single"
        shape = (ledger, mode, "--step", step, "--window", window, "--limit", limit)
        run = self.ours(system, "read", protocol, *shape, "--once", "-s", 60)
        if not cold:
            run = self.ours(system, "read", protocol, *shape, "-s", self.seconds)
        return {"rate": run.last["entries_per_second"]}

    def tail(self, system: System, who: str, rate: int) -> dict[str, float]:
        if who == JAVA:
            shape = {"rate": rate, "count": int(rate * self.seconds), "size": 100}
            run = self.java(system, "tail-bench", "v3", **shape, warm=self.warm)
        else:
            run = self.ours(system, "tail", "auto", "--rate", rate, "-s", self.seconds, "--size", 100)
        return {"p50_ms": run.last["p50_ms"], "p99_ms": run.last["p99_ms"]}

    def recover(self, system: System, who: str, count: int) -> dict[str, float]:
        if who == JAVA:
            run = self.java(system, "recover-bench", "v3", count=count, rounds=5, warm=self.warm)
        else:
            run = client(sys.executable, "-m", "bench.recovery", system.cluster.uri, "--count", str(count))
        return {"ms": statistics.median(line["ms"] for line in run.lines)}


@dataclass(frozen=True)
class Measurement:
    """One thing measured: who runs it, and which of its figures are wanted, each with its better direction."""

    name: str
    run: Callable[[System, str], dict[str, float]]
    figures: dict[str, str]


def measurements(clients: Clients) -> list[Measurement]:
    rate = {"rate": HIGHER}
    full = {"rate": HIGHER, "p99_ms": LOWER, "cpu_s_per_million": LOWER}
    delay = {"p50_ms": LOWER, "p99_ms": LOWER}
    found = []
    for protocol in ("v2", "v3"):
        for size in (100, 1024):
            read = partial(clients.read, protocol=protocol, size=size)
            found.append(Measurement(f"cold read {size} B, {protocol}", partial(read, cold=True), rate))
            found.append(Measurement(f"read {size} B, {protocol}", read, rate))
    for size in (100, 1024):
        batch = partial(clients.read, protocol="v2", size=size, batch=True)
        found.append(Measurement(f"batch read {size} B, v2", batch, rate))
    found.append(Measurement("tail at 1,000/s", partial(clients.tail, rate=1000), delay))
    found.append(Measurement("recovery of 20,000 entries", partial(clients.recover, count=20_000), {"ms": LOWER}))
    for protocol in ("v2", "v3"):
        for size, ledgers, window in (
            (100, 1, 2000),
            (1024, 1, 2000),
            (65536, 1, 100),
            (100, 100, 5000),
            (1024, 100, 5000),
        ):
            write = partial(clients.write, protocol=protocol, size=size, ledgers=ledgers, window=window)
            found.append(Measurement(f"add {size} B, {ledgers} ledger{'s' * (ledgers > 1)}, {protocol}", write, full))
        one = partial(clients.write, protocol=protocol, size=128, ledgers=1, window=1)
        found.append(Measurement(f"add one at a time, {protocol}", one, delay))
    for protocol in ("v2", "v3"):

        def swapped(system: System, who: str, p: str = protocol) -> dict[str, float]:
            return clients.write(system, JAVA, p, 100, 1, 2000)

        name = f"bookies alone, with Java's client: add 100 B, {protocol}"
        found.append(Measurement(name, swapped, {"rate": HIGHER, "p99_ms": LOWER}))
    found.append(Measurement("bookie resident memory", lambda system, who: {"MB": system.resident()}, {"MB": LOWER}))
    return found


def turn(number: int) -> tuple[str, str]:
    """Who begins in this pair, and who follows: they take turns."""
    return (JAVA, OURS) if number % 2 == 0 else (OURS, JAVA)


class Comparison:
    """Runs pairs and keeps what they brought."""

    def __init__(self, systems: dict[str, System], pairs: int) -> None:
        self._systems = systems
        self._pairs = pairs
        self.results: dict[str, Figure] = {}
        self.failures: list[dict[str, str]] = []
        """Runs that failed: of what, and whose. They are part of the report."""

    def measure(self, measurement: Measurement) -> bool:
        """Run all pairs. Whether there are figures: there are none if a pair failed in each attempt."""
        for number in range(self._pairs):
            if not any(self._pair(measurement, number) for _ in range(ATTEMPTS)):
                for figure in measurement.figures:
                    self.results.pop(f"{measurement.name}: {figure}", None)
                return False
        return True

    def _pair(self, measurement: Measurement, number: int) -> bool:
        """One run of each system. Nothing is kept of a pair of which either failed."""
        figures = {}
        for name in turn(number):
            for system in self._systems.values():
                system.wait_idle()
            try:
                figures[name] = self._run(measurement, name)
            except (RuntimeError, TimeoutError) as error:
                self.failures.append({"what": measurement.name, "who": name})
                print(f"  FAILED: {measurement.name}: {name}: {error}", flush=True)
                return False
        for name in turn(number):
            self.note(measurement, name, figures[name])
        return True

    def _run(self, measurement: Measurement, who: str) -> dict[str, float]:
        figures = measurement.run(self._systems[who], who)
        if min(figures.values()) <= 0:
            raise RuntimeError(f"{who} did nothing in time: take more --seconds or --warm")
        return figures

    def note(self, measurement: Measurement, who: str, figures: dict[str, float]) -> None:
        for figure, better in measurement.figures.items():
            name = f"{measurement.name}: {figure}"
            self.results.setdefault(name, Figure(better)).values[who].append(figures[figure])
        shown = ", ".join(f"{figure} {figures[figure]:,.3f}" for figure in measurement.figures)
        print(f"  {measurement.name}: {who}: {shown}", flush=True)


def start(zk: KazooClient, address: str, kind: str, directory: Path) -> tuple[System, float]:
    """A new cluster of three; and the seconds until all were registered."""
    cluster = Cluster(zk, address, f"/{kind}{time.monotonic_ns()}", directory / kind, SETTINGS, BOOKIE_JVM)
    cluster.init_by_us()
    cluster.add(kind, kind, kind)
    began = time.monotonic()
    cluster.start()
    return System(kind, cluster), time.monotonic() - began


def start_times(zk: KazooClient, address: str, directory: Path, comparison: Comparison, pairs: int) -> None:
    measurement = Measurement("cluster start", lambda system, who: {}, {"s": LOWER})
    for number in range(pairs):
        for kind in turn(number):
            system, took = start(zk, address, kind, directory / f"start{number}")
            comparison.note(measurement, kind, {"s": took})
            system.cluster.stop()


async def main(arguments: argparse.Namespace) -> None:
    peer.set_up()
    with tempfile.TemporaryDirectory(prefix="compare-", dir=arguments.directory) as temporary:
        directory = Path(temporary)
        server = LocalZooKeeper(directory / "zookeeper")
        await server.start()
        try:
            await asyncio.to_thread(compare, arguments, server.address, directory)
        finally:
            await server.stop()


def compare(arguments: argparse.Namespace, address: str, directory: Path) -> None:
    zk = KazooClient(address, timeout=60)
    zk.start()
    systems: dict[str, System] = {}
    comparison = Comparison(systems, arguments.pairs)
    clients = Clients(arguments.seconds, arguments.warm)
    try:
        start_times(zk, address, directory, comparison, arguments.pairs)
        for kind in (JAVA, OURS):
            systems[kind], _ = start(zk, address, kind, directory)
        wanted = [each for each in measurements(clients) if arguments.only in each.name]
        missing = [measurement.name for measurement in wanted if not comparison.measure(measurement)]
    finally:
        for system in systems.values():
            system.cluster.stop()
        zk.stop()
        zk.close()
    report = {
        "peer": peer.version(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "pairs": arguments.pairs,
        "seconds": arguments.seconds,
        "warm": arguments.warm,
        "results": lines_of(comparison.results),
        "failures": comparison.failures,
    }
    show(report)
    write(report, arguments)
    if missing:
        sys.exit(f"no figures, a pair failed in each of {ATTEMPTS} attempts: {'; '.join(missing)}")


def arguments_of(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=3, help="pairs of runs, Java's and ours, of each measurement")
    parser.add_argument("--seconds", type=float, default=10.0, help="measured time of one run")
    parser.add_argument("--warm", type=float, default=30.0, help="time before Java's client is measured")
    parser.add_argument("--only", default="", help="measurements whose name has this text")
    parser.add_argument("--quick", action="store_true", help="one short pair of everything: does it work?")
    parser.add_argument("--directory", type=Path, help="where the clusters' directories are made")
    add_outputs(parser)
    arguments = parser.parse_args(argv)
    if arguments.quick:
        arguments.pairs, arguments.seconds, arguments.warm = 1, 2.0, 2.0
    return arguments


if __name__ == "__main__":
    asyncio.run(main(arguments_of(sys.argv[1:])))
