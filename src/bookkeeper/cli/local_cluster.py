"""A cluster of bookie processes on this machine, for trying things out, demos and tests.

Each bookie is a `bookkeeper bookie` process with a configuration file of its own below the cluster's directory:

    DIR/meta.db            the embedded metadata store
    DIR/b1/bk_server.conf  DIR/b1/journal  DIR/b1/ledgers  DIR/b1/log.txt
    DIR/b2/...
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import BookKeeperError, ConfigurationError
from ..metadata import open_driver
from ..metadata.api import Mode
from ..runtime import Runtime
from ..types import BookieId

START_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 60.0


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

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def last_words(self) -> str:
        """The end of the bookie's log, for error messages."""
        with contextlib.suppress(OSError):
            lines = (self.directory / "log.txt").read_text(errors="replace").strip().splitlines()
            return lines[-1] if lines else ""
        return ""


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
        """Start all bookies and wait until each is registered."""
        self.directory.mkdir(parents=True, exist_ok=True)
        driver = open_driver(self.uri, self.runtime)
        await driver.open(create=True)
        try:
            await driver.admin.init_new_cluster()
        finally:
            await driver.close()
        ports = self._ports()
        for number, port in enumerate(ports, 1):
            bookie = BookieProcess(f"b{number}", BookieId(f"127.0.0.1:{port}"), port, self.directory / f"b{number}")
            self.bookies.append(bookie)
            self._configure(bookie)
            self._spawn(bookie)
        await self.wait_registered(*self.bookies)

    def _ports(self) -> list[int]:
        if self.port_base:
            ports = list(range(self.port_base, self.port_base + self.count))
            for port in ports:
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    try:
                        probe.bind(("127.0.0.1", port))
                    except OSError:
                        raise ConfigurationError(
                            f"port {port} is in use: choose other ports with --port-base, or stop what listens there"
                        ) from None
            return ports
        known = sorted(self.directory.glob("b*/bk_server.conf"))
        if len(known) >= self.count:
            return [
                int(_setting(self.directory / f"b{n}" / "bk_server.conf", "bookiePort"))
                for n in range(1, self.count + 1)
            ]
        probes = [socket.socket() for _ in range(self.count)]
        try:
            for probe in probes:
                probe.bind(("127.0.0.1", 0))
            return [int(probe.getsockname()[1]) for probe in probes]
        finally:
            for probe in probes:
                probe.close()

    def _configure(self, bookie: BookieProcess) -> None:
        bookie.directory.mkdir(parents=True, exist_ok=True)
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
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (bookie.directory / "bk_server.conf").write_text(text)

    def _spawn(self, bookie: BookieProcess) -> None:
        with (bookie.directory / "log.txt").open("ab") as log:
            bookie.process = subprocess.Popen(
                [sys.executable, "-m", "bookkeeper", "bookie", "--conf", str(bookie.directory / "bk_server.conf")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def wait_registered(self, *bookies: BookieProcess, timeout: float = START_TIMEOUT_SECONDS) -> None:
        """Wait until these bookies are registered as writable. Raises `ClusterError` when one dies instead."""
        driver = open_driver(self.uri, self.runtime)
        await driver.open()
        try:
            async with asyncio.timeout(timeout):
                await self._registered(driver.discovery.watch(Mode.WRITABLE), bookies)
        except TimeoutError:
            raise ClusterError(f"not all bookies registered within {timeout:.0f} s") from None
        finally:
            await driver.close()

    async def _registered(self, watch: AsyncIterator[object], bookies: tuple[BookieProcess, ...]) -> None:
        wanted = {bookie.id for bookie in bookies}
        seen = asyncio.ensure_future(_until_all(watch, wanted))
        try:
            while not seen.done():
                for bookie in bookies:
                    if not bookie.running:
                        code = bookie.process.returncode if bookie.process else None
                        raise ClusterError(f"bookie {bookie.id} ended with exit code {code}: {bookie.last_words()}")
                await asyncio.wait([seen], timeout=0.1)
            await seen
        finally:
            seen.cancel()

    async def kill(self, bookie: BookieProcess) -> None:
        """SIGKILL, and wait for the end."""
        await self._end(bookie, signal.SIGKILL)

    async def terminate(self, bookie: BookieProcess) -> None:
        """A clean stop."""
        await self._end(bookie, signal.SIGTERM)

    async def restart(self, bookie: BookieProcess) -> None:
        """Start a bookie that has ended, on its own directories, and wait until it is registered."""
        assert not bookie.running
        self._spawn(bookie)
        await self.wait_registered(bookie)

    async def stop(self) -> None:
        """Stop every bookie cleanly; kill those that do not end in time."""
        running = [bookie for bookie in self.bookies if bookie.running]
        for bookie in running:
            assert bookie.process is not None
            bookie.process.send_signal(signal.SIGTERM)
        for bookie in running:
            await self._end(bookie, signal.SIGTERM)

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


def _setting(conf: Path, key: str) -> str:
    from ..config import parse_properties

    return parse_properties(conf.read_text())[key]


async def _until_all(watch: AsyncIterator[object], wanted: set[BookieId]) -> None:
    async for versioned in watch:
        if wanted <= versioned.value:  # type: ignore[attr-defined]
            return
