"""Readers of streams (spec streams §9)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bookkeeper.client.reader import LedgerReader
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.streams.dlsn import DLSN
from bookkeeper.streams.errors import EndOfStreamError, TruncatedError
from bookkeeper.streams.formats.segment import SegmentMetadata
from bookkeeper.streams.packing import EntryPacker
from bookkeeper.streams.policy import WritePolicy
from bookkeeper.streams.reading.cursor import find_next, find_start, find_txid, was_taken_back
from bookkeeper.streams.reading.reader import EARLIEST, LATEST, Record, RecordBatch, StreamReader, TxId
from bookkeeper.streams.writer import StreamWriter, open_writer
from tests.support.segment_store import StoreUnderTest
from tests.support.waiting import until


async def writer_of(store: StoreUnderTest) -> StreamWriter:
    return await open_writer(RealRuntime(), store, WritePolicy(roll_records=4, buffer_bytes=50))


async def write(store: StoreUnderTest, first: int, count: int) -> list[DLSN]:
    """Records whose payload is their transaction id."""
    async with await writer_of(store) as writer:
        return [await writer.append(b"%d" % n, txid=n) for n in range(first, first + count)]


async def read(reader: StreamReader) -> list[int]:
    return [int(record.payload) async for record in reader]


async def test_all_is_read_in_order_across_segments(store: StoreUnderTest) -> None:
    positions = await write(store, 0, 20)
    records = [record async for record in StreamReader(store, tail=False)]
    assert records == [Record(b"%d" % n, n, n, *at) for n, at in enumerate(positions)]
    assert records[-1].position.segment == 5


async def test_a_reader_begins_at_any_position(store: StoreUnderTest) -> None:
    positions = await write(store, 0, 20)
    for n, position in enumerate(positions):
        assert await read(StreamReader(store, position, tail=False)) == list(range(n, 20))
        assert await read(StreamReader(store, position.next(), tail=False)) == list(range(n + 1, 20))


async def test_a_reader_begins_at_any_transaction_id(store: StoreUnderTest) -> None:
    await write(store, 0, 10)
    await write(store, 15, 5)
    for txid in range(22):
        expected = [n for n in [*range(10), *range(15, 20)] if n >= txid]
        assert await read(StreamReader(store, TxId(txid), tail=False)) == expected


async def test_a_stored_position_is_read_on_from(store: StoreUnderTest) -> None:
    async with await writer_of(store) as writer:
        await writer.append_batch([b"%d" % n for n in range(20)], txid=1)
    found: list[int] = []
    text = str(EARLIEST)
    while True:
        reader = StreamReader(store, DLSN.parse(text), tail=False)
        batch: RecordBatch | None = await anext(reader.batches(), None)
        if batch is None:
            break
        found += map(int, batch.payloads())
        assert isinstance(reader.position, DLSN)
        text = str(reader.position)
    assert found == list(range(20))


async def test_a_tail_follows_over_rolls_until_the_stream_is_sealed(store: StoreUnderTest) -> None:
    found: list[int] = []

    async def follow() -> None:
        async for record in StreamReader(store):
            found.append(int(record.payload))  # noqa: PERF401 - those before the end count

    following = asyncio.ensure_future(follow())
    writer = await writer_of(store)
    for n in range(13):
        await writer.append(b"%d" % n, txid=n)
    await writer.mark_end()
    with pytest.raises(EndOfStreamError):
        await following
    assert found == list(range(13))


async def test_a_tail_goes_on_after_a_writer_that_died(store: StoreUnderTest) -> None:
    records = aiter(StreamReader(store))
    first = await writer_of(store)
    await first.append(b"0", txid=0)
    await first.flush()
    assert (await anext(records)).payload == b"0"
    await first.abort()
    second = await writer_of(store.another())
    await second.append(b"1", txid=1)
    await second.flush()
    found = await anext(records)
    assert (found.position, found.sequence_id) == (DLSN(2, 0, 0), 1)
    await records.aclose()
    await second.close()


async def test_a_tail_that_meets_a_segment_before_the_last_one_is_completed_numbers_its_records(
    store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A roll begins the next segment, closes the ledger of the last one, and only then completes that."""
    await store.load()
    first, ledger = await store.start(1, 0)
    second, next_ledger = await store.start(2, 0)
    packer = EntryPacker(1, WritePolicy(), 0)
    packer.add([b"0", b"1"], [0, 1])
    for entry in packer.seal():
        await ledger.append(entry.payload)
    await ledger.close()
    opened: list[int] = []
    open_segment = store.open

    async def opening(segment: SegmentMetadata) -> LedgerReader:
        opened.append(segment.number)
        return await open_segment(segment)

    monkeypatch.setattr(store, "open", opening)
    records = aiter(StreamReader(store))
    assert [(await anext(records)).sequence_id for _ in range(2)] == [0, 1]
    waiting = asyncio.ensure_future(anext(records))
    await until(lambda: opened == [1, 2], "the reader has come to the second segment")
    await store.complete(first.complete(last_txid=1, records=2, last=None, completed_ms=0, start_sequence_id=0))
    packer = EntryPacker(2, WritePolicy(), 1)
    packer.add([b"2"], [2])
    for entry in [*packer.seal(), *packer.control()]:
        await next_ledger.append(entry.payload)
    assert (await waiting) == Record(b"2", 2, 2, 2, 0, 0)
    await records.aclose()
    await next_ledger.close()
    await store.complete(second.complete(last_txid=2, records=1, last=None, completed_ms=0, start_sequence_id=2))


