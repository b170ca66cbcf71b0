from __future__ import annotations

import asyncio
from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.storage import packing
from bookkeeper.bookie.storage.index import ledger_data
from bookkeeper.bookie.storage.index import ledgers as ledger_index
from bookkeeper.bookie.storage.index.ledger_data import LedgerData
from bookkeeper.bookie.storage.index.ledgers import LedgerIndex
from bookkeeper.bookie.storage.index.locations import LocationIndex
from bookkeeper.errors import CorruptStorageError, NoLedgerError, UnauthorizedAccessError
from bookkeeper.runtime import KeyValueStore
from bookkeeper.runtime.real import RealRuntime
from tests.support.storage import located

LONG = st.integers(-(2**63), 2**63 - 1)


def nothing() -> None:
    """Nobody to give way to."""


@pytest.fixture
def store(tmp_path: Path) -> KeyValueStore:
    return RealRuntime().open_key_value(str(tmp_path / "db"), {})


# --- packing ---


COUNTS = [
    0,
    1,
    *(chunk + more for chunk in (packing.READ_CHUNK, packing.INDEX_CHUNK, packing.CHUNK) for more in (-1, 0, 1)),
]


@given(st.lists(st.tuples(LONG, LONG)))
def test_pairs_and_longs_are_big_endian(both: list[tuple[int, int]]) -> None:
    as_bytes = [
        (first.to_bytes(8, "big", signed=True), second.to_bytes(8, "big", signed=True)) for first, second in both
    ]
    assert list(packing.longs([second for _, second in both])) == [second for _, second in as_bytes]
    pairs = packing.pairs([first for first, _ in both], [second for _, second in both])
    assert pairs == b"".join(first + second for first, second in as_bytes)


@pytest.mark.parametrize("count", COUNTS)
def test_fields_of_any_number(count: int) -> None:
    values = list(range(count))
    assert list(packing.words(values)) == [value.to_bytes(4, "big") for value in values]
    assert list(packing.longs(values)) == [value.to_bytes(8, "big") for value in values]
    assert list(packing.cut(packing.pairs(values, values), 16)) == [2 * value.to_bytes(8, "big") for value in values]


# --- locations ---


def test_locations_are_stored_as_specified(store: KeyValueStore) -> None:
    LocationIndex(store).write([], located((7, [1], array("q", [0x0000000300000431]))), nothing)
    key, value = "00000000000000070000000000000001", "0000000300000431"
    assert list(store.iterate(b"", b"\xff")) == [(bytes.fromhex(key), bytes.fromhex(value))]


def test_lookups(store: KeyValueStore) -> None:
    """R8."""
    index = LocationIndex(store)
    count = 2 * packing.CHUNK + 10
    index.write([], located((7, range(count), array("q", range(1, count + 1))), (9, [5], array("q", [99]))), nothing)
    assert index.get(7, 0) == 1
    assert index.get(7, count - 1) == count
    assert index.get(7, count) == 0
    assert index.get_many([(7, 1), (8, 1), (9, 5)]) == [2, 0, 99]
    assert index.last(7) == (count - 1, count)
    assert index.last(8) is None
    assert index.last(9) == (5, 99)
    assert index.last(6) is None
    assert list(index.entries(7)) == list(range(count))
    assert list(index.entries(8)) == []
    assert sum(1 for _ in index.all()) == count + 1


