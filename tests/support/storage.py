"""Helpers for tests of ledger storages."""

from __future__ import annotations

import asyncio
import struct
from array import array
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from bookkeeper.bookie.storage.db_storage import DbLedgerStorage
from bookkeeper.bookie.storage.index.locations import Located
from bookkeeper.config import ServerConfiguration
from bookkeeper.runtime import Runtime
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.simulation.world.disk import MachineCrashed
from bookkeeper.simulation.world.world import World

T = TypeVar("T")

KEY = b"k" * 20

_HEAD = struct.Struct(">qqqq")


def entry(ledger_id: int, entry_id: int, size: int = 20, version: int = 0) -> bytes:
    """A packaged entry: ids, LAC, length, digest-like bytes, data. `version` tells rewritten entries apart."""
    data = bytes((entry_id * 31 + i * 7 + version) % 256 for i in range(size))
    return _HEAD.pack(ledger_id, entry_id, entry_id - 1, size) + struct.pack(">i", version) + data


def record(data: bytes) -> bytes:
    """An entry as it stands in a log or batch response."""
    return struct.pack(">i", len(data)) + data


def located(*runs: tuple[int, Sequence[int], Sequence[int]]) -> Located:
    """Of each ledger entries and their locations."""
    all_of_them = Located()
    for ledger_id, entry_ids, locations in runs:
        all_of_them.add([ledger_id] * len(entry_ids), entry_ids, array("q", locations))
    return all_of_them


def configuration(directory: Path, directories: int = 1, **settings: Any) -> ServerConfiguration:
    settings.setdefault("dbStorage_writeCacheMaxSizeMb", 4)
    settings.setdefault("dbStorage_reservedSpaceMb", 1)
    settings.setdefault("dbStorage_readAheadCacheMaxSizeMb", 2)
    settings.setdefault("dbStorage_rocksDB_blockCacheSize", 1 << 20)
    settings.setdefault("numReadWorkerThreads", 2)
    return ServerConfiguration(ledgerDirectories=[str(directory / f"d{i}") for i in range(directories)], **settings)


@asynccontextmanager
async def opened(
    directory: Path, directories: int = 1, runtime: Runtime | None = None, **settings: Any
) -> AsyncIterator[DbLedgerStorage]:
    """An open storage, closed at the end."""
    storage = DbLedgerStorage(runtime or RealRuntime(), configuration(directory, directories, **settings))
    await storage.open()
    try:
        yield storage
    finally:
        await storage.close()


async def add(storage: DbLedgerStorage, ledger_id: int, ids: range | list[int], size: int = 20) -> None:
    """Add entries, creating the ledger."""
    storage.set_master_key(ledger_id, KEY)
    for entry_id in ids:
        data = entry(ledger_id, entry_id, size)
        if not storage.has_room(ledger_id, len(data), 1):
            assert await storage.wait_for_room(ledger_id, len(data), 1, 30)
        storage.add_entry(ledger_id, entry_id, data)


async def check(storage: DbLedgerStorage, ledger_id: int, count: int, size: int = 20) -> None:
    """The first `count` entries of a ledger are what `entry` makes."""
    for entry_id in range(count):
        assert await storage.read_entry(ledger_id, entry_id) == entry(ledger_id, entry_id, size)


class StorageMachine:
    """One simulated machine with a database storage; its disk outlives its crashes."""

    def __init__(self, seed: int = 0, directories: int = 1, **settings: Any) -> None:
        self.world = World(seed)
        self.machine = self.world.machine("bookie")
        self.disk = self.machine.disk
        self.configuration = configuration(Path("/storage"), directories, **settings)

    def __enter__(self) -> StorageMachine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.world.close()

    def run(self, program: Callable[[DbLedgerStorage], Coroutine[Any, Any, T]], *, close: bool = True) -> T | None:
        """Start the machine, open the storage, run a program with it; None if the machine goes down before its end.

        Without `close` the process ends as if killed right after the program.
        """

        async def main() -> T | None:
            runtime = self.machine.start()
            incarnation = self.machine.incarnation
            assert incarnation is not None

            async def body() -> T | None:
                try:
                    storage = DbLedgerStorage(runtime, self.configuration)
                    await storage.open()
                    result = await program(storage)
                    if close:
                        await storage.close()
                except MachineCrashed:
                    return None  # in a call that the program made itself
                return result

            task = self.world.spawn_on(incarnation, body(), "storage")
            waited = 0.0
            while not task.done() and incarnation.alive and waited < 10_000:
                await asyncio.sleep(0.05)
                waited += 0.05
            assert task.done() or not incarnation.alive, "the program hangs"
            result = task.result() if incarnation.alive else None
            self.machine.kill()
            return result

        return self.world.run(main())


def nobody() -> None:
    """Whom a write cache tells of its ledgers, where it does not matter."""
