"""Goes through all entries on the disks of a bookie, again and again, and has the damaged ones mended.

A run goes through the ledgers that are here, by id, and through each a part at a time, on the threads that read entries
for clients: a part is short, and reads that came before it are served before it. The rate is `localScrubRateLimit`.
The next run begins `localScrubInterval` seconds after the last one has ended, give or take half of it, so that the
bookies of a cluster do not scrub together.

An index that cannot be read is said and counted; it does not end the bookie, as it does in Java: what can be read of
the ledger is served, and the next start looks at the index as a whole.
"""

from __future__ import annotations

import asyncio
import logging

from ...config import ServerConfiguration
from ...errors import CorruptStorageError, MetadataError, NoSuchLedger
from ...metadata.ledger_metadata import LedgerMetadata
from ...runtime import Runtime
from ...runtime.waiting.rate_limit import RateLimit
from ..storage.examine import Damage
from .judging import belongs, ids_only, judge_of
from .mender import Home, Mender

log = logging.getLogger(__name__)

PART = 256
"""Entries that are looked at together, at most."""


def wanted(config: ServerConfiguration) -> bool:
    """Whether the settings ask for any run."""
    return config.localScrubInterval > 0 or config.localConsistencyCheckOnStartup


class Scrubber:
    """See the module."""

    def __init__(self, runtime: Runtime, config: ServerConfiguration, home: Home, mender: Mender) -> None:
        self._runtime = runtime
        self._config = config
        self._home = home
        self._mender = mender
        rate = config.localScrubRateLimit
        self._rate = RateLimit(runtime, rate)
        self._part = min(PART, max(1, int(rate))) if rate > 0 else PART

    async def run(self) -> None:
        """Runs until it is cancelled, or once if there is no interval. Begins at once if the settings say so."""
        interval = self._config.localScrubInterval
        if not self._config.localConsistencyCheckOnStartup:
            await self._pause(interval)
        while True:
            with self._home.stats.runTime.timed(self._runtime.now):
                await self.once()
            if interval <= 0:
                return
            await self._pause(interval)

    async def _pause(self, interval: float) -> None:
        await asyncio.sleep(interval * self._runtime.random("scrubber").uniform(0.5, 1.5))

    async def once(self) -> None:
        """One run over everything that is here."""
        stats = self._home.stats
        found = stats.detectedScrubErrors
        looked_at = 0
        for ledger_id in self._home.storage.ledgers():
            try:
                looked_at += await self._ledger(ledger_id)
            except (CorruptStorageError, OSError) as error:
                stats.detectedFatalScrubErrors += 1
                log.error("the index of ledger %d cannot be read: %s", ledger_id, error)
        level = logging.WARNING if stats.detectedScrubErrors > found else logging.INFO
        log.log(level, "scrubbed %d entries, %d are damaged", looked_at, stats.detectedScrubErrors - found)

    async def _ledger(self, ledger_id: int) -> int:
        """How many entries it has. Raises `CorruptStorageError`, `OSError` if its index cannot be read."""
        metadata: LedgerMetadata | None = None
        try:
            metadata = (await self._home.store.read(ledger_id)).value
        except NoSuchLedger:
            return 0  # it is deleted; garbage collection takes it
        except MetadataError as error:
            log.info("digests of ledger %d are not looked at, for want of its metadata: %s", ledger_id, error)
        judge = ids_only if metadata is None else judge_of(metadata)
        looked_at = 0
        after: int | None = 0
        while after is not None:
            part = await self._home.storage.examine(ledger_id, after, self._part, judge)
            for damage in part.damage:
                if metadata is None or belongs(metadata, self._home.bookie_id, damage.entry_id):
                    await self._found(ledger_id, damage)
            looked_at += part.entries
            after = part.after
            await self._rate.take(part.entries)
        return looked_at

    async def _found(self, ledger_id: int, damage: Damage) -> None:
        self._home.stats.detectedScrubErrors += 1
        log.warning("entry %d of ledger %d is damaged: %s", damage.entry_id, ledger_id, damage.what)
        await self._mender.report_in_turn(ledger_id, damage.entry_id)
