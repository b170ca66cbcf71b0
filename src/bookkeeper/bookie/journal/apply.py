"""What a journal record does to the storage at start (spec bookie-server §1.5).

Every record is applied again, whether or not its effect is there already; applying is idempotent. A record of a ledger
that neither the storage nor an earlier key record knows belongs to a deleted ledger and is skipped.

A master key that contradicts the one that is known is the beginning of another ledger of the same id: the old one was
collected, and the id used again. Deletions are not journaled, so the key record makes up for one: what is known of the
ledger is forgotten, and the records that follow build the new one. Whichever of the two lives the storage had reached
when the bookie went down, the last one is right in the end, as all its records come after its first key record. Only a
record that a checksum vouches for may do that; a contradiction in a journal of Java's ends the start.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Protocol

from ...errors import FatalBookieError, UnauthorizedAccessError
from ..storage.api import LedgerStorage
from .format import EXPLICIT_LAC, FENCE, LEDGER_KEY

log = logging.getLogger(__name__)

ROOM_TIMEOUT_SECONDS = 600.0
"""How long the storage may take to make room before the start is given up."""


class JournalRecord(Protocol):
    """A record as the journal hands it out (`journal_format.JournalRecord`)."""

    @property
    def ledger_id(self) -> int: ...
    @property
    def entry_id(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    @property
    def sealed(self) -> bool: ...


class RecordApplier:
    """Applies journal records to a storage."""

    def __init__(self, storage: LedgerStorage) -> None:
        self._storage = storage
        self.entries = 0
        self.skipped = 0
        """Records of ledgers that are not here any more."""

    def apply(self, record: JournalRecord) -> Awaitable[None] | None:
        """Apply one record; an awaitable if the storage has to make room first.

        Raises `FatalBookieError` for a key without a checksum that contradicts the storage.
        """
        storage = self._storage
        ledger_id, kind = record.ledger_id, record.entry_id
        if kind == LEDGER_KEY:
            self._set_key(record)
        elif not storage.ledger_exists(ledger_id):
            self.skipped += 1
        elif kind == FENCE:
            storage.set_fenced(ledger_id)
        elif kind == EXPLICIT_LAC:
            storage.set_explicit_lac(ledger_id, record.body)
        else:
            assert kind >= 0
            if not storage.has_room(ledger_id, len(record.body), 1):
                return self._apply_when_there_is_room(record)
            self._add(record)
        return None

    def _set_key(self, record: JournalRecord) -> None:
        storage, ledger_id, key = self._storage, record.ledger_id, record.body
        if not any(key) and storage.ledger_exists(ledger_id):
            return  # a placeholder, which has given way to a key since
        try:
            storage.set_master_key(ledger_id, key)
        except UnauthorizedAccessError:
            if not record.sealed:
                raise FatalBookieError(
                    f"the journal has another master key for ledger {ledger_id} than the ledger storage: "
                    "do journal and ledger directories belong together?"
                ) from None
            log.warning("ledger %d was deleted and created anew with another master key", ledger_id)
            storage.delete_ledger(ledger_id)
            storage.set_master_key(ledger_id, key)

    def _add(self, record: JournalRecord) -> None:
        self._storage.add_entry(record.ledger_id, record.entry_id, record.body)
        self.entries += 1

    async def _apply_when_there_is_room(self, record: JournalRecord) -> None:
        if not await self._storage.wait_for_room(record.ledger_id, len(record.body), 1, ROOM_TIMEOUT_SECONDS):
            raise FatalBookieError("the ledger storage cannot make room for the journal's entries")
        self._add(record)
