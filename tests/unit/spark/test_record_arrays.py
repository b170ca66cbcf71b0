"""Records as arrays: the same rows as from records one by one, and the same entries as the packer's."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bookkeeper.client.reads.columns import PackedRun
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.spark.pieces import Piece
from bookkeeper.spark.streaming import record_arrays
from bookkeeper.spark.streaming.following import Facts
from bookkeeper.spark.streaming.record_arrays import take_records
from bookkeeper.spark.streaming.records import RecordBatches
from bookkeeper.spark.streaming.stream_options import StreamOptions
from bookkeeper.spark.writing.bodies import are_worth_it, bodies
from bookkeeper.streams.errors import CorruptEntryError
from bookkeeper.streams.formats.codec import Compression
from bookkeeper.streams.formats.entry import decode_entry, encode_entry
from bookkeeper.streams.formats.record_set import encode_set
from bookkeeper.streams.formats.records import CONTROL, LARGEST_PAYLOAD, SET, encode_record, encode_records

CHANCE = random.Random(20)
EVEN = [CHANCE.randbytes(100) for _ in range(90)]
UNEVEN = [CHANCE.randbytes(CHANCE.choice((0, 1, 7, 200, 3000))) for _ in range(90)]
EMPTY = [b""] * 300
URI = "distributedlog-sqlite:///no/such.db?namespace=/ns"


def rows(entries: Sequence[bytes], facts: Facts, **options: str) -> list[dict[str, Any]]:
    """What Spark gets of these entries, all of one ledger."""
    parsed = StreamOptions.parse({"uri": URI, "stream": "s", **options}, streaming=True)
    offsets = np.cumsum([0, *map(len, entries)]).astype(np.int32)
    none = np.zeros(len(entries), np.int64)
    run = PackedRun(7, 0, none, none, offsets, list(map(memoryview, entries)), np.zeros((len(entries), 4), np.uint8))
    metadata = LedgerMetadata.__new__(LedgerMetadata)  # nobody looks at it here
    maker = RecordBatches(parsed, {7: facts})
    return [row for batch in maker.batches([Piece(metadata, run, {})]) for row in batch.to_pylist()]


def by_objects(monkeypatch: pytest.MonkeyPatch, *given: Any, **options: str) -> list[dict[str, Any]]:
    with monkeypatch.context() as patch:
        patch.setattr(record_arrays, "WORTH", 1 << 30)
        return rows(*given, **options)


@pytest.mark.parametrize("options", [{}, {"rowMode": "kafka", "includeHeaders": "true"}, {"txidAsTimestamp": "false"}])
@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("payloads", [EVEN, UNEVEN, EMPTY], ids=["even", "uneven", "empty"])
@pytest.mark.parametrize("cut", [((0, 0), None), ((1, 5), (2, 60)), ((1, 80), (1, 80)), ((2, 400), None)])
def test_rows_are_those_of_records_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
    payloads: list[bytes],
    codec: Compression,
    options: dict[str, str],
    cut: tuple[tuple[int, int], tuple[int, int] | None],
) -> None:
    txids = [[0] * len(payloads), range(1000, 1000 + len(payloads)), range(1 << 60, (1 << 60) + len(payloads))]
    entries = [encode_entry(encode_records(payloads, txids[n], 1 + n * len(payloads)), codec) for n in range(3)]
    facts = Facts("s", 4, True, 900, 5000, *cut)
    found = rows(entries, facts, **options)
    assert found == by_objects(monkeypatch, entries, facts, **options)
    assert all(
        take_records(memoryview(entry), enveloped=True) for entry in entries if len(entry) >= record_arrays.WORTH
    )


def test_large_and_small_entries_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    every = [EVEN, EVEN[:3], UNEVEN[:2], UNEVEN, [b"x"], EVEN]
    entries, position = [], 1
    for payloads in every:
        entries.append(encode_entry(encode_records(payloads, [1] * len(payloads), position)))
        position += len(payloads)
    facts = Facts("s", 4, True, 0, 0, (0, 0))
    for bounds in ({}, {"maxBatchRows": "7"}, {"maxBatchBytes": "2000"}):
        found = rows(entries, facts, **bounds)
        assert [row["payload"] for row in found] == [payload for payloads in every for payload in payloads]
        assert [row["sequence_id"] for row in found] == list(range(position - 1))
        assert found == by_objects(monkeypatch, entries, facts, **bounds)


@pytest.mark.parametrize(
    "body",
    [
        encode_records(EVEN, [1] * 90, 1) + encode_record(b"control", 1, 90, CONTROL),
        encode_record(encode_set(EVEN), 1, 1, SET),
        encode_records(EVEN[:40], [1] * 40, 1) + encode_records(EVEN[40:], [1] * 50, 60),
        encode_records(UNEVEN, [1] * 90, 1) + encode_records(EVEN, [1] * 90, 7),
    ],
    ids=["control", "set", "gap", "gap, uneven"],
)
def test_what_is_not_plain_is_left_to_the_decoder(body: bytes) -> None:
    entry = encode_entry(body)
    assert take_records(memoryview(entry), enveloped=True) is None
    facts = Facts("s", 4, True, 0, 0, (0, 0))
    assert [row["payload"] for row in rows([entry], facts)] == list(decode_entry(entry).users().payloads)


def test_entries_without_envelopes() -> None:
    entries = [encode_records(EVEN, [1] * 90, 1), encode_records(UNEVEN, [1] * 90, 91)]
    assert all(take_records(memoryview(entry), enveloped=False) for entry in entries)
    found = rows(entries, Facts("s", 4, False, 0, 0, (0, 0)))
    assert [row["payload"] for row in found] == EVEN + UNEVEN


def test_damage_is_told_with_its_place() -> None:
    body = encode_records(UNEVEN, [1] * 90, 1)
    for damaged in (encode_entry(body[:-1]), encode_entry(body)[:-1], b"\x07" + encode_entry(body)[1:]):
        with pytest.raises(CorruptEntryError, match="stream s, segment 4, ledger 7, entry 0: "):
            rows([damaged], Facts("s", 4, True, 0, 0, (0, 0)))


@pytest.mark.parametrize("payloads", [EVEN * 30, UNEVEN * 3, EMPTY], ids=["even", "uneven", "empty"])
@pytest.mark.parametrize("wanted", [1, 5000, 100_000, 1 << 30])
def test_a_column_becomes_entries(payloads: list[bytes], wanted: int) -> None:
    column = pa.array([b"before", *payloads, b"behind"], pa.binary())[1:-1]
    found, position = [], 8
    for body, count in bodies(column, position, wanted):
        stored = decode_entry(encode_entry(body))
        assert len(stored) == count
        assert list(stored.positions) == list(range(position, position + count))
        assert set(stored.txids) == {0}
        assert stored.flags is None
        assert count == 1 or len(body) <= 2 * wanted
        found += stored.payloads
        position += count
    assert found == payloads


def test_few_bytes_and_too_large_records_go_another_way() -> None:
    assert not are_worth_it(pa.array([b"x" * 100], pa.binary()))
    assert not are_worth_it(pa.array([b"x" * 100_000, bytes(LARGEST_PAYLOAD + 1)], pa.binary()))
    assert are_worth_it(pa.array([b"x" * 100_000, bytes(LARGEST_PAYLOAD)], pa.binary()))
