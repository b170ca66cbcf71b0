"""Protobuf binary form."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import CorruptMetadata
from bookkeeper.metadata.formats.schema import Values
from bookkeeper.metadata.formats.wire import decode, encode
from bookkeeper.protocol.protobuf import varint

from .test_text_format import OUTER, outer


@given(outer)
def test_any_message_comes_back_equal(values: Values) -> None:
    assert decode(OUTER, encode(OUTER, values)) == values


@given(st.binary())
def test_any_bytes_are_at_worst_corrupt(data: bytes) -> None:
    with contextlib.suppress(CorruptMetadata):
        decode(OUTER, data)


@pytest.mark.parametrize(
    "unknown",
    [
        "f801 05",  # field 31, number
        "fa01 03 616263",  # bytes
        "f901 0102030405060708",  # eight bytes
        "fd01 01020304",  # four bytes
        "fb01 0805 fa01 00 fc01",  # a group with fields
        "fb01 0b 0c fc01",  # nested groups
        "0d 01020304",  # field 1, but with another wire type
        "18 09",  # an enum number that is not known
    ],
)
def test_unknown_fields_are_skipped(unknown: str) -> None:
    assert decode(OUTER, bytes.fromhex("0801" + unknown + "1002")) == {"number": 1, "small": 2}


@pytest.mark.parametrize(
    "data",
    [
        "08",
        "0880",
        "08" + "80" * 10 + "01",
        "22 05 61",
        "22 ffffffffffffffff7f 61",
        "00 01",
        "0f 01",
        "0c",
        "fb01 0805",
        "fb01 0805 f401",
        "f901 01",
        "22 01 ff",
        "0b" * 100,
    ],
)
def test_what_is_not_a_message_is_corrupt(data: str) -> None:
    with pytest.raises(CorruptMetadata):
        decode(OUTER, bytes.fromhex(data))


def test_a_small_number_keeps_its_low_bits() -> None:
    assert decode(OUTER, b"\x10" + varint(2**32 + 7)) == {"small": 7}
    assert decode(OUTER, b"\x10" + varint(-1)) == {"small": -1}
