"""Records with keys and headers (spec streams §15.8)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper import CorruptEntryError, IncorrectParameterError, KeyedRecord
from bookkeeper.streams.formats.keyed import MAGIC, encode_keyed

RECORDS = st.builds(
    KeyedRecord,
    st.none() | st.binary(max_size=300),
    st.none() | st.binary(max_size=300),
    st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=200)), max_size=4).map(tuple),
    st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
)


@given(RECORDS)
def test_what_was_written_is_read(record: KeyedRecord) -> None:
    assert KeyedRecord.decode(record.encode()) == record


@given(st.binary(max_size=100).filter(lambda payload: not payload.startswith(MAGIC)))
def test_a_payload_of_somebody_else_is_a_value(payload: bytes) -> None:
    assert KeyedRecord.decode(payload) == KeyedRecord(payload)


@given(RECORDS, st.data())
def test_what_is_cut_off_is_a_shorter_value_or_an_error(record: KeyedRecord, data: st.DataObject) -> None:
    """Never another key or other headers: only a value has no length of its own."""
    whole = record.encode()
    cut = data.draw(st.integers(len(MAGIC), len(whole) - 1))
    try:
        found = KeyedRecord.decode(whole[:cut])
    except CorruptEntryError:
        return
    assert (found.key, found.headers, found.event_ms) == (record.key, record.headers, record.event_ms)
    assert record.value is not None
    assert found.value is not None
    assert record.value.startswith(found.value)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(tail: bytes) -> None:
    try:
        found = KeyedRecord.decode(MAGIC + tail)
    except CorruptEntryError:
        return
    assert KeyedRecord.decode(found.encode()) == found


def test_the_bytes() -> None:
    headers = (("trace", b"7"), ("gone", None), ("empty", b""))
    assert encode_keyed(b"v", b"k", headers, 258) == bytes.fromhex(
        "4b5601 07 0000000000000102 01 6b 03 05 7472616365 02 37 04 676f6e65 00 05 656d707479 01 76".replace(" ", "")
    )
    assert encode_keyed(b"") == bytes.fromhex("4b560100")
    assert encode_keyed(None, b"k") == bytes.fromhex("4b560109016b")


@pytest.mark.parametrize("tail", ["", "10", "01", "0105", "04 00", "0801", "0201 01 ff 00"])
def test_what_makes_no_sense_is_an_error(tail: str) -> None:
    with pytest.raises(CorruptEntryError, match="makes no sense"):
        KeyedRecord.decode(MAGIC + bytes.fromhex(tail))


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(IncorrectParameterError, match="no time"):
        KeyedRecord(b"", event_ms=1 << 63).encode()
