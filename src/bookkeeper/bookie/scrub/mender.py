"""Mends damaged entries with other bookies' copies. The room's theory says in which order, and why that is safe.

A task works while something waits. It goes through all that waits in rounds, each with a client of its own that is
connected for so long; the pauses between rounds grow while nothing is mended. While the bookie is read-only, for a full
disk above all, it only waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...config import ServerConfiguration
from ...errors import BookKeeperError, FatalBookieError, NoSuchLedger, RejectedError
from ...metadata.api import LedgerStore
from ...metadata.ledger_metadata import LedgerMetadata
from ...runtime import Runtime, TaskScope
from ...runtime.waiting.backoff import Backoff, Pauses
from ...runtime.waiting.rate_limit import RateLimit
from ...types import BookieId
from ..integrity.peers import OpenPeers, Peers
from ..sharing.log_rate import LogRate
from ..stats import ScrubStats
from ..storage.api import LedgerStorage
from .judging import belongs, judge_of
from .queue import RepairQueue

log = logging.getLogger(__name__)
log.addFilter(LogRate())

BACKOFF = Backoff(1.0, 60.0)
"""Seconds between two rounds."""

COPIES = 16
"""Entries of one ledger that are fetched at once."""

ROOM_SECONDS = 60.0
"""How long a copy waits for room in the storage."""


class Home(NamedTuple):
    """Where damage is looked for and mended."""

    bookie_id: BookieId
    storage: LedgerStorage
    store: LedgerStore
    may_write: Callable[[], bool]
    """Whether the bookie is not read-only."""
    stats: ScrubStats


class Mender:
    """See the module. Its task belongs to `scope`."""

    def __init__(
        self,
        runtime: Runtime,
        config: ServerConfiguration,
        home: Home,
        open_peers: OpenPeers | None,
        scope: TaskScope,
    ) -> None:
        """`open_peers`: None if there is no way to other bookies; then damage is only reported."""
        self._runtime = runtime
        self._config = config
        self._home = home
        self._open_peers = open_peers
        self._scope = scope
        self._queue = RepairQueue(0 if open_peers is None else config.localRepairQueueSize)
        self._rate = RateLimit(runtime, config.dataIntegrityRateByBytes)
        self._work: asyncio.Task[None] | None = None
        self._round_over = asyncio.Event()

    # --- what waits ---

    @property
    def mends(self) -> bool:
        """Whether anything is mended at all."""
        return self._open_peers is not None and self._config.localRepairQueueSize > 0

    def report(self, ledger_id: int, entry_id: int) -> None:
        """An entry is damaged here. Left out if too many are: it will be found again."""
        if not self.mends or self._scope.closed:
            return
        if not self._queue.add(ledger_id, entry_id):
            self._home.stats.repairsLeftOut += 1
        elif self._work is None or self._work.done():
            self._work = self._scope.spawn(self._until_empty(), name="mending")

    async def report_in_turn(self, ledger_id: int, entry_id: int) -> None:
        """The same, waiting for room if too many are."""
        while self.mends and self._queue.full:
            self._round_over.clear()
            await self._round_over.wait()
        self.report(ledger_id, entry_id)

    # --- rounds ---

    async def _until_empty(self) -> None:
        """Mend what waits until nothing does. Raises `FatalBookieError`."""
        pauses = Pauses(BACKOFF)
        while self._queue:
            mended = self._home.stats.entriesRepaired
            if self._home.may_write():
                await self._round()
                self._round_over.set()
            if self._home.stats.entriesRepaired > mended:
                pauses.reset()
            if self._queue:
                await asyncio.sleep(pauses.next())

    async def _round(self) -> None:
        """Try each entry that waits once."""
        assert self._open_peers is not None
        waiting = self._queue.by_ledger()
        try:
            async with self._open_peers(self._runtime, self._config, self._home.bookie_id) as peers:
                while waiting:
                    await self._mend_ledger(peers, *waiting[-1])
                    waiting.pop()
        except FatalBookieError:
            raise
        except (BookKeeperError, OSError) as error:  # the store, the client, or no space: all that is left has to wait
            self._give_back(waiting, error)

    def _give_back(self, waiting: Sequence[tuple[int, Sequence[int]]], error: Exception) -> None:
        for ledger_id, entry_ids in waiting:
            for entry_id in entry_ids:
                self._failed(ledger_id, entry_id, error)

    def _failed(self, ledger_id: int, entry_id: int, error: BaseException) -> None:
        if self._queue.failed(ledger_id, entry_id):
            self._home.stats.entriesNotRepaired += 1
            log.error("entry %d of ledger %d is damaged here, and cannot be mended: %s", entry_id, ledger_id, error)

    # --- one ledger ---

    async def _mend_ledger(self, peers: Peers, ledger_id: int, entry_ids: Sequence[int]) -> None:
        """Try each of these once; what was written is durable at return.

        Raises `MetadataError`, `OSError` if there is no space, `FatalBookieError`.
        """
        try:
            metadata = (await self._home.store.read(ledger_id)).value
        except NoSuchLedger:  # garbage collection takes what is here
            for entry_id in entry_ids:
                self._queue.done(ledger_id, entry_id)
            return
        for start in range(0, len(entry_ids), COPIES):
            together = entry_ids[start : start + COPIES]
            results = await asyncio.gather(
                *(self._mend(peers, metadata, entry_id) for entry_id in together), return_exceptions=True
            )
            if any(result is True for result in results):
                await self._home.storage.flush()
            for entry_id, result in zip(together, results, strict=True):
                self._settle(ledger_id, entry_id, result)

    def _settle(self, ledger_id: int, entry_id: int, result: bool | BaseException) -> None:
        if isinstance(result, BookKeeperError | OSError) and not isinstance(result, FatalBookieError):
            self._failed(ledger_id, entry_id, result)
        elif isinstance(result, BaseException):
            raise result
        else:
            self._queue.done(ledger_id, entry_id)
            if result:
                self._home.stats.entriesRepaired += 1
                log.warning("entry %d of ledger %d was damaged here, and is mended", entry_id, ledger_id)

    async def _mend(self, peers: Peers, metadata: LedgerMetadata, entry_id: int) -> bool:
        """Write a good copy of an entry, if that is needed; whether it was. Raises `BookKeeperError`, `OSError`."""
        ledger_id, storage = metadata.ledger_id, self._home.storage
        if not belongs(metadata, self._home.bookie_id, entry_id):
            return False
        judge = judge_of(metadata)
        found = await storage.examine(ledger_id, entry_id, 1, judge)
        if all(damage.entry_id != entry_id for damage in found.damage):
            return False
        entry = await peers.fetch(metadata, entry_id)
        if (flaw := judge(entry_id, entry)) is not None:
            raise RejectedError(f"the copy that was fetched is not good: {flaw}")
        await self._rate.take(len(entry))
        if not await storage.wait_for_room(ledger_id, len(entry), 1, ROOM_SECONDS):
            raise RejectedError("there is no room to write it again")
        if not storage.ledger_exists(ledger_id):
            return False
        storage.add_entry(ledger_id, entry_id, entry)
        return True
