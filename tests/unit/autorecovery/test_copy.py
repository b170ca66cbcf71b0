"""Entries go from bookies that have them to those that need them, as they are stored (spec autorecovery-admin §5.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from bookkeeper.autorecovery.checker import digest_of
from bookkeeper.autorecovery.copying.copy import Copier
from bookkeeper.autorecovery.copying.pace import Pace
from bookkeeper.autorecovery.fragments import fragments_of
from bookkeeper.autorecovery.stats import WorkerStats
from bookkeeper.client.adds.encoding import RECOVERY_FLAGS
from bookkeeper.client.reads.replicas import Replicas
from bookkeeper.errors import BKError, ReadError
from bookkeeper.protocol.digest import master_key
from bookkeeper.protocol.messages import AddRequest, Status
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId
from tests.support.fake_bookie import CLOSE, FakeBookie, FakeCluster
from tests.unit.client.support import PASSWORD, Ledger, make_ledger


class World:
    """A ledger, and a copier of it."""

    def __init__(self, ledger: Ledger, context: Any, stretch: int) -> None:
        self.ledger = ledger
        self.stats = WorkerStats()
        self.record = ledger.metadata
        replicas = Replicas(context, self.record, digest_of(self.record))
        pace = Pace(RealRuntime(), -1)
        self.copier = Copier(context, replicas, master_key(PASSWORD), pace, stretch, self.stats)

    async def copy(self, chosen: Mapping[int, FakeBookie], avoided: tuple[BookieId, ...] = ()) -> None:
        (fragment,) = fragments_of(self.record, self.record.last_entry_id)
        await self.copier.copy(fragment, {index: bookie.id for index, bookie in chosen.items()}, avoided)

    def entries(self, bookie: FakeBookie) -> dict[int, bytes]:
        return dict(bookie.ledger(self.ledger.id).entries)


async def world_of(cluster: FakeCluster, count: int = 25, stretch: int = 10, **shape: Any) -> World:
    ledger = await make_ledger(cluster, count, **shape)
    bk = await cluster.connect(readEntryTimeoutSec=2, addEntryTimeoutSec=2)
    return World(ledger, bk.context, stretch)


@pytest.mark.parametrize("shape", [(3, 3, 2), (3, 2, 2), (4, 2, 1)])
@pytest.mark.parametrize("stretch", [1, 10, 1000])
async def test_each_target_gets_what_its_index_holds_byte_for_byte(
    cluster: FakeCluster, shape: tuple[int, int, int], stretch: int
) -> None:
    world = await world_of(cluster, stretch=stretch, quorums=shape)
    lost = [world.entries(bookie) for bookie in world.ledger.bookies[:2]]
    world.ledger.bookies[0].ledger(world.ledger.id).entries.clear()
    targets = {0: cluster.bookies[4], 1: cluster.bookies[5]}
    await world.copy(targets)
    assert [world.entries(targets[index]) for index in (0, 1)] == lost
    assert world.stats.NUM_ENTRIES_WRITTEN == world.stats.NUM_BYTES_WRITTEN.count == sum(map(len, lost))
    assert len({**lost[0], **lost[1]}) == world.stats.NUM_ENTRIES_READ
    assert world.stats.NUM_BYTES_WRITTEN.total == sum(len(data) for entries in lost for data in entries.values())


async def test_adds_are_marked_as_those_of_recovery_and_carry_the_key(cluster: FakeCluster) -> None:
    world = await world_of(cluster, 3)
    await world.copy({0: cluster.bookies[4]})
    adds = [request for request in cluster.bookies[4].requests if isinstance(request, AddRequest)]
    assert len(adds) == 3
    assert all(add.flags == RECOVERY_FLAGS and add.master_key == master_key(PASSWORD) for add in adds)


async def test_what_one_bookie_gives_damaged_or_not_is_asked_of_the_others(cluster: FakeCluster) -> None:
    world = await world_of(cluster, 12)
    good = world.entries(world.ledger.bookies[2])
    for entry in good:
        first, second, _ = world.ledger.replicas(entry)
        world.ledger.corrupt(first, entry)
        del second.ledger(world.ledger.id).entries[entry]
    good = {entry: data for entry, data in good.items() if world.ledger.replicas(entry)[2] is world.ledger.bookies[2]}
    await world.copy({1: cluster.bookies[5]})
    copied = world.entries(cluster.bookies[5])
    assert sorted(copied) == list(range(12))
    assert {entry: copied[entry] for entry in good} == good


async def test_who_is_avoided_is_asked_last(cluster: FakeCluster) -> None:
    world = await world_of(cluster, 9)
    slow = world.ledger.bookies[0]
    await world.copy({0: cluster.bookies[4]}, avoided=(slow.id,))
    assert not slow.requests


async def test_an_entry_that_nobody_gives_ends_the_copy(cluster: FakeCluster) -> None:
    world = await world_of(cluster, 30, stretch=5)
    for bookie in world.ledger.bookies:
        world.ledger.corrupt(bookie, 17)
    with pytest.raises(ReadError, match="no bookie gives entry 17"):
        await world.copy({0: cluster.bookies[4]})
    assert world.stats.NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION == 1
    assert 17 not in world.entries(cluster.bookies[4])


@pytest.mark.parametrize("answer", [Status.EIO, Status.EREADONLY, CLOSE])
async def test_a_target_that_does_not_take_an_entry_ends_the_copy(cluster: FakeCluster, answer: Any) -> None:
    world = await world_of(cluster, 30, stretch=5)

    def refuse(request: object) -> Any:
        return answer if isinstance(request, AddRequest) and request.entry_id == 12 else None

    cluster.bookies[4].on_request = refuse
    with pytest.raises(BKError):
        await world.copy({0: cluster.bookies[4], 1: cluster.bookies[5]})
    assert 12 not in world.entries(cluster.bookies[4])
    assert world.stats.NUM_ENTRIES_WRITTEN < 60


async def test_a_copy_is_done_when_the_last_target_has_acknowledged(cluster: FakeCluster) -> None:
    world = await world_of(cluster, 5)
    cluster.bookies[4].on_request = lambda request: CLOSE if isinstance(request, AddRequest) else None  # type: ignore[assignment,return-value]
    with pytest.raises(BKError):
        await world.copy({0: cluster.bookies[4], 1: cluster.bookies[5]})
    assert world.stats.NUM_ENTRIES_WRITTEN == 0


async def test_stretches_follow_the_size_of_entries(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "piece", 10_000)
    world = await world_of(cluster, sizes=[1000] * 40, stretch=2)
    spent: list[int] = []

    async def spend(size: int) -> None:
        spent.append(size)

    world.copier._pace.spend = spend  # type: ignore[method-assign]
    await world.copy({0: cluster.bookies[4]})
    assert sum(spent) == world.copier.progress.bytes == world.stats.NUM_BYTES_READ.total
    assert max(spent) <= 10_000
    assert spent[0] < spent[1]


async def test_an_empty_fragment_costs_nothing(cluster: FakeCluster) -> None:
    world = await world_of(cluster, 0)
    await world.copy({0: cluster.bookies[4]})
    assert not any(bookie.requests for bookie in cluster.bookies)
