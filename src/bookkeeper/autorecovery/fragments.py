"""The parts of a ledger, and what must be on which bookie. No I/O (spec autorecovery-admin §5.1).

Theory of operation

- A ledger has a *fragment* for every ensemble of its record: from that ensemble's key to the entry before the next key.
- A fragment is *settled* when nothing is added to it any more: all fragments of a closed ledger, and those of an open
  one that lie below its current ensemble, once everything below that is known to be confirmed. Only settled fragments
  are copied. Where a writer, or the recovery of its ledger, may still be at work, an entry that is not there may yet
  come, and one that is there may not be part of the ledger.
- Fragments are told apart by their keys. Two ensembles of one ledger may name the same bookies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ..metadata.ledger_metadata import LedgerMetadata
from ..runtime.api import Random
from ..types import BookieId, LedgerState, Quorums


@dataclass(frozen=True, slots=True)
class Fragment:
    """What one ensemble of a ledger stores."""

    ledger_id: int
    first: int
    """Its key in the record."""
    last: int
    """`first - 1` if it is empty."""
    ensemble: tuple[BookieId, ...]
    quorums: Quorums
    settled: bool
    """Whether nothing is added to it any more."""

    def needs(self, index: int, entry_id: int) -> bool:
        """Whether the bookie at an index of the ensemble must have the entry."""
        size = self.quorums.ensemble_size
        return self.first <= entry_id <= self.last and (index - entry_id) % size < self.quorums.write_quorum

    def holds(self, index: int) -> Iterator[int]:
        """The entries that the bookie at an index of the ensemble must have, ascending."""
        return (entry for entry in range(self.first, self.last + 1) if self.needs(index, entry))

    def ends(self, index: int) -> tuple[int, int] | None:
        """The first and the last of them; None if there are none."""
        size = self.quorums.ensemble_size
        near = range(self.first, min(self.last + 1, self.first + size))
        first = next((entry for entry in near if self.needs(index, entry)), None)
        if first is None:
            return None
        far = range(self.last, max(self.first, self.last + 1 - size) - 1, -1)
        return first, next(entry for entry in far if self.needs(index, entry))

    def sample(self, index: int, percentage: int, random: Random) -> Iterator[int]:
        """Entries of an index to look at, ascending: its first, its last, and one out of each of equal stretches
        between them, if it is one of its own. `percentage`: 0 for the two alone, 100 for all.
        """
        ends = self.ends(index)
        if ends is None:
            return
        first, last = ends
        span = last - first + 1
        wanted = span * percentage // 100
        if wanted >= span:
            yield from self.holds(index)
            return
        yield first
        if wanted:
            stretch = span // wanted
            for start in range(first, last - stretch + 1, stretch):
                entry = random.randrange(start, start + stretch)
                if first < entry < last and self.needs(index, entry):
                    yield entry
        if last != first:
            yield last

    def gone(self, available: Collection[BookieId]) -> frozenset[int]:
        """The indexes whose bookies are not among these."""
        return frozenset(index for index, bookie in enumerate(self.ensemble) if bookie not in available)


def fragments_of(metadata: LedgerMetadata, last_confirmed: int) -> list[Fragment]:
    """All fragments of a ledger, ascending.

    `last_confirmed`: the last entry known to be confirmed; of a closed ledger its end.
    """
    keys = [*metadata.ensembles]
    end = metadata.last_entry_id if metadata.closed else last_confirmed
    return [
        Fragment(
            metadata.ledger_id,
            first,
            max(first - 1, end if position == len(keys) - 1 else keys[position + 1] - 1),
            metadata.ensembles[first],
            metadata.quorums,
            _settled(metadata, first, last_confirmed),
        )
        for position, first in enumerate(keys)
    ]


def _settled(metadata: LedgerMetadata, first: int, last_confirmed: int) -> bool:
    if metadata.state is not LedgerState.OPEN:
        return metadata.closed
    current = metadata.last_ensemble[0]
    return first < current and last_confirmed >= current - 1


def bookies_of(metadata: LedgerMetadata) -> frozenset[BookieId]:
    """All bookies that the record names."""
    return frozenset(bookie for ensemble in metadata.ensembles.values() for bookie in ensemble)


def open_end_at_risk(metadata: LedgerMetadata, last_confirmed: int, writable: Collection[BookieId]) -> bool:
    """Whether the end of a ledger that is not closed lies on bookies that take no writes (spec §4.4).

    Where the last confirmed is behind the current ensemble, the ensemble before it counts as well.
    """
    if metadata.closed:
        return False
    keys = [*metadata.ensembles]
    unsettled = keys[-2:] if last_confirmed < keys[-1] - 1 else keys[-1:]
    return any(bookie not in writable for key in unsettled for bookie in metadata.ensembles[key])
