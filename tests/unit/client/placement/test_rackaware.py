"""Racks (spec client §11.5, scenarios 90 and 91)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.client.placement.adhering import windows
from bookkeeper.client.placement.policy import Adherence
from bookkeeper.client.placement.rackaware import RackawareEnsemblePlacementPolicy, RackCoverage
from bookkeeper.errors import NotEnoughBookiesError
from bookkeeper.types import Quorums

from .support import ids, make, places

Rackaware = RackawareEnsemblePlacementPolicy
SEEDS = range(30)


def racks_of(policy: Rackaware, ensemble: list[str]) -> list[str]:
    return [policy.topology.last_rack(bookie) or "" for bookie in ids(*ensemble)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("quorums", [Quorums(3, 3, 2), Quorums(3, 2, 2), Quorums(4, 2, 2), Quorums(5, 3, 2)])
def test_c_90_every_write_set_has_both_racks(seed: int, quorums: Quorums) -> None:
    policy = make(Rackaware, places(x=5, y=3), seed=seed, minNumRacksPerWriteQuorum=2)
    ensemble = policy.new_ensemble(quorums, {}, ())
    assert len(set(ensemble)) == quorums.ensemble_size
    if quorums == (3, 2, 2):
        # an odd ring of two colours: some neighbours are alike
        assert len(set(racks_of(policy, ensemble))) == 2
    else:
        assert all(len(set(racks_of(policy, window))) == 2 for window in windows(ensemble, quorums.write_quorum))
        assert policy.adherence(ensemble, quorums) is Adherence.MEETS_STRICT


def test_c_90_one_rack_with_enforcement_and_without() -> None:
    quorums = Quorums(3, 3, 2)
    free = make(Rackaware, places(x=4))
    ensemble = free.new_ensemble(quorums, {}, ())
    assert len(set(ensemble)) == 3
    assert free.adherence(ensemble, quorums) is Adherence.FAIL
    enforced = make(Rackaware, places(x=4), enforceMinNumRacksPerWriteQuorum=True)
    with pytest.raises(NotEnoughBookiesError, match="two racks"):
        enforced.new_ensemble(quorums, {}, ())


def test_racks_are_used_in_turn() -> None:
    policy = make(Rackaware, places(w=2, x=2, y=2, z=2))
    ensemble = policy.new_ensemble(Quorums(4, 4, 2), {}, ())
    assert len(set(racks_of(policy, ensemble))) == 4


@pytest.mark.parametrize("seed", SEEDS)
def test_with_enforcement_all_write_sets_have_enough_racks_or_there_is_no_ensemble(seed: int) -> None:
    for counts, size, write, least in itertools.product(
        [(1, 1, 1), (4, 1, 1), (3, 3, 0), (6, 1, 0)], (3, 4, 5), (2, 3), (2, 3)
    ):
        quorums = Quorums(size, write, 2)
        locations = places(**dict(zip("xyz", counts, strict=True)))
        policy = make(
            Rackaware,
            locations,
            seed=seed,
            minNumRacksPerWriteQuorum=least,
            enforceMinNumRacksPerWriteQuorum=True,
        )
        try:
            ensemble = policy.new_ensemble(quorums, {}, ())
        except NotEnoughBookiesError:
            continue
        assert policy.adherence(ensemble, quorums) is Adherence.MEETS_STRICT


def test_bookies_of_unknown_racks_are_not_taken_under_enforcement() -> None:
    locations = places(x=1, y=1) | {"lost1": "/default-rack", "lost2": "/default-rack"}
    enforced = make(Rackaware, locations, enforceMinNumRacksPerWriteQuorum=True)
    assert set(enforced.new_ensemble(Quorums(2, 2, 2), {}, ())) == {"x0", "y0"}
    with pytest.raises(NotEnoughBookiesError):
        enforced.new_ensemble(Quorums(3, 3, 2), {}, ())
    with pytest.raises(NotEnoughBookiesError):
        enforced.replace(Quorums(2, 2, 2), {}, ids("x0", "y0"), 0, ())
    assert enforced.adherence(ids("x0", "lost1"), Quorums(2, 2, 2)) is Adherence.FAIL
    free = make(Rackaware, locations)
    assert len(free.new_ensemble(Quorums(4, 3, 2), {}, ())) == 4


def test_excluded_bookies_are_not_taken() -> None:
    policy = make(Rackaware, places(x=2, y=2))
    assert set(policy.new_ensemble(Quorums(2, 2, 2), {}, ids("x0", "y1"))) == {"x1", "y0"}
    with pytest.raises(NotEnoughBookiesError, match="of 4 writable ones"):
        policy.new_ensemble(Quorums(3, 2, 2), {}, ids("x0", "y1"))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_first_bookie_is_of_the_clients_own_rack(seed: int) -> None:
    locations = places(x=5, y=1, z=5)
    assert make(Rackaware, locations, local="/y", seed=seed).new_ensemble(Quorums(3, 3, 2), {}, ())[0] == "y0"
    # not where that rack is not there, or all its bookies are excluded
    assert len(make(Rackaware, locations, local="/q", seed=seed).new_ensemble(Quorums(3, 3, 2), {}, ())) == 3
    ensemble = make(Rackaware, locations, local="/y", seed=seed).new_ensemble(Quorums(3, 3, 2), {}, ids("y0"))
    assert "y0" not in ensemble


@pytest.mark.parametrize("seed", SEEDS)
def test_c_91_a_replacement_is_of_the_same_rack_else_of_one_that_the_others_do_not_use(seed: int) -> None:
    locations = places(x=2, y=1, z=1)
    quorums = Quorums(2, 2, 2)
    policy = make(Rackaware, locations, seed=seed)
    assert policy.replace(quorums, {}, ids("x0", "y0"), 0, ()) == "x1"
    assert policy.replace(quorums, {}, ids("x0", "y0"), 0, ids("x1")) == "z0"
    assert policy.replace(quorums, {}, ids("x0", "y0"), 1, ids("z0")) == "x1"  # any, as nothing is enforced
    enforced = make(Rackaware, locations, seed=seed, enforceMinNumRacksPerWriteQuorum=True)
    with pytest.raises(NotEnoughBookiesError):
        enforced.replace(quorums, {}, ids("x0", "y0"), 1, ids("z0"))
    with pytest.raises(NotEnoughBookiesError):
        policy.replace(quorums, {}, ids("x0", "y0"), 1, ids("z0", "x1"))


def test_the_rack_of_a_bookie_that_is_gone_is_remembered_for_its_replacement() -> None:
    policy = make(Rackaware, places(x=2, y=1, z=3))
    policy.topology.remove(ids("x0")[0])
    assert policy.replace(Quorums(2, 2, 2), {}, ids("x0", "y0"), 0, ()) == "x1"


def test_adherence_counts_racks_of_known_bookies() -> None:
    policy = make(Rackaware, places(x=2, y=2))
    quorums = Quorums(3, 2, 2)
    assert policy.adherence(ids("x0", "y0", "y1"), Quorums(3, 3, 2)) is Adherence.MEETS_STRICT
    assert policy.adherence(ids("x0", "y0", "y1"), quorums) is Adherence.FAIL
    assert policy.adherence(ids("x0", "gone", "y1"), Quorums(3, 3, 2)) is Adherence.MEETS_STRICT
    assert policy.adherence(ids("x0", "gone"), Quorums(2, 2, 2)) is Adherence.FAIL
    assert policy.adherence([], quorums) is Adherence.FAIL
    assert policy.acked_adheres(ids("x0", "y0"), quorums)
    assert not policy.acked_adheres(ids("x0", "x1"), quorums)
    assert not policy.acked_adheres(ids("x0", "gone"), quorums)
    assert policy.acked_adheres(ids("x0"), Quorums(3, 1, 1))


@given(st.integers(1, 4), st.integers(1, 4), st.lists(st.sampled_from("xyz"), min_size=1, max_size=6), st.data())
def test_coverage_allows_what_can_still_be_completed(
    write: int, least: int, racks: list[str], data: st.DataObject
) -> None:
    """Against trying all ways to fill the write set."""
    size = len(racks)
    write = min(write, size)
    least = min(least, write)
    quorums = Quorums(size, write, 1)
    coverage = RackCoverage(quorums, least)
    seats: list[str | None] = [None] * size
    for place in data.draw(st.permutations(range(size))):
        rack = racks[place]
        expected = True
        for first in range(place - write + 1, place + 1):
            window = [rack if (first + i) % size == place else seats[(first + i) % size] for i in range(write)]
            fillings = itertools.product(*[[seat] if seat else ["1", "2", "3", "4"] for seat in window])
            expected &= any(len(set(filling)) >= least for filling in fillings)
        assert coverage.allows(place, rack) == expected
        if expected:
            coverage.add(place, rack)
            seats[place] = rack
