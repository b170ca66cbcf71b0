"""Small drafts of a batch become one segment (spec streams §17.6)."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.protocol.messages import BatchReadRequest, ReadRequest, Status
from bookkeeper.spark.writing.committing import commit
from bookkeeper.spark.writing.merging import Drafts, Merge, plan
from bookkeeper.spark.writing.sink_options import MergePolicy, SinkOptions
from bookkeeper.spark.writing.tasks import Batch, TaskWriter, Written
from bookkeeper.streams.errors import CorruptEntryError, StagingLostError
from bookkeeper.streams.formats.codec import Compression
from bookkeeper.streams.formats.segment import MOST_RECORDS
from bookkeeper.streams.namespace import Namespace
from bookkeeper.streams.policy import WritePolicy
from bookkeeper.streams.publishing.drafts import SegmentDraft
from tests.support.fake_bookie import FakeCluster

BATCH = Batch("sink", 7, "0a", "query", counted=True)
PARTS = 5


@pytest.fixture
async def namespace(cluster: FakeCluster) -> Namespace:
    client = await cluster.connect()
    await client.context.driver.tree.make("/ns")
    return Namespace(client, client.context.driver.tree, "/ns", None, "me", AsyncExitStack())


def draft(number: int, size: int, records: int = 1) -> SegmentDraft:
    return SegmentDraft(number, records, 0, 0, size=size)


def sized(*sizes: int) -> Drafts:
    return {"a": [draft(number, size) for number, size in enumerate(sizes)]}


@pytest.mark.parametrize(
    ("sizes", "merged"),
    [
        ((), []),
        ((5,), []),
        ((5, 5), [(0, 2)]),
        ((4, 4, 4, 4), [(0, 3)]),
        ((4, 4, 4, 4, 4), [(0, 3), (3, 5)]),
        ((5, 10, 5, 5), [(2, 4)]),
        ((5, 0, 5), []),
        ((10, 99), []),
    ],
)
def test_small_neighbours_are_merged_until_they_are_large_enough(
    sizes: tuple[int, ...], merged: list[tuple[int, int]]
) -> None:
    """A size that is not known counts as large."""
    found = plan(sized(*sizes), MergePolicy(target=10))
    assert sorted((merge.first, merge.end) for merge in found) == merged


@given(st.dictionaries(st.sampled_from("ab"), st.lists(st.integers(0, 12))), st.integers(0, 10), st.integers(1, 60))
def test_a_commit_copies_so_much_at_most_and_each_draft_once(
    sizes: dict[str, list[int]], target: int, most: int
) -> None:
    drafts = {name: [draft(number, size) for number, size in enumerate(some)] for name, some in sizes.items()}
    found = plan(drafts, MergePolicy(target, most))
    copied = [(merge.stream, number) for merge in found for number in range(merge.first, merge.end)]
    assert len(set(copied)) == len(copied)
    assert all(0 < sizes[stream][number] < target for stream, number in copied)
    assert all(merge.end - merge.first > 1 for merge in found)
    assert sum(sizes[stream][number] for stream, number in copied) == sum(merge.size for merge in found) <= most


def test_what_saves_most_for_its_bytes_is_merged_first() -> None:
    drafts = {"a": [draft(0, 9), draft(1, 9)], "b": [draft(2, 4), draft(3, 4), draft(4, 4)]}
    assert plan(drafts, MergePolicy(target=20, most=25)) == [Merge("b", 0, 3, 12)]


def test_a_segment_has_no_more_records_than_it_may() -> None:
    drafts = {"a": [draft(0, 1, MOST_RECORDS - 1), draft(1, 1), draft(2, 1), draft(3, 1)]}
    assert sorted(plan(drafts, MergePolicy(target=20))) == [Merge("a", 0, 2, 2), Merge("a", 2, 4, 2)]


async def written(namespace: Namespace, *streams: str) -> list[Written]:
    """By the tasks of a batch, the last one first."""
    messages = []
    for part in reversed(range(PARTS)):
        task = TaskWriter(namespace, BATCH)
        await task.begin()
        await task.add([(name, rows(name, part)) for name in streams])
        messages.append(await task.finish(part))
    return messages


def rows(name: str, part: int) -> list[bytes]:
    return [f"{name} {part} {n}".encode() for n in range(3)]


async def check(namespace: Namespace, name: str, segments: int) -> None:
    """The stream is whole, and in order."""
    assert len((await namespace.info(name)).segments) == segments
    async with namespace.open_reader(name, tail=False) as reader:
        found = [record async for record in reader]
    assert [record.payload for record in found] == [row for part in range(PARTS) for row in rows(name, part)]
    assert [record.sequence_id for record in found] == list(range(PARTS * 3))
    assert [finding async for part in namespace.verify(name) for finding in part.findings] == []


async def ledgers_of(namespace: Namespace, *names: str) -> None:
    """There are none but those of segments."""
    segments = [segment for name in names for segment in (await namespace.info(name)).segments]
    there = [ledger async for ledger in namespace.client.list_ledgers()]
    assert sorted(there) == sorted(segment.ledger_id for segment in segments)


@pytest.mark.parametrize("compression", Compression)
async def test_a_batch_adds_one_segment_to_each_stream(namespace: Namespace, compression: Compression) -> None:
    policy = MergePolicy(compression=compression)
    await commit(namespace, 7, await written(namespace, "a", "b"), merge=policy)
    for name in ("a", "b"):
        await check(namespace, name, 1)
    await ledgers_of(namespace, "a", "b")


async def test_nothing_is_merged_if_that_is_wanted(namespace: Namespace) -> None:
    await commit(namespace, 7, await written(namespace, "a"), merge=MergePolicy(target=0))
    await check(namespace, "a", PARTS)
    await ledgers_of(namespace, "a")


async def test_what_cannot_be_merged_is_published_as_it_is(namespace: Namespace, cluster: FakeCluster) -> None:
    messages = await written(namespace, "a")

    def refuse(request: object) -> Status | None:
        return Status.EIO if isinstance(request, ReadRequest | BatchReadRequest) else None

    for bookie in cluster.bookies:
        bookie.on_request = refuse
    await commit(namespace, 7, messages)
    for bookie in cluster.bookies:
        bookie.on_request = None
    await check(namespace, "a", PARTS)
    await ledgers_of(namespace, "a")


async def test_a_run_that_was_given_up_is_not_published_in_another_form(namespace: Namespace) -> None:
    messages = await written(namespace, "a")
    await namespace.collect_staged(lost_after=-1)
    with pytest.raises(StagingLostError):
        await commit(namespace, 7, messages)
    assert [ledger async for ledger in namespace.client.list_ledgers()] == []


async def test_transaction_ids_are_kept(namespace: Namespace) -> None:
    staging = await namespace.stage("sink", 0)
    drafts = []
    for first in (5, 8):
        segment = await staging.open_segment("a", WritePolicy(buffer_bytes=10))
        await segment.append_batch([b"x", b"y"], txids=[first, first + 1])
        drafts.append(await segment.finish())
    merged = await staging.merge("a", drafts)
    assert (merged.first_txid, merged.last_txid, merged.records) == (5, 9, 4)
    assert merged.size < sum(each.size for each in drafts)


async def test_a_ledger_that_has_not_what_its_draft_says_is_not_merged(namespace: Namespace) -> None:
    staging = await namespace.stage("sink", 0)
    segment = await staging.open_segment("a")
    await segment.append_batch([b"x", b"y"])
    wrong = replace(await segment.finish(), records=3)
    with pytest.raises(CorruptEntryError, match="has 2 records, its draft 3"):
        await staging.merge("a", [wrong])
    assert [ledger async for ledger in namespace.client.list_ledgers()] == [wrong.ledger_id]


def test_options() -> None:
    def parsed(**options: str) -> MergePolicy:
        return SinkOptions.parse({"uri": "x", **options}, streaming=True).merge

    assert parsed() == MergePolicy(16 << 20, 64 << 20)
    assert parsed(mergeTargetBytes="0", mergeMaxBytes="1g").target == 0
    assert parsed(mergeTargetBytes="1m", compression="lz4") == MergePolicy(1 << 20, 64 << 20, Compression.LZ4)
