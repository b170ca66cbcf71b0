"""One measurement with either client: a process that runs to its end and prints JSON, and the figures in it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from tests.interop.support import peer
from tests.interop.support.cluster import JAVA

from .. import processor_time
from .systems import Clusters, System

CLIENT_JVM = "-Xmx2g -XX:MaxDirectMemorySize=1g"

RUN_LIMIT_SECONDS = 600.0
"""How long a client may take; one that takes longer is killed, and its run has failed."""

COLD_ENTRIES = 100_000
WARM_ENTRIES = 200_000

LARGE_ENTRIES, LARGE_ENTRY_BYTES = 1_500_000, 1000
"""Of a ledger that is read as if it were larger than memory: it is not in memory when a run begins, and no run reads
enough of it to meet a page again."""
READS_A_ROUND = 10_000

CRASH_ENTRIES, CRASH_ENTRY_BYTES = 100_000, 1000
"""What a bookie has to replay that was killed: less than a write cache, so that nothing of it was flushed."""

LEDGERS, AT_ONCE = 2000, 100
"""Ledgers that are created, closed, opened and deleted in one round, and how many are under way."""

SHORT_WARM_SECONDS = 8.0
"""Enough where no compiler is measured: for our client (bookies get to their first flush), and for a ledger to read."""

ADD_TIMEOUT_SECONDS = 30
"""How long Java's client waits before it gives up a bookie: its 5 seconds may pass while a shared host is busy."""


@dataclass(frozen=True)
class Run:
    """What a client process printed, and the CPU seconds it used."""

    lines: list[dict[str, Any]]
    cpu: float

    @property
    def last(self) -> dict[str, Any]:
        return self.lines[-1]


def client(*argv: str, version: str = "", limit: float = RUN_LIMIT_SECONDS) -> Run:
    """Run a client to its end; `version` is that of Java's. Raises RuntimeError, which says why, if it fails."""
    before = processor_time.of_ended_children()
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, env=peer.environment(CLIENT_JVM, version), timeout=limit
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{' '.join(argv)} did not end within {limit:g} s") from error
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


@dataclass(frozen=True)
class ReadShape:
    """Which entries are read, and how, in the words of either client."""

    ledger: int
    step: int
    window: int
    limit: int
    batch: bool
    scatter: bool
    singly: bool = False
    """A request for each entry, whatever the client would rather do."""

    def for_java(self) -> dict[str, object]:
        return {
            "ledger": self.ledger,
            "step": self.step,
            "window": self.window,
            "limit": self.limit,
            "batchread": str(self.batch).lower(),
            "scatter": str(self.scatter).lower(),
        }

    def for_us(self) -> tuple[object, ...]:
        mode = "--batch" if self.batch else "--single" if self.singly else "--ranges"
        shape = (self.ledger, mode, "--step", self.step, "--window", self.window, "--limit", self.limit)
        return (*shape, "--scatter") if self.scatter else shape


