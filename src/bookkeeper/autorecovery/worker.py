"""The replication worker: takes marked ledgers and makes them whole (spec autorecovery-admin §4).

Theory of operation

A worker locks a marked ledger, looks which of its fragments are not whole, repairs those (`repair`), looks again, and
takes the mark away if nothing is missing any more. The store takes it away only if nobody marked the ledger anew since
it was locked.

- *Several at once.* A small ledger costs mostly round trips to the metadata store, one after the other; so
  `rwLedgersAtOnce` ledgers are under way together. They are taken one after the other, and share the throttles.
- *Placement.* With `repairedPlacementPolicyNotAdheringBookieEnabled`, a closed ledger that lies where the placement
  policy does not want it is moved as well, once nothing else is missing of it or as far as that can be copied.
- *Open ledgers.* What is still being written is not repaired: its writer replaces a lost bookie by itself, with the
  next entry. The lock is kept for `openLedgerRereplicationGracePeriod`; if the end of the ledger is still at risk then,
  it is recovered, which fences the writer off and closes the ledger. Its mark stays, and whoever takes it next
  finds a closed ledger.
- *Ledgers that cannot be repaired now.* The lock is kept for a while that doubles with every failure up to
  `lockReleaseOfFailedLedgerGracePeriod`, so that workers do not take turns with a hopeless ledger.
- *A lost lock* ends the work on its ledger at once: another worker may have it.

Locks that are kept hold up no other ledger; no ledger is taken while there are `MOST_KEPT` of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..client.client import BookKeeper
from ..config import ServerConfiguration
from ..errors import BKError, BookKeeperError, MetadataError, NoSuchLedgerOnMetadataError
from ..metadata.api import LedgerLock, MetadataDriver, Versioned
from ..metadata.ledger_metadata import LedgerMetadata
from ..runtime import Runtime, TaskScope
from ..runtime.tasks import guarded
from .fragments import open_end_at_risk
from .repair import Repair

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST_KEPT = 2000
"""Locks of ledgers that wait, and failures that are remembered."""

FIRST_WAIT_SHARE = 32
"""The lock of a ledger that failed once is kept for one part in so many of the longest wait."""


class LockLostError(BookKeeperError):
    """The lock of a ledger was lost while it was being repaired."""


async def while_held(tasks: TaskScope, lock: LedgerLock, work: Coroutine[Any, Any, T]) -> T:
    """Work on a ledger until it is done or the lock is lost, which raises `LockLostError`."""
    working = tasks.spawn(work, name=f"ledger {lock.ledger_id}")
    lost = tasks.spawn(lock.lost.wait(), name="lock")
    try:
        await asyncio.wait([working, lost], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise LockLostError(f"ledger {lock.ledger_id}: its lock was lost")
        return working.result()
    finally:
        for task in (working, lost):
            task.cancel()
        await asyncio.wait([working, lost])


class ReplicationWorker:
    """Repairs ledgers, a few at a time."""

    def __init__(
        self,
        runtime: Runtime,
        config: ServerConfiguration,
        driver: MetadataDriver,
        client: BookKeeper,
        repair: Repair,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._driver = driver
        self._client = client
        self._repair = repair
        self._tasks = TaskScope(runtime, "replication worker", lambda *_: None)  # who waits for a task has its error
        self._taking = asyncio.Lock()  # one looks for marks: all see the same
        self._kept: dict[int, LedgerLock] = {}
        self._fewer_kept = asyncio.Event()
        self._failures: OrderedDict[int, int] = OrderedDict()  # ledger -> how often it could not be repaired

    @property
    def kept(self) -> int:
        """Locks of ledgers that wait."""
        return len(self._kept)

    async def run(self) -> None:
        """Repair what is marked, until cancelled."""
        try:
            at_once = range(self._config.rwLedgersAtOnce)
            await asyncio.gather(*(self._tasks.spawn(self._one_after_the_other(), name="worker") for _ in at_once))
        finally:
            await self._tasks.close()

    async def _one_after_the_other(self) -> None:
        while True:
            done = False
            with guarded("replication worker"):
                try:
                    done = await self.next()
                except (MetadataError, BKError, LockLostError) as error:
                    log.warning("re-replication: %s; going on in a moment", error)
            if not done:
                await asyncio.sleep(self._config.rwRereplicateBackoffMs / 1000)

    async def _take(self) -> LedgerLock:
        """Wait for a marked ledger, and lock it. Raises `MetadataError`."""
        async with self._taking:
            while len(self._kept) >= MOST_KEPT:
                self._fewer_kept.clear()
                await self._fewer_kept.wait()
            return await self._driver.underreplication.get()

    async def next(self) -> bool:
        """Wait for a marked ledger and repair it; whether it is whole now.

        Raises `MetadataError`, `BKError`, `LockLostError`.
        """
        lock = await self._take()
        stats, started = self._repair.stats, self._runtime.now()
        whole = False
        try:
            whole = await while_held(self._tasks, lock, self._rereplicate(lock))
            return whole
        except BookKeeperError as error:
            stats.exceptions[type(error).__name__] += 1
            raise
        finally:
            (stats.rereplicate.ok if whole else stats.rereplicate.fail)(self._runtime.now() - started)
            if self._kept.get(lock.ledger_id) is not lock:
                await lock.release()

    async def _rereplicate(self, lock: LedgerLock) -> bool:
        ledger_id = lock.ledger_id
        try:
            metadata, last_confirmed = await self._look(ledger_id)
        except NoSuchLedgerOnMetadataError:
            await lock.mark_replicated()
            return True
        percentage = self._config.auditorLedgerVerificationPercentage
        damages = await self._repair.damages(metadata.value, last_confirmed, percentage)
        if damages:
            await self._repair.repair(metadata, damages)
        if await self._unsettled(metadata.value, last_confirmed, [damage.fragment.settled for damage in damages]):
            self._keep(lock, self._config.openLedgerRereplicationGracePeriod / 1000, self._end_if_at_risk(lock))
            return False
        if not await self._whole(ledger_id):
            self._repair.stats.NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER += 1
            self._keep(lock, self._wait_after_failure(ledger_id), None)
            return False
        self._failures.pop(ledger_id, None)
        await lock.mark_replicated()
        return True

    async def _whole(self, ledger_id: int) -> bool:
        """Whether nothing is missing any more, and the ledger lies where it should; it is moved if it does not."""
        metadata, last_confirmed = await self._look(ledger_id)
        if self._config.repairedPlacementPolicyNotAdheringBookieEnabled and metadata.value.closed:
            if not await self._repair.adhere(metadata):
                return False
            metadata, last_confirmed = await self._look(ledger_id)
        percentage = self._config.auditorLedgerVerificationPercentage
        return not await self._repair.damages(metadata.value, last_confirmed, percentage)

    async def _look(self, ledger_id: int) -> tuple[Versioned[LedgerMetadata], int]:
        """The record, and the last entry known to be confirmed. Disturbs nobody."""
        metadata = await self._client.get_versioned_metadata(ledger_id)
        if metadata.value.closed:
            return metadata, metadata.value.last_entry_id
        async with self._client.open_ledger_as_admin(ledger_id) as reader:
            return await self._client.get_versioned_metadata(ledger_id), reader.last_add_confirmed

    async def _unsettled(self, metadata: LedgerMetadata, last_confirmed: int, settled: list[bool]) -> bool:
        """Whether something is missing that only the ledger's writer, or its recovery, can bring back."""
        if not all(settled):
            return True
        return open_end_at_risk(metadata, last_confirmed, await self._repair.standing.writable())

    # --- locks that are kept ---

    def _wait_after_failure(self, ledger_id: int) -> float:
        """Seconds for which the lock of a ledger is kept that could not be repaired."""
        failures = self._failures.pop(ledger_id, 0)
        self._failures[ledger_id] = failures + 1
        while len(self._failures) > MOST_KEPT:
            self._failures.popitem(last=False)
        longest = self._config.lockReleaseOfFailedLedgerGracePeriod
        return float(min(longest, longest // FIRST_WAIT_SHARE << min(failures, 5))) / 1000

    def _keep(self, lock: LedgerLock, seconds: float, then: Coroutine[Any, Any, None] | None) -> None:
        """Keep a lock for so long, do what is to be done then, and release it."""
        self._kept[lock.ledger_id] = lock
        self._tasks.spawn(self._hold(lock, seconds, then), name=f"kept lock of ledger {lock.ledger_id}")

    async def _hold(self, lock: LedgerLock, seconds: float, then: Coroutine[Any, Any, None] | None) -> None:
        """A lock that is lost is let go at once: its ledger may come to this worker again, with a new one."""
        with guarded("a ledger that waited"):
            try:
                await while_held(self._tasks, lock, asyncio.sleep(seconds))
                if then is not None:
                    await while_held(self._tasks, lock, then)
            except (MetadataError, BKError, LockLostError) as error:
                log.warning("re-replication: ledger %d, which waited: %s", lock.ledger_id, error)
            finally:
                if then is not None:
                    then.close()
                if self._kept.get(lock.ledger_id) is lock:
                    del self._kept[lock.ledger_id]
                self._fewer_kept.set()
                await lock.release()

    async def _end_if_at_risk(self, lock: LedgerLock) -> None:
        """Recover a ledger whose end is still on bookies that are gone. Its writer has had its time."""
        metadata, last_confirmed = await self._look(lock.ledger_id)
        if metadata.value.closed:
            return
        percentage = self._config.auditorLedgerVerificationPercentage
        damages = await self._repair.damages(metadata.value, last_confirmed, percentage)
        if await self._unsettled(metadata.value, last_confirmed, [damage.fragment.settled for damage in damages]):
            log.info("ledger %d: its end is on bookies that are gone: it is recovered and closed", lock.ledger_id)
            async with self._client.open_ledger_as_admin(lock.ledger_id, recover=True):
                pass
