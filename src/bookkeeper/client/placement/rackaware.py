"""Every write set in at least two racks, where there are two (spec client §11.5): the usual policy.

An ensemble is filled from its first place on. Each place looks for a bookie outside the racks of those before it, as
long as that is possible, then anywhere; and in either case for one with which every write set can still reach its
number of racks (`RackCoverage`). If there is none, the write sets have to do with fewer racks, unless
`enforceMinNumRacksPerWriteQuorum`.

The client's own rack comes first, when it is known: one copy is near.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...config import ClientConfiguration
from ...types import BookieId, Quorums
from .adhering import Place
from .draw import Draw
from .policy import Adherence, EnsemblePlacementPolicy, not_enough
from .topology import Topology


class RackCoverage:
    """The racks of each write set of an ensemble in the making."""

    def __init__(self, quorums: Quorums, min_racks: int) -> None:
        self._size = quorums.ensemble_size
        self._write_quorum = quorums.write_quorum
        self._min = min_racks
        self._racks: list[list[str]] = [[] for _ in range(self._size)]
        """By the place at which a write set begins: the racks of its members so far."""

    def _write_sets(self, place: int) -> list[list[str]]:
        return [self._racks[(place - i) % self._size] for i in range(self._write_quorum)]

    def allows(self, place: int, rack: str) -> bool:
        """Whether, with a bookie of this rack there, every write set can still reach enough racks."""
        for members in self._write_sets(place):
            empty = self._write_quorum - len(members) - 1
            if len({*members, rack}) + empty < self._min:
                return False
        return True

    def add(self, place: int, rack: str) -> None:
        for members in self._write_sets(place):
            members.append(rack)


class RackawareEnsemblePlacementPolicy(EnsemblePlacementPolicy):
    """See the module. `within`: the region it is for, as a path; all of the cluster, without."""

    def __init__(
        self,
        topology: Topology,
        draw: Draw,
        config: ClientConfiguration,
        local_location: str | None = None,
        within: str = "",
        default_location: str = EnsemblePlacementPolicy.default_location,
    ) -> None:
        super().__init__(topology, draw, config, local_location)
        self._within = within
        self._default = default_location
        self._enforced = config.enforceMinNumRacksPerWriteQuorum

    def new_ensemble(
        self,
        quorums: Quorums,
        custom_metadata: Mapping[str, bytes],  # noqa: ARG002
        excluded: Collection[BookieId],
    ) -> list[BookieId]:
        refused = self._refused(excluded)
        needed = self._min_racks(quorums)
        if len(self.topology.racks(self._within)) < 2:
            if self._enforced and needed > 1:
                raise not_enough("write sets must have two racks, and there are not two", self._all())
            return self.take(quorums.ensemble_size, refused, self._within)
        coverage = RackCoverage(quorums, needed)
        chosen: list[BookieId] = []
        used: list[str] = []  # racks that the next place stays out of, while that is possible
        for place in range(quorums.ensemble_size):
            bookie = self._near(refused) if place == 0 else None
            if bookie is None:
                bookie = self._fitting(coverage, place, {*refused, *chosen}, used)
                if bookie is None:
                    used.clear()
                    bookie = self._anywhere(coverage, place, {*refused, *chosen})
            chosen.append(bookie)
            rack = self._rack(bookie)
            coverage.add(place, rack)
            used.append(rack)
        return chosen

    def _near(self, refused: Collection[BookieId]) -> BookieId | None:
        """One of the client's own rack."""
        if self.local_location is None or self.local_location == self._default:
            return None
        if self.local_location not in self.topology.racks(self._within):
            return None
        near = self.candidates(refused, self.local_location)
        return self.draw.some(near, 1)[0] if near else None

    def _fitting(
        self, coverage: RackCoverage, place: int, refused: Collection[BookieId], used: Collection[str] = ()
    ) -> BookieId | None:
        for bookie in self.draw.order(self.candidates(refused, self._within)):
            rack = self._rack(bookie)
            if rack not in used and coverage.allows(place, rack):
                return bookie
        return None

    def _anywhere(self, coverage: RackCoverage, place: int, refused: Collection[BookieId]) -> BookieId:
        bookie = self._fitting(coverage, place, refused)
        if bookie is not None:
            return bookie
        if self._enforced:
            raise not_enough("no bookie gives every write set enough racks", self._all())
        return self.take(1, refused, self._within)[0]

    def replace(
        self,
        quorums: Quorums,  # noqa: ARG002
        custom_metadata: Mapping[str, bytes],  # noqa: ARG002
        ensemble: Sequence[BookieId],
        index: int,
        excluded: Collection[BookieId],
    ) -> BookieId:
        """From the rack of the one that goes; else from a rack that the others do not use; else, if that is not
        enforced, any."""
        rack = self.topology.last_rack(ensemble[index]) or self._default
        others = [self.topology.last_rack(bookie) for i, bookie in enumerate(ensemble) if i != index]
        found = self.candidates(self._refused({*excluded, *ensemble}), self._within)
        same = [bookie for bookie in found if self._rack(bookie) == rack]
        unused = [bookie for bookie in found if self._rack(bookie) not in others]
        for choice in (same, unused, [] if self._enforced else found):
            if choice:
                return self.draw.some(choice, 1)[0]
        raise not_enough("no bookie is left to replace one", self._all())

    def write_set_adherence(self, places: Sequence[Place], quorums: Quorums) -> Adherence:
        racks = {*places} - {None}
        if len(racks) < self._min_racks(quorums) or (self._enforced and self._default in racks):
            return Adherence.FAIL
        return Adherence.MEETS_STRICT

    def acked_adheres(self, acked: Sequence[BookieId], quorums: Quorums) -> bool:
        racks = {self.topology.rack(bookie) for bookie in acked} - {None}
        return len(racks) >= self._min_racks(quorums)

    def _min_racks(self, quorums: Quorums) -> int:
        return min(quorums.write_quorum, self.config.minNumRacksPerWriteQuorum)

    def _rack(self, bookie: BookieId) -> str:
        return self.topology.rack(bookie) or self._default

    def _all(self) -> list[BookieId]:
        return self.topology.leaves(self._within)

    def _refused(self, excluded: Collection[BookieId]) -> set[BookieId]:
        """Where racks are enforced, a bookie whose rack is unknown is not taken."""
        return {*excluded, *(self.topology.leaves(self._default) if self._enforced else ())}
