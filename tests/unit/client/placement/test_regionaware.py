"""Regions (spec client §11.7, scenario 94)."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.client.placement.adhering import windows
from bookkeeper.client.placement.regionaware import RegionAwareEnsemblePlacementPolicy, Seating
from bookkeeper.client.placement.topology import region_of
from bookkeeper.errors import ConfigurationError, IncorrectParameterError, NotEnoughBookiesError
from bookkeeper.types import BookieId, Quorums

from .support import ids, make, places

Regions = RegionAwareEnsemblePlacementPolicy
SEEDS = range(20)
THREE = places(r1_x=3, r1_y=3, r2_x=3, r2_y=3, r3_x=3, r3_y=3)
DURABLE = {"reppRegionsToWrite": "r1;r2;r3", "reppMinimumRegionsForDurability": 2}
QUORUMS = Quorums(6, 6, 4)


def spread(policy: Regions, ensemble: list[BookieId]) -> Counter[str]:
    return Counter(region_of(policy.topology.last_rack(bookie) or "/?") for bookie in ensemble)


@pytest.mark.parametrize("seed", SEEDS)
def test_c_94_three_regions_share_and_none_has_an_ack_quorum(seed: int) -> None:
    policy = make(Regions, THREE, seed=seed, **DURABLE)
    ensemble = policy.new_ensemble(QUORUMS, {}, ())
    assert len(set(ensemble)) == 6
    assert spread(policy, ensemble) == {"r1": 2, "r2": 2, "r3": 2}
    for region in ("r1", "r2", "r3"):  # inside a region, both racks
        assert len({policy.topology.rack(b) for b in ensemble if b.startswith(region)}) == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_c_94_one_region_down_and_two_down(seed: int) -> None:
    down = [BookieId(bookie) for bookie in THREE if bookie.startswith("r2")]
    policy = make(Regions, THREE, seed=seed, **DURABLE)
    assert spread(policy, policy.new_ensemble(QUORUMS, {}, down)) == {"r1": 3, "r3": 3}
    for bookie in down:
        policy.topology.remove(bookie)
    assert spread(policy, policy.new_ensemble(QUORUMS, {}, ())) == {"r1": 3, "r3": 3}
    for bookie in [bookie for bookie in THREE if bookie.startswith("r1")]:
        policy.topology.remove(BookieId(bookie))
    with pytest.raises(NotEnoughBookiesError, match="any 4 of a write set in 2 regions"):
        policy.new_ensemble(QUORUMS, {}, ())


def test_without_durability_one_region_will_do_and_none_will_not() -> None:
    policy = make(Regions, places(r1_x=3, r1_y=3))
    assert len(policy.new_ensemble(QUORUMS, {}, ())) == 6
    with pytest.raises(NotEnoughBookiesError, match="none"):
        make(Regions, {}).new_ensemble(QUORUMS, {}, ())


@pytest.mark.parametrize("seed", SEEDS)
def test_the_clients_own_region_comes_first_the_others_in_turn(seed: int) -> None:
    policy = make(Regions, THREE, local="/r2/x", seed=seed)
    second = Counter()
    for _ in range(4):
        ensemble = policy.new_ensemble(Quorums(2, 2, 2), {}, ())
        assert policy.topology.rack(ensemble[0]) == "/r2/x"  # its rack, too
        second.update(spread(policy, ensemble[1:]))
    assert second == {"r1": 2, "r3": 2}


@pytest.mark.parametrize("seed", SEEDS)
def test_small_regions_give_what_they_have(seed: int) -> None:
    policy = make(Regions, places(r1_x=1, r2_x=9, r3_x=2), seed=seed)
    assert spread(policy, policy.new_ensemble(Quorums(7, 3, 2), {}, ())) == {"r1": 1, "r2": 4, "r3": 2}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_region_whose_racks_do_not_do_gets_less(seed: int) -> None:
    settings = {"enforceMinNumRacksPerWriteQuorum": True}
    policy = make(Regions, places(r1_x=4, r2_x=3, r2_y=3), seed=seed, **settings)
    ensemble = policy.new_ensemble(Quorums(4, 4, 2), {}, ())
    assert spread(policy, ensemble) == {"r1": 1, "r2": 3}  # one rack does for one bookie


@pytest.mark.parametrize("seed", SEEDS)
def test_with_smaller_write_sets_each_of_them_is_durable(seed: int) -> None:
    policy = make(Regions, THREE, seed=seed, **DURABLE)
    quorums = Quorums(7, 4, 3)
    ensemble = policy.new_ensemble(quorums, {}, ())
    assert len(set(ensemble)) == 7
    for window in windows(ensemble, quorums.write_quorum):
        assert max(spread(policy, window).values()) < 3


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replacement_is_of_the_same_region(seed: int) -> None:
    policy = make(Regions, THREE, seed=seed, **DURABLE)
    ensemble = policy.new_ensemble(QUORUMS, {}, ())
    for index, bookie in enumerate(ensemble):
        found = policy.replace(QUORUMS, {}, ensemble, index, ())
        assert found not in ensemble
        assert policy.topology.rack(found) == policy.topology.rack(bookie)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replacement_of_another_region_keeps_the_entry_durable(seed: int) -> None:
    locations = places(r1_x=3, r2_x=2, r3_x=4)
    ensemble = ids("r1_x0", "r1_x1", "r1_x2", "r2_x0", "r2_x1", "r3_x0")
    policy = make(Regions, locations, seed=seed, **DURABLE)
    # r2 is exhausted, r1 has three: a fourth there would be an ack quorum in one region
    locations["r1_x3"] = "/r1/x"
    policy.topology.add(BookieId("r1_x3"), "/r1/x")
    assert policy.replace(QUORUMS, {}, ensemble, 3, ()).startswith("r3")
    others = ids("r3_x1", "r3_x2", "r3_x3")
    with pytest.raises(NotEnoughBookiesError):
        policy.replace(QUORUMS, {}, ensemble, 3, others)
    lax = make(Regions, locations, seed=seed, reppEnableDurabilityEnforcementInReplace=False, **DURABLE)
    assert lax.replace(QUORUMS, {}, ensemble, 3, others) == "r1_x3"


def test_durability_that_is_broken_already_is_not_enforced_in_a_replacement() -> None:
    policy = make(Regions, places(r1_x=6, r2_x=2), **DURABLE)
    ensemble = ids("r1_x0", "r1_x1", "r1_x2", "r1_x3", "r2_x0", "r2_x1")
    assert policy.replace(QUORUMS, {}, ensemble, 4, ()).startswith("r1")


def test_a_replacement_for_a_bookie_that_nobody_knows() -> None:
    policy = make(Regions, THREE, **DURABLE)
    ensemble = ids("r1_x0", "r1_x1", "r1_y0", "r2_x0", "r2_x1", "gone")
    assert policy.replace(QUORUMS, {}, ensemble, 5, ()) not in ensemble


def test_quorums_and_settings_that_cannot_be_durable() -> None:
    policy = make(Regions, THREE, **DURABLE)
    with pytest.raises(IncorrectParameterError, match=r"6/6/3.*an ack quorum of 4 is needed"):
        policy.new_ensemble(Quorums(6, 6, 3), {}, ())
    with pytest.raises(IncorrectParameterError, match="an ack quorum of 2"):
        policy.replace(Quorums(3, 2, 1), {}, ids("r1_x0", "r2_x0", "r3_x0"), 0, ())
    with pytest.raises(ConfigurationError, match="names 1 regions"):
        make(Regions, THREE, reppRegionsToWrite="r1", reppMinimumRegionsForDurability=2)


def test_acks_of_two_racks_suffice() -> None:
    policy = make(Regions, THREE, **DURABLE)
    assert policy.acked_adheres(ids("r1_x0", "r2_x0"), QUORUMS)
    assert not policy.acked_adheres(ids("r1_x0", "r1_x1"), QUORUMS)


capacities = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 4), min_size=1)


@given(capacities, st.integers(1, 5), st.integers(1, 5), st.integers(1, 5), st.integers(0, 3))
def test_a_seating_is_found_exactly_when_there_is_one(
    capacity: dict[str, int], size: int, write: int, ack: int, durability: int
) -> None:
    write = min(write, size)
    quorums = Quorums(size, write, min(ack, write))

    def durable(seats: tuple[str, ...]) -> bool:
        for first in range(size):
            counts = Counter(seats[(first + i) % size] for i in range(write))
            if durability > 1 and sum(sorted(counts.values())[-(durability - 1) :]) >= quorums.ack_quorum:
                return False
        return True

    possible = [
        seats
        for seats in itertools.product(capacity, repeat=size)
        if all(seats.count(region) <= most for region, most in capacity.items()) and durable(seats)
    ]
    found = Seating(quorums, durability).seat(capacity)
    assert (found is not None) == bool(possible)
    if found is not None:
        assert tuple(found) in possible
        if size == write or durability < 2:  # then nothing is more even
            most = max(map(found.count, capacity))
            assert most == min(max(map(seats.count, capacity)) for seats in possible)
