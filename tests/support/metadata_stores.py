"""Metadata stores for the conformance tests: how to open drivers on each kind, and how to make trouble for them.

A new kind of store is a subclass of `StoreUnderTest` in `FACTORIES`; the tests in `tests/conformance` then run on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from bookkeeper.errors import ServiceUnavailable
from bookkeeper.metadata.api import MetadataDriver
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.metadata.memory import MemoryDriver, MemoryStore, StoreFaults
from bookkeeper.metadata.records.driver import RecordDriver
from bookkeeper.metadata.records.ledgers import ledger_key
from bookkeeper.metadata.records.store import Topic, Transaction
from bookkeeper.metadata.sqlite import SqliteDriver
from bookkeeper.metadata.uri import parse_service_uri
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId
from tests.support.waiting import until

T = TypeVar("T")

LONG_MS = 20_000
"""Session timeout where the test does not wait for it."""


def ledger(ledger_id: int, **changes: Any) -> LedgerMetadata:
    """A small open ledger."""
    members = tuple(BookieId(f"127.0.0.1:{port}") for port in (3181, 3182, 3183))
    return LedgerMetadata(ledger_id, 3, 2, 2, {0: members}, **changes)


class StoreUnderTest(ABC):
    """An initialised, otherwise empty cluster in a store of one kind, and the drivers on it.

    Each driver stands for a process of its own.
    """

    marks: ClassVar[tuple[pytest.MarkDecorator, ...]] = ()
    many: ClassVar[int] = 25_000
    """How many ledgers a large listing has."""
    many_segments: ClassVar[int] = 100_000
    """How many segments a long stream has."""
    tree_root = "/streams"
    """Where tests put records of the tree."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.drivers: list[MetadataDriver] = []

    async def setup(self) -> None:
        """Make the store and initialise the cluster."""
        driver = await self.open()
        assert await driver.admin.init_new_cluster()
        await driver.close()

    async def teardown(self) -> None:
        for driver in self.drivers:
            self.heal(driver)
            await driver.close()

    async def open(self, *, session_timeout_ms: int = LONG_MS) -> MetadataDriver:
        """A new driver, open."""
        driver = self.new(session_timeout_ms=session_timeout_ms)
        self.drivers.append(driver)
        await driver.open(create=True)
        return driver

    @abstractmethod
    def new(self, *, session_timeout_ms: int = LONG_MS) -> MetadataDriver:
        """A new driver, not yet open."""

    @abstractmethod
    async def kill(self, driver: MetadataDriver) -> None:
        """The driver's process dies without a word."""

    @abstractmethod
    async def expire(self, driver: MetadataDriver) -> None:
        """The store ends the driver's session; returns when the driver has a new one."""

    @abstractmethod
    def cut(self, driver: MetadataDriver) -> None:
        """From now on no request of the driver reaches the store."""

    @abstractmethod
    def heal(self, driver: MetadataDriver) -> None:
        """Undo `cut`."""

    @abstractmethod
    def lose_answer(self, driver: MetadataDriver, operation: str) -> None:
        """The next `operation` (`ledgers.create`, `ledgers.write`, ...) is carried out, but its answer is lost."""

    @abstractmethod
    async def put_raw(self, ledger_id: int, data: bytes) -> None:
        """Put any bytes in place of a ledger's record."""


class RecordStoreUnderTest(StoreUnderTest):
    """What the record stores have in common."""

    async def kill(self, driver: MetadataDriver) -> None:
        assert isinstance(driver, RecordDriver)
        driver._link.hub.close()
        await driver.auditor.close()
        await driver._link.close()
        await driver._link.session._scope.close()
        driver._link.session._cancel_expiry()
        await driver._link.store.close()
        self.drivers.remove(driver)

    async def expire(self, driver: MetadataDriver) -> None:
        assert isinstance(driver, RecordDriver)
        session = driver._link.session
        old = session.current
        await driver._link.store.end_session(old)
        session.wake()
        await until(lambda: session.current not in (0, old))

    async def put_raw(self, ledger_id: int, data: bytes) -> None:
        driver = await self.open()
        assert isinstance(driver, RecordDriver)

        def put(tx: Transaction) -> None:
            tx.put(Topic.LEDGERS, ledger_key(ledger_id), data)

        await driver._link.change("test.put_raw", put)


class _Faults(StoreFaults):
    def __init__(self) -> None:
        self.cut: set[str] = set()
        self.lost: list[tuple[str, str]] = []

    async def before(self, client: str, operation: str) -> None:
        if client in self.cut:
            raise ServiceUnavailable("cut off")

    async def after(self, client: str, operation: str) -> None:
        if (client, operation) in self.lost:
            self.lost.remove((client, operation))
            raise ServiceUnavailable("the answer is lost", maybe_applied=True)


class MemoryUnderTest(RecordStoreUnderTest):
    """In memory; trouble is made by its own fault injection."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.faults = _Faults()
        self.store = MemoryStore(RealRuntime(), faults=self.faults)
        self._names: dict[int, str] = {}

    def new(self, *, session_timeout_ms: int = LONG_MS) -> MetadataDriver:
        name = f"client-{len(self._names)}"
        driver = MemoryDriver(self.store, RealRuntime(), name=name, session_timeout_ms=session_timeout_ms)
        self._names[id(driver)] = name
        return driver

    def cut(self, driver: MetadataDriver) -> None:
        self.faults.cut.add(self._names[id(driver)])

    def heal(self, driver: MetadataDriver) -> None:
        self.faults.cut.discard(self._names[id(driver)])

    def lose_answer(self, driver: MetadataDriver, operation: str) -> None:
        self.faults.lost.append((self._names[id(driver)], operation))


class SqliteUnderTest(RecordStoreUnderTest):
    """A file; trouble is made at the door to the driver's thread."""

    many: ClassVar[int] = 3_000  # a transaction each, on a real disk
    many_segments: ClassVar[int] = 20_000

    def new(self, *, session_timeout_ms: int = LONG_MS) -> MetadataDriver:
        uri = parse_service_uri(f"sqlite://{self.directory}/metadata.db")
        return SqliteDriver(uri, RealRuntime(), session_timeout_ms=session_timeout_ms, poll_interval_ms=10)

    def cut(self, driver: MetadataDriver) -> None:
        async def refuse(call: Callable[[], Any]) -> Any:
            raise ServiceUnavailable("cut off")

        vars(_record_store(driver))["_in_lane"] = refuse

    def heal(self, driver: MetadataDriver) -> None:
        vars(_record_store(driver)).pop("_in_lane", None)

    def lose_answer(self, driver: MetadataDriver, operation: str) -> None:
        store = _record_store(driver)

        async def run(name: str, transaction: Callable[[Transaction], T], *, write: bool = True) -> T:
            result = await type(store).run(store, name, transaction, write=write)
            if name == operation:
                del vars(store)["run"]
                raise ServiceUnavailable("the answer is lost", maybe_applied=True)
            return result

        vars(store)["run"] = run


def _record_store(driver: MetadataDriver) -> Any:
    assert isinstance(driver, RecordDriver)
    return driver._link.store


FACTORIES: Mapping[str, type[StoreUnderTest]] = {
    "memory": MemoryUnderTest,
    "sqlite": SqliteUnderTest,
}
