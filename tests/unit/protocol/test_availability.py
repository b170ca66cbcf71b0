from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import ProtocolError
from bookkeeper.protocol.availability import decode_availability, encode_availability


def _encoded(*groups: str) -> bytes:
    return bytes(4) + len(groups).to_bytes(4, "big") + bytes(56) + b"".join(map(bytes.fromhex, groups))


EXAMPLES = [
    ([], _encoded()),
    ([0, 1, 2, 3], _encoded("0000000000000000 0000000000000000 00000004 00000000")),
    ([0, 1, 2, 5, 6, 7, 10, 11, 12], _encoded("0000000000000000 000000000000000a 00000003 00000005")),
    (
        [0, 1, 5, 6, 10, 11, 20, 21, 25, 26],
        _encoded(
            "0000000000000000 000000000000000a 00000002 00000005", "0000000000000014 0000000000000019 00000002 00000005"
        ),
    ),
]

JAVA = _encoded(
    "0000000000000000 0000000000000000 00000003 00000000",
    "0000000000000005 0000000000000005 00000003 00000000",
    "000000000000000a 000000000000000a 00000003 00000000",
)

ENTRY_SETS = st.sets(st.integers(0, 200)) | st.sets(st.integers(0, 2**62))


@pytest.mark.parametrize(("entries", "data"), EXAMPLES)
def test_the_examples_of_the_spec(entries: list[int], data: bytes) -> None:
    assert encode_availability(entries) == data
    assert list(decode_availability(data)) == entries


def test_one_group_for_each_sequence_as_java_sends_it() -> None:
    assert list(decode_availability(JAVA)) == [0, 1, 2, 5, 6, 7, 10, 11, 12]


@given(ENTRY_SETS, st.sets(st.integers(-5, 220)))
def test_what_was_encoded_is_what_is_there(entries: set[int], asked: set[int]) -> None:
    availability = decode_availability(encode_availability(sorted(entries)))
    assert list(availability) == sorted(entries)
    assert availability.count == len(entries)
    assert set(availability.missing(asked)) == asked - entries
    assert availability.missing(entries) == []


@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 50))
def test_a_striped_segment_is_one_group(size: int, gap: int, count: int) -> None:
    entries = [k * (size + gap) + j for k in range(count) for j in range(size)]
    assert len(encode_availability(entries)) == 64 + 24


def test_repeated_ids_count_once() -> None:
    assert encode_availability([0, 0, 1, 1, 2, 3, 3]) == encode_availability([0, 1, 2, 3])


def test_distances_beyond_32_bits_start_a_new_group() -> None:
    entries = [0, 2**31 - 1, 2**33]
    data = encode_availability(entries)
    assert len(data) == 64 + 2 * 24
    assert list(decode_availability(data)) == entries


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(63),
        b"\0\0\0\1" + bytes(60),
        b"\xff\xff\xff\xff" + bytes(60),
        bytes(64) + b"\0",
        _encoded() + bytes(24),
        bytes(4) + b"\xff\xff\xff\xff" + bytes(56),
        _encoded("0000000000000000 000000000000000a 00000003 00000000"),  # several sequences without a period
        _encoded("0000000000000000 000000000000000a 00000003 00000002"),  # sequences overlap
        _encoded("0000000000000000 000000000000000a 00000003 00000003"),  # the last does not start on the period
        _encoded("0000000000000000 0000000000000000 00000000 00000000"),  # empty
        _encoded("0000000000000005 0000000000000000 00000001 00000005"),  # backwards
        _encoded("ffffffffffffffff ffffffffffffffff 00000001 00000000"),  # negative
        _encoded(*["0000000000000005 0000000000000005 00000001 00000000"] * 2),  # twice
    ],
)
def test_broken_answers_are_refused(data: bytes) -> None:
    """SEC-30: also a count of groups that the answer does not hold."""
    with pytest.raises(ProtocolError):
        decode_availability(data)


@given(st.binary(max_size=120), st.booleans())
def test_any_bytes_are_an_answer_or_a_protocol_error(data: bytes, with_header: bool) -> None:
    groups = data[: len(data) // 24 * 24]
    text = bytes(4) + (len(groups) // 24).to_bytes(4, "big") + bytes(56) + groups if with_header else data
    try:
        availability = decode_availability(text)
    except ProtocolError:
        return
    assert availability.count >= len(groups) // 24
