"""Replicas spread over regions, so that a lost region takes no acknowledged entry (spec client §11.7).

A location is `/region/rack`. Two questions, one after the other:

1. *Seating*: which region gets which place of the ensemble? As evenly as its bookies allow, the client's own region
   first; and such that within no write set D - 1 regions together hold an ack quorum (`Seating`). D is
   `reppMinimumRegionsForDurability`, and the rule means: an acknowledged entry is in D regions at least.
2. Which bookies fill a region's places? That is up to the rack-aware policy, inside the region. A region whose racks do
   not do gets a place less, and the seating begins anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...config import ClientConfiguration
from ...errors import ConfigurationError, IncorrectParameterError, NotEnoughBookiesError
from ...types import BookieId, Quorums
from .adhering import Place
from .draw import Draw
from .policy import Adherence, EnsemblePlacementPolicy, not_enough
from .rackaware import RackawareEnsemblePlacementPolicy
from .topology import Topology, region_of

SEATING_ATTEMPTS = 10_000
"""Places tried until a seating counts as impossible."""

DEFAULT_REGIONS_FOR_DURABILITY = 2


class Seating:
    """Gives the places of an ensemble to regions. `durability`: D of the module; below 2 there is no such rule."""

    def __init__(self, quorums: Quorums, durability: int) -> None:
        self._size, self._write_quorum, self._ack_quorum = quorums
        self._durability = durability

    def seat(self, capacities: Mapping[str, int]) -> list[str] | None:
        """A region for each place; None if the regions, each with so many bookies, do not suffice.

        The regions come in the order in which they are preferred.
        """
        seats: list[str] = []
        untried = [self._choices(seats, capacities)]
        for _ in range(SEATING_ATTEMPTS):
            if not untried[-1]:
                untried.pop()
                # Where write sets are the whole ensemble, order does not matter, and no other order would do.
                if not seats or self._size == self._write_quorum:
                    return None
                seats.pop()
                continue
            seats.append(untried[-1].pop(0))
            if len(seats) == self._size:
                return seats
            untried.append(self._choices(seats, capacities))
        return None

    def _choices(self, seats: Sequence[str], capacities: Mapping[str, int]) -> list[str]:
        """Regions for the next place, best first: those with the fewest places so far."""
        possible = [region for region, capacity in capacities.items() if seats.count(region) < capacity]
        fit = [region for region in possible if self.allows(seats, len(seats), region)]
        return sorted(fit, key=seats.count)

    def allows(self, seats: Sequence[str | None], place: int, region: str) -> bool:
        """Whether the region may have that place of a seating (None: free), as far as durability goes."""
        if self._durability < 2:
            return True
        seated = [*seats, *[None] * (self._size - len(seats))]
        seated[place] = region
        return all(self._durable(write_set, region) for write_set in self._write_sets(seated, place))

    def _write_sets(self, seated: Sequence[str | None], place: int) -> list[list[str | None]]:
        """The write sets that a place belongs to."""
        return [
            [seated[(place - first + i) % self._size] for i in range(self._write_quorum)]
            for first in range(self._write_quorum)
        ]

    def durable(self, write_set: Sequence[str | None]) -> bool:
        """Whether no D - 1 regions hold an ack quorum of a write set, whose members are in these regions."""
        regions = {region for region in write_set if region is not None}
        return self._durability < 2 or all(self._durable(write_set, region) for region in regions)

    def _durable(self, write_set: Sequence[str | None], region: str) -> bool:
        """No D - 1 regions, this one among them, hold an ack quorum."""
        counts = {name: write_set.count(name) for name in write_set if name is not None}
        own = counts.pop(region)
        others = sorted(counts.values(), reverse=True)[: self._durability - 2]
        return own + sum(others) < self._ack_quorum


class RegionAwareEnsemblePlacementPolicy(EnsemblePlacementPolicy):
    """See the module."""

    default_location = "/default-region/default-rack"
    prefers_own_region = True

    def __init__(
        self, topology: Topology, draw: Draw, config: ClientConfiguration, local_location: str | None = None
    ) -> None:
        super().__init__(topology, draw, config, local_location)
        wanted = config.reppRegionsToWrite
        durability = config.reppMinimumRegionsForDurability
        if durability is None:
            durability = DEFAULT_REGIONS_FOR_DURABILITY if wanted else 0
        if wanted and len(wanted) < durability:
            raise ConfigurationError(
                f"reppRegionsToWrite names {len(wanted)} regions, reppMinimumRegionsForDurability asks for {durability}"
            )
        self._durability = durability
        self._turn = 0  # which region is first among those that are not the client's own
        self._everywhere = RackawareEnsemblePlacementPolicy(topology, draw, config)
        self._inside: dict[str, RackawareEnsemblePlacementPolicy] = {}

    def new_ensemble(
        self, quorums: Quorums, custom_metadata: Mapping[str, bytes], excluded: Collection[BookieId]
    ) -> list[BookieId]:
        self._check(quorums)
        regions = self._in_turn()
        capacities = {
            region: sum(bookie not in excluded for bookie in self.topology.leaves(f"/{region}")) for region in regions
        }
        seating = Seating(quorums, self._durability)
        while (seats := seating.seat(capacities)) is not None:
            filled: dict[str, list[BookieId]] = {}
            for region in dict.fromkeys(seats):
                share = _share(quorums, seats.count(region))
                try:
                    filled[region] = self._region(region).new_ensemble(share, custom_metadata, excluded)
                except NotEnoughBookiesError:
                    capacities[region] = seats.count(region) - 1
                    break
            else:
                return [filled[region].pop(0) for region in seats]
        spread = ", ".join(f"{region}: {capacity}" for region, capacity in capacities.items()) or "none"
        raise not_enough(
            f"{quorums.ensemble_size} bookies, any {quorums.ack_quorum} of a write set in "
            f"{max(self._durability, 1)} regions, are too many for what may be taken ({spread})",
            self.topology.bookies,
        )

    def _in_turn(self) -> list[str]:
        """The regions: the client's own, then the others, each time beginning with another one."""
        regions = self.topology.regions()
        own = [region for region in regions if self._is_own(region)]
        others = [region for region in regions if not self._is_own(region)]
        self._turn += 1
        first = self._turn % max(len(others), 1)
        return [*own, *others[first:], *others[:first]]

    def _is_own(self, region: str) -> bool:
        return self.local_location is not None and region_of(self.local_location) == region

    def _region(self, region: str) -> RackawareEnsemblePlacementPolicy:
        """The rack-aware policy inside a region."""
        policy = self._inside.get(region)
        if policy is None:
            local = self.local_location if self._is_own(region) else None
            policy = self._inside[region] = RackawareEnsemblePlacementPolicy(
                self.topology, self.draw, self.config, local, f"/{region}", self.default_location
            )
        return policy

    def replace(
        self,
        quorums: Quorums,
        custom_metadata: Mapping[str, bytes],
        ensemble: Sequence[BookieId],
        index: int,
        excluded: Collection[BookieId],
    ) -> BookieId:
        """From the same region; else from another one that durability allows, unless it is broken already or
        `reppEnableDurabilityEnforcementInReplace` is off."""
        self._check(quorums)
        home = region_of(self.topology.last_rack(ensemble[index]) or self.default_location)
        seats = [self._region_of(bookie) if i != index else None for i, bookie in enumerate(ensemble)]
        enforced = self.config.reppEnableDurabilityEnforcementInReplace and self._durable(seats, quorums)
        seating = Seating(quorums, self._durability if enforced else 0)
        regions = self._in_turn()
        for region in [home, *(region for region in regions if region != home)]:
            if region != home and not seating.allows(seats, index, region):
                continue
            try:
                return self._region(region).replace(quorums, custom_metadata, ensemble, index, excluded)
            except NotEnoughBookiesError:
                continue
        raise not_enough("no region has a bookie to replace one", self.topology.bookies)

    def _region_of(self, bookie: BookieId) -> str | None:
        rack = self.topology.last_rack(bookie)
        return None if rack is None else region_of(rack)

    def _durable(self, seats: Sequence[str | None], quorums: Quorums) -> bool:
        seating = Seating(quorums, self._durability)
        return all(seating.allows(seats, place, region) for place, region in enumerate(seats) if region is not None)

    def write_set_adherence(self, places: Sequence[Place], quorums: Quorums) -> Adherence:
        """By regions alone, and only if there is a rule for them: the racks inside a region are no reason to move."""
        regions = [None if place is None else region_of(place) for place in places]
        durable = Seating(quorums, self._durability).durable(regions)
        return Adherence.MEETS_STRICT if durable else Adherence.FAIL

    def replace_to_adhere(
        self, quorums: Quorums, ensemble: Sequence[BookieId], excluded: Collection[BookieId]
    ) -> list[BookieId]:
        self._check(quorums)
        return super().replace_to_adhere(quorums, ensemble, excluded)

    def acked_adheres(self, acked: Sequence[BookieId], quorums: Quorums) -> bool:
        """Racks count, whatever region they are in."""
        return self._everywhere.acked_adheres(acked, quorums)

    def _check(self, quorums: Quorums) -> None:
        size, write, ack = quorums
        durability = self._durability
        if durability > 0 and (ack < durability or ack <= write - write // durability):
            raise IncorrectParameterError(
                f"quorums {size}/{write}/{ack} acknowledge entries that are in fewer regions than "
                f"reppMinimumRegionsForDurability={durability}: an ack quorum of "
                f"{max(durability, write - write // durability + 1)} is needed"
            )


def _share(quorums: Quorums, seats: int) -> Quorums:
    """What a region with so many places has of each write set."""
    write = max(1, min(seats, round(quorums.write_quorum * seats / quorums.ensemble_size)))
    return Quorums(seats, write, min(write, quorums.ack_quorum))
