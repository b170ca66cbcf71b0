"""Writers of streams (spec streams §8)."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.errors import NotOwnerError
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.streams.dlsn import DLSN
from bookkeeper.streams.errors import (
    EndOfStreamError,
    RecordTooLargeError,
    StreamClosedError,
    TransmitError,
    TxidOrderError,
)
from bookkeeper.streams.formats.entry import decode_entry
from bookkeeper.streams.formats.records import CONTROL, END_TXID
from bookkeeper.streams.policy import Visibility, WritePolicy
from bookkeeper.streams.writer import StreamWriter, open_writer
from tests.support.segment_store import StoreUnderTest


async def writer_of(store: StoreUnderTest, **policy: object) -> StreamWriter:
    return await open_writer(RealRuntime(), store, WritePolicy(**policy))  # type: ignore[arg-type]


async def stored(store: StoreUnderTest, *, control: bool = False) -> list[tuple[DLSN, bytes]]:
    """All records of completed segments."""
    found = []
    for segment in (await store.now()).segments:
        async with await store.open(segment) as ledger:
            async for entry in ledger.entries():
                found += [
                    (DLSN(segment.number, entry.entry_id, record.slot), record.payload)
                    for record in decode_entry(entry.data)
                    if control or not record.flags & CONTROL
                ]
    return found


async def test_what_is_appended_is_where_it_was_said_to_be(store: StoreUnderTest) -> None:
    payloads = [b"record %d" % n for n in range(5000)]
    async with await writer_of(store) as writer:
        one = await writer.append(b"first", txid=1)
        many = await writer.append_batch(payloads, txid=2)
        sets = await writer.append_batch(payloads, txid=3, as_sets=True)
    assert one == DLSN(1, 0, 0)
    assert len(many) == len(payloads)
    assert await stored(store) == list(zip([one, *many, *sets], [b"first", *payloads, *payloads], strict=True))
    (segment,) = (await store.now()).segments
    assert (segment.records, segment.first_txid, segment.last_txid) == (10001, 1, 3)
    assert DLSN(1, segment.last_entry, segment.last_slot) == sets.last


async def test_appends_at_once_share_entries_and_keep_their_order(store: StoreUnderTest) -> None:
    async with await writer_of(store) as writer:
        positions = await asyncio.gather(*(writer.append(b"%d" % n, txid=n) for n in range(100)))
    assert positions == sorted(positions)
    assert [payload for _, payload in await stored(store)] == [b"%d" % n for n in range(100)]
    assert positions[-1].entry < 10


@pytest.mark.parametrize("visibility", Visibility)
async def test_who_flushes_lets_readers_see(store: StoreUnderTest, visibility: Visibility) -> None:
    writer = await writer_of(store, visibility=visibility)
    position = await writer.append(b"one", txid=1)
    assert await writer.flush() == 1
    (segment,) = (await store.now()).segments
    async with await store.open(segment) as ledger:
        assert await ledger.read_last_add_confirmed() >= position.entry
    await writer.close()


async def test_a_segment_rolls_by_records_and_goes_on_with_the_next(store: StoreUnderTest) -> None:
    async with await writer_of(store, roll_records=3, buffer_bytes=0) as writer:
        for n in range(10):
            await writer.append(b"%d" % n, txid=n)
    segments = (await store.now()).segments
    assert [segment.number for segment in segments] == [1, 2, 3, 4]
    assert [segment.records for segment in segments] == [3, 3, 3, 1]
    assert [segment.sequence_id for segment in segments] == [0, 3, 6, 9]
    assert all(segment.completed for segment in segments)
    assert [payload for _, payload in await stored(store)] == [b"%d" % n for n in range(10)]


async def test_the_next_writer_completes_what_an_aborted_one_left(store: StoreUnderTest) -> None:
    first = await writer_of(store)
    await first.append(b"kept", txid=7)
    await first.abort()
    with pytest.raises(StreamClosedError):
        await first.append(b"late", txid=8)
    other = store.another()
    async with await writer_of(other) as second:
        assert second.last_txid == 7
        assert (await second.append(b"more", txid=7)).segment == 2
    assert [payload for _, payload in await stored(store)] == [b"kept", b"more"]
    assert [segment.sequence_id for segment in (await store.now()).segments] == [0, 1]


async def test_a_segment_without_records_is_removed_and_its_number_used_again(store: StoreUnderTest) -> None:
    await store.load()
    _, ledger = await store.start(1, 5)
    await ledger.close()
    async with await writer_of(store) as writer:
        assert await writer.append(b"x", txid=5) == DLSN(1, 0, 0)


async def test_a_writer_that_was_taken_over_says_so(store: StoreUnderTest) -> None:
    old = await writer_of(store)
    await old.append(b"one", txid=1)
    new = await writer_of(store.another())
    with pytest.raises((NotOwnerError, TransmitError)):
        await old.append(b"two", txid=2)
    with pytest.raises((NotOwnerError, TransmitError)):
        await old.append(b"three", txid=3)
    await old.close()
    await new.append(b"other", txid=2)
    await new.close()
    assert [payload for _, payload in await stored(store)] == [b"one", b"other"]


async def test_a_writer_that_was_taken_over_long_ago_is_told_so_when_it_rolls(store: StoreUnderTest) -> None:
    old = await writer_of(store)
    await old.append(b"one", txid=1)
    await old.flush()
    async with await writer_of(store.another(), roll_records=1) as new:
        for txid in range(2, 5):
            await new.append(b"other", txid=txid)
        with pytest.raises(NotOwnerError):
            await old.roll()
        with pytest.raises(NotOwnerError):
            await old.append(b"two", txid=5)
    await old.close()
    assert [payload for _, payload in await stored(store)] == [b"one", b"other", b"other", b"other"]


async def test_a_sealed_stream_takes_nothing_more(store: StoreUnderTest) -> None:
    writer = await writer_of(store)
    await writer.append(b"one", txid=1)
    await writer.mark_end()
    assert (await store.now()).max_txid == END_TXID
    again = await writer_of(store)
    with pytest.raises(EndOfStreamError):
        await again.append(b"two", txid=2)
    await again.close()


async def test_wrong_records_are_refused_and_the_writer_goes_on(store: StoreUnderTest) -> None:
    async with await writer_of(store) as writer:
        await writer.append(b"one", txid=5)
        with pytest.raises(TxidOrderError):
            await writer.append(b"low", txid=4)
        with pytest.raises(TxidOrderError):
            await writer.append_batch([b"a", b"b"], txids=[7, 6])
        with pytest.raises(RecordTooLargeError):
            await writer.append(bytes(2_000_000), txid=6)
        await writer.append(b"two", txid=6)
    assert [payload for _, payload in await stored(store)] == [b"one", b"two"]


async def test_a_writer_that_never_wrote_leaves_nothing(store: StoreUnderTest) -> None:
    async with await writer_of(store):
        pass
    assert list((await store.now()).segments) == []
