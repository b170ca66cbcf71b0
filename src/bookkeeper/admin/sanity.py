"""Does it work? A ledger is written, read, compared, and deleted again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from ..client.client import RESERVED, BookKeeper
from ..client.writer import LedgerWriter
from ..errors import BKError, BookKeeperError
from ..metadata.api import MetadataDriver
from ..metadata.ledger_metadata import LedgerMetadata
from ..types import BookieId, DigestType

AT_ONCE = 100
"""Appends that are under way."""


async def try_ledger(client: BookKeeper, writer: LedgerWriter, entries: Sequence[bytes]) -> None:
    """Append these, close, read, compare; the ledger is gone afterwards. Raises `BookKeeperError`."""
    try:
        async with writer:
            for start in range(0, len(entries), AT_ONCE):
                await asyncio.gather(*map(writer.append, entries[start : start + AT_ONCE]))
        async with client.open_ledger(writer.id) as reader:
            if reader.last_add_confirmed != len(entries) - 1:
                raise BookKeeperError(
                    f"ledger {writer.id} ends with entry {reader.last_add_confirmed}, not {len(entries) - 1}"
                )
            async for entry in reader.entries():
                if bytes(entry.data) != entries[entry.entry_id]:
                    raise BookKeeperError(f"entry {entry.entry_id} of ledger {writer.id} is not what was written")
    finally:
        await client.delete_ledger(writer.id)


async def try_bookie(
    driver: MetadataDriver, client: BookKeeper, bookie: BookieId, *, entries: int = 10, timeout: float = 60.0
) -> None:
    """The same on one bookie alone, within so many seconds. Raises `BookKeeperError`."""
    ledger_id = await driver.ids.allocate()
    # one that waits for its writer: so the bookie is ours to choose
    record = LedgerMetadata(
        ledger_id,
        1,
        1,
        1,
        {0: (bookie,)},
        digest_type=DigestType.MAC,
        password=b"",
        custom_metadata={RESERVED: b"1"},
    )
    await driver.ledgers.create(ledger_id, record)
    try:
        async with asyncio.timeout(timeout):
            await try_ledger(client, await client.claim_ledger(ledger_id), [b"entry-%d" % n for n in range(entries)])
    except TimeoutError:
        raise BookKeeperError(f"bookie {bookie} was not done after {timeout:.0f} s") from None
    finally:
        with suppress(BKError):
            await client.delete_ledger(ledger_id)
