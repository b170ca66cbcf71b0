"""What a query looks up for a batch: what is new, once."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from bookkeeper.client.client import BookKeeper
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.spark.streaming.following import Follower
from bookkeeper.spark.streaming.offsets import Offset
from bookkeeper.spark.streaming.spans import Log, Span
from bookkeeper.spark.streaming.stream_options import StreamOptions
from bookkeeper.spark.writing.committing import commit
from bookkeeper.spark.writing.sink_options import MergePolicy
from bookkeeper.spark.writing.tasks import Batch, TaskWriter
from bookkeeper.streams.names.segments import SegmentList
from bookkeeper.streams.namespace import Namespace
from tests.support.fake_bookie import FakeCluster

BATCH = Batch("sink", 0, "0", None, counted=True)
OPTIONS = {"uri": "distributedlog-memory://x/ledgers?namespace=/ns", "stream": "a", "startingOffsets": "earliest"}


class Lookups:
    """Records of segments and of ledgers that were read."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.segments: list[str] = []
        self.ledgers: list[int] = []
        read, metadata = SegmentList._read, BookKeeper.get_ledger_metadata

        async def read_segments(own: Any, names: list[str]) -> Any:
            self.segments += names
            return await read(own, names)

        async def read_ledger(own: BookKeeper, ledger_id: int) -> Any:
            self.ledgers.append(ledger_id)
            return await metadata(own, ledger_id)

        patch.setattr(SegmentList, "_read", read_segments)
        patch.setattr(BookKeeper, "get_ledger_metadata", read_ledger)

    def take(self) -> tuple[int, int]:
        """How many of each since the last time."""
        counts = len(self.segments), len(self.ledgers)
        self.segments.clear()
        self.ledgers.clear()
        return counts


@pytest.fixture
async def namespace(cluster: FakeCluster) -> Namespace:
    client = await cluster.connect()
    await client.context.driver.tree.make("/ns")
    return Namespace(client, client.context.driver.tree, "/ns", None, "me", AsyncExitStack())


async def publish(namespace: Namespace, epoch: int, tasks: int) -> None:
    """A segment of each task."""
    batch = replace(BATCH, epoch=epoch, run=f"0{epoch}")
    messages = []
    for number in range(tasks):
        task = TaskWriter(namespace, batch)
        await task.begin()
        await task.add([("a", [b"x" * 100] * 10)])
        messages.append(await task.finish(number))
    await commit(namespace, epoch, messages, merge=MergePolicy(target=0))


async def test_a_batch_looks_up_what_is_new_and_once(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    options = StreamOptions.parse({**OPTIONS, "minPollInterval": "1ms"}, streaming=True)
    await publish(namespace, 0, 5)
    follower = Follower(namespace.client, namespace, options, RealRuntime())
    lookups = Lookups(monkeypatch)
    reached: Offset = await follower.begin()
    assert lookups.take() == (5, 5)
    for epoch, tasks in ((1, 1), (2, 3)):
        end = await follower.advance(reached, limited=False)
        works = await follower.work(reached, end)
        assert sum(piece.entries for work in works for piece in work.ranges) > 0
        assert lookups.take() == ((0, 0) if epoch == 1 else (1, 1))
        reached = end
        await asyncio.sleep(0.002)  # what is there is looked at again
        assert await follower.advance(reached, limited=False) is reached
        assert lookups.take() == (0, 0)
        await publish(namespace, epoch, tasks)
        lookups.take()


async def test_a_batch_that_is_planned_again_by_another_process_is_the_same(namespace: Namespace) -> None:
    """Which has seen nothing, or more."""
    options = StreamOptions.parse(OPTIONS, streaming=True)
    await publish(namespace, 0, 2)
    first = Follower(namespace.client, namespace, options, RealRuntime())
    start = await first.begin()
    end = await first.advance(start, limited=False)
    planned = await first.work(start, end)
    await publish(namespace, 1, 2)
    second = Follower(namespace.client, namespace, options, RealRuntime())
    assert await second.work(start, end) == planned
    await second.advance(start, limited=False)
    assert await second.work(start, end) == planned


def test_a_span_is_found_by_its_number() -> None:
    log = Log("a", [Span(number, 100 + number) for number in (3, 4, 7, 8)])
    found = {number: log.at(number) for number in range(10)}
    assert {number: span.ledger_id for number, span in found.items() if span is not None} == {
        3: 103,
        4: 104,
        7: 107,
        8: 108,
    }
    assert Log("a", ()).at(1) is None
