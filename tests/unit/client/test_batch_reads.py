"""Batch reads: what one request brings, of bookies that fail, lie and dawdle (spec client §9.7)."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.client.readable import LEAST_BATCH
from bookkeeper.client.reads.batch import SMALLEST_PART, parts_of
from bookkeeper.errors import DigestMismatchError, NoSuchEntryError
from bookkeeper.protocol.messages import AddRequest, BatchReadRequest, ReadRequest, Status
from tests.support.fake_bookie import CLOSE, HOLD, SILENT, FakeCluster

from .support import PROTOCOLS, eventually, make_ledger, payload, stop_reads


def batches(cluster: FakeCluster) -> list[BatchReadRequest]:
    """What bookies were asked for since the last call."""
    found = [r for bookie in cluster.bookies for r in bookie.requests if isinstance(r, BatchReadRequest)]
    for bookie in cluster.bookies:
        bookie.requests = [r for r in bookie.requests if not isinstance(r, BatchReadRequest)]
    return found


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
def test_the_parts_of_a_batch_are_all_of_it_and_no_more_than_there_are_replicas(count: int, replicas: int) -> None:
    parts = parts_of(7, count, replicas)
    assert [entry_id for part in parts for entry_id in part] == list(range(7, 7 + count))
    assert len(parts) <= replicas
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


async def test_batches_of_any_length_go_round_the_replicas(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 900)
    reader = await ledger.open(await cluster.connect())
    for length in (30, 33, 99):
        batches(cluster)
        for first in range(0, 9 * length, length):
            assert len(await reader.batch_read(first, max_count=length)) == length
        assert [bookie.count(BatchReadRequest) for bookie in ledger.bookies] == [3, 3, 3]


# --- ranges that are read in batches ---


@PROTOCOLS
async def test_a_range_of_many_small_entries_is_read_in_batches(cluster: FakeCluster, protocol: str) -> None:
    ledger = await make_ledger(cluster, 100)
    reader = await ledger.open(await cluster.connect(protocol=protocol, readEntriesWindow=40))
    entries = await reader.read(5, 95)
    assert [(entry.entry_id, entry.data) for entry in entries] == [(i, payload(i)) for i in range(5, 96)]
    singles = sum(bookie.count(ReadRequest) for bookie in cluster.bookies)
    if protocol == "v3":
        assert not batches(cluster)
        assert singles == 91
    else:
        assert sorted((batch.entry_id, batch.max_count) for batch in batches(cluster)) == [(5, 40), (45, 40)]
        assert singles == 11  # no batch is worth it
    await reader.read(5, 5 + LEAST_BATCH - 2)
    assert not batches(cluster)


@pytest.mark.parametrize("size", [4000, 40_000])
async def test_ranges_of_large_entries_are_read_one_by_one_from_all_replicas(cluster: FakeCluster, size: int) -> None:
    ledger = await make_ledger(cluster, sizes=[size] * 40)
    reader = await ledger.open(await cluster.connect())
    assert [len(entry) for entry in await reader.read(0, 39)] == [size] * 40
    assert len(batches(cluster)) == (1 if size == 4000 else 0)


async def test_ranges_of_a_ledger_of_unknown_entries_are_read_one_by_one_until_they_are_known(
    cluster: FakeCluster,
) -> None:
    ledger = await make_ledger(cluster, 50, closed=False)
    reader = await ledger.open(await cluster.connect())
    for asked in (0, 1):
        assert [entry.entry_id for entry in await reader.read(0, 48)] == list(range(49))
        assert len(batches(cluster)) == asked


async def test_a_range_in_batches_is_no_more_than_its_window_of_bytes(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, sizes=[1000] * 90)
    reader = await ledger.open(await cluster.connect(readEntriesWindowBytes=60_000))
    assert [entry.entry_id for entry in await reader.read(0, 89)] == list(range(90))
    assert all(batch.max_size == 60_000 for batch in batches(cluster))
    assert sum(bookie.count(ReadRequest) for bookie in cluster.bookies) < LEAST_BATCH


async def test_a_range_in_batches_crosses_fragments(cluster: FakeCluster) -> None:
    a, b, c = cluster.bookies
    ledger = await make_ledger(cluster, 90, ensembles={0: [a, b, c], 40: [b, c, a], 45: [c, a, b]})
    reader = await ledger.open(await cluster.connect())
    assert [entry.entry_id for entry in await reader.read(0, 89)] == list(range(90))
    assert [batch.entry_id for batch in batches(cluster)] == [0, 40]


async def test_replicas_that_lack_entries_here_and_there_are_asked_one_by_one(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 100)
    for place, bookie in enumerate(ledger.bookies):
        for entry_id in range(20 + place, 90, 3):
            del bookie.ledger(ledger.id).entries[entry_id]
    reader = await ledger.open(await cluster.connect())
    entries = await reader.read(0, 99)
    assert [(entry.entry_id, entry.data) for entry in entries] == [(i, payload(i)) for i in range(100)]
    assert len(batches(cluster)) < 6


@pytest.mark.parametrize("missing", [0, 7, 50, 95])
async def test_a_range_in_batches_is_whole_or_the_error_of_the_first_that_is_not_there(
    cluster: FakeCluster, missing: int
) -> None:
    ledger = await make_ledger(cluster, 100)
    for bookie in ledger.bookies:
        del bookie.ledger(ledger.id).entries[missing]
    reader = await ledger.open(await cluster.connect())
    with pytest.raises(NoSuchEntryError) as caught:
        await reader.read(0, 99)
    assert caught.value.entry_id == missing
    with pytest.raises(NoSuchEntryError):
        await reader.read_unconfirmed(missing, missing + 200)


# --- bookies that may not know batches ---


async def test_what_is_not_known_to_be_understood_costs_no_connection_that_adds_share(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 50)
    for bookie in cluster.bookies:
        bookie.on_request = lambda request: (
            CLOSE if isinstance(request, BatchReadRequest) else HOLD if isinstance(request, AddRequest) else None
        )
    client = await cluster.connect()
    writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"p")
    append = asyncio.ensure_future(writer.append(b"held"))
    await eventually(lambda: all(bookie.count(AddRequest) for bookie in cluster.bookies))
    reader = await ledger.open(client)
    assert [entry.entry_id for entry in await reader.read(0, 49)] == list(range(50))
    assert len(batches(cluster)) == 3
    for bookie in cluster.bookies:
        bookie.release()
    assert await append == 0
    assert writer.metadata.ensembles.keys() == {0}
    await writer.close()


async def test_who_has_answered_a_batch_is_asked_on_the_connection_that_there_is(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 200)
    client = await cluster.connect(timeoutMonitorIntervalSec=0.02)
    reader = await ledger.open(client)
    for entry_id in (0, 64, 128):  # each from another bookie
        await reader.read_entry(entry_id)
    for entry_id in (0, 1, 2):
        await reader.batch_read(entry_id, max_count=1)
    for bookie in cluster.bookies:
        await eventually(lambda bookie=bookie: len(bookie.connections) == 1)
        assert bookie.accepted >= 2
    accepted = [bookie.accepted for bookie in cluster.bookies]
    for entry_id in (0, 1, 2):
        await reader.batch_read(entry_id, max_count=1)
    assert [bookie.accepted for bookie in cluster.bookies] == accepted
