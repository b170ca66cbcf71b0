from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.storage.entry_log import format as fmt
from bookkeeper.errors import CorruptStorageError

ids = st.integers(0, 2**63 - 1)


def test_locations_of_the_specified_example() -> None:
    """R1."""
    assert fmt.location_of(3, 0x404).to_bytes(8, "big").hex() == "0000000300000404"
    assert fmt.location_of(3, 0x431).to_bytes(8, "big").hex() == "0000000300000431"
    assert fmt.log_of(0x0000000300000431) == 3
    assert fmt.offset_of(0x0000000300000431) == 0x431


def test_header_of_a_log_being_written() -> None:
    header = fmt.new_header()
    assert len(header) == 1024
    assert header.startswith(bytes.fromhex("424b4c4f00000001"))
    assert not header[8:].strip(b"\0")
    assert fmt.parse_header(header) == fmt.LogHeader(1, 0, 0)


def test_sealed_header_of_the_specified_example() -> None:
    header = bytearray(fmt.new_header())
    header[fmt.SEAL_OFFSET : fmt.SEAL_OFFSET + 12] = fmt.seal_fields(0x45B, 1)
    assert header[:20].hex() == "424b4c4f00000001000000000000045b00000001"
    assert fmt.parse_header(bytes(header)) == fmt.LogHeader(1, 0x45B, 1)


def test_an_old_log_has_no_ledgers_map() -> None:
    assert fmt.parse_header(b"BKLO" + bytes(4) + b"\xff" * 12) == fmt.LogHeader(0, 0, 0)


@pytest.mark.parametrize("data", [b"", b"BKLO", b"BKLE" + bytes(20), b"BKLO\0\0\0\2" + bytes(20), bytes(1024)])
def test_what_is_not_a_log_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptStorageError):
        fmt.parse_header(data)


def test_ledgers_map_of_the_specified_example() -> None:
    expected = "00000024ffffffffffffffff" + "fffffffffffffffe" + "00000001" + "0000000000000007" + "000000000000005b"
    assert fmt.encode_ledgers_map({7: 91}).hex() == expected


def test_ledgers_map_above_a_batch_has_several() -> None:
    sizes = {ledger: ledger + 1 for ledger in range(10001)}
    data = fmt.encode_ledgers_map(sizes)
    assert data[:4] == (160020).to_bytes(4, "big")
    assert len(data) == 160024 + 24 + 16
    assert fmt.decode_ledgers_map(data, 10001) == sizes


@given(
    st.dictionaries(ids, st.integers(1, 2**40), min_size=1, max_size=50), st.sampled_from([b"", b"\xf0" * 9, b"\0" * 9])
)
def test_ledgers_map_survives_a_round_trip_with_padding(sizes: dict[int, int], padding: bytes) -> None:
    assert fmt.decode_ledgers_map(fmt.encode_ledgers_map(sizes) + padding, len(sizes)) == sizes


@given(st.data())
def test_a_damaged_ledgers_map_is_refused_or_has_other_numbers(data: st.DataObject) -> None:
    raw = bytearray(fmt.encode_ledgers_map({1: 100, 2: 200, 3: 300}))
    place = data.draw(st.integers(0, 23))
    raw[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptStorageError):
        fmt.decode_ledgers_map(bytes(raw), 3)


@given(st.binary(max_size=200), st.integers(0, 5))
def test_any_bytes_as_a_ledgers_map_give_a_map_or_corrupt(data: bytes, count: int) -> None:
    """SEC-38."""
    with contextlib.suppress(CorruptStorageError):
        assert len(fmt.decode_ledgers_map(data, count)) == count
