"""Records of segments (spec streams §4.2)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.streams.dlsn import DLSN
from bookkeeper.streams.errors import SegmentFormatError, UnsupportedVersionError
from bookkeeper.streams.formats.segment import SegmentMetadata, Truncation, decode_segment, encode_segment

JAVA = Path(__file__).parents[2] / "data" / "streams" / "java-metadata.json"

OPEN = SegmentMetadata(ledger_id=12345, first_txid=1001, number=3)
DONE = OPEN.complete(
    last_txid=2000, records=150, last=DLSN(3, 74, 1), completed_ms=1700000000000, start_sequence_id=300
)
PLAIN = replace(DONE, start_sequence_id=-1)
BARE = replace(PLAIN, number=0, last_entry=-1, last_slot=-1)


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        (OPEN, "5;12345;1001;3;0;0;-1"),
        (DONE, "644245094405;12345;1001;2000;1700000000000;3;74;1;0;0;300"),
        (DONE.truncate(DLSN(3, 10, 2)), "644245094661;12345;1001;2000;1700000000000;3;74;1;10;2;300"),
        (
            DONE.truncate(DLSN(3, 10, 2)).truncate(None),
            "644245094917;12345;1001;2000;1700000000000;3;74;1;10;2;300",
        ),
        (replace(OPEN, version=4), "4;12345;1001;3;0;0"),
        (replace(PLAIN, version=4), "644245094404;12345;1001;2000;1700000000000;3;74;1;0;0"),
        (replace(OPEN, version=3), "3;12345;1001;3;0;0"),
        (replace(PLAIN, version=3), "644245094403;12345;1001;2000;1700000000000;3;74;1;0;0"),
        (replace(OPEN, version=2), "2;12345;1001;3"),
        (replace(PLAIN, version=2), "644245094402;12345;1001;2000;1700000000000;3;74;1"),
        (replace(OPEN, version=1, number=0), "1;12345;1001"),
        (replace(BARE, version=1), "644245094401;12345;1001;2000;1700000000000"),
        (replace(OPEN, region=9), "2415919109;12345;1001;3;0;0;-1"),
    ],
)
def test_a_record_is_javas(segment: SegmentMetadata, text: str) -> None:
    assert encode_segment(segment) == text.encode()
    assert decode_segment(text.encode()) == segment


def test_records_that_java_stored_come_back() -> None:
    nodes = json.loads(JAVA.read_text())
    texts = [bytes.fromhex(nodes[path]["data"]) for path in nodes if "/ledgers/" in path and "dlog" in path]
    assert len(texts) >= 7
    for text in texts:
        assert encode_segment(decode_segment(text)) == text


INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def segments(draw: st.DrawFn) -> SegmentMetadata:
    """Any that its version can hold."""
    version, completed = draw(st.integers(1, 5)), draw(st.booleans())
    names = ["ledger_id", "first_txid"]
    if completed:
        names += ["last_txid", "completed_ms"]
    if version >= 2:
        names += ["number", *(("last_entry", "last_slot") if completed else ())]
    if version >= 3:
        names += ["min_entry", "min_slot"]
    if version >= 5:
        names.append("start_sequence_id")
    small = {"status": draw(st.integers(0, 255)), "region": draw(st.integers(0, 15))} if version >= 2 else {}
    records = draw(st.integers(0, (1 << 31) - 1)) if completed else 0
    values = {name: draw(INT64) for name in names}
    return SegmentMetadata(version=version, completed=completed, records=records, **small, **values)


@given(segments())
def test_every_segment_comes_back(segment: SegmentMetadata) -> None:
    assert decode_segment(encode_segment(segment)) == segment


@given(segments(), st.integers(0, 200), st.integers(0, 7))
def test_damage_gives_one_kind_of_error_or_another_record_of_the_same_kind(
    segment: SegmentMetadata, place: int, bit: int
) -> None:
    text = bytearray(encode_segment(segment))
    text[place % len(text)] ^= 1 << bit
    for damaged in (bytes(text), bytes(text)[: place % len(text)]):
        try:
            found = decode_segment(damaged)
        except (SegmentFormatError, UnsupportedVersionError):
            continue
        assert isinstance(found, SegmentMetadata)


@pytest.mark.parametrize("text", [b"", b"5", b"5;1;2;3;4;5", b"5;1;2;3;0;0;x", b"5;1; 2;3;0;0;-1", b"5;1;2;3;0;0;-1;"])
def test_other_text_is_refused(text: bytes) -> None:
    with pytest.raises(SegmentFormatError):
        decode_segment(text)


@pytest.mark.parametrize("version", [0, 6, 255])
def test_unknown_versions_are_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersionError, match=str(version)):
        decode_segment(b"%d;1;2;3;0;0;-1" % version)
    with pytest.raises(UnsupportedVersionError):
        encode_segment(replace(OPEN, version=version))


@pytest.mark.parametrize("wrong", [{"records": 1}, {"status": 256}, {"region": 16}])
def test_what_does_not_fit_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(SegmentFormatError):
        encode_segment(replace(OPEN, **wrong))


def test_the_first_position_is_what_truncation_left() -> None:
    assert DONE.first == DLSN(3, 0, 0)
    assert DONE.truncate(DLSN(3, 10, 2)).first == DLSN(3, 10, 2)
    assert DONE.truncate(None).truncation is Truncation.TRUNCATED


def test_numbers_of_records_are_negative_where_they_were_not_stored() -> None:
    assert DONE.sequence_id == 300
    assert SegmentMetadata(ledger_id=1, first_txid=1, number=1).sequence_id == -9223372032559808512
