"""What a writer changes in the metadata of its ledger: the ensemble, and at the end the state (spec client §6.2, §8).

Both are compare-and-set loops (`metadata.update`). They end without a write where the metadata says already what they
would write, or where the ledger is no longer this writer's to change.
"""

from __future__ import annotations

import asyncio
import logging

from ...errors import (
    BKError,
    BookKeeperError,
    MetadataVersionError,
    NotEnoughBookiesError,
    UnexpectedError,
)
from ...metadata.api import Versioned
from ...metadata.ledger_metadata import LedgerMetadata
from ...metadata.update import update_ledger
from ...quorum.ensemble import AskForChange, Choose, replace_failed
from ...types import LedgerState
from ..context import ClientContext
from ..handle import LedgerHandle
from ..wire.results import from_metadata_error
from .pipeline import AddPipeline

log = logging.getLogger(__name__)


class EnsembleChange:
    """Replaces bookies that failed one writer. Used once."""

    def __init__(
        self, context: ClientContext, ledger: LedgerHandle, adds: AddPipeline, ask: AskForChange, choose: Choose
    ) -> None:
        self._context = context
        self._ledger = ledger
        self._adds = adds
        self._ask = ask
        self._choose = choose

    async def store(self) -> Versioned[LedgerMetadata]:
        """Store an ensemble without the failed bookies, to begin after the LAC; returns what the store has then.

        Nothing is stored when the ledger is not open any more, the pipeline has stopped, or the bookies are replaced
        already. Raises `NotEnoughBookiesError`, `BKError`, `MetadataError`.
        """
        known = self._ledger.versioned_metadata
        placement = self._context.placement
        writable = placement.writable
        try:
            return await self._update(known)
        except NotEnoughBookiesError as error:
            # What we know of the bookies and of the ledger may be a moment behind: the one must not end a ledger, and
            # where another client has ended it, the writer is to hear that, not that bookies are missing.
            stored = await self._context.driver.ledgers.read(self._ledger.id)
            if not await placement.refresh(writable) and stored.version == known.version:
                failed = ", ".join(self._ask.failed.values())
                log.warning("ledger %d: bookies %s failed: %s", self._ledger.id, failed, error)
                raise
            return await self._update(stored)

    async def _update(self, current: Versioned[LedgerMetadata]) -> Versioned[LedgerMetadata]:
        if self._context.runtime.buggify("ensemble change hesitates", 0.2):
            await asyncio.sleep(0.1)
        store = self._context.driver.ledgers
        return await update_ledger(store, self._ledger.id, current, self._needed, self._changed)

    def _needed(self, metadata: LedgerMetadata) -> bool:
        if metadata.state is not LedgerState.OPEN or self._adds.stopped is not None:
            return False
        _, ensemble = metadata.last_ensemble
        return any(ensemble[index] == bookie for index, bookie in self._ask.failed.items())

    def _changed(self, metadata: LedgerMetadata) -> LedgerMetadata:
        adds = self._adds
        _, ensemble = metadata.last_ensemble
        new = replace_failed(ensemble, self._ask.failed, self._choose, self._ask.avoid)
        return metadata.with_ensemble(adds.window.lac + 1, new)


async def close_metadata(
    context: ClientContext, ledger: LedgerHandle, last_entry_id: int, length: int
) -> BKError | Versioned[LedgerMetadata]:
    """Close the metadata at the writer's last entry; returns what the store has then.

    An error is returned, not raised: it belongs to the callers of `close`, and there may be none. It is
    `MetadataVersionError` when another client closed the ledger elsewhere.
    """

    def needed(metadata: LedgerMetadata) -> bool:
        if not metadata.closed:
            return True
        if (metadata.last_entry_id, metadata.length) == (last_entry_id, length):
            return False
        raise MetadataVersionError(
            f"another client closed the ledger with last entry {metadata.last_entry_id} and length {metadata.length}, "
            f"not {last_entry_id} and {length}",
            ledger_id=ledger.id,
        )

    store = context.driver.ledgers
    try:
        return await update_ledger(
            store, ledger.id, ledger.versioned_metadata, needed, lambda metadata: metadata.close(last_entry_id, length)
        )
    except BKError as error:
        return error
    except BookKeeperError as error:
        return from_metadata_error(error, ledger.id)
    except Exception as error:
        log.exception("closing ledger %d: unexpected error", ledger.id)
        return UnexpectedError(f"closing failed: {error!r}", ledger_id=ledger.id)
