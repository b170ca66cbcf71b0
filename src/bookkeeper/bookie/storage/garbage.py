"""Gives disk space back: deletes ledgers that no longer exist, and logs of only garbage (spec bookie-storage §9).

Theory of operation

One collector serves all directories of a storage. Every `gcWaitTime` it makes a pass:

1. *Ledgers* (`collection.ledgers`): those that the metadata store surely does not have any more are deleted locally.
2. *Logs without a living ledger* are deleted. For each closed log the collector remembers how many bytes it has of
   which ledger, as far as `gcEntryLogMetadataCacheMaxLedgers` lets it.
3. *Compaction*: of logs whose living share is below a threshold the live entries are moved to the current log; then the
   log is deleted. Minor and major compaction differ in threshold and interval. A compaction may take days: steps 1 and
   2 are made again between two logs when `gcWaitTime` has passed.

Whatever stays in doubt stays on disk (BI-13). What the writer counted while it wrote a log is proof: of ledgers that it
did not write there, nothing can be there. What a disk says about a log is not: such a log is only deleted after a pass
over its records found none that the index points at. A log that was never sealed, or cannot be read to its end, may be
shorter than it was: it needs the proof that the index has no pointer into it. If ledgers were deleted, step 2 begins
with a flush, which makes that durable in the index. When that finds no space, which only this collector can give back,
the logs go first that surely have records of deleted ledgers only: whatever the index says of those, no client asks for
them again. Should a crash bring such a ledger back, the next pass deletes it once more.

Failures end the pass, or skip one log; the next pass tries again, whatever the failure was.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...config import ServerConfiguration
from ...errors import BookKeeperError, CorruptStorageError
from ...runtime import Runtime, TaskScope
from ...runtime.waiting.rate_limit import RateLimit
from ..stats import OpStats
from .collection.ledgers import LedgerCollector
from .collection.times import IndexCompaction, LogCompaction
from .db_directory import DbDirectory

log = logging.getLogger(__name__)

BUCKETS = 10
"""Logs are compacted in tenths of their living share, emptiest first."""


@dataclass(slots=True)
class _LogUse:
    """What a closed log holds."""

    total: int
    """Record bytes when it was first looked at."""
    ledgers: dict[int, int] | None
    """Record bytes per ledger that still existed at the last pass; None: to be read from the disk again."""
    counted: bool
    """Whether the writer counted them, in this process; else they were read from the disk."""
    living: int = 0
    """Their sum."""

    def live_share(self, log_size_limit: int | None) -> float:
        """Living bytes of all; with a limit given, of a log of that size at least (`useTargetEntryLogSizeForGc`)."""
        if self.total == 0:
            return 0.0
        if log_size_limit is not None and self.living < self.total:
            return self.living / max(self.total, log_size_limit)
        return self.living / self.total


class GarbageCollector:
    """Runs garbage collection of one storage in the background."""

    def __init__(
        self,
        runtime: Runtime,
        configuration: ServerConfiguration,
        directories: Sequence[DbDirectory],
        ledgers: LedgerCollector | None,
    ) -> None:
        """`ledgers`: None when there is no metadata store to ask; then no ledger is deleted."""
        self._runtime = runtime
        self._configuration = configuration
        self._directories = directories
        self.ledgers = ledgers
        self._worker = runtime.workers("garbage-collector")
        self._scope = TaskScope(runtime, "garbage-collector")
        self._wanted = asyncio.Event()
        self._forced: tuple[bool, bool] | None = None  # minor, major
        self._reclaimed = runtime.now()
        self._uses: list[dict[int, _LogUse]] = [{} for _ in directories]
        self._kept: list[dict[int, None]] = [{} for _ in directories]  # logs that cannot be read: reported once
        self.passes = OpStats()
        self.deleted_bytes = 0
        """Of records, in logs that were deleted as no ledger in them was left."""
        self.compacted_bytes = 0
        """Of records that were dead, in logs that were compacted away."""
        now = runtime.now()
        self.minor = LogCompaction.minor(configuration, now)
        self.major = LogCompaction.major(configuration, now)
        self.indexes = IndexCompaction(runtime, configuration, directories)
        by_bytes = configuration.isThrottleByBytes
        by_entries = configuration.compactionRateByEntries
        self._by_bytes = by_bytes
        self._rate = RateLimit(
            runtime,
            configuration.compactionRateByBytes
            if by_bytes
            else (configuration.compactionRate if by_entries is None else by_entries),
        )

    # --- control ---

    def start(self) -> None:
        self._scope.spawn(self._run(), name="loop")

    async def close(self) -> None:
        """Stop; a step on a worker that has begun is finished first. Idempotent."""
        await self._scope.close()
        await self._worker.close()

    def force(self, *, minor: bool = True, major: bool = True) -> None:
        """Make a pass now, with these compactions."""
        self._forced = minor, major
        self._wanted.set()

    @property
    def forced(self) -> bool:
        """Whether a forced pass is waiting or running."""
        return self._forced is not None

    def usage(self) -> tuple[int, int, int]:
        """Closed logs, bytes of records in them, and how many of these are of living ledgers."""
        uses = [use for each in self._uses for use in each.values()]
        return len(uses), sum(use.total for use in uses), sum(use.living for use in uses)

    def suspend(self, *, minor: bool, major: bool) -> None:
        """Switch the two compactions off (or on again), as when a disk is nearly full."""
        self.minor.suspended = minor
        self.major.suspended = major

    def compact_indexes(self, paths: Collection[str]) -> None:
        """Make a pass now, and compact the location indexes of these directories with it."""
        self.indexes.want(paths)
        self._wanted.set()

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):  # the usual case: it is time
                await asyncio.wait_for(self._wanted.wait(), self._configuration.gcWaitTime / 1000)
            self._wanted.clear()
            try:
                with self.passes.timed(self._runtime.now):
                    await self.collect()
            except (BookKeeperError, OSError) as error:
                log.warning("garbage collection ended early, the next pass tries again: %s", error)
            except Exception:
                log.exception("garbage collection ended early by a fault of its own, the next pass tries again")

    # --- a pass ---

    async def collect(self) -> None:
        """One pass. Raises `BookKeeperError`, `OSError`."""
        forced = self._forced
        try:
            await self._reclaim()
            await self._compact_logs(forced or (False, False))
            await self.indexes.run(self._worker)
        finally:
            if self._forced is forced:
                self._forced = None

    async def _reclaim(self) -> None:
        """Delete ledgers, and logs without a living one."""
        self._reclaimed = self._runtime.now()
        if self.ledgers is not None:
            await self.ledgers.collect()
        for number, directory in enumerate(self._directories):
            if directory.has_deleted:
                await self._drop_locations(number, directory)
            await self._clean_logs(number, directory)

    async def _drop_locations(self, number: int, directory: DbDirectory) -> None:
        """Have the index forget the deleted ledgers, so that their logs can go."""
        try:
            await directory.flush()
        except OSError as error:
            log.warning("%s: garbage collection begins without a flush: %s", directory.path, error)
            await self._delete_dead_logs(number, directory)
            await directory.flush()

    async def _delete_dead_logs(self, number: int, directory: DbDirectory) -> None:
        """Delete closed logs that have nothing but records of deleted ledgers, though the index may still have them."""
        await self._take_counted(number, directory)
        closed = await directory.closed_logs()
        living = frozenset(directory.index.ledgers)
        for log_id in closed:
            use = self._uses[number].get(log_id)
            try:
                if use is not None and use.counted:
                    dead = living.isdisjoint(use.ledgers or ())
                else:
                    dead = await self._worker.submit(directory.holds_none_of, log_id, living)
            except (CorruptStorageError, OSError) as error:
                log.warning("%s is kept for now: %s", directory.log_path(log_id), error)
                continue
            if dead:
                await self._delete_dead(number, directory, log_id)

    async def _take_counted(self, number: int, directory: DbDirectory) -> None:
        for log_id, sizes in (await directory.sealed_logs()).items():
            self._uses[number][log_id] = _LogUse(sum(sizes.values()), sizes, counted=True)

    async def _clean_logs(self, number: int, directory: DbDirectory) -> None:
        """Bring the uses of all closed logs up to date, delete logs without a living ledger."""
        uses, kept = self._uses[number], self._kept[number]
        await self._take_counted(number, directory)
        closed = await directory.closed_logs()
        for log_id in [log_id for log_id in uses if log_id not in closed]:
            del uses[log_id]
        known = directory.known_ledgers()
        held = sum(len(use.ledgers or ()) for each in self._uses for use in each.values())
        for log_id in closed:
            if log_id in kept:
                continue
            use = uses.get(log_id)
            ledgers = None if use is None else use.ledgers
            if ledgers is None:
                try:
                    sizes = await self._worker.submit(directory.log_sizes, log_id)
                except (CorruptStorageError, OSError) as error:
                    kept[log_id] = None
                    log.error("%s is kept, because it cannot be read: %s", directory.log_path(log_id), error)
                    continue
                total = sum(sizes.values()) if use is None else use.total
                use = uses[log_id] = _LogUse(total, sizes, counted=False)
                ledgers = sizes
                held += len(ledgers)
            assert use is not None
            use.ledgers = {ledger_id: size for ledger_id, size in ledgers.items() if ledger_id in known}
            use.living = sum(use.ledgers.values())
            held += len(use.ledgers) - len(ledgers)
            if not use.ledgers:
                await (self._delete_dead if use.counted else self._prove_and_delete)(number, directory, log_id)
            elif held > self._configuration.gcEntryLogMetadataCacheMaxLedgers:
                held -= len(use.ledgers)
                use.ledgers, use.counted = None, False

    async def _compact_logs(self, forced: tuple[bool, bool]) -> None:
        now = self._runtime.now()
        allow = self._configuration.forceAllowCompaction
        minor, major = forced
        if self.major.due(now, major, allow):
            kind = self.major
        elif self.minor.due(now, minor, allow):
            kind = self.minor
        else:
            return
        log.info("%s compaction begins", kind.name)
        kind.running = True
        try:
            await self._compact_kind(kind, now)
        finally:
            kind.running = False
        kind.last = self._runtime.now()
        kind.count += 1
        kind.ended_ms = self._runtime.wall_ms()
        if kind is self.major:
            self.minor.last = kind.last

    async def _compact_kind(self, kind: LogCompaction, now: float) -> None:
        end = now + kind.max_seconds if kind.max_seconds > 0 else None
        limit = self._configuration.logSizeLimit if self._configuration.useTargetEntryLogSizeForGc else None
        for number, directory in enumerate(self._directories):
            shares = [(use.live_share(limit), log_id) for log_id, use in self._uses[number].items()]
            chosen = sorted((int(share * BUCKETS), log_id) for share, log_id in shares if share < kind.threshold)
            for _, log_id in chosen:
                if self._runtime.now() - self._reclaimed > self._configuration.gcWaitTime / 1000:
                    await self._reclaim()
                if kind.stopped or (end is not None and self._runtime.now() > end):
                    break
                if log_id in self._uses[number]:
                    await self._compact(number, directory, log_id)

    async def _compact(self, number: int, directory: DbDirectory, log_id: int) -> None:
        """Move what lives in a log, then delete it."""
        mover = directory.mover(log_id)
        moved = 0
        try:
            while batch := await self._worker.submit(mover.next_batch):
                await self._rate.take(sum(len(item.entry) for item in batch) if self._by_bytes else len(batch))
                moved += await directory.rewrite(batch)
        except CorruptStorageError as error:
            self._keep(number, directory, log_id, str(error))
            return
        log.info("%s: %d entries moved", directory.log_path(log_id), moved)
        await self._prove_and_delete(number, directory, log_id)

    async def _prove_and_delete(self, number: int, directory: DbDirectory, log_id: int) -> None:
        """Delete a log if it can be proved that nothing points into it."""
        generation = directory.index_generation
        check = directory.mover(log_id)
        try:
            alive = await self._worker.submit(check.next_batch)
        except (CorruptStorageError, OSError) as error:
            self._keep(number, directory, log_id, str(error))
            return
        if alive:
            return  # entries of a ledger that came back since; the next pass sees them
        if check.torn or not check.sealed:
            pointers = await self._worker.submit(directory.pointers, log_id)
            if pointers:
                self._keep(number, directory, log_id, f"{pointers} index entries point at what is not there")
                return
        await self._delete(number, directory, log_id, generation)

    async def _delete_dead(self, number: int, directory: DbDirectory, log_id: int) -> None:
        """Delete a log that has records of deleted ledgers only."""
        await self._delete(number, directory, log_id, None)

    async def _delete(self, number: int, directory: DbDirectory, log_id: int, generation: int | None) -> None:
        await directory.remove_log(log_id, generation)
        use = self._uses[number].pop(log_id, None)
        if use is not None and use.living:
            self.compacted_bytes += use.total - use.living
        elif use is not None:
            self.deleted_bytes += use.total
        log.info("%s deleted: no entry in it is in use", directory.log_path(log_id))

    def _keep(self, number: int, directory: DbDirectory, log_id: int, why: str) -> None:
        self._kept[number][log_id] = None
        self._uses[number].pop(log_id, None)
        log.error("%s is damaged and kept: %s", directory.log_path(log_id), why)
