"""The bytes of a journal (spec bookie-storage §3, §14.1)."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.journal.format import (
    HEADER_SIZE,
    SealHeader,
    decode_header,
    decode_seal,
    encode_header,
    entry_prefix,
    explicit_lac_record,
    fence_record,
    ledger_key_record,
    padding,
    sealed_padding,
)
from bookkeeper.errors import CorruptStorageError
from tests.support import java_journal

KEY = bytes.fromhex("9596625852f7fafc2c9cf0f9f7f3e5995206452b")
E0 = bytes.fromhex("00000000000000070000000000000000ffffffffffffffff00000000000000059e3e717b68656c6c6f")
LAC = bytes.fromhex("00000000000000070000000000000001777bd7f3")


def vector_file() -> bytes:
    """§14.1, typed in from the page."""
    data = bytearray(0x600)
    data[0:8] = bytes.fromhex("424b4c47 00000006")
    data[0x200:0x22C] = bytes.fromhex(
        "00000028 0000000000000007 fffffffffffff000 00000014 9596625852f7fafc2c9cf0f9f7f3e5995206452b"
    )
    data[0x22C:0x259] = bytes.fromhex("00000029") + E0
    data[0x259:0x261] = bytes.fromhex("ffffff00 0000019f")
    data[0x400:0x414] = bytes.fromhex("00000010 0000000000000007 ffffffffffffe000")
    data[0x414:0x440] = bytes.fromhex("00000028 0000000000000007 ffffffffffff8000 00000014") + LAC
    data[0x440:0x448] = bytes.fromhex("ffffff00 000001b8")
    return bytes(data)


def test_records_and_padding_are_those_of_the_vector() -> None:
    first = ledger_key_record(7, KEY) + entry_prefix(len(E0)) + E0
    second = fence_record(7) + explicit_lac_record(7, LAC)
    data = java_journal.header(6) + first
    data += padding(len(data), 512)
    assert len(data) == 1024
    data += second
    data += padding(len(data), 512)
    assert data == vector_file()


@pytest.mark.parametrize(
    ("position", "size", "head"),
    [
        (1024, 0, ""),
        (1020, 516, "ffffff00000001fc"),  # 4 bytes left: one unit further
        (1016, 8, "ffffff0000000000"),
        (1017, 519, "ffffff00000001ff"),
        (1023, 513, "ffffff00000001f9"),
        (1025, 511, "ffffff00000001f7"),
    ],
)
def test_padding_edge_cases(position: int, size: int, head: str) -> None:
    """R2."""
    data = padding(position, 512)
    assert len(data) == size
    assert data[:8].hex() == head
    assert not any(data[8:])


@given(position=st.integers(0, 100_000), alignment=st.sampled_from([512, 1024, 4096]))
def test_padding_is_what_java_writes(position: int, alignment: int) -> None:
    assert padding(position, alignment) == java_journal.padding(position, alignment)


@given(st.binary(max_size=3000), st.integers(1, 100), st.integers(0, 2**40), st.sampled_from([512, 4096]))
def test_sealed_padding_ends_aligned_and_tells_its_batch(
    batch: bytes, sectors: int, synced: int, alignment: int
) -> None:
    start = sectors * alignment
    record = sealed_padding([batch], 0x18BCFE56801, start, 3, synced, alignment)
    end = start + len(batch) + len(record)
    mask, size = struct.unpack_from(">ii", record)
    assert (mask, size) == (-0x100, len(record) - 8)
    assert end % alignment == 0
    assert len(record) < alignment + 52
    seal = decode_seal(record)
    assert seal is not None
    assert (seal.journal_id, seal.start, seal.count, seal.synced) == (0x18BCFE56801, start, 3, synced)


@given(st.data())
def test_a_seal_with_any_bit_flipped_is_none(data: st.DataObject) -> None:
    record = bytearray(sealed_padding([b"some batch"], 5, 512, 1, 512, 512))
    bit = data.draw(st.integers(0, 52 * 8 - 1))
    record[bit // 8] ^= 1 << bit % 8
    assert decode_seal(bytes(record)) is None


@pytest.mark.parametrize(("version", "first"), [(1, 0), (2, 8), (3, 8), (4, 8), (5, 512), (6, 512)])
def test_first_record_of_each_version(version: int, first: int) -> None:
    decoded = decode_header(java_journal.write([[java_journal.entry(1, 0, 40)]], version)[:HEADER_SIZE])
    assert (decoded.version, decoded.first_record, decoded.seal) == (version, first, None)


def test_a_file_that_does_not_begin_with_the_magic_is_version_1() -> None:
    assert decode_header(b"\0\0\0\x10" + bytes(600)).version == 1


@pytest.mark.parametrize("size", [0, 2, 4, 7, 8, 11, 12, 44, 511])
def test_a_header_cut_short_is_refused(size: int) -> None:
    with pytest.raises(CorruptStorageError):
        decode_header(encode_header(6, SealHeader(12, 11, 4096))[:size])


@pytest.mark.parametrize("version", [0, 7, -1, 1 << 30])
def test_unknown_versions_are_refused(version: int) -> None:
    with pytest.raises(CorruptStorageError):
        decode_header((b"BKLG" + struct.pack(">i", version)).ljust(512, b"\0"))


def test_our_header_is_javas_with_a_seal_in_the_zeros() -> None:
    seal = SealHeader(12, 11, 4096)
    data = encode_header(6, seal)
    assert len(data) == 512
    assert data[:8] == java_journal.header(6)[:8]
    assert decode_header(data).seal == seal
    assert encode_header(4, seal) == java_journal.header(4)


@given(st.integers(0, 512 * 8 - 1))
def test_a_header_with_any_bit_flipped_is_refused_or_no_header(bit: int) -> None:
    data = bytearray(encode_header(6, SealHeader(12, 11, 4096)))
    data[bit // 8] ^= 1 << bit % 8
    if bit < 32:
        assert decode_header(bytes(data)).version == 1  # the magic is gone; what follows makes no sense as records
    else:
        with pytest.raises(CorruptStorageError):
            decode_header(bytes(data))
