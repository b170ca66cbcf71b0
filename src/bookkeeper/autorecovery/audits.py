"""Audits: walks over all ledgers that mark those which are not whole (spec autorecovery-admin §3.5, §3.6).

Theory of operation

- The *bookie audit* compares records with the bookies that are available: a ledger of which an ensemble names one that
  is not there is marked, whatever that bookie stored. Nothing is asked of bookies. What it concludes follows from
  the records alone, so a bookie whose cookie is gone counts as well.
- The *check of all ledgers* reads: each ledger is looked at by the `checker`, and marked with the bookies that do not
  have what they must.
- The *replicas check* asks each bookie which entries it has of a ledger, all of them, by its index, and tells how many
  ledgers have entries with too few copies. It marks nothing: ledgers that are marked already, and those that are still
  open, are left out. A bookie that cannot be asked counts for nothing. Java's counts only the last part of its walk,
  and takes most striped ledgers for damaged (spec §3.8).
- Ledgers are walked, `AT_ONCE` at a time, and none is kept: memory does not grow with their number.
- A ledger that is deleted meanwhile is nobody's concern. Whatever else fails ends the walk, and the audit is owed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass, field

from ..client.client import BookKeeper
from ..client.reads.replicas import Replicas
from ..errors import NoSuchLedger, NoSuchLedgerOnMetadataError
from ..metadata.api import MetadataDriver
from ..metadata.ledger_metadata import LedgerMetadata
from ..metadata.walking import AT_ONCE, batches
from ..types import BookieId
from .checker import digest_of
from .fragments import bookies_of, fragments_of
from .repair import Repair

ENTRIES_IN_A_TURN = 1000
"""Entries that are compared with what bookies have before others get the loop."""


@dataclass(slots=True)
class AuditReport:
    """What an audit saw."""

    ledgers: int = 0
    """Ledgers looked at."""
    marked: int = 0
    """Ledgers that are marked now because of it."""
    bytes: int = 0
    """The length of those that were marked, as far as they are closed."""
    lost: set[BookieId] = field(default_factory=set)
    """Bookies for which ledgers were marked."""
    shapes: Counter[tuple[int, int]] = field(default_factory=Counter)
    """How many ledgers had so many fragments, on so many bookies; of a check of all ledgers."""


@dataclass(slots=True)
class ReplicasReport:
    """What the replicas check saw. A ledger is counted once, by the entry of it that has the fewest copies."""

    ledgers: int = 0
    """Ledgers looked at."""
    NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY: int = 0
    NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY: int = 0
    NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY: int = 0

    def count(self, metadata: LedgerMetadata, fewest: int) -> None:
        """One ledger, of which some entry has so few copies."""
        self.ledgers += 1
        if fewest <= 0:
            self.NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY += 1
        elif fewest < metadata.ack_quorum:
            self.NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY += 1
        elif fewest < metadata.write_quorum:
            self.NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY += 1


async def walk(driver: MetadataDriver, at_once: int, look: Callable[[int], Awaitable[None]]) -> None:
    """Look at all ledgers, so many at a time. Raises what looking raises, and `MetadataError`."""
    async with aclosing(batches(driver.ledgers, at_once)) as found:
        async for ledgers in found:
            for outcome in await asyncio.gather(*map(look, ledgers), return_exceptions=True):
                if outcome is not None:
                    raise outcome


async def audit_bookies(driver: MetadataDriver, available: Collection[BookieId]) -> AuditReport:
    """Mark every ledger that names a bookie which is not available. Raises `MetadataError`."""
    report = AuditReport()

    async def look(ledger_id: int) -> None:
        try:
            metadata = (await driver.ledgers.read(ledger_id)).value
        except NoSuchLedger:
            return
        report.ledgers += 1
        missing = sorted(bookies_of(metadata).difference(available))
        if missing:
            await driver.underreplication.mark(ledger_id, missing)
            report.marked += 1
            report.bytes += metadata.length if metadata.closed else 0
            report.lost.update(missing)

    await walk(driver, AT_ONCE, look)
    return report


async def check_all_ledgers(
    driver: MetadataDriver, client: BookKeeper, repair: Repair, *, percentage: int, at_once: int
) -> AuditReport:
    """Read of every ledger what `percentage` asks for, and mark those that are not whole.

    Raises `MetadataError`, and the `BKError` of a ledger whose last add confirmed nobody can tell.
    """
    report = AuditReport()

    async def look(ledger_id: int) -> None:
        try:
            async with client.open_ledger_as_admin(ledger_id) as reader:
                metadata = (await client.get_versioned_metadata(ledger_id)).value
                damages = await repair.damages(metadata, reader.last_add_confirmed, percentage)
        except NoSuchLedgerOnMetadataError:
            return
        report.ledgers += 1
        report.shapes[len(metadata.ensembles), len(bookies_of(metadata))] += 1
        bad = sorted({bookie for damage in damages for bookie in damage.bookies})
        if bad:
            await driver.underreplication.mark(ledger_id, bad)
            report.marked += 1
            report.lost.update(bad)

    await walk(driver, min(at_once, AT_ONCE), look)
    return report


async def check_replicas(driver: MetadataDriver, client: BookKeeper) -> ReplicasReport:
    """Ask all bookies which entries they have, and count ledgers with too few copies. Raises `MetadataError`."""
    report = ReplicasReport()

    async def look(ledger_id: int) -> None:
        try:
            metadata = (await driver.ledgers.read(ledger_id)).value
        except NoSuchLedger:
            return
        if metadata.closed and metadata.last_entry_id >= 0 and await driver.underreplication.info(ledger_id) is None:
            report.count(metadata, await _fewest_copies(metadata, client))

    await walk(driver, AT_ONCE, look)
    return report


async def _fewest_copies(metadata: LedgerMetadata, client: BookKeeper) -> int:
    """Of the entry that has the fewest."""
    replicas = Replicas(client.context, metadata, digest_of(metadata))
    bookies = sorted(bookies_of(metadata))
    listed = dict(zip(bookies, await asyncio.gather(*map(replicas.listed, bookies)), strict=True))
    most_missing = 0
    for fragment in fragments_of(metadata, metadata.last_entry_id):
        has = [(index, found) for index, name in enumerate(fragment.ensemble) if (found := listed[name]) is not None]
        for start in range(fragment.first, fragment.last + 1, ENTRIES_IN_A_TURN):
            for entry in range(start, min(start + ENTRIES_IN_A_TURN, fragment.last + 1)):
                missing = sum(fragment.needs(index, entry) and entry not in found for index, found in has)
                most_missing = max(most_missing, missing)
            await asyncio.sleep(0)
    return metadata.write_quorum - most_missing