async def test_a_tail_goes_on_behind_a_segment_that_was_taken_back(store: StoreUnderTest) -> None:
    """Its writer died before its first record; the number is used again, with another ledger."""
    await write(store, 0, 3)
    await store.load()
    _, ledger = await store.start(2, 3)
    reader = StreamReader(store)
    records = aiter(reader)
    assert [(await anext(records)).txid for _ in range(3)] == [0, 1, 2]
    waiting = asyncio.create_task(anext(records))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await ledger.close()
    other = store.another()
    async with await writer_of(other) as writer:
        position = await writer.append(b"3", txid=3)
    assert position.segment == 2
    assert (await waiting).payload == b"3"
    await records.aclose()  # type: ignore[attr-defined]


def test_a_segment_that_is_gone_was_taken_back_unless_a_later_one_shows_that_it_was_completed() -> None:
    begun = SegmentMetadata(ledger_id=1, first_txid=0, number=5)
    before, again, after = (SegmentMetadata(ledger_id=n, first_txid=0, number=n) for n in (4, 5, 6))
    done = begun.complete(last_txid=0, records=1, last=DLSN(5, 0, 0), completed_ms=0, start_sequence_id=0)
    assert was_taken_back([], begun)
    assert was_taken_back([before], begun)
    assert was_taken_back([before, begun], begun), "its ledger is deleted first"
    assert was_taken_back([before, again], begun)
    assert was_taken_back([again, after], begun)
    assert not was_taken_back([after], begun)
    assert not was_taken_back([done, after], begun)
    assert not was_taken_back([before, again], done)


async def test_the_latest_position_is_behind_what_can_be_read(store: StoreUnderTest) -> None:
    await write(store, 0, 5)
    reader = StreamReader(store, LATEST)
    assert await reader.locate() == DLSN(3, 0, 0)
    async with await writer_of(store) as writer:
        await writer.append(b"5", txid=5)
        await writer.flush()
        inside = StreamReader(store, LATEST, tail=False)
        await inside.locate()
        await writer.append(b"6", txid=6)
    assert (await anext(reader.batches())).payloads() == [b"5"]
    assert await read(inside) == [6]


async def test_truncated_segments_are_skipped_at_the_start(store: StoreUnderTest) -> None:
    await write(store, 0, 12)
    one, two, *_ = (await store.now()).segments
    await store.load()
    await store.replace(one.truncate(None))
    await store.replace(two.truncate(DLSN(2, 1, 0)))
    left = await read(StreamReader(store, tail=False))
    assert left == list(range(left[0], 12))
    assert 4 < left[0] < 8
    every = StreamReader(store, tail=False, ignore_truncation=True)
    assert await read(every) == list(range(12))


def segment(number: int, ledger: int, status: int = 0) -> SegmentMetadata:
    done = SegmentMetadata(ledger_id=ledger, first_txid=number * 10, number=number, status=status)
    return replace(done, completed=True, records=5, last_txid=number * 10 + 4)


def test_a_reader_under_way_does_not_skip() -> None:
    one, two, three = segment(1, 11), segment(2, 12, 2), segment(3, 13)
    with pytest.raises(TruncatedError) as caught:
        find_next([one, two, three], one)
    assert caught.value.first_available == str(DLSN(3, 0, 0))
    with pytest.raises(TruncatedError):
        find_next([three], one)
    assert find_next([one, two, three], one, ignore_truncation=True) == two


def test_a_number_that_is_used_again_is_another_segment() -> None:
    empty, again = segment(1, 11), segment(1, 12)
    assert find_next([again], empty) == again
    assert find_next([empty], empty) is None


def test_where_a_reader_begins() -> None:
    segments = [segment(1, 11, 2), segment(2, 12), segment(3, 13)]
    start = find_start(segments, EARLIEST)
    assert start is not None
    assert start.position == DLSN(2, 0, 0)
    assert find_start(segments, DLSN(4, 0, 0)) is None
    assert find_txid(segments, 0) == DLSN(2, 0, 0)
    assert find_txid(segments, 25) == DLSN(3, 0, 0)
    assert find_txid(segments, 35) == DLSN(4, 0, 0)
