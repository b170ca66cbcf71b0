"""Placement as the client uses it: following the cluster, quarantine, reading (spec client §9.5, §11, §12)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.client.placement.default import DefaultEnsemblePlacementPolicy
from bookkeeper.client.placement.draw import Draw
from bookkeeper.client.placement.placement import EnsemblePlacement
from bookkeeper.client.placement.policy import Adherence, EnsemblePlacementPolicy
from bookkeeper.client.stats import ClientStats
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import ConfigurationError, NotEnoughBookiesError
from bookkeeper.metadata.api import Mode
from bookkeeper.runtime import TaskScope
from bookkeeper.types import BookieId, Quorums

from .support import Clock, Directory, Plan, ids

HERE = "tests.unit.client.placement"
PLAN = {"reppDnsResolverClass": f"{HERE}.support:Plan"}
A, B, C, D = ids("a", "b", "c", "d")


class Placed:
    """A started placement, and what it knows the world by."""

    def __init__(self, directory: Directory, settings: Mapping[str, Any], quarantined: Container[BookieId]) -> None:
        self.directory = directory
        self.clock = Clock()
        self.stats = ClientStats()
        self.pending: dict[BookieId, int] = {}
        self.placement = EnsemblePlacement(
            self.clock,
            ClientConfiguration.from_mapping(settings),
            directory,
            stats=self.stats,
            quarantined=quarantined,
            pending=lambda bookie: self.pending.get(bookie, 0),
        )

    def ensemble(self, size: int, *excluded: str) -> list[BookieId]:
        return self.placement.new_ensemble(Quorums(size, min(size, 2), 1), {}, ids(*excluded))

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0)


@asynccontextmanager
async def placed(
    writable: Sequence[str], readonly: Sequence[str] = (), quarantined: Container[BookieId] = (), **settings: Any
) -> AsyncIterator[Placed]:
    world = Placed(Directory(writable, readonly), settings, quarantined)
    tasks = TaskScope(world.clock, "test")
    await world.placement.start(tasks)
    yield world
    await tasks.close()


def racks(**bookies: str) -> None:
    """Tell the resolver: a rack's name, and its bookies."""
    Plan.locations.update({f"ip-{bookie}": f"/{rack}" for rack, names in bookies.items() for bookie in names.split()})


# --- the plain policy ---


@pytest.mark.parametrize("policy", ["DefaultEnsemblePlacementPolicy", "RackawareEnsemblePlacementPolicy"])
@given(available=st.integers(0, 8), wanted=st.integers(1, 8), excluded=st.sets(st.integers(0, 7)))
def test_an_ensemble_is_different_writable_bookies_that_are_not_excluded(
    policy: str, available: int, wanted: int, excluded: set[int]
) -> None:
    async def main() -> None:
        async with placed([f"b{i}" for i in range(available)], ["r"], ensemblePlacementPolicy=policy) as world:
            possible = {f"b{i}" for i in range(available)} - {f"b{i}" for i in excluded}
            refused = [f"b{i}" for i in sorted(excluded)]
            if len(possible) < wanted:
                with pytest.raises(NotEnoughBookiesError, match=f"of {available} writable ones"):
                    world.ensemble(wanted, *refused)
                return
            ensemble = world.ensemble(wanted, *refused)
            assert len(set(ensemble)) == len(ensemble) == wanted
            assert set(ensemble) <= possible

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["DefaultEnsemblePlacementPolicy", "RackawareEnsemblePlacementPolicy"])
async def test_a_replacement_is_new_to_the_ensemble(policy: str) -> None:
    async with placed("abcd", ensemblePlacementPolicy=policy) as world:
        placement = world.placement
        assert placement.replace(Quorums(3, 3, 2), {}, [A, B, C], 0) == D
        assert placement.replace(Quorums(2, 2, 2), {}, [A, B], 0, [C]) == D
        with pytest.raises(NotEnoughBookiesError):
            placement.replace(Quorums(3, 3, 2), {}, [A, B, C], 0, [D])


@pytest.mark.parametrize("weighted", [False, True])
async def test_c_93_no_candidate_is_left(weighted: bool) -> None:
    """All excluded; all rejected for their racks: an error, not an endless search (#4324)."""
    racks(x="a b c", y="d")
    async with placed("abcd", enforceMinNumRacksPerWriteQuorum=True, **PLAN) as world:
        if weighted:
            world.placement.draw.free_space = {A: 0, B: 5, C: 10**12, D: 7}
        with pytest.raises(NotEnoughBookiesError):
            world.ensemble(2, "a", "b", "c", "d")
        with pytest.raises(NotEnoughBookiesError):
            world.placement.new_ensemble(Quorums(3, 2, 2), {}, [D])
        with pytest.raises(NotEnoughBookiesError):
            world.placement.replace(Quorums(2, 2, 2), {}, [A, D], 1)
        assert set(world.ensemble(2)) & {D}


