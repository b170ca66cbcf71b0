"""The full check: what was lost comes back, ledger by ledger, and limbo ends (steps 7 to 10 of the room's theory).

It goes through all ledgers that name this bookie, greatest id first. A ledger that cannot be repaired now, because a
peer is away, stays in limbo and comes again in the next round. One that is gone from the metadata store stays in limbo,
too: garbage collection takes it.

Order. A ledger leaves limbo after its copies are durable here, never before: a copy is in no journal. The flag of the
storage goes after that is durable in its turn.

Bounds. `LEDGERS_AT_ONCE` ledgers at a time, each with `COPIES` entries under way; `dataIntegrityRateByBytes` in all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

from ...config import ServerConfiguration
from ...errors import BookKeeperError, FatalBookieError, NoLedgerError, NoSuchLedger, RejectedError
from ...metadata.api import LedgerStore
from ...metadata.ledger_metadata import LedgerMetadata
from ...runtime import Runtime
from ...runtime.waiting.rate_limit import RateLimit
from ...types import BookieId
from ..storage.api import LedgerStorage
from . import duties
from .peers import Peers

log = logging.getLogger(__name__)

LISTING_SECONDS = 30.0
"""How long one step of the listing of all ledgers may take."""

LEDGERS_AT_ONCE = 16
"""Ledgers that are recovered and repaired together."""

COPIES = 16
"""Entries of one ledger that are copied at once."""

WINDOW = 10_000
"""Ids that are looked through in one turn of the loop."""

ROOM_SECONDS = 60.0
"""How long a copy waits for room in the storage."""


class FullCheck:
    """Repairs one bookie."""

    def __init__(
        self,
        runtime: Runtime,
        config: ServerConfiguration,
        store: LedgerStore,
        storage: LedgerStorage,
        bookie_id: BookieId,
        peers: Peers,
    ) -> None:
        self._store = store
        self._storage = storage
        self._bookie_id = bookie_id
        self._peers = peers
        self._rate = RateLimit(runtime, config.dataIntegrityRateByBytes)
        self._left: dict[int, None] | None = None  # ledgers to be looked at; None: not listed yet
        self.copied = 0
        """Entries that came back."""

    async def round(self) -> bool:
        """Look at each ledger that is left. True if all are repaired; then the storage is not flagged any more.

        Raises `MetadataError`, `OSError` (no space) if nothing can be done now, `FatalBookieError`.
        """
        if self._left is None:
            self._left = dict.fromkeys(sorted(await self._listed(), reverse=True))
        for ledger_ids in _groups([*self._left], LEDGERS_AT_ONCE):
            copied = self.copied
            repaired = [i for i, ok in zip(ledger_ids, await self._repair_together(ledger_ids), strict=True) if ok]
            if self.copied > copied:
                await self._storage.flush()
            for ledger_id in repaired:
                self._end_limbo(ledger_id)
                del self._left[ledger_id]
        if self._left:
            log.info("%d ledgers are still to be repaired", len(self._left))
            return False
        await self._storage.flush()
        await self._storage.set_needs_integrity_check(False)
        log.info("all ledgers of this bookie are whole again; %d entries were copied", self.copied)
        return True

    async def _listed(self) -> list[int]:
        """Ledgers that are here and in the store. What names this bookie is here since `protection`, or before."""
        here = frozenset(self._storage.ledgers())
        return [i async for found in self._store.ranges(LISTING_SECONDS) for i in found.ids if i in here]

    async def _repair_together(self, ledger_ids: Sequence[int]) -> list[bool]:
        """Whether each of the ledgers is done with. Other failures than those of one ledger are raised."""
        results = await asyncio.gather(*(self._repair(i) for i in ledger_ids), return_exceptions=True)
        done = []
        for ledger_id, result in zip(ledger_ids, results, strict=True):
            if isinstance(result, BaseException):
                if isinstance(result, FatalBookieError) or not isinstance(result, BookKeeperError):
                    raise result
                log.warning("ledger %d cannot be repaired yet: %s", ledger_id, result)
            done.append(result is None)
        return done

    async def _repair(self, ledger_id: int) -> None:
        """Have all entries that this bookie owes to a ledger. Raises `BookKeeperError`, `OSError`."""
        try:
            found = await self._store.read(ledger_id)
        except NoSuchLedger:
            return
        metadata = found.value
        if not metadata.closed and self._storage.is_limbo(ledger_id):
            metadata = await self._peers.recover(found)
        if not duties.names(metadata, self._bookie_id):
            return
        try:
            held = await self._storage.held_entries(ledger_id)
        except NoLedgerError:
            return  # garbage collection has taken it
        for first in range(0, duties.end(metadata), WINDOW):
            await asyncio.sleep(0)
            missing = duties.missing(metadata, self._bookie_id, held, first, first + WINDOW)
            for entry_ids in _groups(missing, COPIES):
                copies = await asyncio.gather(
                    *(self._copy(metadata, entry_id) for entry_id in entry_ids), return_exceptions=True
                )
                for failure in copies:
                    if failure is not None:
                        raise failure

    async def _copy(self, metadata: LedgerMetadata, entry_id: int) -> None:
        entry = await self._peers.fetch(metadata, entry_id)
        await self._rate.take(len(entry))
        ledger_id = metadata.ledger_id
        if not await self._storage.wait_for_room(ledger_id, len(entry), 1, ROOM_SECONDS):
            raise RejectedError(f"no room for entry {entry_id} of ledger {ledger_id}, which was lost here")
        if self._storage.ledger_exists(ledger_id):
            self._storage.add_entry(ledger_id, entry_id, entry)
            self.copied += 1

    def _end_limbo(self, ledger_id: int) -> None:
        if self._storage.ledger_exists(ledger_id) and self._storage.is_limbo(ledger_id):
            self._storage.set_limbo(ledger_id, False)


def _groups(ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))