class Clients:
    """The same measurements with either client. Results are in the terms of `Measurement`.

    Each run is a new process, and a JVM's is slow until its code is compiled: for Java `warm` seconds go by before
    anything counts. After 10 seconds the compiler still takes a third of a core, after 30 next to nothing.
    """

    def __init__(self, clusters: Clusters, seconds: float, warm: float, rounds: int = 5) -> None:
        self.clusters = clusters
        self.peer_rates: dict[tuple[str, int], float] = {}
        """Protocol and entry size -> appends a second that Java had on one ledger."""
        self.rounds = rounds
        """Of reads and recoveries in one run."""
        self.seconds = seconds
        self.warm = warm
        self.short_warm = min(warm, SHORT_WARM_SECONDS)

    def java(self, system: System, command: str, protocol: str, **options: object) -> Run:
        words = [f"{key}={value}" for key, value in options.items()]
        v2 = str(protocol == "v2").lower()
        return client(
            *(str(peer.SCRIPT), "drive", command, f"uri={system.cluster.uri}", f"v2={v2}", "password=bench"),
            *(f"conf.addEntryTimeoutSec={ADD_TIMEOUT_SECONDS}", *words),
            version=system.version,
        )

    def ours(self, system: System, command: str, protocol: str, *arguments: object) -> Run:
        return client(
            *(sys.executable, "-m", "bookkeeper", "bench", command, *map(str, arguments)),
            *("--uri", system.cluster.uri, "--protocol", protocol, "--json"),
        )

    def write(
        self, system: System, who: str, protocol: str, size: int, ledgers: int, window: int, rate: int = 0
    ) -> dict[str, float]:
        """New ledgers, deleted when they were measured."""
        before, bookies = system.log_bytes(), system.cpu()
        warm = self.warm if who == JAVA else self.short_warm
        try:
            run = self._write(system, who, protocol, size, ledgers, window, warm, rate)
            bookies_cpu = (system.cpu() - bookies) / run.last["total"] * 1e6
            cpu = bookies_cpu + run.cpu / run.last["total"] * 1e6
        finally:
            system.discard(before)
        found = run.last["adds_per_s" if who == JAVA else "entries_per_second"]
        if who == JAVA and ledgers == 1 and not rate:
            self.peer_rates[protocol, size] = max(found, self.peer_rates.get((protocol, size), 0.0))
        return {
            "rate": found,
            "p50_ms": run.last["p50_ms"],
            "p99_ms": run.last["p99_ms"],
            "cpu_s_per_million": cpu,
            "bookies_s_per_million": bookies_cpu,
        }

    def write_at_half(self, system: System, who: str, protocol: str, size: int) -> dict[str, float]:
        """Both at half of the rate that Java reached in this run: what an append waits while nobody is at his limit."""
        rate = int(self.peer_rates.get((protocol, size), 0.0) / 2)
        if not rate:
            raise RuntimeError("Java's own rate is not known, its row failed")
        return self.write(system, who, protocol, size, 1, 2000, rate)

    def _write(
        self,
        system: System,
        who: str,
        protocol: str,
        size: int,
        ledgers: int,
        window: int,
        warm: float,
        rate: int = 0,
    ) -> Run:
        if who == JAVA:
            shape = {"size": size, "ledgers": ledgers, "window": window, "rate": rate}
            return self.java(system, "write-bench", protocol, **shape, warm=warm, seconds=self.seconds)
        settings = ("--size", size, "-n", ledgers, "--window", window, "-s", self.seconds, "--warm", warm)
        return self.ours(system, "write", protocol, *settings, *(("--rate", rate) if rate else ()))

    def _readable(self, system: System, who: str, size: int) -> tuple[int, int]:
        """A ledger to read, written when it is first asked for; and how many entries it has."""
        if size not in system.readable:
            last = self._write(system, who, "v2", size, 1, 2000, self.short_warm).last
            system.readable[size] = (last["ledger"] if who == JAVA else last["ledgers"][0], last["total"])
            system.wait_idle()
        return system.readable[size]

    def read(
        self,
        system: System,
        who: str,
        protocol: str,
        size: int,
        *,
        batch: bool = False,
        cold: bool = False,
        scatter: bool = False,
        singly: bool = False,
    ) -> dict[str, float]:
        """Warm: again and again after a first time that does not count (Java: the best of some rounds).
        Cold: once, from the disk, `COLD_ENTRIES` of them, by a client that has just started.
        Scattered: one entry a read, each far from the one before."""
        ledger, entries = self._readable(system, who, size)
        shape = ReadShape(
            ledger=ledger,
            step=1 if scatter else 1000 if batch else 100,
            window=200 if scatter else 1 if batch else 20,  # Java's driver has one batch read under way
            limit=min(entries, COLD_ENTRIES if cold else WARM_ENTRIES),
            batch=batch,
            scatter=scatter,
            singly=singly,
        )
        if cold:
            system.forget_pages()
        if who == JAVA:
            run = self.java(system, "read-bench", protocol, **shape.for_java(), rounds=1 if cold else self.rounds)
            return {"rate": max(line["reads_per_s"] for line in run.lines)}
        run = self.ours(system, "read", protocol, *shape.for_us(), "--once", "-s", 60)
        if not cold:
            run = self.ours(system, "read", protocol, *shape.for_us(), "-s", self.seconds)
        return {"rate": run.last["entries_per_second"]}

    def _filled(self, system: System, count: int, size: int) -> int:
        """A ledger with so many entries, which stays open, written by our client whoever is measured."""
        shape = ("--count", str(count), "--size", str(size))
        return int(client(sys.executable, "-m", "bench.compare.fill", system.cluster.uri, *shape).last["ledger"])

    def read_beyond_memory(self, system: System, who: str) -> dict[str, float]:
        """Entries far from each other, each from the disk (Java: the best of some rounds, each of other entries)."""
        if system.large < 0:
            system.large = self._filled(system, LARGE_ENTRIES, LARGE_ENTRY_BYTES)
        system.wait_idle()
        system.forget_pages()
        shape = ReadShape(system.large, step=1, window=200, limit=LARGE_ENTRIES, batch=False, scatter=True)
        if who == JAVA:
            run = self.java(system, "read-bench", "v2", **shape.for_java(), reads=READS_A_ROUND, rounds=self.rounds)
            return {"rate": max(line["reads_per_s"] for line in run.lines)}
        run = self.ours(system, "read", "v2", *shape.for_us(), "-s", self.seconds)
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
            run = self.java(system, "recover-bench", "v3", count=count, rounds=self.rounds, warm=self.warm)
        else:
            run = client(
                sys.executable,
                "-m",
                "bench.recovery",
                system.cluster.uri,
                *("--count", str(count), "--rounds", str(self.rounds)),
            )
        return {"ms": statistics.median(line["ms"] for line in run.lines)}

    def ledgers(self, system: System, who: str, what: str) -> dict[str, float]:
        """Ledgers a second, `AT_ONCE` at once, of which nothing is written."""
        if who == JAVA:
            shape = {"count": LEDGERS, "window": AT_ONCE, "rounds": self.rounds}
            run = self.java(system, "ledgers-bench", "v3", **shape, warm=self.warm)
        else:
            shape_for_us = ("--count", str(LEDGERS), "--at-once", str(AT_ONCE), "--rounds", str(self.rounds))
            run = client(sys.executable, "-m", "bench.metadata", system.cluster.uri, *shape_for_us)
        return {"rate": statistics.median(line[what] for line in run.lines)}

    def start(self, system: System, who: str) -> dict[str, float]:
        """A new cluster of three, until all are registered and take connections."""
        fresh = self.clusters.start(who, system.version)
        fresh.cluster.stop()
        return {"s": fresh.start_seconds}

    def start_after_crash(self, system: System, who: str) -> dict[str, float]:
        """Three bookies that were killed with `CRASH_ENTRIES` in the journal and in no entry log, until all serve."""
        fresh = self.clusters.start(who, system.version, flushInterval=3_600_000)
        self._filled(fresh, CRASH_ENTRIES, CRASH_ENTRY_BYTES)
        for bookie in fresh.bookies:
            bookie.kill()
        began = time.monotonic()
        fresh.cluster.start()
        took = time.monotonic() - began
        fresh.cluster.stop()
        return {"s": took}