async def test_quarantined_bookies_are_taken_when_there_are_no_others() -> None:
    async with placed("abcd", quarantined=[A, B]) as world:
        for _ in range(20):
            assert set(world.ensemble(2)) == {C, D}
            assert len(set(world.ensemble(3))) == 3
            assert world.placement.replace(Quorums(2, 2, 2), {}, [C, A], 1) == D
            assert world.placement.replace(Quorums(2, 2, 2), {}, [C, D], 1) in {A, B}


# --- following the cluster ---


async def test_c_92_a_rack_that_changes() -> None:
    """FX-83."""
    racks(x="a b", y="c")
    async with placed("abc", **PLAN) as world:
        assert all(C in world.ensemble(2) for _ in range(20))
        racks(y="b", z="c")
        [changed] = Plan.listeners
        changed(["ip-b", "ip-c"])
        await world.until(lambda: world.placement.adherence([A, B], Quorums(2, 2, 1)) is Adherence.MEETS_STRICT)
        assert any(C not in world.ensemble(2) for _ in range(200))
        racks(x="a b c")
        changed([])
        await world.until(lambda: world.placement.adherence([B, C], Quorums(2, 2, 1)) is Adherence.FAIL)


async def test_a_read_only_bookie_counts_where_it_stands_and_is_not_taken() -> None:
    racks(x="a b", y="c", z="d")
    quorums = Quorums(2, 2, 2)
    async with placed("abd", "c", **PLAN) as world:
        assert world.placement.adherence([A, C], quorums) is Adherence.MEETS_STRICT
        assert world.placement.replace_to_adhere(quorums, [A, C]) == [A, C]
        moved = world.placement.replace_to_adhere(quorums, [A, B])
        assert D in moved
        assert len({*moved} & {A, B}) == 1
        world.directory.now_writable("a", "b", "c", "d")
        await world.until(lambda: C in world.placement.bookies.writable)
        assert any(C in world.placement.replace_to_adhere(quorums, [A, B]) for _ in range(100))


async def test_a_bookie_in_quarantine_is_not_moved_to() -> None:
    racks(x="a b", y="c")
    async with placed("abc", quarantined=[C], **PLAN) as world:
        with pytest.raises(NotEnoughBookiesError):
            world.placement.replace_to_adhere(Quorums(2, 2, 2), [A, B])


async def test_bookies_that_come_and_go() -> None:
    racks(x="a", y="b", z="c")
    async with placed("ab", **PLAN) as world:
        assert set(world.ensemble(2)) == {A, B}
        world.directory.now_writable("b", "c")
        await world.until(lambda: C in world.placement.bookies.writable)
        assert set(world.ensemble(2)) == {B, C}
        assert world.stats.ENSEMBLE_NOT_ADHERING_TO_PLACEMENT_POLICY_TOTAL == 0
        assert world.placement.acks_span_domains([B, C], 2, 2)
        assert not world.placement.acks_span_domains([B], 2, 1)


async def test_an_ensemble_that_stands_badly_is_counted() -> None:
    racks(x="a b")
    async with placed("ab", **PLAN) as world:
        world.ensemble(2)
        world.placement.replace(Quorums(2, 2, 1), {}, [A, C], 1)
        assert world.stats.ENSEMBLE_NOT_ADHERING_TO_PLACEMENT_POLICY_TOTAL == 2


async def test_a_location_that_does_not_fit_puts_only_that_bookie_aside(caplog: pytest.LogCaptureFixture) -> None:
    """FX-83."""
    racks(x="a", y="b")
    Plan.locations["ip-c"] = "/region/rack"
    Plan.locations["ip-d"] = "no path"
    async with placed("abcd", **PLAN) as world:
        assert set(world.ensemble(2)) == {A, B}
        with pytest.raises(NotEnoughBookiesError):
            world.ensemble(3)
    assert "bookie c is at /region/rack" in caplog.text
    assert "no path" in caplog.text


