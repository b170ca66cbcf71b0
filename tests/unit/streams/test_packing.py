"""Which record goes into which entry (spec streams §5.4, §8.3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.streams.dlsn import DLSN
from bookkeeper.streams.errors import RecordTooLargeError
from bookkeeper.streams.formats.entry import LARGEST_ENTRY, decode_entry
from bookkeeper.streams.formats.records import CONTROL, END, LARGEST_PAYLOAD
from bookkeeper.streams.packing import Entry, EntryPacker, Run
from bookkeeper.streams.policy import WritePolicy

BATCHES = st.lists(st.tuples(st.lists(st.binary(max_size=60), min_size=1, max_size=30), st.booleans()), max_size=6)


def expand(runs: list[Run]) -> list[DLSN]:
    return [first._replace(slot=first.slot + n) for first, count in runs for n in range(count)]


@given(BATCHES, st.integers(0, 300))
def test_every_record_is_where_it_was_said_to_be(batches: list[tuple[list[bytes], bool]], buffer: int) -> None:
    packer = EntryPacker(5, WritePolicy(buffer_bytes=buffer), 0)
    entries: list[Entry] = []
    said: list[tuple[DLSN, bytes, int]] = []
    for txid, (payloads, as_sets) in enumerate(batches):
        full, runs = packer.add_sets(payloads, txid) if as_sets else packer.add(payloads, [txid] * len(payloads))
        entries += full
        said += [(at, payload, txid) for at, payload in zip(expand(runs), payloads, strict=True)]
    entries += packer.control()
    assert [entry.number for entry in entries] == list(range(len(entries)))
    found = [(entry.number, record) for entry in entries for record in decode_entry(entry.payload)]
    _, control = found.pop()
    assert (control.flags, control.position, control.slot) == (CONTROL, len(said), 0)
    assert [(DLSN(5, number, record.slot), record.payload, record.txid) for number, record in found] == said
    assert [record.position for _, record in found] == list(range(1, len(said) + 1))
    assert packer.last == (said[-1][0] if said else None)
    assert packer.sealed_records == len(said)


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=50), st.integers(1, 300), st.integers(1, 7))
def test_it_does_not_matter_how_records_are_batched(payloads: list[bytes], buffer: int, size: int) -> None:
    one, other = (EntryPacker(1, WritePolicy(buffer_bytes=buffer), 0) for _ in range(2))
    whole = one.add(payloads, [7] * len(payloads))[0] + one.seal()
    parts: list[Entry] = []
    for start in range(0, len(payloads), size):
        part = payloads[start : start + size]
        parts += other.add(part, [7] * len(part))[0]
    assert whole == parts + other.seal()


def test_an_entry_never_gets_too_large_for_readers() -> None:
    packer = EntryPacker(1, WritePolicy(buffer_bytes=1_000_000), 0)
    entries = packer.add([bytes(900_000), bytes(900_000), bytes(LARGEST_PAYLOAD), b""], [1] * 4)[0] + packer.seal()
    assert [entry.records for entry in entries] == [1, 1, 1, 1]
    assert all(len(entry.payload) <= LARGEST_ENTRY for entry in entries)


def test_a_record_that_is_too_large_leaves_nothing_behind() -> None:
    packer = EntryPacker(1, WritePolicy(), 0)
    with pytest.raises(RecordTooLargeError):
        packer.add([b"small", bytes(LARGEST_PAYLOAD + 1)], [1, 1])
    assert not packer.has_buffered
    assert packer.next_entry == 0


def test_the_end_repeats_the_last_position() -> None:
    packer = EntryPacker(1, WritePolicy(), 0)
    packer.add([b"a", b"b"], [1, 2])
    user, end = (decode_entry(entry.payload) for entry in packer.end())
    assert [record.position for record in user] == [1, 2]
    assert (end[0].flags, end[0].position) == (END, 2)
    assert packer.last == DLSN(1, 1, 0)
