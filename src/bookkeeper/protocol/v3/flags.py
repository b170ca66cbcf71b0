"""How v3 says what v2 says with flag bits: `flag` fields, which are single values, and the header's priority."""

from __future__ import annotations

from ..messages import HIGH_PRIORITY, Flags
from ..schema import ADD_RECOVERY_ADD, READ_ENTRY_PIGGYBACK, READ_FENCE_LEDGER, UNSET

READ_FLAGS = {UNSET: 0, READ_FENCE_LEDGER: int(Flags.DO_FENCING), READ_ENTRY_PIGGYBACK: int(Flags.ENTRY_PIGGYBACK)}
"""Our flags of `ReadRequest.flag`."""

ADD_FLAGS = {UNSET: 0, ADD_RECOVERY_ADD: int(Flags.RECOVERY_ADD)}
"""Our flags of `AddRequest.flag`."""

# Plain integers: an `IntFlag` takes a microsecond to combine.
_DO_FENCING = int(Flags.DO_FENCING)
_ENTRY_PIGGYBACK = int(Flags.ENTRY_PIGGYBACK)
_HIGH_PRIORITY = int(Flags.HIGH_PRIORITY)


def read_flag(flags: int) -> int:
    """`ReadRequest.flag`. Raises `ValueError` for two that exclude each other."""
    fence = flags & _DO_FENCING
    piggyback = flags & _ENTRY_PIGGYBACK
    if fence and piggyback:
        raise ValueError("a v3 read cannot fence and ask for the entry with the LAC")
    if fence:
        return READ_FENCE_LEDGER
    return READ_ENTRY_PIGGYBACK if piggyback else UNSET


def priority_of(flags: int) -> int:
    """The header's priority; 0 is not written."""
    return HIGH_PRIORITY if flags & _HIGH_PRIORITY else 0


def priority_flag(priority: int) -> int:
    """Our flag of a header's priority: any but 0 is high."""
    return _HIGH_PRIORITY if priority else 0
