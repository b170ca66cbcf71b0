"""What a placement policy decides (spec client §11.1).

A policy knows a topology of writable bookies and a way to draw from them, and nothing else: no clock, no network. It
raises `NotEnoughBookiesError` where no bookies fit, and `IncorrectParameterError` for quorums that it cannot serve.

Whether an ensemble *adheres* to a policy is only reported. A ledger whose bookies stand badly is better than none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import ClassVar

from ...config import ClientConfiguration
from ...errors import NotEnoughBookiesError
from ...types import BookieId, Quorums
from .adhering import Place, fewest_changes, windows
from .draw import Draw
from .topology import Topology


class Adherence(IntEnum):
    """How well an ensemble stands."""

    FAIL = 1
    MEETS_SOFT = 3
    MEETS_STRICT = 5


class EnsemblePlacementPolicy(ABC):
    """Base of the policies, and of an operator's own: `ensemblePlacementPolicy=module:Class`."""

    default_location: ClassVar[str] = "/default-rack"
    """The place of a bookie whose place is unknown."""
    prefers_own_region: ClassVar[bool] = False
    """Whether replicas of the client's own region are read first."""

    def __init__(
        self, topology: Topology, draw: Draw, config: ClientConfiguration, local_location: str | None = None
    ) -> None:
        """`local_location`: where the client itself stands, if known and if it matters.

        Raises `ConfigurationError` for settings that contradict each other.
        """
        self.topology = topology
        self.draw = draw
        self.config = config
        self.local_location = local_location

    @abstractmethod
    def new_ensemble(
        self, quorums: Quorums, custom_metadata: Mapping[str, bytes], excluded: Collection[BookieId]
    ) -> list[BookieId]:
        """Bookies for a ledger, all different, none of `excluded`."""

    @abstractmethod
    def replace(
        self,
        quorums: Quorums,
        custom_metadata: Mapping[str, bytes],
        ensemble: Sequence[BookieId],
        index: int,
        excluded: Collection[BookieId],
    ) -> BookieId:
        """A bookie for `ensemble[index]`: none of `excluded`, none of the ensemble."""

    def write_set_adherence(self, places: Sequence[Place], quorums: Quorums) -> Adherence:  # noqa: ARG002
        """How well a write set stands whose members are at these locations; None: that one is gone."""
        return Adherence.MEETS_STRICT

    def adherence(self, ensemble: Sequence[BookieId], quorums: Quorums) -> Adherence:
        """How well an ensemble stands: as its worst write set does. Bookies that are gone count for nothing."""
        places = [self.topology.rack(bookie) for bookie in ensemble]
        return min(
            (self.write_set_adherence(write_set, quorums) for write_set in windows(places, quorums.write_quorum)),
            default=Adherence.FAIL,
        )

    def replace_to_adhere(
        self, quorums: Quorums, ensemble: Sequence[BookieId], excluded: Collection[BookieId]
    ) -> list[BookieId]:
        """The ensemble, with as few others in it as possible, so that it stands at least softly.

        None of `excluded` is taken; members may change places. Raises `NotEnoughBookiesError` if no bookies fit,
        `IncorrectParameterError` for quorums that no ensemble can serve.
        """
        places = [self.topology.rack(bookie) for bookie in ensemble]
        spare: dict[str, list[BookieId]] = {}
        for bookie in self.draw.order(self.candidates({*excluded, *ensemble})):
            spare.setdefault(self.topology.rack(bookie) or self.default_location, []).append(bookie)
        members = set(self.candidates(excluded)).intersection(ensemble)
        changes = fewest_changes(
            places,
            quorums.write_quorum,
            lambda write_set: self.write_set_adherence(write_set, quorums) is not Adherence.FAIL,
            {location: len(bookies) for location, bookies in spare.items()},
            {index for index, bookie in enumerate(ensemble) if bookie in members},
        )
        if changes is None:
            raise not_enough(f"no {len(ensemble)} bookies stand as the policy asks for", self.topology.bookies)
        for index in sorted(changes):  # who leaves a place may be needed in another one
            if ensemble[index] in members:
                spare.setdefault(places[index] or self.default_location, []).append(ensemble[index])
        chosen = [*ensemble]
        for index, location in changes.items():
            chosen[index] = spare[location].pop(0)
        return chosen

    def acked_adheres(self, acked: Sequence[BookieId], quorums: Quorums) -> bool:  # noqa: ARG002
        """Whether an entry that these stored is in enough fault domains."""
        return True

    # --- for policies ---

    def candidates(self, excluded: Collection[BookieId], within: str = "") -> list[BookieId]:
        """The bookies of a rack or region that may be taken."""
        return [bookie for bookie in self.topology.leaves(within) if bookie not in excluded]

    def take(self, count: int, excluded: Collection[BookieId], within: str = "") -> list[BookieId]:
        """That many, wherever they stand. Raises `NotEnoughBookiesError`."""
        found = self.candidates(excluded, within)
        if len(found) < count:
            writable = len(self.topology.leaves(within))
            raise NotEnoughBookiesError(
                f"{count} bookies needed; of {writable} writable ones {len(found)} may be taken"
            )
        return self.draw.some(found, count)


def not_enough(why: str, writable: Collection[BookieId]) -> NotEnoughBookiesError:
    """The error, with what was needed and how many there are."""
    return NotEnoughBookiesError(f"{why}; {len(writable)} bookies are writable")
