"""All ledgers of a store, some at a time. Memory does not grow with their number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..errors import CorruptMetadata, NoSuchLedger
from .api import LedgerStore
from .ledger_metadata import LedgerMetadata

AT_ONCE = 100
"""Records that are read side by side."""


async def batches(ledgers: LedgerStore, at_once: int) -> AsyncGenerator[list[int], None]:
    """The ids of all ledgers, ascending, so many together. Raises `MetadataError`."""
    batch: list[int] = []
    async with aclosing(ledgers.ranges()) as ranges:
        async for found in ranges:
            for ledger_id in found.ids:
                batch.append(ledger_id)
                if len(batch) == at_once:
                    yield batch
                    batch = []
    if batch:
        yield batch


async def records(ledgers: LedgerStore) -> AsyncGenerator[tuple[int, LedgerMetadata | CorruptMetadata], None]:
    """All records by id, or why one makes no sense; without those deleted meanwhile. Raises `MetadataError`."""

    async def read(ledger_id: int) -> LedgerMetadata | CorruptMetadata | None:
        try:
            return (await ledgers.read(ledger_id)).value
        except NoSuchLedger:
            return None
        except CorruptMetadata as error:
            return error

    async with aclosing(batches(ledgers, AT_ONCE)) as found:
        async for ids in found:
            for ledger_id, record in zip(ids, await asyncio.gather(*map(read, ids)), strict=True):
                if record is not None:
                    yield ledger_id, record
