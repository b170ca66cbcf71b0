"""Appends that nobody waits for one by one (spec streams §15.6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bookkeeper.errors import BackpressureError, NotOwnerError, WrongTypeError
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.streams.dlsn import DLSN
from bookkeeper.streams.errors import RecordTooLargeError, StreamClosedError, TxidOrderError
from bookkeeper.streams.policy import Visibility, WritePolicy
from bookkeeper.streams.reading.reader import StreamReader
from bookkeeper.streams.writer import StreamWriter, open_writer
from tests.support.segment_store import StoreUnderTest


async def writer_of(store: StoreUnderTest, policy: WritePolicy | None = None) -> StreamWriter:
    return await open_writer(RealRuntime(), store, policy)


async def payloads_of(store: StoreUnderTest) -> list[bytes]:
    return [record.payload async for record in StreamReader(store, tail=False)]


@pytest.mark.parametrize("visibility", Visibility)
async def test_futures_give_positions_in_the_order_of_the_calls(store: StoreUnderTest, visibility: Visibility) -> None:
    ended: list[int] = []
    async with await writer_of(store, WritePolicy(visibility=visibility, roll_records=300)) as writer:
        futures = [writer.append_nowait(b"%d" % n) for n in range(1000)]
        for n, future in enumerate(futures):
            future.add_done_callback(lambda _, n=n: ended.append(n))
        positions = [await future for future in futures]
    assert positions == sorted(set(positions))
    assert ended == list(range(1000))
    records = [record async for record in StreamReader(store, tail=False)]
    assert [(record.position, int(record.payload)) for record in records] == list(
        zip(positions, range(1000), strict=True)
    )


async def test_every_kind_of_append_keeps_the_order_of_the_calls(store: StoreUnderTest) -> None:
    async with await writer_of(store) as writer:
        first = writer.append_nowait(b"1")
        second = asyncio.ensure_future(writer.append(b"2"))
        await asyncio.sleep(0)
        third = writer.append_nowait(b"3")
        assert await first < await second < await third
        writer.append_nowait(b"4")
        await writer.append_batch([b"5", b"6"])
        writer.append_nowait(b"7")
        await writer.roll()
        writer.append_nowait(b"8")
        assert await writer.append_many(iter([b"9"])) == 1
    assert await payloads_of(store) == [b"%d" % n for n in range(1, 10)]


async def test_flush_and_close_wait_for_all_of_them(store: StoreUnderTest) -> None:
    writer = await writer_of(store)
    early = writer.append_nowait(b"a")
    await writer.flush()
    assert early.done()
    late = writer.append_nowait(b"b")
    await writer.close()
    assert late.done()
    assert isinstance(late.result(), DLSN)


async def test_mark_end_comes_behind_them(store: StoreUnderTest) -> None:
    writer = await writer_of(store)
    last = writer.append_nowait(b"a")
    await writer.mark_end()
    assert (await last).slot == 0


async def test_an_aborted_writer_tells_all_of_them(store: StoreUnderTest) -> None:
    writer = await writer_of(store)
    future = writer.append_nowait(b"a")
    await writer.abort()
    with pytest.raises(StreamClosedError):
        await future
    with pytest.raises(StreamClosedError):
        writer.append_nowait(b"b")


async def test_another_owner_ends_all_of_them(store: StoreUnderTest) -> None:
    writer = await writer_of(store)
    await writer.append(b"a")
    await (await writer_of(store.another())).close()
    future = writer.append_nowait(b"b")
    with pytest.raises(NotOwnerError):
        await future
    with pytest.raises(NotOwnerError):
        await writer.append(b"c")
    await writer.abort()
    assert await payloads_of(store) == [b"a"]


async def test_what_is_under_way_is_bounded(store: StoreUnderTest) -> None:
    async with await writer_of(store, WritePolicy(pending_bytes=1000)) as writer:
        large = writer.append_nowait(bytes(5000))  # one always has room
        with pytest.raises(BackpressureError, match="pending_bytes"):
            writer.append_nowait(b"x")
        await large
        futures = [writer.append_nowait(bytes(100)) for _ in range(10)]
        with pytest.raises(BackpressureError):
            writer.append_nowait(b"x")
        await asyncio.wait(futures)
        await writer.append_nowait(b"x")


async def test_bad_records_are_refused_at_the_call_and_the_writer_goes_on(store: StoreUnderTest) -> None:
    async with await writer_of(store) as writer:
        writer.append_nowait(b"a", txid=5)
        with pytest.raises(TxidOrderError):
            writer.append_nowait(b"b", txid=4)
        with pytest.raises(RecordTooLargeError):
            writer.append_nowait(bytes(2_000_000))
        with pytest.raises(WrongTypeError):
            writer.append_nowait("text")  # type: ignore[arg-type]
        with pytest.raises(WrongTypeError):
            await writer.append_many(b"abc")  # type: ignore[arg-type]
        writer.append_nowait(bytearray(b"c"), txid=5)  # type: ignore[arg-type]
    assert await payloads_of(store) == [b"a", b"c"]


async def test_a_record_whose_future_was_cancelled_before_it_left_is_taken_back(store: StoreUnderTest) -> None:
    async with await writer_of(store) as writer:
        writer.append_nowait(b"a")
        writer.append_nowait(b"b").cancel()
        sent = writer.append_nowait(b"c")
        await writer.flush()
        sent.cancel()
    assert await payloads_of(store) == [b"a", b"c"]


async def test_iterables_of_both_kinds_are_appended_within_the_bound(store: StoreUnderTest) -> None:
    async def coming() -> AsyncIterator[bytes]:
        for n in range(500):
            yield b"%d" % n

    async with await writer_of(store, WritePolicy(pending_bytes=100, roll_records=200)) as writer:
        assert await writer.append_many(coming()) == 500
        assert await writer.append_many(b"%d" % n for n in range(500, 10_000)) == 9_500
        assert await writer.append_many([]) == 0
    assert await payloads_of(store) == [b"%d" % n for n in range(10_000)]
