"""Truncation and deletion of streams, on every store (spec streams §10)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from bookkeeper.errors import StreamMetadataError, StreamNotFoundError
from bookkeeper.metadata.tree import RecordTree, TransactionLimits
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.streams.dlsn import DLSN, LOWER_BOUND
from bookkeeper.streams.formats.segment import SegmentMetadata, Truncation, decode_segment, encode_segment
from bookkeeper.streams.names import namespaces
from bookkeeper.streams.names.lock import LogLock
from bookkeeper.streams.names.logs import Logs
from bookkeeper.streams.names.paths import LogPaths, completed_name, inprogress_name
from bookkeeper.streams.retention.choice import RetentionMode, RetentionPolicy
from bookkeeper.streams.retention.mark import load_mark
from bookkeeper.streams.retention.truncation import Truncation as Truncating
from tests.support.dying_tree import DyingTree, Killed, Life, lives
from tests.support.metadata_stores import StoreUnderTest

SEGMENTS = 5
"""Completed ones, of ten entries each; one more is open."""


class Ledgers:
    def __init__(self) -> None:
        self.deleted: list[int] = []

    async def delete(self, ledger_id: int) -> None:
        self.deleted.append(ledger_id)

    async def size(self, ledger_id: int) -> int:
        return ledger_id - 100


class Place:
    """A namespace with a stream."""

    def __init__(self, tree: RecordTree, namespace: str) -> None:
        self.tree = tree
        self.logs = Logs(tree, namespace)
        self.paths = self.logs.paths("a")
        self.ledgers = Ledgers()
        self.truncation = Truncating(tree, self.paths, self.ledgers)

    async def fill(self) -> None:
        for number in range(1, SEGMENTS + 2):
            segment = SegmentMetadata(ledger_id=100 + number, first_txid=number, number=number)
            name = inprogress_name(number)
            if number <= SEGMENTS:
                name = completed_name(number)
                segment = segment.complete(
                    last_txid=number,
                    records=10,
                    last=DLSN(number, 9, 0),
                    completed_ms=number * 1000,
                    start_sequence_id=number * 10,
                )
            await self.tree.create(self.paths.segment(name), encode_segment(segment))

    async def segments(self) -> list[SegmentMetadata]:
        listing = await self.tree.children(self.paths.segments, fresh=True)
        assert listing is not None
        nodes = await self.tree.get_many([self.paths.segment(name) for name in listing.names])
        found = [decode_segment(node.data) for node in nodes if node is not None]
        return sorted(found, key=lambda segment: segment.order)

    async def states(self) -> dict[int, Truncation]:
        return {segment.number: segment.truncation for segment in await self.segments()}


async def a_place(store: StoreUnderTest, name: str = "ns") -> Place:
    tree, namespace = (await store.open()).tree, f"{store.tree_root}/{name}"
    await namespaces.bind(tree, namespace, b"binding")
    place = Place(tree, namespace)
    await place.logs.create("a")
    await place.fill()
    return place


ACTIVE, PARTLY, GONE = Truncation.ACTIVE, Truncation.PARTLY, Truncation.TRUNCATED


async def test_truncating_marks_and_deletes_whole_segments(store: StoreUnderTest) -> None:
    place = await a_place(store)
    assert await place.truncation.truncate(DLSN(3, 4, 1)) == DLSN(3, 4, 1)
    assert await place.states() == {1: GONE, 2: GONE, 3: PARTLY, 4: ACTIVE, 5: ACTIVE, 6: ACTIVE}
    assert (await place.segments())[2].first == DLSN(3, 4, 1)
    assert await place.truncation.truncate(DLSN(2, 0, 0)) == DLSN(3, 4, 1), "it does not go back"
    assert [segment.number for segment in await place.truncation.delete_truncated()] == [1, 2]
    assert place.ledgers.deleted == [101, 102]
    assert await place.truncation.truncate(DLSN(99, 0, 0)) == DLSN(6, 0, 0), "the open segment is not touched"
    assert [segment.number for segment in await place.truncation.delete_truncated()] == [3, 4]
    assert await place.states() == {5: GONE, 6: ACTIVE}, "one completed segment stays"


async def test_clients_that_truncate_at_once_end_where_the_furthest_one_does(store: StoreUnderTest) -> None:
    place = await a_place(store)
    others = [Place((await store.open()).tree, place.paths.namespace) for _ in range(4)]
    positions = [DLSN(2, 5, 0), DLSN(4, 1, 0), DLSN(3, 3, 0), DLSN(4, 0, 0)]

    async def work(other: Place, position: DLSN) -> None:
        await other.truncation.truncate(position)
        await other.truncation.delete_truncated()

    await asyncio.gather(*(work(other, at) for other, at in zip(others, positions, strict=True)))
    assert await place.states() == {4: PARTLY, 5: ACTIVE, 6: ACTIVE}
    assert (await place.segments())[0].first == DLSN(4, 1, 0)
    assert {ledger for other in others for ledger in other.ledgers.deleted} == {101, 102, 103}


async def attempt(place: Place, life: Life) -> bool:
    """Truncate and delete, in transactions of one segment each; whether the client survived."""
    tree = DyingTree(place.tree, life)
    tree.limits = TransactionLimits(operations=3)

    class Dying(Ledgers):
        async def delete(self, ledger_id: int) -> None:
            await life.change(lambda: place.ledgers.delete(ledger_id))

    truncation = Truncating(tree, place.paths, Dying())
    with suppress(Killed):
        await truncation.truncate(DLSN(4, 3, 0))
        await truncation.delete_truncated()
        return True
    return False


async def test_whoever_comes_next_finishes_what_died_at_any_step(store: StoreUnderTest) -> None:
    steps = 0
    for life in lives():
        place = await a_place(store, f"ns{steps}")
        survived = await attempt(place, life)
        mark = (await load_mark(place.tree, place.paths)).before
        seen = await place.states()
        assert sorted(seen.values(), reverse=True) == list(seen.values()), "it has one beginning at any moment"
        assert await place.truncation.finish() == mark
        await place.truncation.delete_truncated()
        whole = {1: ACTIVE, 2: ACTIVE, 3: ACTIVE}
        left = (
            {4: PARTLY, 5: ACTIVE, 6: ACTIVE} if mark == DLSN(4, 3, 0) else {**whole, 4: ACTIVE, 5: ACTIVE, 6: ACTIVE}
        )
        assert await place.states() == left
        assert set(place.ledgers.deleted) == ({101, 102, 103} if mark == DLSN(4, 3, 0) else set())
        if survived:
            break
        steps += 1
    assert steps > 10


async def test_retention_deletes_by_age_what_no_subscriber_needs(store: StoreUnderTest) -> None:
    place = await a_place(store)
    assert (await place.truncation.apply(RetentionPolicy(), 10**9)).deleted == ()
    assert await place.states() == dict.fromkeys(range(1, SEGMENTS + 2), ACTIVE)
    policy = RetentionPolicy(RetentionMode.AUTO, max_age=1.0)
    found = await place.truncation.apply(policy, 3500)
    assert [segment.number for segment in found.deleted] == [1, 2]
    assert found.truncated == DLSN(3, 0, 0)
    await place.tree.create(place.paths.subscribers)
    await place.tree.create(f"{place.paths.subscribers}/s", str(DLSN(4, 0, 0)).encode())
    assert [segment.number for segment in (await place.truncation.apply(policy, 10**9)).deleted] == [3]
    await place.tree.create(f"{place.paths.subscribers}/new", b"")
    assert await place.truncation.unread() == LOWER_BOUND
    assert (await place.truncation.apply(policy, 10**9)).deleted == []


async def test_retention_deletes_the_oldest_while_there_is_too_much(store: StoreUnderTest) -> None:
    place = await a_place(store)  # segments of 1 to 5 bytes
    policy = RetentionPolicy(RetentionMode.AUTO, max_bytes=12)
    assert [segment.number for segment in (await place.truncation.apply(policy, 0)).deleted] == [1, 2]
    assert (await place.truncation.apply(policy, 0)).deleted == []


async def test_explicit_retention_deletes_what_was_truncated(store: StoreUnderTest) -> None:
    place = await a_place(store)
    policy = RetentionPolicy(RetentionMode.EXPLICIT, max_age=1.0)
    assert (await place.truncation.apply(policy, 10**9)).deleted == []
    await place.truncation.truncate(DLSN(4, 0, 0))
    assert [segment.number for segment in (await place.truncation.apply(policy, 3500)).deleted] == [1, 2]
    assert [segment.number for segment in (await place.truncation.apply(policy, 10**9)).deleted] == [3]


async def delete(place: Place) -> None:
    lock = LogLock(place.tree, RealRuntime(), place.paths.lock, "c")
    await lock.acquire()
    try:
        await place.logs.delete(
            "a", lock.member, ledger_of=lambda data: decode_segment(data).ledger_id, delete_ledger=place.ledgers.delete
        )
    finally:
        await lock.release()


async def test_a_stream_made_anew_is_not_truncated_as_the_old_one_was(store: StoreUnderTest) -> None:
    place = await a_place(store)
    await place.truncation.truncate(DLSN(3, 0, 0))
    old = await load_mark(place.tree, place.paths)
    await delete(place)
    assert await place.tree.get(old.path) is None
    with pytest.raises(StreamNotFoundError):
        await place.truncation.truncate(DLSN(3, 0, 0))
    await place.logs.create("a")
    await place.fill()
    assert await place.truncation.finish() == DLSN(0, 0, 0)
    assert await place.states() == dict.fromkeys(range(1, SEGMENTS + 2), ACTIVE)


async def test_a_renamed_stream_keeps_its_marks(store: StoreUnderTest) -> None:
    place = await a_place(store)
    await place.truncation.truncate(DLSN(3, 4, 0))
    lock = LogLock(place.tree, RealRuntime(), place.paths.lock, "c")
    await lock.acquire()
    await place.logs.rename("a", "team/b", lock.member)
    await lock.release()
    place.paths = LogPaths(place.paths.namespace, "team/b")
    assert await place.states() == {1: GONE, 2: GONE, 3: PARTLY, 4: ACTIVE, 5: ACTIVE, 6: ACTIVE}
    truncation = Truncating(place.tree, place.paths, place.ledgers)
    assert await truncation.truncate(DLSN(3, 5, 0)) == DLSN(3, 5, 0)


async def test_a_mark_without_sense_is_an_error(store: StoreUnderTest) -> None:
    place = await a_place(store)
    mark = await load_mark(place.tree, place.paths)
    for wrong in (b"{", b"[]", b"7", b'{"v":2}', b'{"v":1}', b'{"v":1,"before":7}', b'{"v":1,"before":"x"}'):
        await place.tree.write(mark.path, wrong)
        with pytest.raises(StreamMetadataError):
            await place.truncation.finish()
