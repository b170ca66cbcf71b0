"""Telling bookies that do not know batch reads from those that had a bad moment."""

from __future__ import annotations

from bookkeeper.client.wire.batch_support import DOUBT, BatchSupport
from bookkeeper.protocol.messages import BatchReadRequest, ReadRequest
from bookkeeper.types import BookieId
from tests.support.fake_bookie import CLOSE, FakeCluster

from .support import make_ledger

OLD, NEW = BookieId("old:3181"), BookieId("new:3181")


def test_a_bookie_that_never_answered_is_doubted_for_a_while_after_a_loss() -> None:
    support = BatchSupport()
    assert not support.doubts(OLD, 0)
    support.lost(OLD, 0)
    assert support.doubts(OLD, DOUBT.first - 1)
    assert not support.any([OLD], 0)
    assert support.any([OLD, NEW], 0)
    assert not support.doubts(OLD, DOUBT.first)


def test_doubt_lasts_longer_with_every_loss_but_not_for_ever() -> None:
    support = BatchSupport()
    now = 0.0
    for _ in range(20):
        support.lost(OLD, now)
        support.lost(OLD, now)  # with the same connection
        pause = DOUBT.first
        while support.doubts(OLD, now + pause):
            pause *= 2
        assert pause <= DOUBT.longest * 2
        now += pause
    assert pause >= DOUBT.longest


def test_a_bookie_that_has_answered_is_trusted_through_some_losses() -> None:
    support = BatchSupport()
    support.answered(NEW)
    for _ in range(10):
        support.lost(NEW, 0)
        support.lost(NEW, 0)
        assert not support.doubts(NEW, 0)
        support.answered(NEW)
    for _ in range(3):  # it was replaced by an older one
        support.lost(NEW, 0)
    assert support.doubts(NEW, 0)
    support.answered(NEW)
    assert not support.doubts(NEW, 0)


def test_a_bookie_is_known_as_long_as_none_is_lost() -> None:
    support = BatchSupport()
    assert not support.knows(NEW)
    support.answered(NEW)
    assert support.knows(NEW)
    support.lost(NEW, 0)  # it may be an older one now
    assert not support.knows(NEW)
    support.answered(NEW)
    assert support.knows(NEW)


async def test_a_moment_without_connections_does_not_end_batch_reads(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 1000)
    reader = await ledger.open(await cluster.connect())
    assert len([entry async for entry in reader]) == 1000
    for bookie in cluster.bookies:
        bookie.on_request = lambda request: CLOSE if isinstance(request, BatchReadRequest) else None
    assert len(await reader.batch_read(0, max_count=10)) == 10  # entry by entry
    for bookie in cluster.bookies:
        bookie.on_request = None
        bookie.requests.clear()
    assert len([entry async for entry in reader]) == 1000
    assert not any(bookie.count(ReadRequest) for bookie in cluster.bookies)


async def test_an_old_bookie_among_new_ones_is_asked_for_batches_last(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 300)
    old = ledger.replicas(0)[0]
    old.on_request = lambda request: CLOSE if isinstance(request, BatchReadRequest) else None
    client = await cluster.connect(bookieFailureHistoryExpirationMSec=0)  # 'slow' is not what keeps it last
    reader = await ledger.open(client)
    assert len(await reader.batch_read(0, max_count=100)) == 100
    for first in range(0, 290, 7):
        await reader.batch_read(first, max_count=3)
    assert old.count(BatchReadRequest) == 1
    assert all(bookie.count(BatchReadRequest) for bookie in cluster.bookies)


async def test_what_is_known_of_old_bookies_holds_for_all_ledgers_of_a_client(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    for bookie in cluster.bookies:
        bookie.on_request = lambda request: CLOSE if isinstance(request, BatchReadRequest) else None
    for _ in range(3):
        ledger = await make_ledger(cluster, 10)
        assert len(await (await ledger.open(client)).batch_read(0, max_count=10)) == 10
    assert [bookie.count(BatchReadRequest) for bookie in cluster.bookies] == [1, 1, 1]
