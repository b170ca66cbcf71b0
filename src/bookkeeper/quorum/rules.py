"""The rules that keep the protocol safe, each with a name, so that a test can break exactly one.

Production code uses `SAFE`, and nothing else. The model checker and the directed tests switch single rules off and must
then see an invariant of spec safety §1.4 broken: that is how we know that the tests bite. The numbers in the comments
are the planted bugs of spec safety §2.2.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProtocolRules:
    """Every field is True in production; False plants the bug."""

    # the writer
    confirm_in_order: bool = True
    """Appends are acknowledged strictly by id (MU-16)."""
    close_at_lac: bool = True
    """A writer closes its ledger at the last confirmed entry, not at the last one pushed (MU-5)."""
    revoke_replaced_acks: bool = True
    """Acks of a bookie that an ensemble change replaced no longer count (MU-9)."""
    store_before_use: bool = True
    """A new ensemble is used only after the metadata store has it (MU-10)."""

    # recovery
    fencing_coverage: bool = True
    """Recovery reads begin only when no unfenced ack quorum is left; off: after one answer."""
    lac_floor: bool = True
    """Recovery starts no lower than the last fragment (MU-11)."""
    fencing_reads: bool = True
    """Every recovery read fences (MU-1)."""
    negatives_need_coverage: bool = True
    """The ledger ends where a quorum coverage of bookies denies the entry; off: at the first denial (MU-2)."""
    unknown_is_not_negative: bool = True
    """A timeout or error says nothing about an entry; off: it counts as a denial (MU-3)."""
    reads_from_frozen_ensembles: bool = True
    """Recovery reads go to the fragments as they were when recovery began (MU-12)."""
    recovered_ensembles_in_memory: bool = True
    """Recovery's own ensemble changes reach the store with the close only (MU-13)."""
    close_after_write_backs: bool = True
    """Recovery closes only when every entry found is back on an ack quorum (MU-4)."""
    failed_write_back_fails: bool = True
    """A write-back that cannot reach its ack quorum fails the recovery (MU-6)."""
    write_back_fenced_lac: bool = True
    """Written-back entries carry the LAC that fencing found, not the recoverer's progress (PI-17)."""


SAFE = ProtocolRules()
