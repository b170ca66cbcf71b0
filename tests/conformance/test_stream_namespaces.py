"""Streams by name, written and read, on every metadata store; their ledgers are on three fake bookies (spec streams
§15)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from datetime import UTC, datetime

import pytest

from bookkeeper.client.client import BookKeeper
from bookkeeper.errors import (
    IncorrectParameterError,
    NotOwnerError,
    ServiceUnavailable,
    StreamError,
    StreamExistsError,
    StreamMetadataError,
    StreamNotFoundError,
    StreamStateError,
)
from bookkeeper.metadata.tree import Operation, Written
from bookkeeper.streams.dlsn import DLSN
from bookkeeper.streams.errors import EndOfStreamError, TransmitError, TruncatedError
from bookkeeper.streams.ledgers import Replication
from bookkeeper.streams.namespace import Namespace
from bookkeeper.streams.policy import Visibility, WritePolicy
from bookkeeper.streams.reading.reader import EARLIEST, LATEST, TxId
from bookkeeper.streams.retention.choice import RetentionMode, RetentionPolicy
from bookkeeper.streams.retention.policies import StreamPolicy
from bookkeeper.types import DigestType
from tests.support.dying_tree import DyingTree, Killed, Life, lives
from tests.support.fake_bookie import fake_cluster
from tests.support.metadata_stores import StoreUnderTest

SMALL = WritePolicy(roll_records=4, buffer_bytes=50)
SEEN = WritePolicy(visibility=Visibility.ACK)


class Stage:
    """Programs of their own, each with its session and client."""

    def __init__(self, store: StoreUnderTest, client: BookKeeper) -> None:
        self.store = store
        self.client = client

    async def open(self, client_id: str = "one") -> Namespace:
        tree = (await self.store.open()).tree
        path = f"{self.store.tree_root}/namespace"
        await tree.make(path)
        return Namespace(self.client, tree, path, None, client_id, AsyncExitStack())


@pytest.fixture
async def stage(store: StoreUnderTest) -> AsyncIterator[Stage]:
    async with fake_cluster(3) as cluster:
        yield Stage(store, await cluster.connect())


async def read(namespace: Namespace, start: DLSN | TxId | str = EARLIEST) -> list[int]:
    async with namespace.open_reader("a", start, tail=False) as reader:
        return [int(record.payload) async for record in reader]


async def write(namespace: Namespace, first: int, count: int) -> list[DLSN]:
    async with namespace.open_writer("a", policy=SMALL, create=True) as writer:
        return [await writer.append(b"%d" % n, txid=n) for n in range(first, first + count)]


async def test_what_one_program_writes_another_reads(stage: Stage) -> None:
    positions = await write(await stage.open(), 0, 10) + await write(await stage.open(), 10, 10)
    reader = await stage.open()
    assert await read(reader) == list(range(20))
    assert await read(reader, str(positions[7])) == list(range(7, 20))
    assert await read(reader, TxId(13)) == list(range(13, 20))
    info = await reader.info("a")
    assert (info.records, info.last_txid, info.owner, info.sealed) == (20, 19, None, False)
    assert [segment.number for segment in info.segments] == list(range(1, len(info.segments) + 1))
    assert [segment.sequence_id for segment in info.segments] == [
        sum(before.records for before in info.segments[:n]) for n in range(len(info.segments))
    ]


async def test_streams_are_made_listed_renamed_and_deleted(stage: Stage) -> None:
    namespace = await stage.open()
    await namespace.create("a")
    await namespace.create("b/c")
    with pytest.raises(StreamExistsError):
        await namespace.create("a")
    await namespace.create("a", exist_ok=True)
    async with aclosing(namespace.list()) as names:
        assert [name async for name in names] == ["a"]
    assert [name async for name in namespace.list(recursive=True)] == ["a", "b/c"]
    await write(namespace, 0, 5)
    await namespace.rename("a", "d")
    assert not await namespace.exists("a")
    ledgers = [segment.ledger_id for segment in (await namespace.info("d")).segments]
    assert await stage.client.get_ledger_metadata(ledgers[0])
    await namespace.delete("d")
    assert [ledger async for ledger in stage.client.list_ledgers()] == []
    await namespace.delete("d", missing_ok=True)
    with pytest.raises(StreamNotFoundError):
        await namespace.delete("d")
    for opening in (namespace.open_reader("d"), namespace.open_writer("d")):
        with pytest.raises(StreamNotFoundError):
            await opening


async def test_one_client_at_a_time_writes_a_stream(stage: Stage) -> None:
    one, two = await stage.open("one"), await stage.open("two")
    async with one.open_writer("a", create=True) as writer:
        await writer.append(b"0", txid=0)
        assert (await two.info("a")).owner == "one"
        for attempt in (two.open_writer("a", lock_timeout=0), two.open_writer("a", lock_timeout=0.1)):
            with pytest.raises(NotOwnerError) as caught:
                await attempt
            assert caught.value.owner == "one"
        with pytest.raises(NotOwnerError):
            await two.delete("a", lock_timeout=0)
        waiting = asyncio.create_task(two.open_writer("a"))
    async with await waiting as writer:
        await writer.append(b"1", txid=1)
    assert await read(one) == [0, 1]


async def test_a_writer_that_was_overtaken_can_append_no_more(stage: Stage) -> None:
    one, two = await stage.open("one"), await stage.open("two")
    lost = await one.open_writer("a", policy=SEEN, create=True)
    await lost.append(b"0", txid=0)
    await one._tree.delete(f"{one.path}/a/<default>/lock/{await member_of(one)}")  # as if its session had ended
    async with two.open_writer("a", policy=SEEN) as writer:
        await writer.append(b"1", txid=1)
        with pytest.raises((NotOwnerError, TransmitError)):
            await lost.append(b"2", txid=2)
        with pytest.raises(StreamError):
            await lost.append(b"3", txid=3)
        await lost.close()
    assert await read(two) == [0, 1]


async def member_of(namespace: Namespace) -> str:
    listing = await namespace._tree.children(f"{namespace.path}/a/<default>/lock", fresh=True)
    assert listing is not None
    return listing.names[0]


async def test_what_an_aborted_writer_left_is_ended_by_the_next(stage: Stage) -> None:
    one, two = await stage.open("one"), await stage.open("two")
    for policy in (SEEN, SMALL):
        writer = await one.open_writer("a", policy=policy, create=True)
        first = await writer.append(b"0", txid=0)
        await writer.abort()
    assert not (await two.info("a")).segments[-1].completed
    async with two.open_writer("a") as writer:
        assert writer.last_txid == 0
        second = await writer.append(b"1", txid=1)
    assert second.segment == first.segment + 1
    assert await read(two) == [0, 0, 1]
    assert all(segment.completed for segment in (await two.info("a")).segments)


@pytest.mark.parametrize("deleted", [False, True])
async def test_an_empty_segment_is_taken_back_and_its_number_used_again(stage: Stage, deleted: bool) -> None:
    """`deleted`: who was about to take it back came only half way."""
    one = await stage.open()
    await write(one, 0, 3)
    writer = await one.open_writer("a")
    writer._segment = await writer._start(3)
    await writer.abort()
    left = (await one.info("a")).segments[-1]
    assert (left.number, left.completed) == (2, False)
    if deleted:
        await stage.client.delete_ledger(left.ledger_id)
    await write(await stage.open(), 3, 3)
    found = (await one.info("a")).segments
    assert [(segment.number, segment.records) for segment in found] == [(1, 3), (2, 3)]
    assert left.ledger_id not in {segment.ledger_id for segment in found}


async def test_two_empty_segments_are_taken_back_whoever_dies_meanwhile(stage: Stage) -> None:
    """A writer begins a segment before it finishes the one before; none of its entries may have arrived."""
    steps = 0
    for life in lives():
        one = await stage.open()
        await write(one, 0, 3)
        writer = await one.open_writer("a")
        for segment in [await writer._start(3) for _ in range(2)]:
            await segment.release()
        await writer.abort()
        assert [segment.number for segment in (await one.info("a")).segments if not segment.completed] == [2, 3]
        survived = False
        with suppress(Killed):
            tree = DyingTree(one._tree, life)
            await (await Namespace(stage.client, tree, one.path, None, "x", AsyncExitStack()).open_writer("a")).abort()
            survived = True
        for name in await members(one):
            await one._tree.delete(f"{one.path}/a/<default>/lock/{name}")
        await write(one, 3, 3)
        assert await read(one) == list(range(6))
        await one.delete("a")
        if survived:
            break
        steps += 1
    assert steps == 4


class Silent(DyingTree):
    """Gives no answer when a segment is begun."""

    async def commit(self, operations: Sequence[Operation]) -> Written:
        if any("inprogress_" in each.path for each in operations):
            raise ServiceUnavailable("no answer", maybe_applied=True)
        return await super().commit(operations)


async def test_a_ledger_that_no_segment_got_is_closed_and_left_to_the_next_owner(stage: Stage) -> None:
    one = await stage.open()
    await one.create("a")
    tree = Silent(one._tree, Life(99, applied=True))
    silent = Namespace(stage.client, tree, one.path, None, "x", AsyncExitStack())
    writer = await silent.open_writer("a", policy=SEEN)
    with pytest.raises(ServiceUnavailable):
        await writer.append(b"0", txid=0)
    await writer.close()
    (left,) = [ledger async for ledger in stage.client.list_ledgers()]
    assert (await stage.client.get_ledger_metadata(left)).closed
    await write(one, 0, 3)
    assert await read(one) == [0, 1, 2]
    assert left not in [ledger async for ledger in stage.client.list_ledgers()]


async def members(namespace: Namespace) -> tuple[str, ...]:
    listing = await namespace._tree.children(f"{namespace.path}/a/<default>/lock", fresh=True)
    return () if listing is None else listing.names


async def test_a_lost_ledger_before_segments_with_records_is_not_passed_over(stage: Stage) -> None:
    one = await stage.open()
    async with one.open_writer("a", policy=SEEN, create=True) as writer:
        await writer.append(b"0", txid=0)
        lost = (await one.info("a")).segments[0]
        first, writer._segment = writer._segment, await writer._start(1)
        await writer.append(b"1", txid=1)
        assert first is not None
        await first.release()
        await stage.client.delete_ledger(lost.ledger_id)
        await writer.abort()
    with pytest.raises(StreamStateError, match="lost"):
        await one.open_writer("a")
    assert len((await one.info("a")).segments) == 2


async def test_a_reader_follows_writers_from_now_on(stage: Stage) -> None:
    one, two = await stage.open("one"), await stage.open("two")
    await write(one, 0, 6)
    reader = await two.open_reader("a", LATEST)
    await reader.locate()
    async with aclosing(aiter(reader)) as records:
        for first in (6, 12):
            await write(one, first, 6)
            for n in range(first, first + 6):
                record = await anext(records)
                assert (record.payload, record.sequence_id) == (b"%d" % n, n)
        writer = await one.open_writer("a")
        await writer.mark_end()
        with pytest.raises(EndOfStreamError):
            await anext(records)
    assert (await two.info("a")).sealed
    async with one.open_writer("a") as writer:
        with pytest.raises(EndOfStreamError):
            await writer.append(b"more")


async def test_a_stream_is_truncated_purged_and_sealed(stage: Stage) -> None:
    one, two = await stage.open("one"), await stage.open("two")
    positions = await write(one, 0, 10)
    async with one.open_writer("a", policy=SEEN) as writer:
        await writer.append(b"10", txid=10)
        done = await two.truncate("a", str(positions[6]))
        assert (done.truncated, list(done.deleted)) == (positions[6], [])
        assert (await two.purge("a")).deleted == (), "nothing is deleted unless somebody asks for it"
        assert await read(two) == [6, 7, 8, 9, 10]
        await writer.append(b"11", txid=11)
        await two.set_policy(StreamPolicy(RetentionPolicy(RetentionMode.EXPLICIT)))
        assert [segment.number for segment in (await two.purge("a")).deleted] == [1]
    done = await two.truncate("a", positions[9], delete=True)
    assert [segment.number for segment in done.deleted] == [2]
    ledgers = {segment.ledger_id for segment in (await one.info("a")).segments}
    assert {ledger async for ledger in stage.client.list_ledgers()} == ledgers
    await one.seal("a")
    await two.seal("a")
    assert (await one.info("a")).sealed
    async with two.open_reader("a") as reader:
        with pytest.raises(EndOfStreamError):
            assert [int(record.payload) async for record in reader] == []
    for call in (one.truncate("x", positions[0]), one.purge("x"), one.seal("x")):
        with pytest.raises(StreamNotFoundError):
            await call


async def test_a_reader_whose_segment_is_deleted_is_told_where_the_stream_begins(stage: Stage) -> None:
    one = await stage.open()
    positions = await write(one, 0, 12)
    async with one.open_reader("a") as reader, aclosing(aiter(reader)) as records:
        assert (await anext(records)).payload == b"0"
        await one.truncate("a", positions[9], delete=True)
        with pytest.raises(TruncatedError) as caught:
            assert [record async for record in records] == [], "the reader goes on for ever"
    assert DLSN.parse(caught.value.first_available) == positions[9]
    async with one.open_reader("a", caught.value.first_available, tail=False) as reader:
        assert [int(record.payload) async for record in reader] == [9, 10, 11]


async def test_policies_are_kept_with_the_namespace_and_a_stream_may_differ(stage: Stage) -> None:
    one, two = await stage.open("one"), await stage.open("two")
    assert await one.policy() == StreamPolicy()
    all_of_them = StreamPolicy(RetentionPolicy(RetentionMode.AUTO, 0.0), Replication(3, 2, 2))
    await one.set_policy(all_of_them)
    assert await two.policy() == all_of_them
    await write(two, 0, 4)
    own = StreamPolicy(replication=Replication(2, 2, 1, digest=DigestType.CRC32C))
    await one.set_policy(own, "a")
    assert await two.policy("a") == own
    await write(two, 4, 4)
    shapes = []
    for segment in (await one.info("a")).segments:
        found = await stage.client.get_ledger_metadata(segment.ledger_id)
        shapes.append((found.ensemble_size, found.write_quorum, found.ack_quorum, found.digest_type))
    assert list(dict.fromkeys(shapes)) == [(3, 2, 2, DigestType.CRC32), (2, 2, 1, DigestType.CRC32C)]
    assert await read(one) == list(range(8))
    await one.rename("a", "b")
    assert (await two.policy("b"), await two.policy("a")) == (own, StreamPolicy())
    await one.delete("b")
    assert await two.policy("b") == StreamPolicy()
    with pytest.raises(StreamNotFoundError):
        await one.set_policy(own, "b")
    await one._settings.put({"replication": {"ensemble": "many"}})
    with pytest.raises(StreamMetadataError):
        await two.policy()


async def test_what_a_stream_holds_can_be_asked(stage: Stage) -> None:
    positions = await write(await stage.open(), 0, 10)
    namespace = await stage.open()
    assert (await namespace.first("a")).position == positions[0]
    assert (await namespace.last("a")).position == positions[-1]
    assert await namespace.count("a") == 10
    assert await namespace.count("a", str(positions[3]), positions[7]) == 4
    assert await namespace.position_for("a", txid=6) == positions[6]
    assert await namespace.position_for("a", time=datetime.fromtimestamp(0.006, UTC)) == positions[6]
    assert await namespace.position_for("a", txid=99) > positions[-1]
    for wrong in ({}, {"txid": 1, "time": datetime.now(UTC)}):
        with pytest.raises(IncorrectParameterError):
            await namespace.position_for("a", **wrong)  # type: ignore[arg-type]
    for asking in (namespace.first, namespace.last, namespace.count):
        with pytest.raises(StreamNotFoundError):
            await asking("b")
    async with namespace.open_reader("a", datetime.fromtimestamp(0.004, UTC), until=positions[8]) as reader:
        assert [int(record.payload) async for record in reader] == [4, 5, 6, 7]


async def test_a_dead_writer_is_ended_by_hand(stage: Stage) -> None:
    first = await stage.open()
    dying = await first.open_writer("a", policy=SEEN, create=True)
    await dying.append(b"1", txid=1)
    await dying.abort()
    namespace = await stage.open("two")
    assert not (await namespace.info("a")).segments[-1].completed
    await namespace.recover("a")
    assert (await namespace.info("a")).segments[-1].completed
    assert await read(namespace) == [1]
    live = await first.open_writer("a")
    with pytest.raises(NotOwnerError):
        await namespace.recover("a", lock_timeout=0)
    await live.close()


async def test_writers_obey_the_stored_policy(stage: Stage) -> None:
    namespace = await stage.open()
    await namespace.create("a")
    await namespace.set_policy(StreamPolicy(write=WritePolicy(roll_records=2)))
    async with namespace.open_writer("a") as writer:
        for n in range(6):
            await writer.append(b"%d" % n)
    assert [segment.records for segment in (await namespace.info("a")).segments if segment.records] == [2, 2, 2]


async def test_one_of_many_maintains_the_namespace(stage: Stage) -> None:
    namespaces = [await stage.open("one"), await stage.open("two")]
    await write(namespaces[0], 0, 10)
    await namespaces[0].create("empty")
    await namespaces[0].set_policy(StreamPolicy(RetentionPolicy(RetentionMode.AUTO, max_bytes=0)))
    running = [asyncio.ensure_future(namespace.run_maintenance(interval=0.01)) for namespace in namespaces]
    while len((await namespaces[0].info("a")).segments) > 1:
        await asyncio.sleep(0.01)
    running[0].cancel()  # the other one goes on, or takes over
    await asyncio.wait(running[:1])
    await write(namespaces[0], 10, 10)
    while len((await namespaces[0].info("a")).segments) > 1:
        await asyncio.sleep(0.01)
    running[1].cancel()
    await asyncio.wait(running)
    done = await namespaces[0].maintain()
    assert (done.streams, done.retained, done.failed) == (2, {}, {})
