"""Which ledgers are deleted, and above all which are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.bookie.storage.collection.ledgers import LedgerCollector
from bookkeeper.bookie.storage.db_storage import DbLedgerStorage
from bookkeeper.errors import CorruptMetadata, LockHeld, NoSuchLedger, ServiceUnavailable
from bookkeeper.metadata.api import LedgerRange, Versioned
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.runtime import Runtime
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId, LedgerState
from tests.support.storage import KEY, configuration, opened

ME, OTHER = BookieId("me:1"), BookieId("other:1")


def metadata(ledger_id: int, member: BookieId = ME, state: LedgerState = LedgerState.OPEN) -> LedgerMetadata:
    return LedgerMetadata(ledger_id, 1, 1, 1, {0: (member,)}, state)


class FakeStore:
    """A metadata store that can lie in its listing, lag in its reads, and fail."""

    def __init__(self, *ledger_ids: int) -> None:
        self.records: dict[int, LedgerMetadata] = {i: metadata(i) for i in ledger_ids}
        self.unlisted: dict[int, None] = {}
        self.fail_listing_after: int | None = None
        self.failing_reads: dict[int, Exception] = {}
        self.found_again: dict[int, int] = {}
        """Ledger -> number of reads that miss it before it is seen again."""
        self.locked: list[int] = []
        self.on_lock: Any = None

    async def ranges(self, op_timeout: float | None = None) -> AsyncIterator[LedgerRange]:
        listed = [i for i in sorted(self.records) if i not in self.unlisted]
        for number, start in enumerate(range(0, len(listed), 3)):
            if self.fail_listing_after == number:
                raise ServiceUnavailable("listing failed")
            yield LedgerRange(tuple(listed[start : start + 3]))
        if self.fail_listing_after is not None:
            raise ServiceUnavailable("listing failed")

    async def read(self, ledger_id: int) -> Versioned[LedgerMetadata]:
        if ledger_id in self.failing_reads:
            raise self.failing_reads[ledger_id]
        misses = self.found_again.get(ledger_id, 0)
        if misses:
            self.found_again[ledger_id] = misses - 1
        if misses or ledger_id not in self.records:
            raise NoSuchLedger(str(ledger_id))
        return Versioned(self.records[ledger_id], 0)

    # --- under-replication ---

    async def is_locked(self, ledger_id: int) -> bool:
        return False

    async def acquire(self, ledger_id: int, *, with_mark: bool = False) -> FakeLock:
        assert not with_mark
        if ledger_id in self.locked:
            raise LockHeld(str(ledger_id))
        self.locked.append(ledger_id)
        if self.on_lock is not None:
            self.on_lock(ledger_id)
        return FakeLock(self, ledger_id)


class FakeLock:
    def __init__(self, store: FakeStore, ledger_id: int) -> None:
        self._store = store
        self._ledger_id = ledger_id

    async def release(self) -> None:
        self._store.locked.remove(self._ledger_id)


def ledger_collector(runtime: Runtime, storage: DbLedgerStorage, store: FakeStore, **settings: Any) -> LedgerCollector:
    settings = {"zkTimeout": 10, "gcMetadataOpRateLimit": 0, "gcOverreplicatedLedgerWaitTime": 0, **settings}
    return LedgerCollector(
        runtime,
        configuration(Path("/nowhere"), **settings),
        store,  # type: ignore[arg-type]
        store,  # type: ignore[arg-type]
        ME,
        storage.ledgers,
        storage.delete_ledger,
    )


async def collect_ledgers(tmp_path: Path, store: FakeStore, local: range) -> list[int]:
    """Ledgers that a pass deletes."""
    async with opened(tmp_path) as storage:
        for ledger_id in local:
            storage.set_master_key(ledger_id, KEY)
        collector = ledger_collector(RealRuntime(), storage, store)
        try:
            await collector.collect()
        finally:
            left = storage.ledgers()
            for ledger_id in left:
                storage.delete_ledger(ledger_id)
        return [ledger_id for ledger_id in local if ledger_id not in left]


async def test_ledgers_that_are_gone_are_deleted(tmp_path: Path) -> None:
    """LV-8."""
    assert await collect_ledgers(tmp_path, FakeStore(1, 2, 5, 9, 11), range(14)) == [0, 3, 4, 6, 7, 8, 10, 12, 13]


async def test_nothing_is_deleted_when_the_listing_fails(tmp_path: Path) -> None:
    """BI-14, FX-41."""
    store = FakeStore(*range(0, 20, 2))
    store.fail_listing_after = 2
    with pytest.raises(ServiceUnavailable):
        await collect_ledgers(tmp_path, store, range(20))


async def test_a_ledger_missing_from_the_listing_alone_is_kept(tmp_path: Path) -> None:
    """BI-14, FX-41."""
    store = FakeStore(1, 2, 3, 4)
    store.unlisted = dict.fromkeys([1, 2, 3, 4])
    assert await collect_ledgers(tmp_path, store, range(5)) == [0]


async def test_a_ledger_that_a_lagging_server_did_not_show_at_first_is_kept(tmp_path: Path) -> None:
    """BI-14, FX-41, JH-10, MF-3."""
    store = FakeStore(1, 2)
    store.unlisted = dict.fromkeys([1])
    store.found_again = {1: 1}
    assert await collect_ledgers(tmp_path, store, range(4)) == [0, 3]


@pytest.mark.parametrize("error", [ServiceUnavailable("away"), CorruptMetadata("bad")])
async def test_a_ledger_whose_metadata_cannot_be_read_is_kept(tmp_path: Path, error: Exception) -> None:
    """BI-14, MF-10."""
    store = FakeStore()
    store.failing_reads = {1: error}
    assert await collect_ledgers(tmp_path, store, range(3)) == [0, 2]


async def collect_overreplicated(tmp_path: Path, store: FakeStore) -> list[int]:
    runtime = ClockRuntime()
    async with opened(tmp_path) as storage:
        for ledger_id in store.records:
            storage.set_master_key(ledger_id, KEY)
        collector = ledger_collector(runtime, storage, store, gcOverreplicatedLedgerWaitTime=1000)
        runtime.ahead = 2.0
        await collector.collect()
        return [ledger_id for ledger_id in store.records if not storage.ledger_exists(ledger_id)]


class ClockRuntime(RealRuntime):
    """The real world with a clock that a test can set forward."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


