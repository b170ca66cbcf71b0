"""Putting another id in a bookie's place in the records of ledgers (spec autorecovery-admin §7.3).

Theory of operation

A bookie that is moved to another address, or goes from addresses to host names, keeps its entries and gets another id.
Then the records must say so. No entry is copied: of a bookie that lost its entries this makes ledgers that only look
whole, and `recover` is what is wanted.

Each record is changed by compare-and-set, in all of its ensembles. A record of which one ensemble names both ids is
left alone: an entry of it would count two copies on one bookie.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from ..errors import NoSuchLedger
from ..metadata.api import MetadataDriver
from ..metadata.ledger_metadata import LedgerMetadata
from ..metadata.update import update_ledger
from ..metadata.walking import batches
from ..runtime.waiting.rate_limit import RateLimit
from ..types import BookieId
from .fragments import bookies_of


@dataclass(slots=True)
class Renamed:
    """What was looked at and changed so far."""

    issued: int = 0
    """Ledgers looked at."""
    updated: int = 0
    """Ledgers whose record was changed, or would be."""
    refused: list[int] = field(default_factory=list)
    """Ledgers that were left alone: one of their ensembles names both ids."""


def renamed(record: LedgerMetadata, old: BookieId, new: BookieId) -> LedgerMetadata:
    """The record with the new id in the place of the old one."""
    for first, ensemble in record.ensembles.items():
        if old in ensemble:
            record = record.with_ensemble(first, [new if bookie == old else bookie for bookie in ensemble])
    return record


def clashes(record: LedgerMetadata, old: BookieId, new: BookieId) -> bool:
    """Whether one ensemble names both."""
    return any(old in ensemble and new in ensemble for ensemble in record.ensembles.values())


class Renaming:
    """One id for another, in all records or in the first ones that are looked at."""

    def __init__(
        self, driver: MetadataDriver, old: BookieId, new: BookieId, *, pace: RateLimit, at_once: int, dry_run: bool
    ) -> None:
        """`pace`: records that are changed in a second. `at_once`: records that are read side by side. `dry_run`:
        change nothing, and count what would be changed."""
        self._driver = driver
        self._old = old
        self._new = new
        self._pace = pace
        self._at_once = at_once
        self._dry_run = dry_run
        self.report = Renamed()

    async def run(self, limit: int | None, said: Callable[[Renamed], None]) -> Renamed:
        """Go through the ledgers, or the first `limit` of them; `said` is told after each. Raises `MetadataError`."""
        async with aclosing(batches(self._driver.ledgers, self._at_once)) as found:
            async for ledgers in found:
                left = len(ledgers) if limit is None else limit - self.report.issued
                for outcome in await asyncio.gather(*map(self._one, ledgers[:left]), return_exceptions=True):
                    if outcome is not None:
                        raise outcome
                    said(self.report)
                if limit is not None and self.report.issued >= limit:
                    break
        return self.report

    async def _one(self, ledger_id: int) -> None:
        self.report.issued += 1
        try:
            found = await self._driver.ledgers.read(ledger_id)
            if self._old not in bookies_of(found.value):
                return
            if clashes(found.value, self._old, self._new):
                self.report.refused.append(ledger_id)
                return
            if not self._dry_run:
                await self._pace.take(1)
                await update_ledger(self._driver.ledgers, ledger_id, found, self._named, self._renamed)
            self.report.updated += 1
        except NoSuchLedger:
            return

    def _named(self, record: LedgerMetadata) -> bool:
        return self._old in bookies_of(record) and not clashes(record, self._old, self._new)

    def _renamed(self, record: LedgerMetadata) -> LedgerMetadata:
        return renamed(record, self._old, self._new)
