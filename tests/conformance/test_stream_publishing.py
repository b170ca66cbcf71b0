"""Ledgers that were written elsewhere become segments, on every store (spec streams §15.7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress

import pytest

from bookkeeper.client.client import BookKeeper
from bookkeeper.errors import IncorrectParameterError, NotOwnerError, RecordTooLarge, StreamNotFoundError
from bookkeeper.metadata.tree import RecordTree, TransactionLimits
from bookkeeper.streams.errors import EndOfStreamError, EpochConflictError, StagingLostError, TxidOrderError
from bookkeeper.streams.namespace import Namespace
from bookkeeper.streams.publishing.drafts import SegmentDraft
from bookkeeper.streams.publishing.marker import PublishKey
from bookkeeper.streams.publishing.publisher import Published
from bookkeeper.streams.publishing.staged import Staging
from bookkeeper.streams.reading.reader import Record
from tests.support.dying_tree import DyingTree, Killed, Life, lives
from tests.support.fake_bookie import fake_cluster
from tests.support.metadata_stores import StoreUnderTest

FEW = TransactionLimits(operations=9)
"""Of a store on which a few segments need an intent."""


class Stage:
    """Programs of their own, each with its session."""

    def __init__(self, store: StoreUnderTest, client: BookKeeper) -> None:
        self.store = store
        self.client = client

    async def open(self, name: str = "one") -> Namespace:
        tree = (await self.store.open()).tree
        path = f"{self.store.tree_root}/namespace"
        await tree.make(path)
        return Namespace(self.client, tree, path, None, name, AsyncExitStack())

    def over(self, namespace: Namespace, tree: RecordTree) -> Namespace:
        """The same, through another tree."""
        return Namespace(self.client, tree, namespace.path, None, "other", AsyncExitStack())

    async def ledgers(self) -> set[int]:
        return {ledger async for ledger in self.client.list_ledgers()}


@pytest.fixture
async def stage(store: StoreUnderTest) -> AsyncIterator[Stage]:
    async with fake_cluster(3) as cluster:
        yield Stage(store, await cluster.connect())


async def draft(staging: Staging, *payloads: bytes, txids: Sequence[int] | None = None) -> SegmentDraft:
    async with await staging.open_segment("a") as segment:
        await segment.append_batch(payloads, txids=txids)
        return await segment.finish()


async def records(namespace: Namespace, name: str = "a") -> list[Record]:
    async with namespace.open_reader(name, tail=False) as reader:
        return [record async for record in reader]


async def payloads(namespace: Namespace, name: str = "a") -> list[bytes]:
    found = await records(namespace, name)
    assert [record.sequence_id for record in found] == list(range(len(found)))
    txids = [record.txid for record in found]
    assert txids == sorted(txids)
    return [record.payload for record in found]


async def segment_ledgers(namespace: Namespace, *names: str) -> set[int]:
    return {segment.ledger_id for name in names for segment in (await namespace.info(name)).segments}


async def test_drafts_become_segments_between_those_of_writers(stage: Stage) -> None:
    one = await stage.open()
    async with one.open_writer("a", create=True) as writer:
        await writer.append(b"0", txid=5)
    staging = await one.stage("s", 7)
    drafts = [await draft(staging, b"1", b"2"), await draft(staging, b"3")]
    done = await one.publish_segments({"a": drafts}, PublishKey("s", 7), staging=staging)
    assert done == Published(False, {"a": (2, 3)})
    async with one.open_writer("a") as writer:
        position = await writer.append(b"4")
        assert position.segment == 4
    assert await payloads(one) == [b"0", b"1", b"2", b"3", b"4"]
    assert all(record.txid >= 5 for record in await records(one))
    assert await stage.ledgers() == await segment_ledgers(one, "a")


async def test_what_is_there_is_superseded_at_the_same_moment(stage: Stage) -> None:
    """By the next epoch again, and once only; of a store that cannot do it at once nothing is changed."""
    one = await stage.open()
    async with one.open_writer("a", create=True) as writer:
        await writer.append(b"0")
        await writer.roll()
        await writer.append(b"1")
    await one.subscriptions("a").commit("reader", (await one.first("a")).position)
    for epoch, payload in enumerate((b"2", b"3")):
        staging = await one.stage("s", epoch)
        key = PublishKey("s", epoch)
        drafts = {"a": [await draft(staging, payload)]}
        done = await one.publish_segments(drafts, key, staging=staging, supersede=True)
        assert done == Published(False, {"a": (3 + epoch, 3 + epoch)})
        assert (await one.publish_segments(drafts, key, staging=staging, supersede=True)).already
        assert [record.payload for record in await records(one)] == [payload]
    async with one.open_writer("a") as writer:
        await writer.append(b"4")
    assert [record.payload for record in await records(one)] == [b"3", b"4"]
    assert len((await one.truncate("a", (await one.first("a")).position, delete=True)).deleted) == 3
    tree = DyingTree((await stage.store.open()).tree, Life(1000, applied=True))
    tree.limits = FEW
    few = stage.over(one, tree)
    staging = await one.stage("s", 7)
    drafts = {"a": [await draft(staging, bytes([n])) for n in range(3)]}
    with pytest.raises(RecordTooLarge, match="cannot be truncated in the transaction"):
        await few.publish_segments(drafts, PublishKey("s", 7), staging=staging.path, supersede=True)
    assert [record.payload for record in await records(one)] == [b"3", b"4"]


async def test_the_same_again_is_said_to_be_done_and_another_epoch_is_refused(stage: Stage) -> None:
    one = await stage.open()
    await one.create("a")
    key = PublishKey("s", 3, "print", "query")
    staging = await one.stage("s", 3, query="query")
    some = [await draft(staging, b"1")]
    await one.publish_segments({"a": some}, key, staging=staging)
    again = await one.stage("s", 3, query="query")
    repeated = [await draft(again, b"1")]
    assert await one.publish_segments({"a": repeated}, key, staging=again) == Published(True, {"a": (1, 1)})
    assert await stage.ledgers() == await segment_ledgers(one, "a"), "the ledgers of the repetition are deleted"
    for wrong in (PublishKey("s", 2), PublishKey("s", 3, "other"), PublishKey("s", 4, None, "other")):
        staging = await one.stage("s", wrong.epoch)
        with pytest.raises(EpochConflictError):
            await one.publish_segments({"a": [await draft(staging, b"x")]}, wrong, staging=staging)
    assert await payloads(one) == [b"1"]


async def test_what_cannot_be_published_is_refused_and_changes_nothing(stage: Stage) -> None:
    one = await stage.open()
    await one.create("a")
    async with one.open_writer("a") as writer:
        await writer.append(b"0", txid=10)
    staging = await one.stage("s", 0)
    key = PublishKey("s", 0)
    low, good = await draft(staging, b"x", txids=[9]), await draft(staging, b"y")
    wrong_end = SegmentDraft(good.ledger_id, 1, good.last_entry + 1, 0, staged=True)
    before = await records(one)
    for drafts, error in (
        ({"a": [low]}, TxidOrderError),
        ({"a": [wrong_end]}, IncorrectParameterError),
        ({"a": [good, good]}, IncorrectParameterError),
        ({"a": []}, IncorrectParameterError),
        ({"none": [good]}, StreamNotFoundError),
        ({"a": [good], "none": [low]}, StreamNotFoundError),
    ):
        with pytest.raises(error):
            await one.publish_segments(drafts, key, staging=staging)
        assert await records(one) == before
    with pytest.raises(IncorrectParameterError):
        await one.publish_segments({"a": [good]}, key)
    with pytest.raises(IncorrectParameterError):
        await one.publish_segments({"a": [good]}, PublishKey("s", 1), staging=staging)
    async with one.open_writer("a"):
        with pytest.raises(NotOwnerError):
            await one.publish_segments({"a": [good]}, key, staging=staging, lock_timeout=0)
    await one.publish_segments({"a": [good]}, key, staging=staging)
    assert await payloads(one) == [b"0", b"y"]
    await one.seal("a")
    staging = await one.stage("s", 1)
    with pytest.raises(EndOfStreamError):
        await one.publish_segments({"a": [await draft(staging, b"z")]}, PublishKey("s", 1), staging=staging)


async def test_without_a_key_a_ledger_becomes_a_segment_once(stage: Stage) -> None:
    one = await stage.open()
    await one.create("a")
    staging = await one.stage("s", 0)
    some = [await draft(staging, b"1", txids=[1]), await draft(staging, b"2", b"3", txids=[2, 3])]
    assert await one.publish_segments({"a": some}, staging=staging) == Published(False, {"a": (1, 2)})
    assert await one.publish_segments({"a": some}, staging=staging) == Published(True, {"a": (1, 2)})
    assert [record.txid for record in await records(one)] == [1, 2, 3]
    other = await stage.open()
    other._tree.limits = FEW
    staging = await one.stage("s", 1)
    many = [await draft(staging, b"%d" % n) for n in range(9)]
    with pytest.raises(RecordTooLarge):
        await other.publish_segments({"a": many}, staging=staging)
    assert await payloads(one) == [b"1", b"2", b"3"]


async def test_what_was_given_up_cannot_be_published_and_what_is_published_is_not_given_up(stage: Stage) -> None:
    one, two = await stage.open("one"), await stage.open("two")
    await one.create("a")
    lost, kept = await one.stage("lost", 0), await one.stage("kept", 0)
    gone, good = await draft(lost, b"x"), await draft(kept, b"y")
    await kept.beat()
    found = await two.collect_staged()
    assert (list(found.given_up), list(found.ledgers)) == ([], []), "they are young"
    await one.publish_segments({"a": [good]}, PublishKey("kept", 0), staging=kept)
    found = await two.collect_staged(lost_after=-1)
    assert (list(found.given_up), list(found.ledgers)) == ([lost.path], [gone.ledger_id])
    with pytest.raises(StagingLostError):
        await draft(lost, b"late")
    with pytest.raises((StagingLostError, Exception)) as caught:
        await one.publish_segments({"a": [gone]}, PublishKey("lost", 0), staging=lost)
    assert "ledger" in str(caught.value) or isinstance(caught.value, StagingLostError)
    assert await payloads(one) == [b"y"]
    assert await stage.ledgers() == {good.ledger_id}


async def attempt(
    stage: Stage, one: Namespace, life: Life, key: PublishKey, drafts: dict[str, list[SegmentDraft]], staging: Staging
) -> bool:
    """Publish, in small transactions; whether the client survived."""
    tree = DyingTree(one._tree, life)
    tree.limits = FEW
    with suppress(Killed):
        await stage.over(one, tree).publish_segments(drafts, key, staging=staging, lock_timeout=None)
        return True
    return False


@pytest.mark.parametrize("count", [1, 7])
async def test_whoever_comes_next_finishes_what_died_at_any_step(stage: Stage, count: int) -> None:
    """Each record is there once, or, if it was not decided, not at all, and then no ledger stays."""
    one = await stage.open()
    steps = 0
    for life in lives():
        await one.create("a", exist_ok=True)
        await one.create("b", exist_ok=True)
        key = PublishKey("s", steps)
        staging = await one.stage("s", steps)
        drafts = {
            "a": [await draft(staging, b"%d %d" % (steps, n)) for n in range(count)],
            "b": [await draft(staging, b"%d" % steps)],
        }
        leftover = await draft(staging, b"nobody wants this")
        survived = await attempt(stage, one, life, key, drafts, staging)
        await unlock(one, "a", "b")
        two = await stage.open("two")
        await two.collect_staged(lost_after=-1)
        expected = [b"%d %d" % (steps, n) for n in range(count)]
        found = await payloads(two)
        assert found in ([], expected)
        assert await payloads(two, "b") == ([b"%d" % steps] if found else [])
        assert not survived or found
        assert await stage.ledgers() == await segment_ledgers(two, "a", "b")
        assert leftover.ledger_id not in await stage.ledgers()
        if not found:
            repeated = await one.stage("s", steps)
            again = [await draft(repeated, payload) for payload in expected]
            await two.publish_segments({"a": again}, key, staging=repeated)
        else:
            assert (await two.publish_segments({"a": drafts["a"]}, key, staging=staging)).already
        assert await payloads(two) == expected
        await one.delete("a")
        await one.delete("b")
        if survived:
            break
        steps += 1
    assert steps > (3 if count == 1 else 9)


async def unlock(namespace: Namespace, *names: str) -> None:
    """As if the session of whoever died had ended."""
    for name in names:
        path = f"{namespace.path}/{name}/<default>/lock"
        listing = await namespace._tree.children(path, fresh=True)
        for member in () if listing is None else listing.names:
            await namespace._tree.delete(f"{path}/{member}")


async def test_publishers_at_once_do_not_get_into_each_others_way(stage: Stage) -> None:
    spaces = [await stage.open(f"c{n}") for n in range(4)]
    await spaces[0].create("a")

    async def publish(n: int, namespace: Namespace) -> None:
        for epoch in range(3):
            staging = await namespace.stage(f"sink {n}", epoch)
            some = [await draft(staging, b"%d %d %d" % (n, epoch, i)) for i in range(2)]
            key = PublishKey(f"sink {n}", epoch)
            assert not (await namespace.publish_segments({"a": some}, key, staging=staging, lock_timeout=None)).already

    async def write(namespace: Namespace) -> None:
        for n in range(5):
            async with namespace.open_writer("a", lock_timeout=None) as writer:
                await writer.append(b"9 %d 0" % n)

    await asyncio.gather(*(publish(n, space) for n, space in enumerate(spaces[:3])), write(spaces[3]))
    found = await payloads(spaces[0])
    assert len(found) == len(set(found)) == 3 * 3 * 2 + 5
    for n in (0, 1, 2, 9):
        own = [payload for payload in found if payload.startswith(b"%d " % n)]
        assert own == sorted(own)


async def test_publishers_of_one_epoch_publish_it_once(stage: Stage) -> None:
    spaces = [await stage.open(f"c{n}") for n in range(3)]
    await spaces[0].create("a")

    async def publish(namespace: Namespace) -> bool:
        staging = await namespace.stage("s", 0)
        with suppress(StagingLostError):
            some = [await draft(staging, b"1"), await draft(staging, b"2")]
            key = PublishKey("s", 0, "print")
            return not (await namespace.publish_segments({"a": some}, key, staging=staging, lock_timeout=None)).already
        return False

    assert sum(await asyncio.gather(*map(publish, spaces))) == 1
    assert await payloads(spaces[0]) == [b"1", b"2"]
    await spaces[0].collect_staged(lost_after=-1)
    assert await stage.ledgers() == await segment_ledgers(spaces[0], "a")