async def test_closed_ledgers_that_live_elsewhere_are_deleted(tmp_path: Path) -> None:
    """BI-14, FX-78."""
    store = FakeStore(1, 2, 3)
    store.records[1] = metadata(1, OTHER, LedgerState.CLOSED)
    store.records[2] = metadata(2, OTHER)  # open
    store.records[3] = metadata(3, ME, LedgerState.CLOSED)
    assert await collect_overreplicated(tmp_path, store) == [1]
    assert store.locked == []


async def test_a_ledger_under_replication_is_kept(tmp_path: Path) -> None:
    """BI-14."""
    store = FakeStore(1)
    store.records[1] = metadata(1, OTHER, LedgerState.CLOSED)
    store.locked = [1]
    assert await collect_overreplicated(tmp_path, store) == []


async def test_a_ledger_that_moved_here_meanwhile_is_kept(tmp_path: Path) -> None:
    """BI-14."""
    store = FakeStore(1)
    store.records[1] = metadata(1, OTHER, LedgerState.CLOSED)
    store.on_lock = lambda ledger_id: store.records.update({1: metadata(1, ME, LedgerState.CLOSED)})
    assert await collect_overreplicated(tmp_path, store) == []


async def test_ledgers_that_are_gone_are_deleted_also_when_locks_cannot_be_asked_for(tmp_path: Path) -> None:
    class NoLocks(FakeStore):
        async def is_locked(self, ledger_id: int) -> bool:
            raise ServiceUnavailable("locks")

    store = NoLocks(1)
    store.records[1] = metadata(1, OTHER, LedgerState.CLOSED)
    runtime = ClockRuntime()
    async with opened(tmp_path) as storage:
        for ledger_id in (1, 2):
            storage.set_master_key(ledger_id, KEY)
        collector = ledger_collector(runtime, storage, store, gcOverreplicatedLedgerWaitTime=1000)
        runtime.ahead = 2.0
        await collector.collect()
        assert storage.ledgers() == [1]
