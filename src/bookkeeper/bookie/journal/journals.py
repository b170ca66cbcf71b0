"""The journals of a bookie, and what goes into them for a ledger (spec bookie-storage §3.6).

A ledger's records all go to one journal, chosen by its id, and the first of them tells the master key: replay
could not place the others. Java forgets that for fences and explicit LACs and can lose them (G2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..ledgers import BookieLedger
from .format import ledger_key_record
from .journal import Journal


class Journals:
    """All journals, in the order of `journalDirectories`."""

    def __init__(self, journals: Sequence[Journal]) -> None:
        assert journals
        self._journals = list(journals)

    def __iter__(self) -> Iterator[Journal]:
        return iter(self._journals)

    def __len__(self) -> int:
        return len(self._journals)

    def of(self, ledger_id: int) -> Journal:
        """The journal of a ledger."""
        return self._journals[ledger_id % len(self._journals)]

    def append(self, handle: BookieLedger, record: bytes, done: Callable[[], None]) -> None:
        """Write one record of a ledger, its key before it; `done()` when that is durable."""
        pieces = key_record_if_due(handle)
        pieces.append(record)
        self.of(handle.ledger_id).append(pieces, sum(map(len, pieces)), len(pieces), done)


def key_record_if_due(handle: BookieLedger) -> list[bytes]:
    """The ledger's key record in a list, empty if it has been written since the start. The caller appends it now."""
    if handle.key_journaled:
        return []
    return [ledger_key_record(handle.ledger_id, handle.key_goes_to_journal())]
