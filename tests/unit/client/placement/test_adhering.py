"""Moving an ensemble to where its policy wants it (spec client §11.1, §11.5): held against all ensembles there are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bookkeeper.client.placement.adhering import fewest_changes, windows
from bookkeeper.client.placement.default import DefaultEnsemblePlacementPolicy as Default
from bookkeeper.client.placement.policy import Adherence, EnsemblePlacementPolicy
from bookkeeper.client.placement.rackaware import RackawareEnsemblePlacementPolicy as Rackaware
from bookkeeper.client.placement.regionaware import RegionAwareEnsemblePlacementPolicy as RegionAware
from bookkeeper.client.placement.zoneaware import ZoneawareEnsemblePlacementPolicy as Zoneaware
from bookkeeper.errors import IncorrectParameterError, NotEnoughBookiesError
from bookkeeper.types import BookieId, Quorums

from .support import ids, make, places

QUORUMS = [Quorums(*shape) for shape in ((1, 1, 1), (2, 2, 2), (3, 3, 2), (3, 2, 2), (4, 2, 1), (4, 3, 2), (4, 4, 3))]


def changes(old: Sequence[BookieId], new: Sequence[BookieId]) -> int:
    return sum(a != b for a, b in zip(old, new, strict=True))


def best(policy: EnsemblePlacementPolicy, quorums: Quorums, ensemble: list[BookieId], taken: set[BookieId]) -> int:
    """The fewest changes with which the ensemble stands, of all ensembles that there are; -1 if none stands."""
    found = [
        changes(ensemble, other)
        for other in itertools.permutations({*policy.topology.leaves(), *ensemble}, len(ensemble))
        if policy.adherence(other, quorums) is not Adherence.FAIL
        and all(b == ensemble[i] or (b in policy.topology.bookies and b not in taken) for i, b in enumerate(other))
    ]
    return min(found, default=-1)


def held_against_all(policy: EnsemblePlacementPolicy, quorums: Quorums, data: st.DataObject) -> None:
    everybody = [*policy.topology.leaves(), BookieId("gone")]
    assume(len(everybody) >= quorums.ensemble_size)
    ensemble = data.draw(st.permutations(everybody))[: quorums.ensemble_size]
    excluded = set(data.draw(st.lists(st.sampled_from(everybody), max_size=2)))
    expected = best(policy, quorums, ensemble, excluded)
    if expected < 0:
        with pytest.raises(NotEnoughBookiesError):
            policy.replace_to_adhere(quorums, ensemble, excluded)
        return
    moved = policy.replace_to_adhere(quorums, ensemble, excluded)
    assert policy.adherence(moved, quorums) is not Adherence.FAIL
    assert len(set(moved)) == len(moved)
    assert changes(ensemble, moved) == expected
    for old, new in zip(ensemble, moved, strict=True):
        assert old == new or (new not in excluded and new in policy.topology.bookies)


COUNTS = st.lists(st.integers(0, 3), min_size=3, max_size=3).filter(lambda counts: 1 <= sum(counts) <= 5)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(QUORUMS), COUNTS, st.integers(1, 3), st.booleans())
def test_racks_the_fewest_changes_that_do(
    data: st.DataObject, quorums: Quorums, counts: list[int], least: int, enforced: bool
) -> None:
    locations = places(x=counts[0], y=counts[1]) | {f"d{i}": "/default-rack" for i in range(counts[2])}
    config: dict[str, Any] = {"minNumRacksPerWriteQuorum": least, "enforceMinNumRacksPerWriteQuorum": enforced}
    held_against_all(make(Rackaware, locations, seed=data.draw(st.integers(0, 99)), **config), quorums, data)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from([Quorums(3, 3, 3), Quorums(4, 4, 3), Quorums(4, 3, 3)]), COUNTS)
def test_regions_the_fewest_changes_that_do(data: st.DataObject, quorums: Quorums, counts: list[int]) -> None:
    locations = places(r1_a=counts[0], r2_a=counts[1], r3_a=counts[2])
    held_against_all(make(RegionAware, locations, reppMinimumRegionsForDurability=2), quorums, data)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.lists(st.integers(0, 2), min_size=4, max_size=4).filter(lambda counts: 1 <= sum(counts) <= 6))
def test_zones_the_fewest_changes_that_do(data: st.DataObject, counts: list[int]) -> None:
    locations = places(z1_u=counts[0], z1_v=counts[1], z2_u=counts[2], z3_u=counts[3])
    held_against_all(make(Zoneaware, locations), Quorums(3, 3, 2), data)


@pytest.mark.parametrize("policy", [Default, RegionAware])
def test_where_there_is_no_rule_nothing_moves(policy: type[EnsemblePlacementPolicy]) -> None:
    ensemble = ids("a_b0", "a_b1")
    assert make(policy, places(a_b=3, c_d=3)).replace_to_adhere(Quorums(2, 2, 2), ensemble, ()) == ensemble


def test_zones_cannot_serve_every_quorum() -> None:
    with pytest.raises(IncorrectParameterError, match="multiple"):
        make(Zoneaware, places(z1_u=2, z2_u=2)).replace_to_adhere(Quorums(4, 3, 2), ids(*"abcd"), ())


def test_two_members_change_places_where_nobody_else_is() -> None:
    policy = make(Rackaware, places(x=2, y=2))
    moved = policy.replace_to_adhere(Quorums(4, 2, 1), ids("x0", "x1", "y0", "y1"), ())
    assert changes(ids("x0", "x1", "y0", "y1"), moved) == 2
    assert sorted(moved) == ids("x0", "x1", "y0", "y1")


def test_a_spare_bookie_is_taken_before_members_change_places() -> None:
    policy = make(Rackaware, places(x=2, y=3))
    moved = policy.replace_to_adhere(Quorums(3, 3, 2), ids("x0", "x1", "y0"), ())
    assert moved == ids("x0", "x1", "y0")
    moved = policy.replace_to_adhere(Quorums(2, 2, 2), ids("x0", "x1"), ())
    assert changes(ids("x0", "x1"), moved) == 1


@pytest.mark.parametrize(("size", "write", "racks"), [(20, 3, 6), (20, 2, 2), (15, 5, 3), (40, 3, 10)])
def test_large_ensembles_are_searched_in_bounded_work(size: int, write: int, racks: int) -> None:
    """All in one rack, of many: every write set gets two racks, and no more than half of it moves."""
    asked = 0

    def stands(write_set: Sequence[str | None]) -> bool:
        nonlocal asked
        asked += 1
        return len({*write_set} - {None}) >= 2

    free = {f"/r{n}": size for n in range(racks)}
    found = fewest_changes(["/r0"] * size, write, stands, free)
    assert found is not None
    after = [found.get(index, "/r0") for index in range(size)]
    assert all(len(set(write_set)) > 1 for write_set in windows(after, write))
    assert len(found) <= -(-size // write) + 1
    assert asked < 3_000_000


def test_what_is_hopeless_is_given_up() -> None:
    assert fewest_changes(["/x"] * 6, 3, lambda places: len(set(places)) == 3, {"/x": 9, "/y": 9}) is None
