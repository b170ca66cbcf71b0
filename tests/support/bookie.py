"""A bookie in the test's process, and a client that talks raw frames to it."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from bookkeeper.bookie.bookie import Bookie
from bookkeeper.config import ServerConfiguration
from bookkeeper.metadata import open_driver
from bookkeeper.peers import open_peers
from bookkeeper.protocol import messages as m
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.digest import digest_for, master_key
from bookkeeper.protocol.frames import FrameSplitter
from bookkeeper.runtime import DiskUsage, File
from bookkeeper.runtime.disk.files import RealFile, RealFiles
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import DigestType

METADATA_URI = "memory://test"
PASSWORD = b"secret"
KEY = master_key(PASSWORD)
DIGEST = digest_for(DigestType.CRC32C, PASSWORD)


def bookie_config(directory: Path, **settings: Any) -> ServerConfiguration:
    """Settings of a small bookie below `directory`, on any free port of loopback."""
    values: dict[str, Any] = {
        "metadataServiceUri": METADATA_URI,
        "bookieId": "bookie-under-test",
        "bookiePort": 0,
        "allowEphemeralPorts": True,
        "advertisedAddress": "127.0.0.1",
        "allowLoopback": True,
        "journalDirectories": [str(directory / "journal")],
        "ledgerDirectories": [str(directory / "ledgers")],
        "journalPreAllocSizeMB": 1,
        "dbStorage_writeCacheMaxSizeMb": 16,
        "dbStorage_readAheadCacheMaxSizeMb": 16,
        "dbStorage_rocksDB_blockCacheSize": 1 << 20,
        "diskUsageThreshold": 0.999,
        "diskUsageWarnThreshold": 0.998,
        **settings,
    }
    return ServerConfiguration.from_mapping(values)


def bytes_of(files: Iterable[Path]) -> int:
    """What they hold together. The bookie may delete any of them meanwhile: a disk that is measured never fails
    for that."""
    total = 0
    for file in files:
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


async def init_cluster(runtime: RealRuntime) -> None:
    """Create the cluster in the runtime's memory store, once."""
    driver = open_driver(METADATA_URI, runtime)
    await driver.open(create=True)
    await driver.admin.init_new_cluster()
    await driver.close()


@asynccontextmanager
async def running_bookie(directory: Path, runtime: RealRuntime | None = None, **settings: Any) -> AsyncIterator[Bookie]:
    """A started bookie; stopped at the end. Pass the same runtime and directory to start it again."""
    runtime = runtime or RealRuntime()
    await init_cluster(runtime)
    bookie = Bookie(runtime, bookie_config(directory, **settings), open_peers=open_peers)
    await bookie.start()
    try:
        yield bookie
    finally:
        await bookie.stop()


class _GatedFile(RealFile):
    """A journal file whose syncs can be held up, or fail."""

    def __init__(self, path: str, mode: str, runtime: GatedRuntime) -> None:
        super().__init__(path, mode)
        self._runtime = runtime

    def fdatasync(self) -> None:
        self._runtime.waiting.set()
        assert self._runtime.sync_gate.wait(30)
        if self._runtime.sync_error is not None:
            raise self._runtime.sync_error
        super().fdatasync()


class _GatedFiles(RealFiles):
    def __init__(self, runtime: GatedRuntime) -> None:
        self._runtime = runtime

    def open(self, path: str, mode: str = "r") -> File:
        return _GatedFile(path, mode, self._runtime) if path.endswith(".txn") else super().open(path, mode)

    def disk_usage(self, path: str) -> DiskUsage:
        if self._runtime.measured is not None:
            return self._runtime.measured()
        return self._runtime.usage or super().disk_usage(path)


class GatedRuntime(RealRuntime):
    """A real machine whose journal syncs and disk usage the test decides."""

    def __init__(self) -> None:
        super().__init__()
        self.files = _GatedFiles(self)
        self.sync_gate = threading.Event()
        """Journal syncs wait until this is set."""
        self.sync_gate.set()
        self.waiting = threading.Event()
        """Set when a sync has come to the gate."""
        self.sync_error: OSError | None = None
        self.usage: DiskUsage | None = None
        self.measured: Callable[[], DiskUsage] | None = None
        """What the disk says, where that changes by itself."""

    def hold_syncs(self) -> None:
        """Hold journal syncs from now on."""
        self.waiting.clear()
        self.sync_gate.clear()

    async def sync_is_held(self) -> None:
        """Wait until a sync has come to the closed gate."""
        assert await asyncio.to_thread(self.waiting.wait, 20)


class CrashImage:
    """What a bookie's directories look like at a moment, to start from as if it had been killed then."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._copy = directory.with_name(directory.name + ".image")
        shutil.copytree(directory, self._copy)

    def restore(self) -> None:
        shutil.rmtree(self._directory)
        self._copy.rename(self._directory)


class RawClient:
    """Frames out, frames in, nothing in between. `async with RawClient.to(bookie) as client`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._frames = FrameSplitter(1 << 30)
        self._bodies: list[bytes] = []

    @classmethod
    @asynccontextmanager
    async def to(cls, bookie: Bookie) -> AsyncIterator[RawClient]:
        reader, writer = await asyncio.open_connection("127.0.0.1", bookie.port)
        client = cls(reader, writer)
        try:
            yield client
        finally:
            writer.close()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def body(self) -> bytes:
        """The body of the next response. Raises `ConnectionError` at the end of the stream."""
        while not self._bodies:
            data = await asyncio.wait_for(self.reader.read(1 << 20), 20)
            if not data:
                raise ConnectionResetError("the bookie closed the connection")
            self._bodies += self._frames.feed(data)
        return self._bodies.pop(0)

    async def v2(self, request: m.Request) -> Any:
        """Send a v2 request and return the next response."""
        self.send(v2.encode_request(request))
        return v2.decode_response(await self.body())

    async def v3(self, request: m.Request) -> Any:
        self.send(v3.encode_request(request))
        return v3.decode_response(await self.body())

    async def closed(self) -> bool:
        """Wait for the bookie to close the connection; False if it answers something instead."""
        try:
            return not await asyncio.wait_for(self.reader.read(1), 20)
        except ConnectionError:
            return True


def entry(ledger_id: int, entry_id: int, payload: bytes = b"payload", lac: int | None = None) -> bytes:
    """A packaged entry; by default its writer had confirmed all entries before it."""
    lac = entry_id - 1 if lac is None else lac
    return DIGEST.package(ledger_id, entry_id, lac, len(payload) * (min(entry_id, 2**32) + 1), payload)


def add(ledger_id: int, entry_id: int, payload: bytes = b"payload", **changes: Any) -> m.AddRequest:
    values: dict[str, Any] = {"ledger_id": ledger_id, "entry_id": entry_id, "master_key": KEY}
    lac = changes.pop("lac", None)
    values["entry"] = entry(ledger_id, entry_id, payload, lac)
    return m.AddRequest(**{**values, **changes})


def read(ledger_id: int, entry_id: int, **changes: Any) -> m.ReadRequest:
    return m.ReadRequest(ledger_id, entry_id, **changes)


def fence(ledger_id: int, entry_id: int = -1, key: bytes | None = KEY, **changes: Any) -> m.ReadRequest:
    return m.ReadRequest(ledger_id, entry_id, flags=m.Flags.DO_FENCING, master_key=key, **changes)
