"""How many copies the parts of a ledger have left, by its record and the bookies that are there. No I/O."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ..metadata.ledger_metadata import LedgerMetadata
from ..quorum.distribution import Distribution, quorum_coverage
from ..types import BookieId


class Copies(NamedTuple):
    """Of the entry that has the fewest."""

    fewest: int
    """Copies on bookies that are there; as many as there should be, if the ledger has no entries."""
    recoverable: bool
    """Whether enough bookies of its last ensemble are there to find its end; a closed one needs none."""


def copies_left(metadata: LedgerMetadata, there: Collection[BookieId]) -> Copies:
    """What a ledger has left. Bookies are taken at the record's word: that they have what they should."""
    distribution = Distribution(*metadata.quorums)
    starts = sorted(metadata.ensembles)
    fewest = metadata.write_quorum
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        alive = [bookie in there for bookie in metadata.ensembles[start]]
        if following is not None:
            end = following
        else:
            end = metadata.last_entry_id + 1 if metadata.closed else start + metadata.ensemble_size
        for entry in range(start, min(end, start + metadata.ensemble_size)):
            fewest = min(fewest, sum(alive[index] for index in distribution.write_set(entry)))
    return Copies(fewest, metadata.closed or _can_be_recovered(metadata, distribution, there))


def _can_be_recovered(metadata: LedgerMetadata, distribution: Distribution, there: Collection[BookieId]) -> bool:
    """In every write set so many must be fenced that no acknowledgement can come any more."""
    _, ensemble = metadata.last_ensemble
    needed = quorum_coverage(metadata.write_quorum, metadata.ack_quorum)
    return all(sum(ensemble[index] in there for index in each) >= needed for each in distribution.write_sets)
