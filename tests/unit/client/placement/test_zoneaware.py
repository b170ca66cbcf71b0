"""Zones and upgrade domains (spec client §11.8, scenario 95)."""

from __future__ import annotations

import pytest

from bookkeeper.client.placement.adhering import windows
from bookkeeper.client.placement.policy import Adherence
from bookkeeper.client.placement.topology import region_of
from bookkeeper.client.placement.zoneaware import ZoneawareEnsemblePlacementPolicy
from bookkeeper.errors import ConfigurationError, IncorrectParameterError, NotEnoughBookiesError
from bookkeeper.types import Quorums

from .support import ids, make, places

Zoneaware = ZoneawareEnsemblePlacementPolicy
SEEDS = range(20)
THREE = places(z1_u=2, z1_v=2, z2_u=2, z2_v=2, z3_u=2, z3_v=2)
TWO = places(z1_u=2, z1_v=2, z2_u=2, z2_v=2)
QUORUMS = Quorums(3, 3, 2)


def test_c_95_strict_placement_needs_an_ensemble_of_whole_write_sets() -> None:
    policy = make(Zoneaware, THREE)
    with pytest.raises(IncorrectParameterError, match="multiple of the write quorum, 3"):
        policy.new_ensemble(Quorums(4, 3, 2), {}, ())
    with pytest.raises(IncorrectParameterError, match="greater than minNumZonesPerWriteQuorum=2"):
        policy.new_ensemble(Quorums(4, 2, 2), {}, ())
    with pytest.raises(IncorrectParameterError):
        policy.replace(Quorums(4, 3, 2), {}, ids("z1_u0", "z2_u0", "z3_u0", "z1_u1"), 0, ())
    with pytest.raises(ConfigurationError, match="minNumZonesPerWriteQuorum=4"):
        make(Zoneaware, THREE, minNumZonesPerWriteQuorum=4)


@pytest.mark.parametrize("seed", SEEDS)
def test_three_zones_where_there_are_three(seed: int) -> None:
    policy = make(Zoneaware, THREE, seed=seed)
    for quorums in (QUORUMS, Quorums(6, 3, 2)):
        ensemble = policy.new_ensemble(quorums, {}, ())
        assert len(set(ensemble)) == quorums.ensemble_size
        for window in windows(ensemble, quorums.write_quorum):
            assert len({region_of(policy.topology.rack(b) or "/?") for b in window}) == 3
        assert policy.adherence(ensemble, quorums) is Adherence.MEETS_STRICT


@pytest.mark.parametrize("seed", SEEDS)
def test_two_zones_share_and_use_both_upgrade_domains(seed: int) -> None:
    policy = make(Zoneaware, TWO, seed=seed)
    ensemble = policy.new_ensemble(QUORUMS, {}, ())
    assert policy.adherence(ensemble, QUORUMS) is Adherence.MEETS_SOFT
    locations = [policy.topology.rack(bookie) for bookie in ensemble]
    assert len(set(locations)) == 3


@pytest.mark.parametrize("seed", SEEDS)
def test_too_few_zones(seed: int) -> None:
    policy = make(Zoneaware, places(z1_u=3, z1_v=3), seed=seed)
    with pytest.raises(NotEnoughBookiesError, match="2 zones"):
        policy.new_ensemble(QUORUMS, {}, ())
    lost = places(z1_u=3) | {f"d{i}": Zoneaware.default_location for i in range(5)}
    with pytest.raises(NotEnoughBookiesError):  # bookies of unknown zones are not taken
        make(Zoneaware, lost, seed=seed).new_ensemble(QUORUMS, {}, ())
    lax = make(Zoneaware, lost, seed=seed, enforceStrictZoneawarePlacement=False)
    assert len(lax.new_ensemble(Quorums(7, 2, 2), {}, ())) == 7
    assert lax.replace(Quorums(2, 2, 2), {}, ids("d0", "d1"), 0, ids("d2", "d3", "d4", "z1_u0", "z1_u1")) == "z1_u2"


@pytest.mark.parametrize("seed", SEEDS)
def test_one_upgrade_domain_is_better_than_too_few_bookies(seed: int) -> None:
    policy = make(Zoneaware, places(z1_u=4, z2_u=4), seed=seed)
    ensemble = policy.new_ensemble(QUORUMS, {}, ())
    assert {region_of(policy.topology.rack(b) or "/?") for b in ensemble} == {"z1", "z2"}
    assert policy.adherence(ensemble, QUORUMS) is Adherence.FAIL


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replacement_restores_the_zones(seed: int) -> None:
    policy = make(Zoneaware, THREE, seed=seed)
    ensemble = policy.new_ensemble(Quorums(6, 3, 2), {}, ())
    for index, bookie in enumerate(ensemble):
        found = policy.replace(Quorums(6, 3, 2), {}, ensemble, index, ())
        assert found not in ensemble
        assert region_of(policy.topology.rack(found) or "") == region_of(policy.topology.rack(bookie) or "?")


def test_adherence() -> None:
    policy = make(Zoneaware, THREE | {"d": Zoneaware.default_location})
    assert policy.adherence([], QUORUMS) is Adherence.FAIL
    assert policy.adherence(ids("z1_u0", "z2_u0", "z3_u0"), Quorums(3, 2, 2)) is Adherence.FAIL
    assert policy.adherence(ids("z1_u0", "z2_u0", "d"), QUORUMS) is Adherence.FAIL
    assert policy.adherence(ids("z1_u0", "z1_u1", "z2_u0"), QUORUMS) is Adherence.FAIL  # twice in one upgrade domain
    assert policy.adherence(ids("z1_u0", "z1_v0", "z2_u0"), QUORUMS) is Adherence.MEETS_SOFT
    assert policy.adherence(ids("z1_u0", "z3_v0", "z2_u0"), QUORUMS) is Adherence.MEETS_STRICT
    assert policy.acked_adheres(ids("z1_u0", "z2_u0"), QUORUMS)
    assert not policy.acked_adheres(ids("z1_u0", "z1_v0"), QUORUMS)
    assert not policy.acked_adheres(ids("z1_u0", "z2_u0"), Quorums(3, 3, 3))
