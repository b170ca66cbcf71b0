"""What a ledger's record was, from which bookie lists which of its entries. No I/O (spec streams §18).

Theory of operation

- The bookie at index k of an ensemble of E stores entry e if (k - e) mod E < W, W being the write quorum. So each entry
  says which bookies can be at which index: those that list it where it must be, others where it must not.
- A *segment* is a run of entries for which some choice of different bookies, one for each index, agrees with all that.
  Segments are made as long as they can be, from the first entry on. Whatever runs agree can be cut; so no other way has
  fewer segments, and where the true ensemble changed without a trace there is nothing to be found.
- W is the number of bookies that most entries are listed by. E is that which needs the fewest segments, the least of
  those: a striped ledger, taken for one that is not, changes its ensemble with every entry.
- Entries that more than W bookies list were sent again, or copied: W of them must be the right ones. Entries that fewer
  list have lost copies: those that are left must be at indexes that should have them. Only where all have W is the
  result *exact*. In any case all listed copies that it names are there, and a scrub says what is missing.
- The ack quorum leaves no trace, and a closed ledger does not need it: it is the least majority of W.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...types import Quorums

LARGEST_ENSEMBLE = 32

MOST_BOOKIES = 62
"""A mask of bookies fits an integer of 64 bits."""


@dataclass(frozen=True)
class Inferred:
    """Quorums and ensembles that agree with what is listed."""

    quorums: Quorums
    ensembles: dict[int, tuple[int, ...]]
    """First entry -> the numbers of its bookies."""
    exact: bool
    """Every entry is listed by as many bookies as should have it."""


def infer(
    held: Sequence[int], bookies: int, *, ensemble: int | None = None, quorum: int | None = None
) -> Inferred | None:
    """The record of a ledger; None if no record agrees, or an entry is listed nowhere.

    - `held`: for each entry from 0 on, the mask of the bookies that list it. `bookies`: how many there are.
    - `ensemble`, `quorum`: E and W, where they are known.
    """
    if not held or not all(held):
        return None
    write = quorum or Counter(mask.bit_count() for mask in held).most_common(1)[0][0]
    best: dict[int, tuple[int, ...]] | None = None
    for size in [ensemble] if ensemble else range(write, min(bookies, LARGEST_ENSEMBLE) + 1):
        found = _segments(held, bookies, size, write, len(best) - 1 if best else len(held))
        if found is not None:
            best = found
    if best is None:
        return None
    size = len(next(iter(best.values())))
    exact = all(mask.bit_count() == write for mask in held)
    return Inferred(Quorums(size, write, write // 2 + 1), best, exact)


def _segments(held: Sequence[int], bookies: int, size: int, write: int, most: int) -> dict[int, tuple[int, ...]] | None:
    """The ensembles by first entry, if there are so many at most."""
    if write > size or size > bookies:
        return None
    ensembles: dict[int, tuple[int, ...]] = {}
    at = 0
    while at < len(held):
        if len(ensembles) == most:
            return None
        segment = _Segment(size, write, (1 << bookies) - 1)
        start = at
        while at < len(held) and segment.take(at, held[at]):
            at += 1
        if at == start:
            return None
        ensembles[start] = segment.chosen
    return ensembles


class _Segment:
    """Entries that agree with one ensemble."""

    def __init__(self, size: int, write: int, everyone: int) -> None:
        self._size = size
        self._write = write
        self._possible = [everyone] * size
        """For each index, the mask of the bookies that can be there."""
        self._required = 0
        """Those that must be somewhere: what is left of an entry that lost copies."""
        self.chosen: tuple[int, ...] = tuple(range(size))

    def take(self, entry: int, held: int) -> bool:
        """Whether the next entry agrees as well; if not, nothing changes."""
        count = held.bit_count()
        possible = self._possible.copy()
        for index in range(self._size):
            if (index - entry) % self._size < self._write:
                if count >= self._write:
                    possible[index] &= held
            elif count <= self._write:
                possible[index] &= ~held
        required = self._required | (held if count < self._write else 0)
        if possible == self._possible and required == self._required:
            return True
        chosen = _distinct(possible, required)
        if chosen is None:
            return False
        self._possible, self._required, self.chosen = possible, required, chosen
        return True


def _distinct(possible: Sequence[int], required: int) -> tuple[int, ...] | None:
    """A different bookie for each index, all the `required` ones among them; None if there is no such choice.

    Augmenting paths never take from anybody what it has: so first the required bookies get an index, then each index
    that is left a bookie.
    """
    bookie_at: dict[int, int] = {}
    index_of: dict[int, int] = {}

    def seat(bookie: int, tried: set[int]) -> bool:
        for index, mask in enumerate(possible):
            if mask >> bookie & 1 and index not in tried:
                tried.add(index)
                if index not in bookie_at or seat(bookie_at[index], tried):
                    bookie_at[index], index_of[bookie] = bookie, index
                    return True
        return False

    def fill(index: int, tried: set[int]) -> bool:
        for bookie in _numbers(possible[index]):
            if bookie not in tried:
                tried.add(bookie)
                if bookie not in index_of or fill(index_of[bookie], tried):
                    bookie_at[index], index_of[bookie] = bookie, index
                    return True
        return False

    if not all(seat(bookie, set()) for bookie in _numbers(required)):
        return None
    if not all(index in bookie_at or fill(index, set()) for index in range(len(possible))):
        return None
    return tuple(bookie_at[index] for index in range(len(possible)))


def _numbers(mask: int) -> Iterator[int]:
    """The bookies of a mask, ascending."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1
