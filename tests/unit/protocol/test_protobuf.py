"""Protobuf by hand, beside Google's."""

from __future__ import annotations

import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import example, given
from hypothesis import strategies as st

from bookkeeper.protocol.protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    GROUP,
    GROUP_END,
    MAX_DEPTH,
    VARINT,
    NotProtobuf,
    fields,
    read_varint,
    sized,
    tag,
    unvarint,
    varint,
)

Found = list[tuple[int, int, int | bytes]]

numbers = st.integers(1, 15) | st.integers(1, 2**29 - 1)
values = st.one_of(
    st.tuples(st.just(VARINT), st.integers(0, 2**64 - 1)),
    st.tuples(st.just(BYTES), st.binary(max_size=200)),
    st.tuples(st.just(FIXED64), st.binary(min_size=8, max_size=8)),
    st.tuples(st.just(FIXED32), st.binary(min_size=4, max_size=4)),
)
messages = st.lists(st.tuples(numbers, values).map(lambda field: (field[0], *field[1])), max_size=6)


def written(message: Found) -> bytes:
    encoded = b""
    for number, wire_type, value in message:
        if isinstance(value, int):
            encoded += tag(number, wire_type) + varint(value)
        else:
            encoded += tag(number, wire_type) + (sized(value) if wire_type == BYTES else value)
    return encoded


def as_google_reads(data: bytes) -> Found | None:
    """What Google's code for Python finds, without groups; None if it finds no message. It lets the number 0 pass,
    which its other languages refuse, and we too."""
    try:
        unknown = UnknownFieldSet(Empty.FromString(data))
    except DecodeError:
        return None
    if has_number_zero(unknown):
        return None
    sizes = {FIXED64: 8, FIXED32: 4}
    return [
        (one.field_number, one.wire_type, one.data.to_bytes(size, "little") if size else one.data)
        for one in unknown
        if one.wire_type != GROUP
        for size in (sizes.get(one.wire_type, 0),)
    ]


def has_number_zero(unknown: UnknownFieldSet) -> bool:
    return any(one.field_number == 0 or (one.wire_type == GROUP and has_number_zero(one.data)) for one in unknown)


def as_ours_reads(data: bytes) -> Found | None:
    try:
        return list(fields(data))
    except NotProtobuf:
        return None


@given(messages)
def test_what_is_written_is_read(message: Found) -> None:
    data = written(message)
    assert as_ours_reads(data) == message
    assert as_google_reads(data) == message


groups = st.tuples(numbers, messages).map(lambda g: tag(g[0], GROUP) + written(g[1]) + tag(g[0], GROUP_END))


@given(st.lists(st.binary(max_size=12) | groups | messages.map(written), max_size=5).map(b"".join))
@example(bytes.fromhex("0b0c"))
@example(bytes.fromhex("0b0b0c"))
@example(bytes.fromhex("0b14"))
@example(bytes.fromhex("0c"))
@example(bytes.fromhex("0001"))
@example(bytes.fromhex("0f01"))
@example(bytes.fromhex("08" + "80" * 9 + "01"))
@example(bytes.fromhex("08" + "80" * 10 + "01"))
@example(bytes.fromhex("f8ffffff0f01"))
@example(bytes.fromhex("f8ffffff1f01"))
@example(bytes.fromhex("888080808000" + "01"))
def test_any_bytes_are_to_us_what_they_are_to_google(data: bytes) -> None:
    assert as_ours_reads(data) == as_google_reads(data)


@pytest.mark.parametrize(("depth", "accepted"), [(MAX_DEPTH, True), (MAX_DEPTH + 1, False), (100_000, False)])
def test_groups_are_followed_so_deep(depth: int, accepted: bool) -> None:
    data = tag(1, GROUP) * depth + tag(1, GROUP_END) * depth
    assert (as_ours_reads(data) == []) is accepted


@given(st.integers(-(2**63), 2**64 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_numbers_come_back(value: int, before: bytes, behind: bytes) -> None:
    encoded = varint(value)
    data = before + encoded + behind
    assert read_varint(data, len(before)) == (value % 2**64, len(before) + len(encoded))
    assert unvarint(encoded) % 2**64 == value % 2**64


@given(st.integers(0, 2**64 - 1), st.integers(0, 9), st.integers(1, 10))
def test_a_number_that_is_cut_or_too_long_is_refused(value: int, cut: int, longest: int) -> None:
    encoded = varint(value)
    if cut < len(encoded):
        with pytest.raises(NotProtobuf):
            read_varint(encoded[:cut], 0)
    if longest < len(encoded):
        with pytest.raises(NotProtobuf):
            read_varint(encoded, 0, longest)
    else:
        assert read_varint(encoded, 0, longest) == (value, len(encoded))
