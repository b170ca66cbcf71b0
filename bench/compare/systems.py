"""The clusters that are compared: three bookies each, of Java's or of ours, with a root of its own in one ZooKeeper."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kazoo.client import KazooClient

import bookkeeper.sync
from tests.interop.support.cluster import Bookie, Cluster
from tests.support.waiting import wait_until

from .. import processor_time

PAGE = os.sysconf("SC_PAGE_SIZE")

IDLE_CPU = 0.10
"""CPU seconds a second that count as nothing to do, for the bookies of one cluster together."""
IDLE_LIMIT_SECONDS = 60.0

BOOKIE_JVM = "-Xmx1g -XX:MaxDirectMemorySize=1g"

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


@dataclass
class System:
    """One of the two, with its running cluster."""

    name: str
    cluster: Cluster
    start_seconds: float = 0.0
    """How long it took until all of its bookies took requests."""
    readable: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Entry size -> a closed ledger to read, and how many entries it has."""
    large: int = -1
    """A ledger of which no run reads more than a small part; -1: it is not written yet."""

    @property
    def version(self) -> str:
        """Of Java's, for its bookies and its client."""
        return self.cluster.java_version

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
        os.sync()  # what is not written yet would stay
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
        kept = {ledger for ledger, _ in self.readable.values()} | {self.large}
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


class Clusters:
    """Starts clusters, and ends whatever it has started: no process outlives this."""

    def __init__(self, zk: KazooClient, address: str, directory: Path, settings: Mapping[str, object]) -> None:
        """`settings` of all bookies, in place of those that they have here."""
        self._zk = zk
        self._address = address
        self._directory = directory
        self._settings = settings
        self._started: list[Cluster] = []

    def start(self, kind: str, version: str = "", **settings: object) -> System:
        """A new cluster of three; `version` is that of Java's."""
        number = len(self._started)
        cluster = Cluster(
            self._zk,
            self._address,
            f"/{kind}{number}",
            self._directory / f"{kind}{number}",
            {**SETTINGS, **settings, **self._settings},
            BOOKIE_JVM,
            version,
        )
        self._started.append(cluster)
        cluster.init_by_us()
        cluster.add(kind, kind, kind)
        began = time.monotonic()
        cluster.start()
        return System(kind, cluster, time.monotonic() - began)

    def end(self) -> None:
        """Kill all bookies: what they have on disk is of no more use."""
        for cluster in self._started:
            cluster.stop(signal.SIGKILL)
