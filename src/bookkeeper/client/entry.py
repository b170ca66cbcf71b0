"""What reads give."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple


class LedgerEntry(NamedTuple):
    """One entry. `bytes(entry)` is its payload and `len(entry)` the payload's size; it is always true.

    A tuple, because a read makes one for every entry and nothing immutable is cheaper to make.
    """

    ledger_id: int
    """The ledger that it belongs to."""
    entry_id: int
    """Its place there, counted from 0."""
    data: bytes
    """The payload, as it was appended. Its digest was right."""
    ledger_length: int
    """Payload bytes of the ledger up to and including this entry, in the order of the add calls (not this entry's
    size)."""

    @property
    def id(self) -> int:
        """`entry_id`."""
        return self.entry_id

    def __bytes__(self) -> bytes:
        return self.data

    def __len__(self) -> int:
        return len(self.data)

    def __bool__(self) -> bool:
        return True


def ledger_entries(
    ledger_id: int, entry_ids: Iterable[int], data: Iterable[bytes], lengths: Iterable[int]
) -> list[LedgerEntry]:
    """Entries of a ledger, given by columns of one length."""
    fields = zip(repeat(ledger_id), entry_ids, data, lengths)
    return list(map(_new_entry, repeat(LedgerEntry), fields))


_new_entry = tuple.__new__


class LastConfirmedAndEntry(NamedTuple):
    """The answer to a long poll: the last add confirmed, and the entry asked for if it is confirmed already."""

    last_add_confirmed: int
    """The last entry known to be confirmed; -1 if none is."""
    entry: LedgerEntry | None
    """The entry asked for; None if it is not confirmed yet, or lies behind the end of a closed ledger."""
