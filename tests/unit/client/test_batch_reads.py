"""Batch reads: what one request brings, of bookies that fail, lie and dawdle (spec client §9.7)."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.client.reads.batch import SMALLEST_PART, parts_of
from bookkeeper.errors import DigestMismatchError, NoSuchEntryError
from bookkeeper.protocol.messages import BatchReadRequest, Status
from tests.support.fake_bookie import CLOSE, SILENT, FakeCluster

from .support import PROTOCOLS, make_ledger, payload, stop_reads


@PROTOCOLS
async def test_a_batch_is_cut_where_it_must_be(cluster: FakeCluster, protocol: str) -> None:
    ledger = await make_ledger(cluster, 10, closed=False)
    reader = await ledger.open(await cluster.connect(protocol=protocol))
    assert reader.last_add_confirmed == 8
    assert [entry.id for entry in await reader.batch_read(6, max_count=100)] == [6, 7, 8]
    assert [entry.id for entry in await reader.batch_read(2, max_count=3)] == [2, 3, 4]
    assert [entry.id for entry in await reader.batch_read_unconfirmed(7, max_count=100)] == [7, 8, 9]
    batches = sum(bookie.count(BatchReadRequest) for bookie in cluster.bookies)
    assert batches == (0 if protocol == "v3" else 3)


async def test_a_batch_is_at_least_one_entry_whatever_its_size(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 10)
    reader = await ledger.open(await cluster.connect())
    assert [entry.id for entry in await reader.batch_read(6, max_count=4, max_size=1)] == [6]


async def test_striped_ledgers_are_read_entry_by_entry(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 30, quorums=(3, 2, 2))
    reader = await ledger.open(await cluster.connect())
    assert [entry.id for entry in await reader.batch_read(5, max_count=7)] == list(range(5, 12))
    assert [entry.data async for entry in reader.entries(2, 28)] == [payload(i) for i in range(2, 29)]
    assert not any(bookie.count(BatchReadRequest) for bookie in cluster.bookies)


async def test_damage_in_a_batch(cluster: FakeCluster) -> None:
    """FX-16."""
    ledger = await make_ledger(cluster, 10)
    reader = await ledger.open(await cluster.connect())
    ledger.corrupt(ledger.replicas(0)[0], 0)
    assert len(await reader.batch_read(0, max_count=10)) == 10  # from the next replica
    for bookie in ledger.bookies:
        ledger.corrupt(bookie, 4)
    assert [entry.id for entry in await reader.batch_read(0, max_count=10)] == [0, 1, 2, 3]
    with pytest.raises(DigestMismatchError):
        await reader.batch_read(4, max_count=10)


async def test_bookies_without_batch_reads_are_read_entry_by_entry_from_then_on(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 10)
    for bookie in cluster.bookies:
        bookie.on_request = lambda request: CLOSE if isinstance(request, BatchReadRequest) else None
    reader = await ledger.open(await cluster.connect())
    assert len(await reader.batch_read(0, max_count=10)) == 10
    asked = sum(bookie.count(BatchReadRequest) for bookie in cluster.bookies)
    assert asked == 3
    assert len(await reader.batch_read(0, max_count=10)) == 10
    assert sum(bookie.count(BatchReadRequest) for bookie in cluster.bookies) == asked


async def test_a_silent_replica_is_passed_over_in_batches_too(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 10)
    stop_reads(ledger.replicas(0)[0], SILENT)
    reader = await ledger.open(await cluster.connect(speculativeReadTimeout=30, readEntryTimeoutSec=60))
    assert len(await reader.batch_read(0, max_count=10)) == 10


@pytest.mark.parametrize("replicas", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [1, 199, 200, 201, 640, 1000])
def test_the_parts_of_a_batch_are_all_of_it_and_begin_at_different_replicas(count: int, replicas: int) -> None:
    parts = parts_of(7, count, replicas)
    assert [entry_id for part in parts for entry_id in part] == list(range(7, 7 + count))
    assert len({part.start % replicas for part in parts}) == len(parts) <= replicas
    assert len(parts) == 1 or min(len(part) for part in parts[:-1]) >= SMALLEST_PART
    assert (len(parts) > 1) == (replicas > 1 and count >= 2 * SMALLEST_PART)


async def test_a_large_batch_is_read_from_all_replicas_side_by_side(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 700)
    reader = await ledger.open(await cluster.connect())
    entries = await reader.batch_read(20, max_count=600)
    assert [(entry.entry_id, entry.data) for entry in entries] == [(i, payload(i)) for i in range(20, 620)]
    assert [bookie.count(BatchReadRequest) for bookie in ledger.bookies] == [1, 1, 1]
    stop_reads(ledger.bookies[1], Status.ENOENTRY)
    assert [entry.entry_id for entry in await reader.batch_read(20, max_count=600)] == list(range(20, 620))
    few = await reader.batch_read(20, max_count=600, max_size=2000)
    assert [entry.entry_id for entry in few] == list(range(20, 20 + len(few)))
    assert 1 <= sum(len(entry) for entry in few) <= 2000


async def test_a_large_batch_ends_before_the_first_entry_that_nobody_has(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 700)
    reader = await ledger.open(await cluster.connect())
    for bookie in ledger.bookies:
        del bookie.ledger(ledger.id).entries[345]
        del bookie.ledger(ledger.id).entries[20 + 2 * 202]  # with it the third part begins
    assert [entry.entry_id for entry in await reader.batch_read(20, max_count=600)] == list(range(20, 345))
    assert [entry.entry_id for entry in await reader.batch_read(346, max_count=300)] == list(range(346, 424))
    with pytest.raises(NoSuchEntryError):
        await reader.batch_read(345, max_count=300)


async def test_a_batch_beside_others_is_one_request(cluster: FakeCluster) -> None:
    """All replicas are asked side by side by who is alone; others have them busy anyway."""
    ledger = await make_ledger(cluster, 6 * SMALLEST_PART)
    reader = await ledger.open(await cluster.connect())
    half = 3 * SMALLEST_PART

    def asked() -> list[int]:
        batches = [r for bookie in ledger.bookies for r in bookie.requests if isinstance(r, BatchReadRequest)]
        for bookie in ledger.bookies:
            bookie.requests.clear()
        return sorted(batch.max_count for batch in batches)

    await reader.batch_read(0, max_count=10)  # from now on the size of entries is known
    asked()
    assert len(await reader.batch_read(0, max_count=half)) == half
    assert len(asked()) == 3
    both = await asyncio.gather(reader.batch_read(0, max_count=half), reader.batch_read(half, max_count=half))
    assert [entry.entry_id for batch in both for entry in batch] == list(range(2 * half))
    assert len(asked()) == 4
    assert len(await reader.batch_read(half, max_count=half)) == half
    assert len(asked()) == 3
