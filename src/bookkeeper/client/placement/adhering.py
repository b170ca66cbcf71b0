"""Moving an ensemble to where its policy wants it, with as few changes as possible (spec client §11.1, §11.5).

Theory of operation

Whether an ensemble stands well is asked of each of its write sets, and depends on nothing but the locations of their
members. So the search goes over locations, and bookies are taken when it is done:

- In a write set that does not stand, some place must change. Each place and each other location is tried, those first
  that leave the fewest write sets that do not stand; then the next write set that does not.
- A location has as many bookies to give as may be taken there, and also the members that leave other places: where
  write sets are smaller than the ensemble, two members that change places may be all that is needed.
- First one change is allowed, then two, and so on: what is found first has the fewest changes. Write sets that do not
  stand and have no member in common need a change each; where more are left than changes are allowed, nothing is tried.

Each round ends after `ATTEMPTS` changes that were tried, so the work is bounded for any cluster. In a round that ends
so a solution may have been missed, and the one found may then have more changes than the least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar

ATTEMPTS = 1000
"""Changes that are tried in one round."""

Place = str | None
"""The location of a member; None for one that is gone."""
Stands = Callable[[Sequence[Place]], bool]
"""Whether a write set whose members have these locations stands well."""

T = TypeVar("T")


def windows(ensemble: Sequence[T], write_quorum: int) -> Iterator[list[T]]:
    """The write set that begins at each index of an ensemble."""
    size = len(ensemble)
    for first in range(size):
        yield [ensemble[(first + i) % size] for i in range(min(write_quorum, size))]


def fewest_changes(
    places: Sequence[Place],
    write_quorum: int,
    stands: Stands,
    free: Mapping[str, int],
    movable: Collection[int] = (),
) -> dict[int, str] | None:
    """Which indexes get which locations, so that every write set stands; None if that was not found.

    `free`: how many bookies, none of them a member, may be taken at each location, the preferred one first. `movable`:
    the indexes whose members may take another member's place.
    """
    search = _Search(places, write_quorum, stands, free, movable)
    for most in range(len(places) + 1):
        found = search.within(most)
        if found is not None:
            return found
    return None


class _Search:
    """See the module."""

    def __init__(
        self,
        places: Sequence[Place],
        write_quorum: int,
        stands: Stands,
        free: Mapping[str, int],
        movable: Collection[int],
    ) -> None:
        self._old = places
        self._places = list(places)  # as they are in the branch that is looked at
        self._write_quorum = write_quorum
        self._stands = stands
        self._free = free
        self._movable = movable
        members = (location for index in sorted(movable) if (location := places[index]) is not None)
        self._locations = dict.fromkeys([*free, *members])
        self._changed: dict[int, str] = {}
        self._left = 0  # attempts

    def within(self, most: int) -> dict[int, str] | None:
        """So many changes at most."""
        self._left = ATTEMPTS
        return dict(self._changed) if self._solve(most) else None

    def _solve(self, most: int) -> bool:
        """Whether the branch has a solution with so many more changes; then it is `_changed`."""
        bad = self._bad()
        overdrawn = self._overdrawn()
        if not bad and not overdrawn:
            return True
        if self._apart(bad) > most or most == 0:
            return False
        where = self._members(bad[0]) if bad else overdrawn
        for index, location in self._choices(where):
            if self._left <= 0:
                return False
            self._left -= 1
            self._change(index, location)
            if self._solve(most - 1):
                return True
            self._change_back(index)
        return False

    def _choices(self, indexes: Collection[int]) -> list[tuple[int, str]]:
        """Changes of one of these indexes, the most useful first."""
        choices = [
            (index, location)
            for index in indexes
            if index not in self._changed
            for location in self._locations
            if location != self._places[index] and self._may_have(location)
        ]
        return sorted(choices, key=lambda choice: self._bad_after(*choice))

    def _bad_after(self, index: int, location: str) -> int:
        self._change(index, location)
        bad = len(self._bad())
        self._change_back(index)
        return bad

    def _change(self, index: int, location: str) -> None:
        self._places[index] = self._changed[index] = location

    def _change_back(self, index: int) -> None:
        del self._changed[index]
        self._places[index] = self._old[index]

    def _members(self, first: int) -> list[int]:
        """The indexes of the write set that begins there."""
        size = len(self._places)
        return [(first + i) % size for i in range(min(self._write_quorum, size))]

    def _bad(self) -> list[int]:
        """Where the write sets begin that do not stand."""
        if self._write_quorum >= len(self._places):  # they are all the same
            return [] if self._stands(self._places) else [0]
        write_sets = enumerate(windows(self._places, self._write_quorum))
        return [first for first, write_set in write_sets if not self._stands(write_set)]

    def _apart(self, bad: Sequence[int]) -> int:
        """How many of these write sets, at least, have no member in common."""
        count, free_from = 0, 0
        for first in bad:
            if free_from <= first <= max(0, len(self._places) - self._write_quorum):
                count += 1
                free_from = first + self._write_quorum
        return count

    # --- how many bookies a location can give ---

    def _may_have(self, location: str) -> bool:
        """Whether one more may be asked of a location, if members leave it as far as they may."""
        members = sum(self._old[index] == location for index in self._movable)
        return self._taken()[location] < self._free.get(location, 0) + members

    def _taken(self) -> Counter[str]:
        return Counter(self._changed.values())

    def _overdrawn(self) -> list[int]:
        """If a location gives more than it has so far: its members that have not left it yet."""
        for location, taken in self._taken().items():
            leaving = sum(self._old[index] == location for index in self._changed if index in self._movable)
            if taken > self._free.get(location, 0) + leaving:
                return [index for index in sorted(self._movable) if self._places[index] == location]
        return []
