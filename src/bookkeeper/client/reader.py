"""A ledger opened to be read (spec client §9.10, §14.2)."""

from __future__ import annotations

import asyncio
import logging
import warnings
import weakref
from types import TracebackType
from typing import Self

from ..errors import BKError, ClientClosedError, UnauthorizedError
from ..metadata.api import Versioned
from ..metadata.ledger_metadata import LedgerMetadata
from ..protocol.digest import Digest
from .context import ClientContext
from .readable import ReadableLedger

log = logging.getLogger(__name__)

WATCH_AGAIN = 1.0
"""Seconds until a watch of the metadata that broke is begun anew."""


class LedgerReader(ReadableLedger):
    """An open ledger, to read from. `BookKeeper.open_ledger` makes one.

    An async context manager: leaving it closes the reader, which never fails. One that follows a ledger and is dropped
    without `close` stops following, with a `ResourceWarning`.
    """

    def __init__(
        self, context: ClientContext, metadata: Versioned[LedgerMetadata], digest: Digest, master_key: bytes
    ) -> None:
        super().__init__(context, metadata, digest, master_key)
        self._lac = metadata.value.last_entry_id  # -1 unless closed; only rises
        self._length = metadata.value.length
        self._watch: asyncio.Task[None] | None = None

    @property
    def last_add_confirmed(self) -> int:
        """The last entry known to be confirmed; -1 if none is."""
        return self._lac

    @property
    def length(self) -> int:
        """Payload bytes of the ledger. Of an open ledger what LAC reads brought: may lag, or be 0."""
        return self._length

    def _heard_of_lac(self, lac: int, length: int) -> None:
        if not self.closed:
            self._lac = max(self._lac, lac)
            self._length = max(self._length, length)

    def _metadata_adopted(self, old: LedgerMetadata, new: LedgerMetadata) -> None:
        super()._metadata_adopted(old, new)
        if new.closed:
            self._lac = new.last_entry_id
            self._length = new.length

    def follow_metadata(self) -> None:
        """Keep the metadata up to date until the reader is closed. Idempotent."""
        if self._watch is None:
            following = _follow(weakref.ref(self), self.id, self._context)
            self._watch = self._context.tasks.spawn(following, name=f"watch ledger {self.id}")

    async def _look_again(self, error: BKError) -> bool:
        """The watch may be behind what bookies tell: the LAC may lie in a fragment that is not known here yet, or the
        fragment may have moved."""
        entry_id = error.entry_id
        if self._watch is None or entry_id is None or isinstance(error, ClientClosedError | UnauthorizedError):
            return False
        asked = self.metadata.ensemble_at(entry_id)
        try:
            return (await self.refresh_metadata()).ensemble_at(entry_id) != asked
        except BKError:
            return False  # the error of the read says more

    async def close(self) -> None:
        """Stop following the metadata. The ledger itself is not touched. Idempotent."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
            self._watch = None

    def __del__(self) -> None:
        watch = getattr(self, "_watch", None)
        if watch is None or watch.done() or self._context.closed:
            return
        warnings.warn(
            f"reader of ledger {self._ledger_id} was dropped without close() while it followed the ledger",
            ResourceWarning,
            source=self,
            stacklevel=1,
        )
        loop = watch.get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(watch.cancel)  # another thread may have dropped it

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _follow(reader: weakref.ref[LedgerReader], ledger_id: int, context: ClientContext) -> None:
    """Tell a reader of its ledger's metadata, for as long as there is a reader; that it is told must not keep it."""
    while reader() is not None:
        try:
            async for versioned in context.driver.ledgers.watch(ledger_id):
                _tell(reader(), versioned)
            return  # the ledger was deleted
        except Exception:
            log.exception("watch of ledger %d: unexpected error; going on", ledger_id)
        await asyncio.sleep(WATCH_AGAIN)


def _tell(reader: LedgerReader | None, versioned: Versioned[LedgerMetadata] | None) -> None:
    """None: the ledger was deleted."""
    if reader is not None and versioned is not None:
        reader.adopt_metadata(versioned)
    elif reader is not None:
        reader._deleted = True