async def test_bookies_that_left_lately_fill_in_for_a_while() -> None:
    async with placed("abc", networkTopologyStabilizePeriodSeconds=30) as world:
        assert set(world.ensemble(3)) == {A, B, C}
        world.directory.now_writable("a", "b")
        await world.until(lambda: C not in world.placement.bookies.writable)
        assert set(world.ensemble(2)) == {A, B}
        assert set(world.ensemble(3)) == {A, B, C}
        world.clock.time += 29
        assert C in world.ensemble(3)
        world.clock.time += 1
        with pytest.raises(NotEnoughBookiesError):
            world.ensemble(3)


# --- settings ---


class Alphabetical(DefaultEnsemblePlacementPolicy):
    """An operator's own policy."""

    def new_ensemble(
        self, quorums: Quorums, custom_metadata: Mapping[str, bytes], excluded: Container[BookieId]
    ) -> list[BookieId]:
        group = custom_metadata["group"].decode()
        return [bookie for bookie in self.topology.leaves() if bookie.startswith(group)][: quorums.ensemble_size]


async def test_a_policy_of_ones_own() -> None:
    assert issubclass(Alphabetical, EnsemblePlacementPolicy)
    name = f"{HERE}.test_placement:Alphabetical"
    async with placed(["x1", "y2", "y1", "y3"], ensemblePlacementPolicy=name) as world:
        assert world.placement.new_ensemble(Quorums(2, 2, 2), {"group": b"y"}) == ["y1", "y2"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ensemblePlacementPolicy": "com.example.Mine"}, "give one of DefaultEnsemblePlacementPolicy, Rackaware"),
        ({"ensemblePlacementPolicy": "no.such.module:Mine"}, "No module named"),
        ({"ensemblePlacementPolicy": f"{HERE}.support:Nobody"}, "Nobody"),
        ({"ensemblePlacementPolicy": f"{HERE}.support:Plan"}, "is no EnsemblePlacementPolicy"),
        ({"reppDnsResolverClass": "com.example.Mine"}, "give ScriptBasedMapping"),
        ({"reppDnsResolverClass": f"{HERE}.support:ids"}, "is no DNSToSwitchMapping"),
        ({"enforceMinNumRacksPerWriteQuorum": True}, "set networkTopologyScriptFileName"),
        (
            {"enforceMinNumRacksPerWriteQuorum": True, "networkTopologyScriptFileName": "/no/such/script"},
            "/no/such/script does not run",
        ),
        ({"ensemblePlacementPolicy": "RegionAwareEnsemblePlacementPolicy", "reppRegionsToWrite": "r1"}, "names 1"),
    ],
)
async def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        async with placed("abc", **settings):
            pass


# --- reading ---


@pytest.mark.parametrize(
    ("writable", "readonly", "slow", "order"),
    [
        ("abcd", "", "", (0, 1, 2, 3)),
        ("bcd", "", "", (1, 2, 3, 0)),
        ("bcd", "a", "", (0, 1, 2, 3)),
        ("abcd", "", "a", (1, 2, 3, 0)),
        ("cd", "b", "", (2, 3, 1, 0)),
        ("bd", "c", "b", (3, 2, 1, 0)),
    ],
)
async def test_replicas_in_trouble_are_asked_last(
    writable: str, readonly: str, slow: str, order: tuple[int, ...]
) -> None:
    async with placed(writable, readonly) as world:
        before = world.placement.version
        world.placement.note_slow(ids(*slow))
        assert (world.placement.version != before) == bool(slow)
        assert world.placement.reorder_read([A, B, C, D], (0, 1, 2, 3)) == order


async def test_a_congested_bookie_is_passed_over() -> None:
    async with placed("abcd", readReorderThresholdPendingRequests=10) as world:
        world.pending.update({A: 20, B: 7, C: 1, D: 5})
        assert world.placement.reorder_read([A, B, C, D], (0, 1, 2, 3)) == (2, 0, 1, 3)
        assert world.placement.version is None  # the order may change at any time
        world.placement.note_slow([C])  # its pending requests say enough
        assert world.placement.reorder_read([A, B, C, D], (0, 1, 2, 3)) == (2, 0, 1, 3)


