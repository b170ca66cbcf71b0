"""Before a bookie serves that may have lost entries: fence and limbo for every ledger that names it.

Steps 3 to 5 of the room's theory of operation. Nothing may be served before `protect` has returned.

The listing of the ledgers must not be an old one: the session with the store has seen all that was stored before this
bookie started (`node.cookies` sees to that), and what this bookie acknowledged before was in the store by then.

A ledger may name this bookie no more, although its writer still sends here: a recovery fenced this bookie, could not
write back to it, and closed the ledger with another one in its place. Together with a bookie that no fence has reached,
one that forgot its fence would be an ack quorum for the old writer. So where fences may be lost, every closed ledger of
the cluster is fenced here. Those of others are dropped as over-replicated later.
"""

from __future__ import annotations

import asyncio
import logging

from ...errors import NoSuchLedger
from ...metadata.api import MetadataDriver
from ...metadata.ledger_metadata import LedgerMetadata
from ...protocol.digest import master_key
from ...types import BookieId
from ..storage.api import LedgerStorage
from . import duties

log = logging.getLogger(__name__)

LISTING_SECONDS = 30.0
"""How long one step of the listing of all ledgers may take."""

METADATA_READS = 300
"""Records of ledgers that are read at once."""


async def protect(
    driver: MetadataDriver, storage: LedgerStorage, bookie_id: BookieId, *, fences_lost: bool = True
) -> int:
    """Fence and put in limbo all ledgers that name the bookie; durable at return. Returns how many they are.

    `fences_lost`: fences may be lost, too; then all closed ledgers are fenced.
    Raises `MetadataError`, `OSError`, `FatalBookieError`; then the bookie must not serve.
    """
    await storage.set_needs_integrity_check(True)
    count = 0
    async for found in driver.ledgers.ranges(LISTING_SECONDS):
        for start in range(0, len(found.ids), METADATA_READS):
            ledger_ids = found.ids[start : start + METADATA_READS]
            for metadata in await asyncio.gather(*(_read(driver, ledger_id) for ledger_id in ledger_ids)):
                if metadata is None:
                    continue
                if duties.names(metadata, bookie_id):
                    _fence(storage, metadata)
                    storage.set_limbo(metadata.ledger_id, True)
                    count += 1
                elif fences_lost and metadata.closed:
                    _fence(storage, metadata)
    await storage.flush()
    log.warning("entries may have been lost: %d ledgers that name this bookie are fenced and in limbo", count)
    return count


async def _read(driver: MetadataDriver, ledger_id: int) -> LedgerMetadata | None:
    """None: it has been deleted meanwhile."""
    try:
        return (await driver.ledgers.read(ledger_id)).value
    except NoSuchLedger:
        return None


def _fence(storage: LedgerStorage, metadata: LedgerMetadata) -> None:
    """Where the key is lost, too, it is made of the password again, if the metadata has it; else it is taken from
    whoever comes first, as for any new ledger."""
    ledger_id = metadata.ledger_id
    if not any(storage.master_key(ledger_id) or b""):
        storage.set_master_key(ledger_id, b"" if metadata.password is None else master_key(metadata.password))
    storage.set_fenced(ledger_id)
