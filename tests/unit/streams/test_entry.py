"""Entries, records and record sets (spec streams §5)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.streams.errors import CorruptEntryError, RecordTooLargeError
from bookkeeper.streams.formats import lz4, record_set, records
from bookkeeper.streams.formats.codec import Compression
from bookkeeper.streams.formats.entry import decode_entry, encode_entry, open_entry
from bookkeeper.streams.formats.record_set import count_of, decode_set, encode_set
from bookkeeper.streams.formats.records import (
    CONTROL,
    CONTROL_PAYLOAD,
    END,
    END_PAYLOAD,
    END_TXID,
    SET,
    decode_records,
    encode_record,
    encode_records,
)
from bookkeeper.streams.formats.stored import StoredRecord

JAVA = Path(__file__).parents[2] / "data" / "streams" / "java-entries.jsonl"

TWO = (
    "01000000000000003300000033"
    "000000000001000000000000000003e90000000568656c6c6f"
    "000000000002000000000000000003ea00000006776f726c6421"
)
TWO_LZ4 = (
    "0100000001000000330000002f"
    "1000010010010500000200b003e90000000568656c6c6f0f002100020600f00000000003ea00000006776f726c6421"
)
CONTROL_ENTRY = "01000000000000001b0000001b000000000002000100000000000003ea00000007636f6e74726f6c"
END_ENTRY = "01000000000000001f0000001f00000000000200027fffffffffffffff0000000b656e644f6653747265616d"
SET_ENTRY = (
    "01000000000000003600000036000000000003000400000000000007d000000022"
    "00001000000000030000001200000012000000026161000000036262620000000163"
)
SET_LZ4 = "00001001000000030000001200000014f003000000026161000000036262620000000163"


def hexed(text: str) -> bytes:
    return bytes.fromhex(text)


def test_two_records_are_javas_bytes() -> None:
    records = encode_records([b"hello", b"world!"], [1001, 1002], 1)
    assert encode_entry(records) == hexed(TWO)
    found = [StoredRecord(0, 0, 1, 1001, b"hello"), StoredRecord(1, 0, 2, 1002, b"world!")]
    assert decode_entry(hexed(TWO)) == found
    assert decode_entry(hexed(TWO_LZ4)) == found


def test_control_and_end_are_javas_bytes() -> None:
    assert encode_entry(encode_record(CONTROL_PAYLOAD, 1002, 2, CONTROL)) == hexed(CONTROL_ENTRY)
    assert encode_entry(encode_record(END_PAYLOAD, END_TXID, 2, END)) == hexed(END_ENTRY)
    assert decode_entry(hexed(END_ENTRY)) == [StoredRecord(0, END, 2, END_TXID, END_PAYLOAD)]


def test_an_old_entry_has_no_envelope() -> None:
    old = hexed("00000000000100000000000000000005000000027633")
    assert decode_entry(old, enveloped=False) == [StoredRecord(0, 0, 1, 5, b"v3")]


def test_a_record_set_is_javas_bytes_and_counts_for_each_payload() -> None:
    record = encode_record(encode_set([b"aa", b"bbb", b"c"]), 2000, 3, SET)
    assert encode_entry(record) == hexed(SET_ENTRY)
    assert decode_entry(hexed(SET_ENTRY)) == [
        StoredRecord(0, 0, 3, 2000, b"aa"),
        StoredRecord(1, 0, 4, 2000, b"bbb"),
        StoredRecord(2, 0, 5, 2000, b"c"),
    ]
    assert decode_set(hexed(SET_LZ4)) == [b"aa", b"bbb", b"c"]
    assert count_of(hexed(SET_LZ4)) == 3


def java_entries() -> list[dict[str, object]]:
    return [json.loads(line) for line in JAVA.read_text().splitlines()]


@pytest.mark.parametrize("row", java_entries(), ids=lambda row: f"{row['ledger']}-{row['entry']}")
def test_entries_that_java_wrote_are_read(row: dict[str, object]) -> None:
    records = row["records"]
    assert isinstance(records, list)
    found = decode_entry(hexed(str(row["payload"])))
    assert [record._replace(payload=record.payload.hex()) for record in found] == [  # type: ignore[arg-type]
        StoredRecord(**record) for record in records
    ]


PAYLOADS = st.lists(st.binary(max_size=40), min_size=1, max_size=20)
COMPRESSIONS = st.sampled_from(Compression)


@given(PAYLOADS, COMPRESSIONS, st.integers(0, (1 << 63) - 1), st.integers(1, 1 << 30))
def test_records_come_back(payloads: list[bytes], compression: Compression, txid: int, position: int) -> None:
    entry = encode_entry(encode_records(payloads, [txid] * len(payloads), position), compression)
    assert decode_entry(entry) == [
        StoredRecord(slot, 0, position + slot, txid, payload) for slot, payload in enumerate(payloads)
    ]


@given(PAYLOADS, COMPRESSIONS)
def test_a_record_set_comes_back(payloads: list[bytes], compression: Compression) -> None:
    assert decode_set(encode_set(payloads, compression)) == payloads


@given(PAYLOADS, COMPRESSIONS, COMPRESSIONS, st.data())
def test_damage_gives_one_kind_of_error_with_its_place(
    payloads: list[bytes], outer: Compression, inner: Compression, data: st.DataObject
) -> None:
    body = encode_records(payloads, [7] * len(payloads), 1) + encode_record(encode_set(payloads, inner), 8, 2, SET)
    entry = encode_entry(body, outer)
    cut = data.draw(st.integers(0, len(entry) - 1))
    with pytest.raises(CorruptEntryError) as caught:
        decode_entry(entry[:cut])
    assert 0 <= caught.value.offset <= len(body) + len(entry)
    flipped = bytearray(entry)
    flipped[cut] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(CorruptEntryError):  # else a payload, txid or position: the ledger's digest guards these
        assert sum(len(record.payload) for record in decode_entry(bytes(flipped))) <= len(body)


@pytest.mark.parametrize("text", [TWO, TWO_LZ4, CONTROL_ENTRY, END_ENTRY, SET_ENTRY])
def test_every_truncation_and_every_flipped_bit_of_the_header_is_found(text: str) -> None:
    entry = hexed(text)
    for size in range(len(entry)):
        with pytest.raises(CorruptEntryError):
            decode_entry(entry[:size])
    for bit in range(8 * 13):
        if 8 <= bit < 32 or 34 <= bit < 40:
            continue  # flags that mean nothing
        flipped = bytearray(entry)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptEntryError):
            decode_entry(bytes(flipped))


@given(st.binary(max_size=200))
def test_any_bytes_are_records_or_damage(data: bytes) -> None:
    for decode in (decode_records, decode_set, open_entry, lambda block: lz4.decompress(block, 1000)):
        with contextlib.suppress(CorruptEntryError):
            assert len(decode(data)) <= 1000


def test_an_entry_is_never_empty() -> None:
    with pytest.raises(CorruptEntryError, match="no records"):
        decode_entry(encode_entry(b""))


def test_a_record_set_that_is_too_large_is_refused() -> None:
    with pytest.raises(RecordTooLargeError):
        encode_set([bytes(600_000), bytes(600_000)])


ARROW = pa.Codec("lz4_raw")


@given(st.one_of(st.binary(max_size=2000), st.lists(st.sampled_from([b"abc", b"d", bytes(300)])).map(b"".join)))
def test_lz4_agrees_with_another_implementation(data: bytes) -> None:
    block = lz4.compress(data)
    assert lz4.decompress(block, len(data)) == data
    if data:
        assert ARROW.decompress(block, len(data), asbytes=True) == data
        assert lz4.decompress(ARROW.compress(data, asbytes=True), len(data)) == data


def test_lz4_stops_a_block_that_claims_too_much() -> None:
    bomb = b"\x1fa\x01\x00" + b"\xff" * 4000 + b"\x00"
    with pytest.raises(CorruptEntryError, match="does not fit"):
        lz4.decompress(bomb, 1000)


PAYLOADS = st.integers(0, 5).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), max_size=12)
) | st.lists(st.binary(max_size=6), max_size=12)
DAMAGE = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3)


def damaged(data: bytes, damage: list[tuple[int, int]], cut: int) -> bytes:
    mutable = bytearray(data)
    for at, value in damage:
        if at < len(mutable):
            mutable[at] = value
    return bytes(mutable[: len(mutable) - cut])


def outcome(decode: Callable[[bytes], object], data: bytes) -> object:
    try:
        return decode(data)
    except CorruptEntryError as error:
        return str(error)


@given(PAYLOADS, DAMAGE, st.integers(0, 3), st.data())
def test_taking_records_apart_at_once_is_taking_them_apart_one_by_one(
    payloads: list[bytes], damage: list[tuple[int, int]], cut: int, data: st.DataObject
) -> None:
    flags = data.draw(st.lists(st.sampled_from([0, 0, 0, 1, 2, 4]), min_size=len(payloads), max_size=len(payloads)))
    encoded = [encode_record(each, 7, n, flag) for n, (each, flag) in enumerate(zip(payloads, flags, strict=True))]
    body = damaged(b"".join(encoded), damage, cut)
    assert outcome(records.decode_records, body) == outcome(records._one_by_one, body)


@given(PAYLOADS, DAMAGE, st.integers(0, 3))
def test_taking_a_set_apart_at_once_is_taking_it_apart_one_by_one(
    payloads: list[bytes], damage: list[tuple[int, int]], cut: int
) -> None:
    data = damaged(b"".join(len(each).to_bytes(4, "big") + each for each in payloads), damage, cut)
    found = record_set._alike(data)
    assert found is None or found == outcome(record_set._one_by_one, data)