async def test_the_clients_own_region_is_read_first() -> None:
    Plan.locations.update({"ip-here": "/r1/x", "ip-a": "/r2/x", "ip-b": "/r1/x", "ip-c": "/r2/y", "ip-d": "/r1/y"})
    policy = {"ensemblePlacementPolicy": "org.apache.bookkeeper.client.RegionAwareEnsemblePlacementPolicy"}
    async with placed("abcd", **PLAN, **policy) as world:
        assert world.placement.reorder_read([A, B, C, D], (0, 1, 2, 3)) == (1, 3, 0, 2)
        world.placement.note_failed(B)
        world.placement.note_failed(C)
        assert world.placement.reorder_read([A, B, C, D], (0, 1, 2, 3)) == (3, 1, 0, 2)
    async with placed("abcd", ignoreLocalNodeInPlacementPolicy=True, **PLAN, **policy) as world:
        assert world.placement.reorder_read([A, B, C, D], (0, 1, 2, 3)) == (0, 1, 2, 3)


async def test_orders_may_be_mixed() -> None:
    async with placed("abc", ["d"], ensembleRandomReadReordering=True) as world:
        seen = {world.placement.reorder_read([D, A, B, C], (0, 1, 2, 3)) for _ in range(200)}
        assert len(seen) == 6
        assert all(order[3] == 0 for order in seen)
        assert world.placement.version is None


async def test_the_read_only_list_counts() -> None:
    async with placed("ab", ["c"]) as world:
        world.directory.lists[Mode.READ_ONLY] = []
        world.directory.changed[Mode.READ_ONLY].put_nowait(None)
        await world.until(lambda: not world.placement.bookies.readonly)  # Java keeps the old list (§11.10)
        assert world.placement.reorder_read([C, A], (0, 1)) == (1, 0)


# --- machines with several bookies ---

MACHINES = ["a:1", "a:2", "a:3", "b:1", "b:2", "c:1"]
"""Three machines."""


def hosts(bookies: Sequence[BookieId]) -> list[str]:
    return [bookie.rpartition(":")[0] for bookie in bookies]


@pytest.mark.parametrize("policy", ["DefaultEnsemblePlacementPolicy", "RackawareEnsemblePlacementPolicy"])
async def test_a_ledger_never_has_two_bookies_of_one_machine(policy: str) -> None:
    async with placed(MACHINES, ensemblePlacementPolicy=policy) as world:
        found = [world.ensemble(3) for _ in range(50)]
        assert all(sorted(hosts(ensemble)) == ["a", "b", "c"] for ensemble in found)
        assert {bookie for ensemble in found for bookie in ensemble} == set(MACHINES), "each gets its share"


async def test_too_few_machines_are_refused_with_what_to_do() -> None:
    async with placed(MACHINES) as world:
        with pytest.raises(NotEnoughBookiesError) as refused:
            world.ensemble(4)
        assert "6 writable bookies are on 3 machines" in str(refused.value)
        assert "allowCopiesOnOneHost=true" in str(refused.value)


async def test_copies_on_one_machine_when_that_is_allowed() -> None:
    async with placed(MACHINES, allowCopiesOnOneHost=True) as world:
        assert sorted(world.ensemble(6)) == sorted(ids(*MACHINES))


async def test_who_replaces_a_bookie_is_of_no_machine_that_has_a_copy() -> None:
    async with placed([*MACHINES, "d:1"]) as world:
        quorums = Quorums(3, 3, 2)
        ensemble = ids("a:1", "b:1", "c:1")
        found = {world.placement.replace(quorums, {}, ensemble, 0, ids("a:1")) for _ in range(60)}
        assert found == set(ids("a:2", "a:3", "d:1")), "another bookie of its own machine will do"
        both = {world.placement.replace(quorums, {}, ensemble, 0, ids("a:1", "b:1")) for _ in range(60)}
        assert ids("b:2")[0] in both, "b:1 is about to go, too"
        with pytest.raises(NotEnoughBookiesError, match="allowCopiesOnOneHost"):
            world.placement.replace(quorums, {}, ensemble, 0, ids("a:1", "a:2", "a:3", "d:1"))


async def test_loopback_and_names_of_their_own_are_machines() -> None:
    local = ["127.0.0.1:1", "127.0.0.1:2", "localhost:3", "localhost:4", "mine", "yours", "[::1]:1", "[::1]:2"]
    async with placed(local) as world:
        assert len(world.ensemble(8)) == 8


def test_of_each_machine_one_is_drawn_and_a_member_is_preferred() -> None:
    draw = Draw(random.Random(1))
    found = [draw.one_of_each_host(ids(*MACHINES), ids("a:2")) for _ in range(20)]
    assert all(sorted(hosts(drawn)) == ["a", "b", "c"] for drawn in found)
    assert all(ids("a:2")[0] in drawn for drawn in found)
    assert {bookie for drawn in found for bookie in drawn} == set(ids("a:2", "b:1", "b:2", "c:1"))
