"""What a stream holds, and taking it a few records at a time (spec streams §9.1, §9.4, §15.5)."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.errors import IncorrectParameterError
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.streams.dlsn import DLSN
from bookkeeper.streams.errors import EndOfStreamError, IdleReaderError, StreamEmptyError
from bookkeeper.streams.policy import WritePolicy
from bookkeeper.streams.reading.queries import count_records, first_record, last_record
from bookkeeper.streams.reading.reader import EARLIEST, Record, StreamReader, TxId
from bookkeeper.streams.writer import StreamWriter, open_writer
from tests.support.segment_store import StoreUnderTest

TXIDS = [1, 1, 2, 5, 5, 5, 8, 9, 9, 14, 14, 14, 14, 20]


async def write_some(store: StoreUnderTest) -> StreamWriter:
    """Several segments, entries of one and of several records, plain and in sets, and an open end; the writer is left
    open."""
    writer = await open_writer(RealRuntime(), store, WritePolicy(roll_records=4, buffer_bytes=50))
    for n, txid in enumerate(TXIDS):
        if n % 3:
            await writer.append(b"%d" % n, txid=txid)
        else:
            await writer.append_batch([b"%d" % n] * 3, txid=txid, as_sets=n % 2 == 0)
    await writer.flush()
    return writer


async def all_of(store: StoreUnderTest) -> list[Record]:
    return [record async for record in StreamReader(store, tail=False)]


async def test_an_empty_stream_has_no_first_and_no_last(store: StoreUnderTest) -> None:
    with pytest.raises(StreamEmptyError):
        await first_record(store)
    with pytest.raises(StreamEmptyError):
        await last_record(store)
    assert await count_records(store, EARLIEST, None) == 0


@pytest.mark.parametrize("closed", [False, True])
async def test_first_last_and_counts_are_those_of_what_is_read(store: StoreUnderTest, closed: bool) -> None:
    writer = await write_some(store)
    if closed:
        await writer.close()
    records = await all_of(store)
    assert await first_record(store) == records[0]
    assert await last_record(store) == records[-1]
    ends = [EARLIEST, *(record.position for record in records), records[-1].position.next(), DLSN(99, 0, 0)]
    for start in ends:
        assert await count_records(store, start, None) == sum(record.position >= start for record in records)
        for until in ends:
            expected = sum(start <= record.position < until for record in records)
            assert await count_records(store, start, until) == expected, (start, until)
    await writer.abort()


@pytest.mark.parametrize("closed", [False, True])
async def test_a_transaction_id_is_found_at_its_first_record(store: StoreUnderTest, closed: bool) -> None:
    writer = await write_some(store)
    if closed:
        await writer.close()
    records = await all_of(store)
    for txid in range(23):
        reader = StreamReader(store, TxId(txid), tail=False)
        at = await reader.locate()
        expected = [record for record in records if record.txid >= txid]
        assert [record async for record in reader] == expected
        assert [record async for record in StreamReader(store, at, tail=False)] == expected
    await writer.abort()


async def test_what_was_sealed_ends_with_its_last_record(store: StoreUnderTest) -> None:
    writer = await write_some(store)
    records = await all_of(store)
    await writer.mark_end()
    assert await last_record(store) == records[-1]
    assert await count_records(store, EARLIEST, None) == len(records)


async def test_a_reader_ends_before_a_position(store: StoreUnderTest) -> None:
    writer = await write_some(store)
    records = await all_of(store)
    for n, record in enumerate(records):
        reader = StreamReader(store, until=record.position)
        assert [each async for each in reader] == records[:n]
        assert [each async for each in reader] == []
    await writer.abort()


async def test_read_gives_all_in_pieces_and_can_be_gone_on_with_anywhere(store: StoreUnderTest) -> None:
    writer = await write_some(store)
    records = await all_of(store)
    for most in (1, 2, 7, 1000):
        found: list[Record] = []
        async with StreamReader(store, tail=False) as reader:
            while piece := await reader.read(most):
                assert len(piece) <= most
                found += piece
                assert isinstance(reader.position, DLSN)
                assert [each async for each in StreamReader(store, reader.position, tail=False)] == records[
                    len(found) :
                ]
        assert found == records
    await writer.abort()


async def test_a_wait_that_ends_early_loses_nothing(store: StoreUnderTest) -> None:
    writer = await write_some(store)
    records = await all_of(store)
    async with StreamReader(store, records[-1].position.next()) as reader:
        assert await reader.read(timeout=0) == []
        cancelled = asyncio.ensure_future(reader.read())
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        await writer.append_batch([b"x", b"y"], txid=21)
        assert [record.payload for record in await reader.read(1)] == [b"x"]
        assert [record.payload for record in await reader.read()] == [b"y"]
        reader.position = records[0].position
        assert await reader.read(1) == records[:1]
        with pytest.raises(IncorrectParameterError):
            await reader.read(0)
    await writer.abort()


async def test_read_goes_on_where_it_found_the_end(store: StoreUnderTest) -> None:
    writer = await write_some(store)
    reader = StreamReader(store, tail=False)
    while await reader.read():
        pass
    await writer.append(b"x", txid=21)
    await writer.mark_end()
    assert [record.payload for record in await reader.read()] == [b"x"]
    with pytest.raises(EndOfStreamError):
        await reader.read()
    await reader.close()


async def test_an_idle_reader_says_so_and_can_be_used_again(store: StoreUnderTest) -> None:
    writer = await write_some(store)
    records = await all_of(store)
    reader = StreamReader(store, idle_timeout=0.05)
    assert await reader.read(1000) == records[:3]
    assert [await reader.read(1) for _ in records[3:]] == [[record] for record in records[3:]]
    with pytest.raises(IdleReaderError):
        await reader.read()
    assert reader.position == records[-1].position.next()
    await writer.append(b"x", txid=21)
    assert [record.payload for record in await reader.read()] == [b"x"]
    await reader.close()
    await writer.abort()
