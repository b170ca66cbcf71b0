"""One ledger directory of the database storage: flushing, deleting, reclaiming (spec bookie-storage §6).

Theory of operation

*Add*: the entry goes into the active write cache (`caches`). *Flush*: the caches are swapped, and the directory's lane
(a worker thread of its own) writes the full one in this order, each step durable before the next begins (BI-11):

    1. append entries to the entry log, by ledger and entry id; sync
    2. drop the locations of deleted ledgers, put those of the new entries; sync; seal the logs that became full
    3. write changed ledger attributes; sync

after which the flushed cache is let go. Attributes are written also when there was no entry (defect A1), locations
never before the log is synced (A7). *Read*: `directory_reads`.

*Failure*: no space while writing a log takes the log back to where the flush began; the cache stays, is readable, and
the next flush begins with it (BI-12). No space in an index leaves the log as it is: the next flush writes all of it
again, log and index. What an index needs on a full disk is reserved (`reserve`). Any other failure, a failed sync above
all, leaves it unknown what the disk has: this directory never flushes again, every later `flush` raises
`FatalBookieError`, and the bookie has to stop (BI-17).

*Deletion*: a deleted ledger is forgotten in memory at once. Its locations go with the next flush; until then they are
not looked at, so that a ledger created again under its id does not show old entries, and they are dropped before new
ones are put (A8).

All state here belongs to the loop. Workers get the indexes and the log writer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from ...errors import FatalBookieError
from ...runtime import NO_SPACE, Runtime, TaskScope, Workers
from ...runtime.waiting.wait_queue import OneByOne
from ..file_names import log_name
from . import directory_jobs as jobs
from .caches import Caches, FlushPace
from .compaction import LiveEntry, LogMover, count_pointers, holds_any, measure
from .directory_jobs import DirectoryOptions
from .directory_reads import DirectoryReads
from .entry_log.page_cache import PageCacheChoice
from .index import ledgers as ledger_index
from .index.ledgers import Changes, LedgerIndex
from .write_cache import Aging, LedgerBuffer, WriteCache

log = logging.getLogger(__name__)

T = TypeVar("T")

LEDGERS_AT_ONCE = 1024
"""Ledgers that a flush looks through in one turn of the loop: some 0.3 ms."""


class DbDirectory:
    """The part of the storage that lives in one ledger directory."""

    def __init__(
        self,
        runtime: Runtime,
        options: DirectoryOptions,
        ledger_path: str,
        index_path: str,
        readers: Workers,
        name: str,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`on_failure` is told once, when nothing can be written here any more."""
        self.path = ledger_path
        self._runtime = runtime
        self._options = options
        self._index_path = index_path
        self._readers = readers
        self._lane = runtime.workers(f"db-storage-{name}")
        self._scope = TaskScope(runtime, f"db-storage-{name}")
        self._opened = False
        self._flush_lock = asyncio.Lock()
        self._failure: Exception | None = None
        self._on_failure = on_failure
        past_cache = PageCacheChoice(options.past_cache)
        self.caches = Caches(options.write_cache, options.read_cache, past_cache, Aging(runtime).ledger_begins)
        self._deleted: dict[int, object] = {}  # ledgers whose locations are to be dropped; a token for each deletion
        self._room: OneByOne[tuple[int, int]] = OneByOne(lambda entries: self.has_room(*entries))

    # --- life ---

    async def open(self) -> None:
        """Open indexes and logs. Raises `CorruptStorageError`, `OSError`."""
        opened = await self._lane.submit(jobs.open_directory, self._runtime, self._options, self.path, self._index_path)
        self._writer, self._ledger_store, self._locations, self._reserve, loaded = opened
        self._index = LedgerIndex(loaded)
        self.reads = DirectoryReads(
            self._runtime,
            self._options,
            self.path,
            self._readers,
            self.caches,
            self._index,
            self._locations,
            self._writer,
            self._deleted,
        )
        self._opened = True

    async def close(self) -> None:
        """Flush if that is still possible, close everything. Raises as `flush`, when all is closed."""
        failure: BaseException | None = None
        if self._opened and self._failure is None:
            try:
                await self.flush()
            except (Exception, asyncio.CancelledError) as error:
                failure = error
        await self._scope.close()
        if self._opened:
            self._opened = False
            healthy = failure is None and self._failure is None
            await self._lane.submit(jobs.close_directory, self._writer, self._locations, self._ledger_store, healthy)
            self.reads.close()
        await self._lane.close()
        if failure is not None:
            raise failure

    # --- ledgers ---

    @property
    def index(self) -> LedgerIndex:
        """Attributes of this directory's ledgers."""
        return self._index

    def delete_ledger(self, ledger_id: int) -> None:
        if ledger_id not in self._index.ledgers:
            return
        self._index.delete(ledger_id)
        self.caches.drop_ledger(ledger_id)
        self._deleted[ledger_id] = object()

    async def state_flags(self) -> int:
        return await self._lane.submit(ledger_index.read_flags, self._ledger_store)

    async def set_state_flags(self, flags: int) -> None:
        await self._lane.submit(ledger_index.write_flags, self._ledger_store, flags)

    # --- room for adding ---

    def has_room(self, size: int, count: int) -> bool:
        """Whether the entries fit; starts a flush when the active cache is full, which makes room at once."""
        if self.caches.active.has_room(size, count) and not self._runtime.buggify("write cache is full", 0.02):
            return True
        if self.caches.flushing is not None or self._failure is not None:
            return False
        self.caches.swap()
        self._scope.spawn(self._flush_swapped(), name="flush of a full cache")
        return True

    async def wait_for_room(self, size: int, count: int, timeout: float) -> bool:
        """Wait until there is room, behind those that wait already. The caller adds before it awaits anything.

        False after `timeout` seconds. Raises `FatalBookieError`.
        """
        if self.has_room(size, count):
            return True
        self._check_failure()
        try:
            async with asyncio.timeout(timeout):
                await self._room.wait((size, count))
        except TimeoutError:
            return False
        return True

    # --- flushing ---

    @property
    def dirty(self) -> bool:
        """Whether anything is not on disk yet, or is in memory for nothing."""
        active = self.caches.active
        return bool(
            active.ledgers or active.dropped or self.caches.flushing is not None or self._index.dirty or self._deleted
        )

    @property
    def has_deleted(self) -> bool:
        """Whether the location index still has entries of deleted ledgers, which the next flush drops."""
        return bool(self._deleted)

    async def flush(self) -> None:
        """Make everything durable that was added or changed before the call.

        Raises `OSError` when there is no space: a later flush may succeed. Raises `FatalBookieError` for everything
        else.
        """
        async with self._flush_lock:
            self._check_failure()
            if self.caches.flushing is not None:  # swapped out by `has_room`, or left by a flush that failed
                await self._write_out(self.caches.flushing)
            if self.caches.flushing is None and self.dirty:
                self.caches.swap()  # else `has_room` did meanwhile
            if self.caches.flushing is not None:
                await self._write_out(self.caches.flushing)

    async def _flush_swapped(self) -> None:
        async with self._flush_lock:
            if self.caches.flushing is not None and self._failure is None:
                try:
                    await self._write_out(self.caches.flushing)
                except OSError as error:
                    log.warning("%s: early flush failed, the next flush tries again: %s", self.path, error)

    async def _write_out(self, cache: WriteCache) -> None:
        # What is deleted from here on is written all the same, and dropped by the next flush.
        held, deleted = list(cache.ledgers.items()), dict(self._deleted)
        few = len(held) <= LEDGERS_AT_ONCE
        buffers = jobs.in_order(held) if few else await self._lane.submit(jobs.in_order, held)
        del held  # at the end `jobs.release` must be the last owner of each buffer
        await self._note_rewrites(buffers)
        changes = await self._index.take_changes()
        later: Changes = {i: None for i, value in changes.items() if value is None and i not in deleted}
        if later:  # a ledger's record goes with or after its locations, never before
            self._index.put_back(later)
            changes = {i: value for i, value in changes.items() if i not in later}
        past_cache_from = self.caches.page_cache.for_flush(self._runtime.now(), cache.used, self.reads.of_logs)
        pace = FlushPace(self._runtime, self.caches, rests=not self.caches.page_cache.busy)
        what = self._ledger_store, buffers, list(deleted), changes, past_cache_from
        try:
            with self.caches.flushes.timed(self._runtime.now):
                await self._change(jobs.flush, *what, give_way=pace)
        except BaseException:
            self._index.put_back(changes)
            self._room.serve()
            raise
        finally:
            self.caches.page_cache.flushed(self._runtime.now(), pace.rested)
        await self._note_indexed(cache, buffers)
        self.caches.flushed()
        for ledger_id, token in deleted.items():
            if self._deleted[ledger_id] is token:
                del self._deleted[ledger_id]
        self._room.serve()
        cache.ledgers.clear()
        buffers += cache.dropped
        cache.dropped.clear()
        await self._lane.submit(self._reserve.restore)
        await self._lane.submit(jobs.release, buffers, pace)

    async def _note_rewrites(self, buffers: list[tuple[int, LedgerBuffer]]) -> None:
        """Find the entries that are about to be flushed once more, and note them with their ledgers.

        In the logs an older copy of such an entry may follow its predecessor: a read that takes following records along
        must not take it for the entry (BI-1, and a copy that was repaired must not hide behind the damaged one).
        """
        suspects: list[tuple[int, LedgerBuffer]] = []
        for number, (ledger_id, buffer) in enumerate(buffers, 1):
            if number % LEDGERS_AT_ONCE == 0:
                await asyncio.sleep(0)
            ledger = self._index.ledgers.get(ledger_id)
            if ledger is None:
                continue
            if ledger_id in self._deleted:
                ledger.last_indexed = -1
            elif ledger.last_indexed is None or buffer.least() <= ledger.last_indexed:
                suspects.append((ledger_id, buffer))
        if not suspects:
            return
        for ledger_id, last, rewritten in await self._change(jobs.find_rewrites, suspects):
            ledger = self._index.ledgers.get(ledger_id)
            if ledger is not None and ledger_id not in self._deleted:
                ledger.last_indexed = last
            if rewritten:
                self._index.note_rewritten(ledger_id, rewritten[0], rewritten[-1])

    async def _note_indexed(self, cache: WriteCache, buffers: list[tuple[int, LedgerBuffer]]) -> None:
        """The location index has the entries of these buffers now; not of ledgers that were deleted meanwhile."""
        for number, (ledger_id, buffer) in enumerate(buffers, 1):
            if number % LEDGERS_AT_ONCE == 0:
                await asyncio.sleep(0)
            ledger = self._index.ledgers.get(ledger_id)
            if ledger is not None and ledger.last_indexed is not None and cache.ledgers.get(ledger_id) is buffer:
                ledger.last_indexed = max(ledger.last_indexed, buffer.last())

    async def _change(self, job: Callable[..., T], *args: Any, give_way: Callable[[], None] | None = None) -> T:
        """Run a job that changes logs and indexes. `OSError` is a lack of space, and it is to be done again; all else
        is the end."""
        self._check_failure()
        try:
            return await self._lane.submit(
                job, self._writer, self._locations, self._reserve, give_way or self._runtime.give_way, *args
            )
        except OSError as error:
            if error.errno in NO_SPACE:
                raise
            self._has_failed(error)
            raise FatalBookieError(f"{self.path}: {error}") from error
        except Exception as error:
            self._has_failed(error)
            raise

    def _has_failed(self, error: Exception) -> None:
        self._failure = error
        log.critical("%s: cannot write, this bookie must stop: %s", self.path, error)
        self._room.close(self._fatal)
        self._on_failure(error)

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise self._fatal()

    def _fatal(self) -> FatalBookieError:
        """The failure, for one that needs what cannot be written."""
        error = FatalBookieError(f"{self.path} cannot be written any more: {self._failure}")
        error.__cause__ = self._failure
        return error

    # --- reclaiming: called by the garbage collector ---

    async def closed_logs(self) -> dict[int, int]:
        """Size of each log that is not written to any more, by ascending id."""
        return await self._lane.submit(jobs.closed_logs, self._writer, self._runtime.files, self.path)

    async def sealed_logs(self) -> dict[int, dict[int, int]]:
        """Record bytes per ledger in the logs sealed since the last call, as the writer counted them."""
        return await self._lane.submit(self._writer.take_sealed)

    def known_ledgers(self) -> frozenset[int]:
        """Ledgers of which the location index may have entries: also those deleted since the last flush."""
        return frozenset([*self._index.ledgers, *self._deleted])

    def log_path(self, log_id: int) -> str:
        return f"{self.path}/{log_name(log_id)}"

    def log_sizes(self, log_id: int) -> dict[int, int]:
        """Record bytes per ledger in a closed log. For a worker. Raises `CorruptStorageError`, `OSError`."""
        return measure(self._runtime.files, self.log_path(log_id), log_id, self._runtime.give_way)

    def mover(self, log_id: int) -> LogMover:
        """Finds the live entries of a closed log."""
        return LogMover(
            self._runtime.files,
            self.log_path(log_id),
            log_id,
            self._locations,
            self.known_ledgers(),
            self._runtime.give_way,
        )

    async def rewrite(self, batch: list[LiveEntry]) -> int:
        """Move entries to the current log, those that are still where they were; durable at return.

        Returns how many. Raises `OSError` when there is no space, `FatalBookieError`.
        """
        return await self._change(jobs.rewrite, batch, self.caches.page_cache.for_moves())

    def pointers(self, log_id: int) -> int:
        """How many index entries point into a log. Walks the whole index. For a worker."""
        return count_pointers(self._locations, log_id, self._runtime.give_way)

    @property
    def index_generation(self) -> int:
        """To be asked before the index is searched for entries in a log, and given to `remove_log`."""
        return self._locations.generation

    def holds_none_of(self, log_id: int, living: frozenset[int]) -> bool:
        """Whether a closed log surely has no record of a living ledger. For a worker. Raises as `log_sizes`."""
        return not holds_any(self._runtime.files, self.log_path(log_id), log_id, living, self._runtime.give_way)

    async def remove_log(self, log_id: int, generation: int | None) -> None:
        """Delete a log that no index entry points into, as the caller found when the index had this generation.

        None: all ledgers in it are deleted. Raises `OSError` if the index lost changes since; `FatalBookieError`.
        """
        self._check_failure()
        await self._lane.submit(
            jobs.remove_log,
            self._writer,
            self._locations,
            self._reserve,
            self._runtime.files,
            self.path,
            log_id,
            generation,
        )
        self.reads.forget_log(log_id)
        self.caches.log_removed()

    @property
    def index_path(self) -> str:
        """Where its index is."""
        return self._index_path

    def compact_index(self) -> None:
        """Rewrite the location index without what is obsolete. For a worker."""
        self._locations.compact()
