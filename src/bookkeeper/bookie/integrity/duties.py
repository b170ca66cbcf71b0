"""Which entries of a ledger a bookie must store, by the ledger's metadata alone (spec bookie-storage §11.5).

An entry belongs to the write set of its id in the ensemble of its fragment. In a closed ledger the last entry is known.
In one that is not closed the entries of the last fragment may be under way still, and nobody is owed them yet.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from ...metadata.ledger_metadata import LedgerMetadata
from ...quorum.distribution import Distribution
from ...types import BookieId


def names(metadata: LedgerMetadata, bookie: BookieId) -> bool:
    """Whether any fragment of the ledger is on this bookie."""
    return any(bookie in members for members in metadata.ensembles.values())


def end(metadata: LedgerMetadata) -> int:
    """The first id of which it is not sure that it is an entry of the ledger."""
    return metadata.last_entry_id + 1 if metadata.closed else metadata.last_ensemble[0]


def owed(metadata: LedgerMetadata, bookie: BookieId, first: int, stop: int) -> Iterator[int]:
    """The ids from `first` to before `stop` of entries that the bookie must store, ascending."""
    distribution = Distribution(*metadata.quorums)
    stop = min(stop, end(metadata))
    firsts = [*metadata.ensembles, stop]
    for number, members in enumerate(metadata.ensembles.values()):
        if bookie not in members:
            continue
        index = members.index(bookie)
        for entry_id in range(max(first, firsts[number]), min(stop, firsts[number + 1])):
            if distribution.has_entry(entry_id, index):
                yield entry_id


def missing(metadata: LedgerMetadata, bookie: BookieId, held: Sequence[int], first: int, stop: int) -> list[int]:
    """Those of `owed` that are not among `held`, which ascends."""
    here = frozenset(held[bisect_left(held, first) : bisect_left(held, stop)])
    return [entry_id for entry_id in owed(metadata, bookie, first, stop) if entry_id not in here]
