"""Positions of streams (spec streams §5.5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.streams.dlsn import DLSN, INITIAL, INVALID, LOWER_BOUND
from bookkeeper.streams.errors import SegmentFormatError

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
POSITIONS = st.builds(DLSN, INT64, INT64, INT64)


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (DLSN(7, 42, 3), "AQAAAAAAAAAHAAAAAAAAACoAAAAAAAAAAw=="),
        (INITIAL, "AQAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAA=="),
        (LOWER_BOUND, "AQAAAAAAAAABAAAAAAAAAAD//////////w=="),
        (INVALID, "AQAAAAAAAAAA/////////////////////w=="),
    ],
)
def test_the_text_form_is_javas(position: DLSN, text: str) -> None:
    assert str(position) == text
    assert DLSN.parse(text) == position
    assert DLSN.parse(text.replace("/", "_")) == position


def test_the_bytes_are_javas() -> None:
    assert bytes(DLSN(7, 42, 3)).hex() == "010000000000000007000000000000002a0000000000000003"


@given(POSITIONS)
def test_every_position_comes_back(position: DLSN) -> None:
    assert DLSN.parse(str(position)) == position
    assert DLSN.decode(b"\0" + bytes(position)[1:] + bytes(175)) == position


@given(POSITIONS, POSITIONS)
def test_positions_sort_as_triples(one: DLSN, other: DLSN) -> None:
    assert (one < other) == ((one.segment, one.entry, one.slot) < (other.segment, other.entry, other.slot))


def test_what_follows_a_position() -> None:
    assert DLSN(7, 42, 3).next() == DLSN(7, 42, 4)
    assert DLSN(7, 42, 3).next_segment() == DLSN(8, 0, 0)


@given(st.binary(max_size=220))
def test_other_bytes_are_refused(data: bytes) -> None:
    if data[:1] == b"\1" and len(data) == 25:
        return
    with pytest.raises(SegmentFormatError):
        DLSN.decode(data)


def test_a_long_position_must_end_with_zeros() -> None:
    with pytest.raises(SegmentFormatError, match="zeros"):
        DLSN.decode(bytes(199) + b"\1")


@pytest.mark.parametrize("text", ["", "!", "AQAA", "AQAAAAAAAAAHAAAAAAAAACoAAAAAAAAAAw", "ä"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(SegmentFormatError):
        DLSN.parse(text)
