"""Sees a cluster as it is now: its store, its bookies, every ledger's record. Reads only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress

from ..client.client import BookKeeper
from ..errors import CorruptMetadata, NotInitialized
from ..metadata.api import MetadataDriver, Mode
from ..metadata.ledger_metadata import LedgerMetadata
from ..metadata.walking import records
from ..runtime import Runtime
from ..types import BookieId
from .copies import copies_left
from .picture import BookieSeen, Ledgers, Picture

TELL_EVERY = 100
"""Ledgers between two words of progress."""


async def look(
    runtime: Runtime, driver: MetadataDriver, client: BookKeeper, progress: Callable[[int], None]
) -> Picture:
    """See all there is to see. `progress` is told how many ledgers were looked at. Raises what the store raises."""
    picture = Picture(initialised=await driver.admin.exists(), now_ms=runtime.wall_ms())
    if not picture.initialised:
        return picture
    picture.writable = (await driver.discovery.list(Mode.WRITABLE)).value
    picture.read_only = (await driver.discovery.list(Mode.READ_ONLY)).value
    picture.cookies = (await driver.discovery.list_all()).value
    picture.bookies = await _ask_bookies(runtime, client, picture.writable | picture.read_only)
    picture.auditor = await driver.auditor.current()
    picture.repair_enabled = await driver.underreplication.is_enabled()
    with suppress(NotInitialized):  # no auditor has run yet
        picture.delay = await driver.underreplication.get_lost_bookie_recovery_delay()
    picture.health_check = await driver.flags.health_check_enabled()
    async with aclosing(driver.underreplication.list()) as marks:
        async for mark in marks:
            picture.marked.add(mark.ledger_id)
            if mark.ctime > 0:
                picture.oldest_mark_ms = min(mark.ctime, picture.oldest_mark_ms or mark.ctime)
    await _look_at_ledgers(driver, picture, progress)
    return picture


async def _ask_bookies(
    runtime: Runtime, client: BookKeeper, registered: frozenset[BookieId]
) -> dict[BookieId, BookieSeen]:
    async def ask(bookie: BookieId) -> BookieSeen:
        began = runtime.now()
        info = await client.bookie_space(bookie)
        return BookieSeen(None) if info is None else BookieSeen(runtime.now() - began, info.total, info.free)

    bookies = sorted(registered)
    return dict(zip(bookies, await asyncio.gather(*map(ask, bookies)), strict=True))


async def _look_at_ledgers(driver: MetadataDriver, picture: Picture, progress: Callable[[int], None]) -> None:
    there = picture.writable | picture.read_only

    async with aclosing(records(driver.ledgers)) as found:
        async for ledger_id, record in found:
            sort_in(picture.ledgers, ledger_id, record, there)
            if picture.ledgers.count % TELL_EVERY == 0:
                progress(picture.ledgers.count)
    progress(picture.ledgers.count)


def sort_in(
    ledgers: Ledgers, ledger_id: int, record: LedgerMetadata | CorruptMetadata, there: frozenset[BookieId]
) -> None:
    """Count a ledger under what there is to say of it. Pure."""
    ledgers.count += 1
    if isinstance(record, CorruptMetadata):
        ledgers.corrupt.add(ledger_id)
        return
    copies = copies_left(record, there)
    if not record.closed:
        ledgers.open.add(ledger_id)
        ledgers.widest = max(ledgers.widest, record.ensemble_size)
        if record.ctime > 0:
            ledgers.oldest_open_ms = min(record.ctime, ledgers.oldest_open_ms or record.ctime)
    if not copies.recoverable:
        ledgers.unrecoverable.add(ledger_id)
    if copies.fewest == 0:
        ledgers.unreadable.add(ledger_id)
    elif copies.fewest < record.write_quorum:
        (ledgers.last_copy if copies.fewest == 1 else ledgers.short).add(ledger_id)
