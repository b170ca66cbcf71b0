"""A cluster of bookie processes on this machine, for trying things out, demos and tests.

Each bookie is a `bookkeeper bookie` process with a configuration file of its own below the cluster's directory:

    DIR/meta.db            the embedded metadata store
    DIR/lock               held while a cluster runs here
    DIR/b1/bk_server.conf  DIR/b1/journal  DIR/b1/ledgers  DIR/b1/log.txt
    DIR/b2/...

A bookie's configuration is written once: its port is part of its identity, which its cookies hold it to. Later only
what the cluster itself decides is brought up to date in it (the metadata service, settings given in code); what else
stands there stays. So a cluster may grow, and what a user changed is kept.

The bookies are children that end when this process ends, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...config import parse_properties
from ...errors import BookKeeperError, ConfigurationError
from ...metadata import open_driver
from ...metadata.api import Mode
from ...runtime import Runtime
from ...runtime.ports import free_port, is_free
from ...types import BookieId

START_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 60.0
LOOK_SECONDS = 0.05


class ClusterError(BookKeeperError):
    """A process of the local cluster did not do what it should."""


@dataclass
class BookieProcess:
    """One bookie of the cluster."""

    name: str
    id: BookieId
    port: int
    directory: Path
    process: subprocess.Popen[bytes] | None = None
    log_start: int = 0
    """Where the log of this run begins."""

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def configuration(self) -> Path:
        return self.directory / "bk_server.conf"

    @property
    def log(self) -> Path:
        return self.directory / "log.txt"

    @property
    def serves(self) -> bool:
        """Whether this run has said that it is registered; the registration of one that was killed may outlive it."""
        return any(re.fullmatch(r"bookie \S+ serves", line) for line in self._said())

    def how_it_ended(self) -> str:
        """Exit code or signal, and the last thing that this run said."""
        assert self.process is not None
        code = self.process.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        said = self._said()
        return f"{how}: {said[-1]}" if said else f"{how} (log: {self.log})"

    def _said(self) -> list[str]:
        """The lines that this run has written."""
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            log.seek(self.log_start)
            return log.read().decode(errors="replace").strip().splitlines()
        return []


@dataclass
class LocalCluster:
    """Bookie processes around one metadata store. Use as `async with`."""

    runtime: Runtime
    directory: Path
    count: int
    port_base: int = 0
    uri: str = ""
    """The metadata service; by default the embedded store below `directory`."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings for every bookie on top of those that the cluster needs."""
    bookies: list[BookieProcess] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Names of the folder's bookies beyond `count`, which are not started."""
    _lock: int = -1

    def __post_init__(self) -> None:
        self.directory = self.directory.absolute()
        if not self.uri:
            self.uri = f"sqlite://{self.directory}/meta.db"

    async def __aenter__(self) -> LocalCluster:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start all bookies and wait until each is registered.

        Raises `ConfigurationError` when a cluster runs here already, when a port is taken, or when what is asked for
        does not go with what is here; nothing is changed then.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        self.bookies = [self._member(number) for number in range(1, self.count + 1)]
        known = {path.parent.name for path in self.directory.glob("b*/bk_server.conf")}
        self.left_out = sorted(known - {bookie.name for bookie in self.bookies})
        self._check_store()
        for bookie in self.bookies:
            _check_port_is_free(bookie.port)
        driver = open_driver(self.uri, self.runtime)
        try:
            await driver.open(create=True)
            await driver.admin.init_new_cluster()
        finally:
            await driver.close()
        for bookie in self.bookies:
            self._configure(bookie)
            self._spawn(bookie)
        await self.wait_registered(*self.bookies)

    def _take_lock(self) -> None:
        lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise ConfigurationError(f"a cluster is running in {self.directory} already: stop it first") from None
        self._lock = lock

    def _release_lock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _member(self, number: int) -> BookieProcess:
        """The bookie with this number, on the port it has had before, if it has been here."""
        directory = self.directory / f"b{number}"
        wanted = self.port_base + number - 1 if self.port_base else 0
        port = _known_port(directory / "bk_server.conf")
        if port is not None and wanted not in (0, port):
            raise ConfigurationError(
                f"bookie b{number} in {self.directory} has port {port}, which belongs to its identity: it cannot get "
                f"port {wanted}; leave out --port-base, or take another folder"
            )
        if port is None:
            port = wanted or self._free_port()
        return BookieProcess(f"b{number}", BookieId(f"127.0.0.1:{port}"), port, directory)

    def _free_port(self) -> int:
        """A port that is free, and that no bookie of the folder has."""
        had = {_known_port(path) for path in self.directory.glob("b*/bk_server.conf")}
        return free_port(but=had)

    def _check_store(self) -> None:
        """A cluster stays with the kind of metadata store that it began with."""
        for bookie in self.bookies:
            if bookie.configuration.exists():
                before = _settings(bookie.configuration).get("metadataServiceUri", self.uri)
                if before.partition(":")[0] != self.uri.partition(":")[0]:
                    raise ConfigurationError(
                        f"the cluster in {self.directory} has its metadata in {before}: start it as it was started "
                        "before, with or without --zookeeper"
                    )

    def _configure(self, bookie: BookieProcess) -> None:
        bookie.directory.mkdir(parents=True, exist_ok=True)
        if bookie.configuration.exists():
            text = bookie.configuration.read_text()
            has = parse_properties(text)
            for key, value in {"metadataServiceUri": self.uri, **self.settings}.items():
                if has.get(key) != str(value):
                    text = _with_setting(text, key, str(value))
            bookie.configuration.write_text(text)
            return
        settings: dict[str, object] = {
            "metadataServiceUri": self.uri,
            "bookiePort": bookie.port,
            "advertisedAddress": "127.0.0.1",
            "allowLoopback": "true",
            "journalDirectories": bookie.directory / "journal",
            "ledgerDirectories": bookie.directory / "ledgers",
            "dbStorage_writeCacheMaxSizeMb": 64,
            "dbStorage_readAheadCacheMaxSizeMb": 32,
            "dbStorage_rocksDB_blockCacheSize": 8 << 20,
            "diskUsageThreshold": 0.99,
            "diskUsageWarnThreshold": 0.98,
            **self.settings,
        }
        bookie.configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def _spawn(self, bookie: BookieProcess) -> None:
        with bookie.log.open("ab") as log:
            bookie.log_start = log.tell()
            command = ["bookie", "--conf", str(bookie.configuration)]
            bookie.process = subprocess.Popen(
                [sys.executable, "-m", "bookkeeper.cli.local.child", str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def wait_registered(
        self, *bookies: BookieProcess, mode: Mode = Mode.WRITABLE, timeout: float = START_TIMEOUT_SECONDS
    ) -> None:
        """Wait until these runs of bookies are registered. Raises `ClusterError` when one dies instead."""
        driver = open_driver(self.uri, self.runtime)
        await driver.open()
        try:
            async with asyncio.timeout(timeout):
                await self._registered(driver.discovery.watch(mode), bookies)
        except TimeoutError:
            raise ClusterError(f"not all bookies registered within {timeout:.0f} s") from None
        finally:
            await driver.close()

    async def _registered(self, watch: AsyncIterator[object], bookies: tuple[BookieProcess, ...]) -> None:
        wanted = {bookie.id for bookie in bookies}
        seen = asyncio.ensure_future(_until_all(watch, wanted))
        try:
            while not (seen.done() and all(bookie.serves for bookie in bookies)):
                for bookie in bookies:
                    if not bookie.running:
                        raise ClusterError(f"bookie {bookie.id} {bookie.how_it_ended()}")
                if seen.done():
                    seen.result()
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            seen.cancel()

    async def add(self) -> BookieProcess:
        """Start one more bookie, and wait until it is registered."""
        bookie = self._member(len(self.bookies) + 1)
        self.bookies.append(bookie)
        self._configure(bookie)
        self._spawn(bookie)
        await self.wait_registered(bookie)
        return bookie

    async def kill(self, bookie: BookieProcess) -> None:
        """SIGKILL, and wait for the end."""
        await self._end(bookie, signal.SIGKILL)

    async def terminate(self, bookie: BookieProcess) -> None:
        """A clean stop."""
        await self._end(bookie, signal.SIGTERM)

    async def restart(self, bookie: BookieProcess, mode: Mode = Mode.WRITABLE) -> None:
        """Start a bookie that has ended, on its own directories, and wait until it is registered."""
        assert not bookie.running
        self._spawn(bookie)
        await self.wait_registered(bookie, mode=mode)

    async def stop(self) -> None:
        """Stop every bookie cleanly; kill those that do not end in time."""
        running = [bookie for bookie in self.bookies if bookie.running]
        for bookie in running:
            assert bookie.process is not None
            bookie.process.send_signal(signal.SIGTERM)
        for bookie in running:
            await self._end(bookie, signal.SIGTERM)
        self._release_lock()

    async def _end(self, bookie: BookieProcess, how: signal.Signals) -> None:
        process = bookie.process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, process.wait, STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            await loop.run_in_executor(None, process.wait)

    def resident_bytes(self, bookie: BookieProcess) -> int:
        """Memory the process holds now."""
        assert bookie.process is not None
        pages = int(Path(f"/proc/{bookie.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def _settings(conf: Path) -> dict[str, str]:
    try:
        return parse_properties(conf.read_text())
    except ConfigurationError as error:
        raise ConfigurationError(f"{conf}: {error}") from None


def _known_port(conf: Path) -> int | None:
    """The port in a configuration; None if it is not there yet."""
    if not conf.exists():
        return None
    text = _settings(conf).get("bookiePort", "")
    if not text.isdecimal():
        raise ConfigurationError(f"{conf}: bookiePort is {text!r}, not a port")
    return int(text)


def _with_setting(text: str, key: str, value: str) -> str:
    """A properties file with one setting changed, or added."""
    line = f"{key}={value}"
    changed, count = re.subn(rf"(?m)^\s*{re.escape(key)}\s*[=:].*$", lambda _: line, text)
    return changed if count else f"{text.rstrip()}\n{line}\n"


def _check_port_is_free(port: int) -> None:
    if not is_free(port):
        raise ConfigurationError(
            f"port {port} is in use: choose other ports with --port-base, or stop what listens there"
        )


async def _until_all(watch: AsyncIterator[object], wanted: set[BookieId]) -> None:
    async for versioned in watch:
        if wanted <= versioned.value:  # type: ignore[attr-defined]
            return
