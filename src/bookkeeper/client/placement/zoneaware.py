"""Replicas in several zones, and within a zone in several upgrade domains (spec client §11.8).

A location is `/zone/upgradedomain`: a zone fails as a whole, an upgrade domain is taken down as a whole. Every place of
an ensemble takes the first of these that some bookie fits:

1. a zone that none of the n neighbours on either side has, for n from one less than the desired number of zones down to
   one less than the least; in it, an upgrade domain of which no replica is near, else one that leaves no write set with
   several replicas of a zone in a single domain;
2. any zone with which every write set can still reach the least number of zones, with two upgrade domains if possible.

Without `enforceStrictZoneawarePlacement` ensembles are random.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from ...config import ClientConfiguration
from ...errors import ConfigurationError, IncorrectParameterError
from ...types import BookieId, Quorums
from .adhering import Place
from .draw import Draw
from .policy import Adherence, EnsemblePlacementPolicy, not_enough
from .topology import Topology, region_of

Places = Sequence[Place]
"""The location at each place of an ensemble; None where there is none yet."""


class ZoneawareEnsemblePlacementPolicy(EnsemblePlacementPolicy):
    """See the module. The zone is the first part of a location."""

    default_location = "/default-zone/default-upgradedomain"

    def __init__(
        self, topology: Topology, draw: Draw, config: ClientConfiguration, local_location: str | None = None
    ) -> None:
        super().__init__(topology, draw, config, local_location)
        self._least = config.minNumZonesPerWriteQuorum
        self._desired = config.desiredNumZonesPerWriteQuorum
        self._strict = config.enforceStrictZoneawarePlacement
        if self._least > self._desired:
            raise ConfigurationError(
                f"minNumZonesPerWriteQuorum={self._least} is more than desiredNumZonesPerWriteQuorum={self._desired}"
            )

    def new_ensemble(
        self,
        quorums: Quorums,
        custom_metadata: Mapping[str, bytes],  # noqa: ARG002
        excluded: Collection[BookieId],
    ) -> list[BookieId]:
        if not self._strict:
            return self.take(quorums.ensemble_size, excluded)
        self._check(quorums)
        places: list[str | None] = [None] * quorums.ensemble_size
        chosen: list[BookieId] = []
        for place in range(quorums.ensemble_size):
            bookie = self._choose(quorums, places, place, {*excluded, *chosen})
            places[place] = self.topology.rack(bookie)
            chosen.append(bookie)
        return chosen

    def replace(
        self,
        quorums: Quorums,
        custom_metadata: Mapping[str, bytes],  # noqa: ARG002
        ensemble: Sequence[BookieId],
        index: int,
        excluded: Collection[BookieId],
    ) -> BookieId:
        refused = {*excluded, *ensemble}
        if not self._strict:
            return self.take(1, refused)[0]
        self._check(quorums)
        places = [self.topology.last_rack(bookie) if i != index else None for i, bookie in enumerate(ensemble)]
        return self._choose(quorums, places, index, refused)

    def _choose(self, quorums: Quorums, places: Places, place: int, refused: Collection[BookieId]) -> BookieId:
        found = {
            bookie: location
            for bookie in self.draw.order(self.candidates(refused))
            if (location := self.topology.rack(bookie)) is not None and location != self.default_location
        }
        for fits in self._demands(quorums, places, place):
            for bookie, location in found.items():
                if fits(location):
                    return bookie
        raise not_enough(f"no bookie gives every write set {self._least} zones", self.topology.bookies)

    def _demands(self, quorums: Quorums, places: Places, place: int) -> Iterator[Callable[[str], bool]]:
        """What is asked of a location for a place, less and less."""
        write_quorum = quorums.write_quorum
        near = [at for at in _neighbours(places, place, write_quorum - 1) if at is not None]
        sets = [_write_set(places, first, write_quorum) for first in range(place - write_quorum + 1, place + 1)]
        for distance in range(min(write_quorum, self._desired) - 1, self._least - 2, -1):
            taken = {region_of(at) for at in _neighbours(places, place, distance) if at is not None}
            yield partial(_apart, taken, near)
            yield partial(_mixed, taken, sets)
        enough = partial(self._leaves_enough_zones, sets, write_quorum)
        yield lambda at: enough(at) and _mixed((), sets, at)
        yield enough

    def _leaves_enough_zones(self, write_sets: Sequence[Sequence[str]], write_quorum: int, location: str) -> bool:
        """Whether with this location every write set can still have the least number of zones."""
        for members in write_sets:
            free = write_quorum - len(members) - 1
            if len({region_of(at) for at in (*members, location)}) + free < self._least:
                return False
        return True

    def write_set_adherence(self, places: Sequence[Place], quorums: Quorums) -> Adherence:
        if quorums.ensemble_size % quorums.write_quorum or quorums.write_quorum <= self._least:
            return Adherence.FAIL
        locations = [at for at in places if at is not None]
        zones = {region_of(at) for at in locations}
        crowded = any(
            len(domains) > 1 and len(set(domains)) == 1
            for domains in ([at for at in locations if region_of(at) == zone] for zone in zones)
        )
        if self.default_location in locations or len(zones) < self._least or crowded:
            return Adherence.FAIL
        return Adherence.MEETS_SOFT if len(zones) < self._desired else Adherence.MEETS_STRICT

    def replace_to_adhere(
        self, quorums: Quorums, ensemble: Sequence[BookieId], excluded: Collection[BookieId]
    ) -> list[BookieId]:
        self._check(quorums)
        return super().replace_to_adhere(quorums, ensemble, excluded)

    def acked_adheres(self, acked: Sequence[BookieId], quorums: Quorums) -> bool:
        zones = {region_of(at) for at in map(self.topology.rack, acked) if at is not None}
        return len(zones) >= min(quorums.write_quorum, self._least) and len(acked) >= quorums.ack_quorum

    def _check(self, quorums: Quorums) -> None:
        size, write, _ = quorums
        if size % write:
            raise IncorrectParameterError(
                f"with enforceStrictZoneawarePlacement the ensemble size, {size}, must be a multiple of the write "
                f"quorum, {write}"
            )
        if write <= self._least:
            raise IncorrectParameterError(
                f"with enforceStrictZoneawarePlacement the write quorum, {write}, must be greater than "
                f"minNumZonesPerWriteQuorum={self._least}"
            )


def _neighbours(places: Places, place: int, distance: int) -> list[str | None]:
    """Up to `distance` places on either side."""
    size = len(places)
    return [places[(place + step) % size] for i in range(1, distance + 1) for step in (-i, i) if step % size]


def _write_set(places: Places, first: int, write_quorum: int) -> list[str]:
    """The locations in the write set that begins at a place, so far."""
    members = [places[(first + i) % len(places)] for i in range(write_quorum)]
    return [at for at in members if at is not None]


def _apart(zones: Collection[str], domains: Collection[str], location: str) -> bool:
    """Neither in one of these zones nor in one of these upgrade domains."""
    return region_of(location) not in zones and location not in domains


def _mixed(zones: Collection[str], write_sets: Sequence[Sequence[str]], location: str) -> bool:
    """Not in one of these zones, and every write set keeps two upgrade domains in a zone that it has twice."""
    return region_of(location) not in zones and all(_two_domains(write_set, location) for write_set in write_sets)


def _two_domains(write_set: Sequence[str], location: str) -> bool:
    """Whether with this location the write set's replicas of its zone are not all in one upgrade domain."""
    domains = [at for at in write_set if region_of(at) == region_of(location)]
    return not domains or len({*domains, location}) > 1
