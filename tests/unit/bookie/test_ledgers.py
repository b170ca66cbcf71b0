"""The ledger table: keys, LAC, eviction, fenced-and-deleted memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bookkeeper.bookie.ledgers import (
    FENCED_AND_DELETED_SECONDS,
    MAX_FENCED_AND_DELETED,
    TRIM_LOOK,
    LedgerTable,
)
from bookkeeper.errors import FencedAndDeletedError, NoEntryError, NoLedgerError, UnauthorizedAccessError
from bookkeeper.runtime.real import RealRuntime
from tests.support.bookie import DIGEST, KEY, entry

OTHER = b"y" * 20


class MemoryStorage:
    """The attributes of ledgers, and their last entries."""

    def __init__(self) -> None:
        self.keys: dict[int, bytes] = {}
        self.fenced: set[int] = set()
        self.limbo: set[int] = set()
        self.lacs: dict[int, bytes] = {}
        self.last: dict[int, bytes] = {}
        self.reads = 0

    def ledger_exists(self, ledger_id: int) -> bool:
        return ledger_id in self.keys

    def master_key(self, ledger_id: int) -> bytes | None:
        return self.keys.get(ledger_id)

    def set_master_key(self, ledger_id: int, key: bytes) -> None:
        self.keys[ledger_id] = key

    def is_fenced(self, ledger_id: int) -> bool:
        return ledger_id in self.fenced

    def is_limbo(self, ledger_id: int) -> bool:
        return ledger_id in self.limbo

    def explicit_lac(self, ledger_id: int) -> bytes | None:
        return self.lacs.get(ledger_id)

    async def last_entry(self, ledger_id: int) -> bytes:
        self.reads += 1
        if ledger_id not in self.last:
            raise NoEntryError
        return self.last[ledger_id]


class Clock(RealRuntime):
    def __init__(self) -> None:
        super().__init__()
        self.time = 1000.0

    def now(self) -> float:
        return self.time


def table(limit: int = 100) -> tuple[LedgerTable, MemoryStorage, Clock]:
    storage: Any = MemoryStorage()
    clock = Clock()
    return LedgerTable(clock, storage, limit), storage, clock


def test_a_key_is_compared_with_the_stored_one_also_without_a_handle() -> None:
    """SEC-12, BI-3, gap G11."""
    ledgers, storage, _ = table()
    storage.keys[1] = KEY
    with pytest.raises(UnauthorizedAccessError):
        ledgers.open(1, OTHER)
    with pytest.raises(UnauthorizedAccessError):
        ledgers.open(1, b"")
    with pytest.raises(UnauthorizedAccessError):
        ledgers.open(1, bytes(20))
    assert ledgers.open(1, KEY).key == KEY
    with pytest.raises(UnauthorizedAccessError):
        ledgers.open(1, OTHER)


@pytest.mark.parametrize("placeholder", [b"", bytes(20), bytes(3)])
def test_a_placeholder_gives_way_to_a_key_which_is_journaled_again(placeholder: bytes) -> None:
    """Gap G11."""
    ledgers, storage, _ = table()
    handle = ledgers.open(1, placeholder)
    handle.key_journaled = True
    assert ledgers.open(1, KEY) is handle
    assert storage.keys[1] == KEY
    assert not handle.key_journaled
    with pytest.raises(UnauthorizedAccessError):
        ledgers.open(1, placeholder)


def test_a_read_finds_only_what_exists() -> None:
    ledgers, storage, _ = table()
    with pytest.raises(NoLedgerError):
        ledgers.find(1)
    storage.keys[1] = KEY
    storage.fenced.add(1)
    handle = ledgers.find(1)
    assert handle.fenced
    assert ledgers.open(1, KEY) is handle


async def test_idle_handles_go_least_recently_used_first_and_pinned_ones_stay() -> None:
    ledgers, _, _ = table(limit=3)
    handles = [ledgers.open(i, KEY) for i in range(3)]
    handles[0].fence_waiters = []
    ledgers.open(1, KEY)
    ledgers.open(3, KEY)
    ledgers.open(4, KEY)
    assert len(ledgers) == 5, "not before the turn is over"
    await asyncio.sleep(0)
    assert len(ledgers) == 3
    assert ledgers.open(0, KEY) is handles[0]
    assert ledgers.open(4, KEY).ledger_id == 4
    assert ledgers.open(1, KEY) is not handles[1]


@pytest.mark.parametrize(
    ("last", "explicit", "expected"),
    [
        (None, None, -1),
        (entry(1, 9), None, 8),
        (None, DIGEST.package_lac(1, 5), 5),
        (entry(1, 9), DIGEST.package_lac(1, 5), 8),
        (entry(1, 9), DIGEST.package_lac(1, 50), 50),
        (b"short", b"short", -1),
    ],
)
async def test_the_lac_of_the_past_is_loaded_once(last: bytes | None, explicit: bytes | None, expected: int) -> None:
    ledgers, storage, _ = table()
    storage.keys[1] = KEY
    if last:
        storage.last[1] = last
    if explicit:
        storage.lacs[1] = explicit
    handle = ledgers.find(1)
    assert await ledgers.load_lac(handle) == expected
    assert await ledgers.load_lac(handle) == expected
    assert storage.reads == 1


async def test_the_lac_only_grows_and_a_new_ledger_needs_no_loading() -> None:
    ledgers, storage, _ = table()
    due: list[int | None] = []
    listener: Callable[[Any, int | None], None] = lambda _, lac: due.append(lac)  # noqa: E731
    ledgers.on_polls_due = listener
    handle = ledgers.open(1, KEY)
    handle.polls = [object()]  # type: ignore[list-item]
    for lac in (3, 2, 3, 7):
        ledgers.raise_lac(handle, lac)
    assert (handle.lac, due) == (7, [3, 7])
    assert await ledgers.load_lac(handle) == 7
    assert storage.reads == 0


def delete(ledgers: LedgerTable, storage: MemoryStorage, ids: Sequence[int]) -> None:
    for ledger_id in ids:
        ledgers.ledger_deleted(ledger_id)
        del storage.keys[ledger_id]
        storage.fenced.discard(ledger_id)


async def test_what_a_clean_up_looks_at_does_not_grow_with_the_table() -> None:
    ledgers, _, _ = table(limit=5000)
    for ledger_id in range(5000):
        ledgers.open(ledger_id, KEY)
    looked: list[int] = []

    class Watched(dict[int, Any]):
        def values(self) -> Any:
            for value in super().values():
                looked.append(1)
                yield value

    ledgers._handles = Watched(ledgers._handles)
    ledgers.open(5000, KEY)
    await asyncio.sleep(0)
    assert len(ledgers) == 5000
    assert len(looked) <= 2 * TRIM_LOOK


def test_many_are_opened_together_if_none_needs_a_look() -> None:
    ledgers, _, _ = table()
    handles = [ledgers.open(ledger_id, KEY) for ledger_id in range(3)]
    assert ledgers.open_plain([0, 1, 2], [KEY] * 3) is None  # no key is journaled
    for handle in handles:
        handle.key_goes_to_journal()
    assert ledgers.open_plain([0, 2, 1, 2], [KEY] * 4) == [handles[0], handles[2], handles[1], handles[2]]
    assert ledgers.open_plain([0, 1, 3], [KEY] * 3) is None
    assert ledgers.open_plain([0, 1], [KEY, OTHER]) is None
    handles[1].fence()
    assert ledgers.open_plain([0, 2], [KEY] * 2) is not None
    assert ledgers.open_plain([0, 1], [KEY] * 2) is None


def test_keys_that_are_only_together_the_right_ones_are_not() -> None:
    ledgers, storage, _ = table()
    for ledger_id, key in ((1, b"a" * 10), (2, b"b" * 30), (3, b"")):
        storage.keys[ledger_id] = key
        ledgers.open(ledger_id, key).key_goes_to_journal()
    assert ledgers.open_plain([1, 2], [b"a" * 10 + b"b" * 10, b"b" * 20]) is None
    assert ledgers.open_plain([3], [KEY]) is None


async def test_of_those_that_were_looked_at_for_longest_the_unused_go_first() -> None:
    ledgers, _, _ = table(limit=10)
    for ledger_id in range(10):
        ledgers.open(ledger_id, KEY)
    ledgers.open(10, KEY)  # all have been used since they are here: the oldest goes
    await asyncio.sleep(0)
    assert sorted(ledgers._handles) == [*range(1, 11)]
    ledgers.find(1)
    ledgers.raise_lacs([ledgers.find(2)], [5])
    ledgers.open(3, KEY)
    ledgers.open(11, KEY)
    await asyncio.sleep(0)
    assert sorted(ledgers._handles) == [1, 2, 3, *range(5, 12)]


async def test_after_a_rush_the_table_becomes_small_again_also_behind_pinned_ledgers() -> None:
    ledgers, _, _ = table(limit=10)
    for ledger_id in range(1000):
        ledgers.open(ledger_id, KEY).fence_waiters = [] if ledger_id < 3 * TRIM_LOOK and ledger_id % 2 else None
    for ledger_id in range(1000, 1100):
        ledgers.open(ledger_id, KEY)
        await asyncio.sleep(0)
    assert len(ledgers) == 3 * TRIM_LOOK // 2


def test_a_new_ledger_has_a_key_that_a_client_could_have() -> None:
    ledgers, storage, _ = table()
    with pytest.raises(UnauthorizedAccessError, match="at most 64 bytes, not 65"):
        ledgers.open(1, b"k" * 65)
    assert not storage.keys
    ledgers.open(1, b"k" * 64)
    storage.keys[2] = b"k" * 1000  # from before there was a bound
    assert ledgers.open(2, b"k" * 1000).key == b"k" * 1000


def test_a_fenced_ledger_that_was_deleted_is_refused_for_a_week_after_its_last_use() -> None:
    """FX-12."""
    ledgers, storage, clock = table()
    for ledger_id in (1, 2, 3):
        ledgers.open(ledger_id, KEY)
    storage.fenced.add(1)
    storage.limbo.add(2)
    delete(ledgers, storage, [1, 2, 3])
    for ledger_id in (1, 2):
        with pytest.raises(FencedAndDeletedError):
            ledgers.open(ledger_id, KEY)
    ledgers.open(3, KEY)
    clock.time += FENCED_AND_DELETED_SECONDS - 1
    with pytest.raises(FencedAndDeletedError):
        ledgers.open(1, KEY)
    clock.time += 2
    assert ledgers.open(2, KEY).ledger_id == 2
    with pytest.raises(FencedAndDeletedError):
        ledgers.open(1, KEY)
    clock.time += FENCED_AND_DELETED_SECONDS + 1
    assert ledgers.open(1, KEY).ledger_id == 1


def test_it_is_refused_also_if_its_handle_had_been_dropped_before() -> None:
    """Found by simulation, seed 295. FX-12."""
    ledgers, storage, _ = table()
    storage.keys[1] = KEY
    storage.fenced.add(1)
    assert len(ledgers) == 0
    delete(ledgers, storage, [1])
    with pytest.raises(FencedAndDeletedError):
        ledgers.open(1, KEY)


def test_the_memory_of_deleted_ledgers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    import bookkeeper.bookie.ledgers as module

    assert MAX_FENCED_AND_DELETED > 0
    monkeypatch.setattr(module, "MAX_FENCED_AND_DELETED", 2)
    ledgers, storage, _ = table()
    for ledger_id in range(3):
        ledgers.open(ledger_id, KEY)
        storage.fenced.add(ledger_id)
    delete(ledgers, storage, [0, 1, 2])
    assert ledgers.open(0, KEY).ledger_id == 0
    with pytest.raises(FencedAndDeletedError):
        ledgers.open(2, KEY)
