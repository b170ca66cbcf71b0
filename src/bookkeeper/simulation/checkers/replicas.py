"""Every entry is where the metadata says, often enough (spec safety PI-6, PI-7)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...metadata.ledger_metadata import LedgerMetadata
from ...quorum.distribution import Distribution
from ..history import Violation


def check_replicas(metadata: LedgerMetadata, held: Mapping[str, set[int]], lost: Collection[str]) -> int:
    """`held`: bookie id -> ids of the ledger's entries on it; `lost`: bookies whose disk was damaged on purpose.

    Returns the number of entries that lack a replica.
    """
    assert metadata.closed
    distribution = Distribution(*metadata.quorums)
    lacking = 0
    for entry_id in range(metadata.last_entry_id + 1):
        ensemble = metadata.ensemble_at(entry_id)
        where = [ensemble[index] for index in distribution.write_set(entry_id)]
        copies = sum(entry_id in held.get(bookie, ()) for bookie in where)
        needed = metadata.ack_quorum - sum(bookie in lost for bookie in where)
        if copies < needed:
            raise Violation(
                f"ledger {metadata.ledger_id}: entry {entry_id} is on {copies} of {where}, "
                f"the ack quorum is {metadata.ack_quorum}"
            )
        lacking += copies < metadata.write_quorum
    return lacking