def test_the_last_entry_of_a_ledger_without_any_is_not_looked_for_among_deleted_ones(
    store: KeyValueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Backwards through the keys of a large deleted ledger RocksDB took so long that all adds of a bookie timed out.
    FX-64."""
    index = LocationIndex(store)
    index.write([], located((7, range(1000), array("q", range(1, 1001)))), nothing)
    index.write([7], located((8, [3, 4], array("q", [1, 2]))), nothing)
    assert index.last(8) == (4, 2)
    monkeypatch.setattr(store, "_last_below", None)
    for ledger_id in (6, 7, 9):
        assert index.last(ledger_id) is None


def test_deleted_ledgers_go_before_new_locations_come(store: KeyValueStore) -> None:
    index = LocationIndex(store)
    index.write([], located((7, [1, 2], array("q", [11, 12])), (8, [1], array("q", [13]))), nothing)
    index.write([7], located((7, [2, 3], array("q", [22, 23]))), nothing)
    assert list(index.all()) == [(7, 2, 22), (7, 3, 23), (8, 1, 13)]


def test_a_move_needs_the_old_location(store: KeyValueStore) -> None:
    """BI-13, FX-38, defect A8."""
    index = LocationIndex(store)
    index.write([], located((7, [1, 2], array("q", [11, 12]))), nothing)
    assert index.move([(7, 1, 11, 21), (7, 2, 99, 22), (7, 3, 13, 23)], nothing) == 1
    assert list(index.all()) == [(7, 1, 21), (7, 2, 12)]


def test_a_location_of_a_wrong_size_is_corrupt(store: KeyValueStore) -> None:
    batch = store.batch()
    batch.put(bytes.fromhex("00000000000000070000000000000001"), b"123")
    store.write(batch, sync=True)
    with pytest.raises(CorruptStorageError):
        LocationIndex(store).get(7, 1)


# --- ledgers ---


def test_ledgers_survive_a_write_and_load(store: KeyValueStore) -> None:
    index = LedgerIndex(ledger_index.load(store))
    index.set_master_key(1, b"key")
    index.set_master_key(2, b"")
    assert index.set_fenced(2)
    assert not index.set_fenced(2)
    index.set_explicit_lac(1, b"lac")
    index.set_limbo(2, True)
    ledger_index.write(store, asyncio.run(index.take_changes()), nothing)
    assert not index.dirty
    assert ledger_index.load(store) == {1: LedgerData(False, b"key", b"lac"), 2: LedgerData(True, b"", None, True)}


def test_master_keys(store: KeyValueStore) -> None:
    index = LedgerIndex({1: LedgerData(master_key=b"one"), 2: LedgerData(master_key=bytes(20))})
    index.set_master_key(1, b"one")
    index.set_master_key(1, b"")
    assert not index.dirty
    with pytest.raises(UnauthorizedAccessError):
        index.set_master_key(1, b"two")
    index.set_master_key(2, b"two")
    assert index.get(2).data.master_key == b"two"
    for change in (index.set_fenced, lambda ledger: index.set_explicit_lac(ledger, b"")):
        with pytest.raises(NoLedgerError):
            change(3)


def test_of_keys_that_are_equal_one_copy_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_index, "KNOWN_KEYS", 2)
    keys = [bytes([n // 4]) * 20 for n in range(16)]
    index = LedgerIndex({n: LedgerData(master_key=bytes(bytearray(key))) for n, key in enumerate(keys[:6])})
    for n, key in enumerate(keys[6:], 6):
        index.set_master_key(n, bytes(bytearray(key)))
    kept = [index.get(n).data.master_key for n in range(16)]
    assert kept == keys
    assert len(set(map(id, kept[:8]))) == 2
    assert len(index._keys) == 2


def test_changes_that_failed_to_be_written_are_taken_again(store: KeyValueStore) -> None:
    """BI-12, FX-36."""
    index = LedgerIndex({})
    index.set_master_key(1, b"one")
    failed = asyncio.run(index.take_changes())
    index.set_fenced(1)
    index.set_master_key(2, b"two")
    index.put_back(failed)
    assert asyncio.run(index.take_changes()) == {
        1: ledger_data.encode(LedgerData(True, b"one")),
        2: ledger_data.encode(LedgerData(False, b"two")),
    }


def test_deletion_and_creation_again(store: KeyValueStore) -> None:
    index = LedgerIndex({1: LedgerData(master_key=b"one")})
    index.delete(1)
    assert asyncio.run(index.take_changes()) == {1: None}
    index.delete(1)
    assert not index.dirty
    index.set_master_key(1, b"new")
    assert asyncio.run(index.take_changes()) == {1: ledger_data.encode(LedgerData(False, b"new"))}


def put(store: KeyValueStore, items: dict[bytes, bytes]) -> None:
    batch = store.batch()
    for key, value in items.items():
        batch.put(key, value)
    store.write(batch, sync=True)


def test_records_under_16_byte_keys_become_ordinary_ones(store: KeyValueStore) -> None:
    """R13, defect A6."""
    short, long = ledger_data.ledger_key, ledger_data.long_ledger_key
    rebuilt = ledger_data.encode(LedgerData(True, b""))
    newer = ledger_data.encode(LedgerData(False, b"key"))
    put(store, {long(1): rebuilt, long(2): rebuilt, short(2): newer, short(3): newer})
    expected = {1: LedgerData(True, b""), 2: LedgerData(False, b"key"), 3: LedgerData(False, b"key")}
    assert ledger_index.load(store) == expected
    assert dict(store.iterate(b"", b"\xff")) == {short(1): rebuilt, short(2): newer, short(3): newer}


def test_deletion_removes_both_forms_of_a_key(store: KeyValueStore) -> None:
    value = ledger_data.encode(LedgerData())
    put(store, {ledger_data.ledger_key(1): value, ledger_data.long_ledger_key(1): value})
    ledger_index.write(store, {1: None}, nothing)
    assert list(store.iterate(b"", b"\xff")) == []


def test_negative_keys_are_not_ledgers(store: KeyValueStore) -> None:
    """R13."""
    ledger_index.write_flags(store, ledger_data.NEEDS_INTEGRITY_CHECK)
    assert ledger_index.load(store) == {}
    assert ledger_index.read_flags(store) == ledger_data.NEEDS_INTEGRITY_CHECK


def test_a_damaged_ledger_record_is_reported_with_its_id(store: KeyValueStore) -> None:
    """BI-22."""
    put(store, {ledger_data.ledger_key(5): b"\x08\x01"})
    with pytest.raises(CorruptStorageError, match="ledger 5"):
        ledger_index.load(store)
