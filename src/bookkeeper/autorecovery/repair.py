"""Making one ledger whole: what is missing is copied, then the record is changed (spec autorecovery-admin §4.3, §5.3).

Theory of operation

- A fragment is repaired in three steps: choose a bookie for each index that is bad, copy what it must hold to it
  (`copy`), and only when that is acknowledged write the new ensemble into the record (`moves.moved`).
- Fragments to which something may still be added are left alone: see `worker`.
- A fragment that cannot be repaired does not keep the others from it.
- Where it is known which entries a bookie lacks or has damaged, and it runs, those are written to it again (`mend`).
- A fragment that lacks nothing, but does not lie where the placement policy wants it, is moved in the same steps.
- Nothing here takes a lock. Two who repair one ledger at once waste work and break nothing: the record is changed by
  compare-and-set, and only while the fragment is what it was when its copies were planned.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ..client.context import ClientContext
from ..client.reads.replicas import Replicas
from ..errors import BookKeeperError, IncorrectParameterError, MetadataError, NotEnoughBookiesError
from ..metadata.api import MetadataDriver, Mode, Versioned
from ..metadata.ledger_metadata import LedgerMetadata
from ..metadata.update import update_ledger
from ..protocol.digest import master_key
from ..types import BookieId
from .checker import Damage, LedgerChecker, digest_of
from .copying.copy import Copier
from .copying.pace import Pace
from .fragments import Fragment
from .moves import Choose, differences, is_moved, misplaced, moved, possible_targets, targets
from .stats import WorkerStats

log = logging.getLogger(__name__)


MOMENT_SECONDS = 1.0
"""How old that may be."""


class Standing:
    """Which bookies are there, for workers that ask for every ledger: what was seen a moment ago is good enough.

    A bookie that has gone since does not answer, and one that has come back holds what it held. Who decides about lost
    bookies, as the auditor does, asks the store.
    """

    def __init__(self, driver: MetadataDriver, context: ClientContext) -> None:
        self._driver = driver
        self._context = context
        self._seen_at = float("-inf")
        self._writable: frozenset[BookieId] = frozenset()
        self._read_only: frozenset[BookieId] = frozenset()

    async def writable(self) -> frozenset[BookieId]:
        """Raises `MetadataError`."""
        await self._look()
        return self._writable

    async def available(self) -> frozenset[BookieId]:
        """For writes, or for reads only. Raises `MetadataError`."""
        await self._look()
        return self._writable | self._read_only

    async def _look(self) -> None:
        """The placement policy looks, too."""
        now = self._context.runtime.now()
        if now - self._seen_at < MOMENT_SECONDS:
            return
        await self._context.placement.refresh()
        self._writable = (await self._driver.discovery.list(Mode.WRITABLE)).value
        self._read_only = (await self._driver.discovery.list(Mode.READ_ONLY)).value
        self._seen_at = now


class Repair:
    """Makes ledgers whole."""

    def __init__(
        self,
        driver: MetadataDriver,
        context: ClientContext,
        checker: LedgerChecker,
        *,
        pace: Pace,
        first_stretch: int,
    ) -> None:
        self._driver = driver
        self._context = context
        self._checker = checker
        self._pace = pace
        self._first_stretch = first_stretch
        self.standing = Standing(driver, context)
        self.stats = WorkerStats()

    async def available(self) -> frozenset[BookieId]:
        """The bookies that are registered now, for writes or for reads only. Raises `MetadataError`."""
        writable = await self._driver.discovery.list(Mode.WRITABLE)
        read_only = await self._driver.discovery.list(Mode.READ_ONLY)
        return writable.value | read_only.value

    async def damages(self, metadata: LedgerMetadata, last_confirmed: int, percentage: int) -> list[Damage]:
        """The fragments of a ledger that are not whole. Raises `MetadataError`."""
        return await self._checker.check(metadata, last_confirmed, await self.standing.available(), percentage)

    async def repair(self, metadata: Versioned[LedgerMetadata], damages: Sequence[Damage]) -> int:
        """Repair those of these fragments that are settled; returns how many were. Others are logged."""
        repaired = 0
        writable = await self.standing.writable()
        for damage in damages:
            if not damage.fragment.settled:
                continue
            try:
                chosen = possible_targets(damage.fragment, damage.bad, self._choice(metadata.value), writable)
                metadata = await self._move(metadata, damage.fragment, chosen, damage.bookies)
                repaired += 1
            except BookKeeperError as error:
                self._failed(damage.fragment, error)
        self.stats.NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED += bool(repaired)
        return repaired

    def _failed(self, fragment: Fragment, error: BookKeeperError) -> None:
        """A fragment could not be repaired. Raises the error again if it is the store that fails."""
        if isinstance(error, MetadataError):
            raise error
        self.stats.fragments_failed += 1
        self.stats.exceptions[type(error).__name__] += 1
        log.warning(
            *("ledger %d: its fragment at entry %d cannot be repaired now: %s", fragment.ledger_id),
            *(fragment.first, error),
        )

    async def adhere(self, metadata: Versioned[LedgerMetadata]) -> bool:
        """Move the fragments of a closed ledger that do not lie as the placement policy wants, where there are bookies
        for that; False if one that could be moved was not. Raises `MetadataError`."""
        placement = self._context.placement
        await self.standing.writable()
        found = misplaced(metadata.value, placement.adherence)
        failed = done = 0
        for fragment in found:
            try:
                ensemble = placement.replace_to_adhere(fragment.quorums, fragment.ensemble)
            except (NotEnoughBookiesError, IncorrectParameterError) as error:
                log.info("ledger %d cannot be placed better now: %s", fragment.ledger_id, error)
                continue
            try:
                metadata = await self._move(metadata, fragment, differences(fragment, ensemble))
                done += 1
            except BookKeeperError as error:
                self._failed(fragment, error)
                failed += 1
        self.stats.NUM_NOT_ADHERING_PLACEMENT_LEDGERS_REPLICATED += bool(done)
        return not failed

    def targets(
        self, record: LedgerMetadata, damage: Damage, excluded: Collection[BookieId] = ()
    ) -> dict[int, BookieId]:
        """A bookie for each bad index, none of `excluded`. Raises `NotEnoughBookiesError`."""
        return targets(damage.fragment, damage.bad, self._choice(record, excluded))

    def _choice(self, record: LedgerMetadata, excluded: Collection[BookieId] = ()) -> Choose:
        """By the placement policy."""

        def choose(ensemble: Sequence[BookieId], index: int, others: Sequence[BookieId]) -> BookieId:
            return self._context.placement.replace(
                record.quorums, record.custom_metadata, ensemble, index, [*others, *excluded]
            )

        return choose

    async def repair_fragment(
        self, metadata: Versioned[LedgerMetadata], damage: Damage, excluded: Sequence[BookieId] = ()
    ) -> Versioned[LedgerMetadata]:
        """Give each bad index of a settled fragment another bookie, none of `excluded`; returns the new record.

        Raises `NotEnoughBookiesError`, `ReadError` if an entry is nowhere, `SupersededError` if somebody else changed
        the fragment meanwhile, the `BKError` of a bookie that fails, `MetadataError`.
        """
        chosen = self.targets(metadata.value, damage, excluded)
        return await self._move(metadata, damage.fragment, chosen, damage.bookies)

    async def mend(self, record: LedgerMetadata, fragment: Fragment, index: int, first: int, last: int) -> None:
        """Give the bookie at an index of a fragment its copies of entries `first` to `last` again, where it is. They
        must be confirmed. The record stays as it is.

        Raises `ReadError` if no other bookie has one of them, the `BKError` of a bookie that does not take it.
        """
        bookie = fragment.ensemble[index]
        part = replace(fragment, first=max(first, fragment.first), last=min(last, fragment.last))
        await self._copier(record).copy(part, {index: bookie}, [bookie])

    def _copier(self, record: LedgerMetadata) -> Copier:
        replicas = Replicas(self._context, record, digest_of(record))
        key = master_key(record.password or b"")
        return Copier(self._context, replicas, key, self._pace, self._first_stretch, self.stats)

    async def _move(
        self,
        metadata: Versioned[LedgerMetadata],
        fragment: Fragment,
        chosen: Mapping[int, BookieId],
        avoided: Sequence[BookieId] = (),
    ) -> Versioned[LedgerMetadata]:
        """Copy what these indexes of a settled fragment must hold to the bookies chosen for them, then change the
        record; returns that. `avoided` are read from last. Raises as `repair_fragment`."""
        record = metadata.value
        assert fragment.settled
        await self._copier(record).copy(fragment, chosen, avoided)
        changed = await update_ledger(
            self._driver.ledgers,
            fragment.ledger_id,
            metadata,
            lambda now: not is_moved(now, fragment, chosen),
            lambda now: moved(now, fragment, chosen),
        )
        log.info(
            "ledger %d, entries %d to %d: now on %s instead of %s",
            *(fragment.ledger_id, fragment.first, fragment.last),
            *(", ".join(chosen.values()), ", ".join(fragment.ensemble[index] for index in chosen)),
        )
        return changed
