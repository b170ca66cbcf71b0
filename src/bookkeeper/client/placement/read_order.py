"""In which order the replicas of an entry are asked for it (spec client §9.5).

As the write set says, unless something is known against a replica: then by class, and within a class as before. A
bookie that has just answered slowly, or is registered nowhere, comes last, but is asked in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from ...runtime import Random

REMOTE_PLACE = 2
"""Where the first replica of another region comes at the latest: so that a region in trouble is left early."""


class ReplicaClass(IntEnum):
    """What is known of a replica's bookie; best first."""

    LOCAL = 1
    LOCAL_FAIL = 2
    """It has lately denied an entry."""
    REMOTE = 4
    """It is in another region than the client."""
    REMOTE_FAIL = 8
    READ_ONLY = 16
    SLOW = 32
    """It lately did not answer before another bookie did."""
    UNAVAILABLE = 64
    """It is not registered."""

    @property
    def plain(self) -> ReplicaClass:
        """The class without regard to failures."""
        if self is ReplicaClass.LOCAL_FAIL:
            return ReplicaClass.LOCAL
        return ReplicaClass.REMOTE if self is ReplicaClass.REMOTE_FAIL else self


SHUFFLED = (ReplicaClass.LOCAL, ReplicaClass.REMOTE, ReplicaClass.READ_ONLY, ReplicaClass.UNAVAILABLE)
"""Classes within which `ensembleRandomReadReordering` mixes."""


@dataclass(frozen=True, slots=True)
class ReadOrder:
    """The rules in force."""

    regions: bool = False
    """Whether replicas of other regions are a class of their own."""
    shuffle: Random | None = None
    """`ensembleRandomReadReordering`."""
    pending_threshold: int = 0
    """`readReorderThresholdPendingRequests`; 0: pending requests do not matter."""

    def order(
        self, write_set: Sequence[int], class_of: Callable[[int], ReplicaClass], pending: Callable[[int], int]
    ) -> tuple[int, ...]:
        """The write set (ensemble indexes) in the order to ask. `pending`: requests that the bookie of an index has yet
        to answer."""
        indexes = list(write_set)
        if self.pending_threshold > 0:
            self._relieve_the_first(indexes, pending)
        classes = {index: class_of(index) for index in indexes}
        untroubled = max(classes.values()) <= ReplicaClass.READ_ONLY
        if untroubled and not self.regions and self.shuffle is None:
            return tuple(indexes)
        indexes.sort(key=classes.__getitem__)
        if self.shuffle is not None:
            indexes = self._mixed(indexes, classes, self.shuffle)
        if self.regions:
            _try_a_remote_early(indexes, classes)
        return tuple(indexes)

    def _relieve_the_first(self, indexes: list[int], pending: Callable[[int], int]) -> None:
        waiting = {index: pending(index) for index in indexes}
        least = min(indexes, key=waiting.__getitem__)
        if waiting[indexes[0]] >= waiting[least] + self.pending_threshold:
            indexes.remove(least)
            indexes.insert(0, least)

    @staticmethod
    def _mixed(indexes: Sequence[int], classes: dict[int, ReplicaClass], random: Random) -> list[int]:
        mixed: list[int] = []
        for replica_class in ReplicaClass:
            group = [index for index in indexes if classes[index] is replica_class]
            if replica_class in SHUFFLED:
                random.shuffle(group)
            mixed += group
        return mixed


def _try_a_remote_early(indexes: list[int], classes: dict[int, ReplicaClass]) -> None:
    plain = [classes[index].plain for index in indexes]
    if ReplicaClass.REMOTE not in plain:
        return
    place = plain.index(ReplicaClass.REMOTE)
    leading = next((i for i, replica in enumerate(plain) if replica is not ReplicaClass.LOCAL), len(plain))
    indexes.insert(min(REMOTE_PLACE, leading), indexes.pop(place))
