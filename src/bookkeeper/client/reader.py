"""A ledger opened to be read (spec client §9.10, §14.2)."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from ..metadata.api import Versioned
from ..metadata.ledger_metadata import LedgerMetadata
from ..protocol.digest import Digest
from .context import ClientContext
from .readable import ReadableLedger


class LedgerReader(ReadableLedger):
    """An open ledger, to read from. `BookKeeper.open_ledger` makes one.

    An async context manager: leaving it closes the reader, which never fails.
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
            self._watch = self._context.tasks.spawn(self._follow(), name=f"watch ledger {self.id}")

    async def _follow(self) -> None:
        async for versioned in self._context.driver.ledgers.watch(self.id):
            if versioned is not None:
                self.adopt_metadata(versioned)

    async def close(self) -> None:
        """Stop following the metadata. The ledger itself is not touched. Idempotent."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
            self._watch = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
