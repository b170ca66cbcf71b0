"""Which copies of a ledger are not where its record says (spec autorecovery-admin §5.2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bookkeeper.autorecovery import checker as module
from bookkeeper.autorecovery.checker import Damage, LedgerChecker
from bookkeeper.protocol.messages import Status
from tests.support.fake_bookie import CLOSE, FakeBookie, FakeCluster
from tests.unit.client.support import Ledger, make_ledger


class World:
    def __init__(self, cluster: FakeCluster, ledger: Ledger, context: Any, **settings: Any) -> None:
        self.cluster = cluster
        self.ledger = ledger
        self.record = ledger.metadata
        self.checker = LedgerChecker(cluster.runtime, context, **settings)

    async def check(self, percentage: int = 0, *, gone: tuple[FakeBookie, ...] = ()) -> list[Damage]:
        available = {bookie.id for bookie in self.cluster.bookies if bookie not in gone}
        return await self.checker.check(self.record, self.record.last_entry_id, available, percentage)

    def lose(self, bookie: FakeBookie, entry_id: int) -> None:
        del bookie.ledger(self.ledger.id).entries[entry_id]


async def world_of(cluster: FakeCluster, count: int = 20, *, in_flight: int = -1, **shape: Any) -> World:
    ledger = await make_ledger(cluster, count, **shape)
    bk = await cluster.connect(readEntryTimeoutSec=2)
    return World(cluster, ledger, bk.context, in_flight=in_flight)


@pytest.mark.parametrize("shape", [(3, 3, 2), (3, 2, 2), (5, 2, 1)])
@pytest.mark.parametrize("percentage", [0, 50, 100])
async def test_a_whole_ledger_has_no_damage(cluster: FakeCluster, shape: tuple[int, int, int], percentage: int) -> None:
    assert await (await world_of(cluster, quorums=shape)).check(percentage) == []


async def test_the_ends_are_looked_at_and_all_of_it_with_a_hundred_per_cent(cluster: FakeCluster) -> None:
    world = await world_of(cluster)
    second, third = world.ledger.bookies[1:3]
    world.lose(second, 19)
    world.lose(third, 7)
    (damage,) = await world.check(0)
    assert (damage.bad, damage.bookies) == ({1}, [second.id])
    (damage,) = await world.check(100)
    assert (damage.bad, damage.bookies) == ({1, 2}, [second.id, third.id])


async def test_a_copy_that_is_damaged_is_no_copy(cluster: FakeCluster) -> None:
    world = await world_of(cluster)
    world.ledger.corrupt(world.ledger.bookies[0], 0)
    (damage,) = await world.check()
    assert damage.bad == {0}


async def test_a_bookie_that_is_gone_is_not_asked_and_lacks_what_it_need_not_have(cluster: FakeCluster) -> None:
    world = await world_of(cluster, 1, quorums=(3, 2, 2))
    third = world.ledger.bookies[2]  # entry 0 is on the first two
    assert await world.check() == []
    (damage,) = await world.check(gone=(third,))
    assert damage.bad == {2}
    assert not third.requests


@pytest.mark.parametrize("answer", [Status.EIO, CLOSE])
async def test_a_bookie_that_is_there_and_does_not_answer_has_nothing(cluster: FakeCluster, answer: Any) -> None:
    world = await world_of(cluster)
    world.ledger.bookies[1].on_request = lambda _request: answer
    (damage,) = await world.check()
    assert damage.bad == {1}


async def test_each_fragment_is_judged_by_itself(cluster: FakeCluster) -> None:
    members = cluster.bookies
    world = await world_of(cluster, 20, ensembles={0: members[:3], 8: members[1:4], 20: members[2:5]})
    world.lose(members[1], 8)
    found = await world.check()
    assert [(damage.fragment.first, damage.fragment.last, damage.bad) for damage in found] == [(8, 19, {0})]
    found = await world.check(gone=(members[2],))
    assert [(damage.fragment.first, damage.bad) for damage in found] == [(0, {2}), (8, {0, 1}), (20, {0})]


async def test_no_more_are_asked_for_together_than_is_said(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await world_of(cluster, 20, in_flight=3)
    together: list[int] = []
    each = module.Replicas.each

    def counted(replicas: Any, bookie: Any, entries: Any) -> Any:
        together.append(len(entries))
        return each(replicas, bookie, entries)

    monkeypatch.setattr(module.Replicas, "each", counted)
    assert await world.check(100) == []
    assert max(together) == 3
    assert sum(together) == 60


async def test_without_a_digest_in_the_record_only_ids_are_compared(cluster: FakeCluster) -> None:
    world = await world_of(cluster)
    world.ledger.corrupt(world.ledger.bookies[0], 0)
    world.lose(world.ledger.bookies[1], 0)
    world.record = replace(world.record, digest_type=None, password=None)
    (damage,) = await world.check()
    assert damage.bad == {1}
