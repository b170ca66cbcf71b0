"""Bookies of both kinds as processes, on one ZooKeeper; a bookie may change its kind between two runs.

Each bookie has a directory with one bk_server.conf that both kinds read:

    DIR/b1/bk_server.conf  DIR/b1/journal  DIR/b1/ledgers  DIR/b1/log.txt
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from bookkeeper.runtime.ports import free_port
from tests.interop.support import peer
from tests.support.waiting import wait_until

JAVA = "java"
OURS = "ours"

STOP_SECONDS = 30.0

SETTINGS: dict[str, object] = {
    "allowLoopback": "true",
    "advertisedAddress": "127.0.0.1",
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "dbStorage_writeCacheMaxSizeMb": 32,
    "dbStorage_readAheadCacheMaxSizeMb": 16,
    "dbStorage_rocksDB_blockCacheSize": 8 << 20,
    "journalPreAllocSizeMB": 4,
    "diskUsageThreshold": 0.99,
    "diskUsageWarnThreshold": 0.98,
    "zkTimeout": 30000,
    "httpServerEnabled": "false",
}


@dataclass
class Bookie:
    """One bookie: its directories, and the process that serves them now, if any."""

    cluster: Cluster
    kind: str
    port: int
    directory: Path
    process: subprocess.Popen[bytes] | None = None
    name: str = ""
    """Its id, if that is not its address."""
    _before: int = 0  # creation transaction of the registration that was there when the process was started

    @property
    def id(self) -> str:
        return self.name or f"127.0.0.1:{self.port}"

    @property
    def conf(self) -> Path:
        return self.directory / "bk_server.conf"

    @property
    def log(self) -> Path:
        return self.directory / "log.txt"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def configure(self, settings: Mapping[str, object]) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        values = {
            **SETTINGS,
            "bookiePort": self.port,
            "metadataServiceUri": self.cluster.uri,
            "journalDirectories": self.directory / "journal",
            "ledgerDirectories": self.directory / "ledgers",
            **settings,
        }
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in values.items()))

    def spawn(self, kind: str | None = None) -> None:
        """Start the process, as this kind from now on; `wait_registered` waits until it serves."""
        assert not self.running
        self.kind = kind or self.kind
        argv = (
            [str(peer.SCRIPT), "bookie", str(self.conf)]
            if self.kind == JAVA
            else [sys.executable, "-m", "bookkeeper", "bookie", "--conf", str(self.conf)]
        )
        self._before = self._registration()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=peer.environment(self.cluster.java_options, self.cluster.java_version),
                start_new_session=True,
            )

    def _registration(self) -> int:
        stat = self.cluster.zk.retry(self.cluster.zk.exists, f"{self.cluster.root}/available/{self.id}")
        return stat.czxid if stat is not None else 0

    @property
    def registered(self) -> bool:
        """Whether the running process has registered (not only one before it)."""
        if not self.running:
            tail = self.log.read_text(errors="replace")[-3000:]
            code = self.process.returncode if self.process else None
            raise RuntimeError(f"bookie {self.id} ({self.kind}) ended with {code}: {tail}")
        return self._registration() not in (0, self._before)

    def start(self, kind: str | None = None) -> None:
        self.spawn(kind)
        self.wait_registered()

    def wait_registered(self) -> None:
        wait_until(lambda: self.registered, f"bookie {self.id} ({self.kind}) is registered")
        wait_until(self._listens, f"bookie {self.id} ({self.kind}) takes connections")

    def _listens(self) -> bool:
        """A Java bookie registers first and opens its port after that."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the process (SIGTERM: in an orderly way, SIGKILL: as a crash) and wait for that."""
        if self.process is None:
            return
        if self.running:
            self.process.send_signal(how)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def kill(self) -> None:
        self.stop(signal.SIGKILL)
        self.expire()

    def expire(self) -> None:
        """What ZooKeeper does one session timeout after the process was killed; saves the tests that time."""
        with contextlib.suppress(NoNodeError):
            self.cluster.zk.retry(self.cluster.zk.delete, f"{self.cluster.root}/available/{self.id}")


@dataclass
class Cluster:
    """Bookies that share one root in ZooKeeper."""

    zk: KazooClient
    address: str
    root: str
    directory: Path
    settings: Mapping[str, object] = field(default_factory=dict)
    java_options: str = peer.SMALL_JVM
    java_version: str = ""
    """Of its Java bookies; "" is the one that is selected for all."""
    bookies: list[Bookie] = field(default_factory=list)

    @property
    def uri(self) -> str:
        """In the form that both kinds understand."""
        return f"zk+hierarchical://{self.address}{self.root}"

    def init_by_java(self, tools: peer.Tools) -> None:
        """`initnewcluster`, run by Java's shell."""
        self.directory.mkdir(parents=True, exist_ok=True)
        conf = self.directory / "init.conf"
        conf.write_text(f"metadataServiceUri={self.uri}\n")
        answer = tools.run(conf, "initnewcluster")
        assert answer.code == 0, answer.text

    def init_by_us(self) -> None:
        """The same, by our driver. Blocks."""
        with ThreadPoolExecutor(1) as apart:  # there may be a running loop in this thread
            apart.submit(lambda: asyncio.run(self._init_by_us())).result()

    async def _init_by_us(self) -> None:
        from bookkeeper.metadata import open_driver
        from bookkeeper.runtime.real import RealRuntime

        driver = open_driver(self.uri, RealRuntime())
        await driver.open(create=True)
        try:
            assert await driver.admin.init_new_cluster()
        finally:
            await driver.close()

    def add(self, *kinds: str, **settings: object) -> list[Bookie]:
        """New bookies, configured but not started."""
        added = []
        first = free_port(len(kinds))
        for port, kind in enumerate(kinds, first):
            bookie = Bookie(self, kind, port, self.directory / f"b{len(self.bookies) + 1}")
            bookie.configure({**self.settings, **settings})
            self.bookies.append(bookie)
            added.append(bookie)
        return added

    def start(self, bookies: Iterable[Bookie] | None = None) -> None:
        """Start bookies at the same time, wait for all."""
        chosen = list(self.bookies if bookies is None else bookies)
        for bookie in chosen:
            bookie.spawn()
        for bookie in chosen:
            bookie.wait_registered()

    def bookie(self, bookie_id: str) -> Bookie:
        return next(bookie for bookie in self.bookies if bookie.id == bookie_id)

    def revive(self) -> None:
        """Start again whatever is down."""
        self.start([bookie for bookie in self.bookies if not bookie.running])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        for bookie in self.bookies:
            if bookie.running and bookie.process is not None:
                bookie.process.send_signal(how)
        for bookie in self.bookies:
            with contextlib.suppress(subprocess.TimeoutExpired):
                bookie.stop(how)
            if how == signal.SIGKILL and self.zk.connected:
                bookie.expire()
