"""Repair by hand: draining bookies, and waiting until one is drained (spec autorecovery-admin §7.1, §7.2).

Theory of operation

`recover` gives every fragment that names one of the source bookies others in their place, whether these run or not: a
bookie that runs is drained, and its copies are as good a source as any. No marks are looked at and no locks taken.
Beside autorecovery both may copy the same; the records are changed by compare-and-set, so nothing worse comes of it.
A ledger that is being written and has a source in its current ensemble is recovered first, which fences its writer off.

`decommission` leaves the work to autorecovery: it asks for an audit, and waits until no ledger stores entries on the
bookie any more. Then the bookie's cookie may go.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass, field

from ..client.client import BookKeeper
from ..errors import (
    BKError,
    BookKeeperError,
    CorruptMetadata,
    IllegalOpError,
    MetadataError,
    NoSuchLedgerOnMetadataError,
)
from ..metadata.api import MetadataDriver, Versioned
from ..metadata.ledger_metadata import LedgerMetadata
from ..metadata.walking import records
from ..types import BookieId, LedgerState
from .checker import Damage
from .fragments import bookies_of, fragments_of
from .repair import Repair

FIRST_WAIT_SECONDS = 3.0
"""Between two looks at a bookie that is being drained, for each ledger that is left, and"""
LONGEST_WAIT_SECONDS = 300.0
"""at most."""


@dataclass(frozen=True, slots=True)
class Move:
    """What happens, or would happen, to one fragment."""

    first: int
    last: int
    old: tuple[BookieId, ...]
    new: tuple[BookieId, ...] | None
    """None: there are not enough bookies."""
    copies: int = 0
    """Written."""
    bytes: int = 0
    """Of them, as they are stored."""


@dataclass(slots=True)
class LedgerOutcome:
    """What happened, or would happen, to one ledger."""

    ledger_id: int
    fenced: bool = False
    """It had to be recovered first."""
    moves: list[Move] = field(default_factory=list)
    error: str = ""


async def ledgers_of(driver: MetadataDriver, sources: Collection[BookieId]) -> AsyncGenerator[LedgerMetadata, None]:
    """The ledgers that name one of these bookies, by id. Raises `MetadataError`."""
    async with aclosing(records(driver.ledgers)) as found:
        async for _, record in found:
            if isinstance(record, CorruptMetadata):
                raise record
            if bookies_of(record).intersection(sources):
                yield record


class Recovery:
    """Gives ledgers others in the place of the source bookies."""

    def __init__(
        self, client: BookKeeper, repair: Repair, sources: Collection[BookieId], *, skip_open: bool, dry_run: bool
    ) -> None:
        """`skip_open`: leave ledgers alone that are open. `dry_run`: change nothing, and say what would be done."""
        self._client = client
        self._repair = repair
        self._sources = frozenset(sources)
        self._skip_open = skip_open
        self._dry_run = dry_run

    async def recover(self, ledger_id: int) -> LedgerOutcome | None:
        """One ledger; None if nothing of it is concerned. What goes wrong is in the outcome. Raises `MetadataError`."""
        outcome = LedgerOutcome(ledger_id)
        try:
            metadata, last_confirmed = await self._look(ledger_id)
            record = metadata.value
            if record.state is LedgerState.OPEN and self._skip_open:
                return None
            if not bookies_of(record) & self._sources:
                return None
            if not record.closed and self._sources.intersection(record.last_ensemble[1]):
                outcome.fenced = True
                if not self._dry_run:
                    async with self._client.open_ledger_as_admin(ledger_id, recover=True):
                        metadata, last_confirmed = await self._look(ledger_id)
            await self._move_all(metadata, last_confirmed, outcome)
        except NoSuchLedgerOnMetadataError:
            return None
        except BKError as error:
            outcome.error = str(error)
        return outcome

    async def _look(self, ledger_id: int) -> tuple[Versioned[LedgerMetadata], int]:
        async with self._client.open_ledger_as_admin(ledger_id) as reader:
            return await self._client.get_versioned_metadata(ledger_id), reader.last_add_confirmed

    async def _move_all(self, metadata: Versioned[LedgerMetadata], last_confirmed: int, outcome: LedgerOutcome) -> None:
        for fragment in fragments_of(metadata.value, last_confirmed):
            bad = frozenset(index for index, bookie in enumerate(fragment.ensemble) if bookie in self._sources)
            if not bad:
                continue
            damage = Damage(fragment, bad)
            stats = self._repair.stats
            copies, size = stats.NUM_ENTRIES_WRITTEN, stats.NUM_BYTES_WRITTEN.total
            new = None
            try:
                if self._dry_run:
                    chosen = self._repair.targets(metadata.value, damage, self._sources)
                    new = tuple(chosen.get(index, bookie) for index, bookie in enumerate(fragment.ensemble))
                elif not fragment.settled:
                    outcome.error = f"the fragment at entry {fragment.first} is still being written"
                else:
                    metadata = await self._repair.repair_fragment(metadata, damage, sorted(self._sources))
                    new = metadata.value.ensembles[fragment.first]
            except BookKeeperError as error:
                if isinstance(error, MetadataError):
                    raise
                outcome.error = outcome.error or str(error)
            copies, size = stats.NUM_ENTRIES_WRITTEN - copies, stats.NUM_BYTES_WRITTEN.total - size
            outcome.moves.append(Move(fragment.first, fragment.last, fragment.ensemble, new, copies, size))


def stores_entries(metadata: LedgerMetadata, bookie: BookieId) -> bool:
    """Whether the bookie has, or may yet get, entries of the ledger."""
    for fragment in fragments_of(metadata, metadata.last_entry_id):
        for index, member in enumerate(fragment.ensemble):
            if member == bookie and (fragment.ends(index) is not None or not _ended(metadata, fragment.first)):
                return True
    return False


def _ended(metadata: LedgerMetadata, first: int) -> bool:
    return metadata.closed or first < metadata.last_ensemble[0]


async def trigger_audit(driver: MetadataDriver) -> None:
    """Ask the auditor for an audit now. Raises `IllegalOpError` if there is none to ask, `MetadataError`."""
    marks = driver.underreplication
    if not await marks.is_enabled():
        raise IllegalOpError("Autorecovery is disabled. So giving up!")
    if await driver.auditor.current() is None:
        raise IllegalOpError("No auditor elected, though Autorecovery is enabled. So giving up.")
    await marks.set_lost_bookie_recovery_delay(await marks.get_lost_bookie_recovery_delay())


async def decommission(
    driver: MetadataDriver, repair: Repair, bookie: BookieId, waits: Callable[[int, float], None]
) -> None:
    """Have autorecovery make up for a bookie that is stopped for good; returns when no ledger needs it.

    `waits(ledgers, seconds)` is called before each wait. Raises `IllegalOpError` while the bookie runs, or if there is
    no auditor; `MetadataError`.
    """
    if bookie in await repair.available():
        raise IllegalOpError(f"Bookie: {bookie} is not shutdown yet: stop it first")
    await trigger_audit(driver)
    while left := await _left(driver, bookie):
        seconds = min(FIRST_WAIT_SECONDS * left, LONGEST_WAIT_SECONDS)
        waits(left, seconds)
        await asyncio.sleep(seconds)


async def _left(driver: MetadataDriver, bookie: BookieId) -> int:
    """Ledgers that store entries on it, or are marked because of it."""
    marked = {mark.ledger_id async for mark in driver.underreplication.list(lambda replicas: bookie in replicas)}
    async with aclosing(ledgers_of(driver, [bookie])) as ledgers:
        marked |= {metadata.ledger_id async for metadata in ledgers if stores_entries(metadata, bookie)}
    return len(marked)
