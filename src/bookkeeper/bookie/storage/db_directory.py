"""One ledger directory of the database storage: write caches, entry logs, indexes, read cache (spec bookie-storage §6).

Theory of operation

*Add*: the entry goes into the active write cache. *Flush*: the caches are swapped, and the directory's lane (a worker
thread of its own) writes the full one in this order, each step durable before the next begins (BI-11):

    1. append entries to the entry log, by ledger and entry id; sync
    2. drop the locations of deleted ledgers, put those of the new entries; sync; seal the logs that became full
    3. write changed ledger attributes; sync

after which the flushed cache is let go. Attributes are written also when there was no entry (defect A1), locations
never before the log is synced (A7). *Read*: active cache, cache being flushed, read cache, and then on a reader
thread one index lookup and one read of the log that takes the following entries along. So at every moment an entry is
found at one of these places: it leaves the cache only after its location is in the index. What is taken along must be
what the index has: it is looked up where that is not sure (`entry_log`: settled), and left out where a cache has it
newer.

*Failure*: no space while writing a log takes the log back to where the flush began; the cache stays, is readable, and
the next flush begins with it (BI-12). No space in an index leaves the log as it is: the next flush writes all of it
again, log and index. What an index needs on a full disk is reserved (`reserve`). Any other failure, a failed sync above
all, leaves it unknown what the disk has: this directory never flushes again, every later `flush` raises
`FatalBookieError`, and the bookie has to stop (BI-17).

*Deletion*: a deleted ledger is forgotten in memory at once. Its locations go with the next flush; until then they are
not looked at, so that a ledger created again under its id does not show old entries, and they are dropped before new
ones are put (A8).

All state here belongs to the loop. Workers get the indexes, the log writer and the map of open logs; they only look
up in the latter.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

from ...errors import FatalBookieError, LimboError, NoEntryError
from ...runtime import Runtime, TaskScope, Workers
from . import directory_jobs as jobs
from .compaction import LiveEntry, LogMover, count_pointers, holds_any, measure
from .directory_jobs import DirectoryOptions, OpenLog
from .entry_log import format as fmt
from .entry_log.reader import FIRST_READ, Records
from .index import ledgers as ledger_index
from .index.ledgers import Changes, Ledger, LedgerIndex
from .packing import CHUNK, words
from .read_cache import ReadCache
from .write_cache import LedgerBuffer, WriteCache

log = logging.getLogger(__name__)

SEQUENTIAL_READ = 128 << 10
"""Bytes read ahead for a reader that goes on where the last read ended, if that found all it read together."""

RUN_READS = 64
"""Reads of the logs that one batch read may make. One of entries that lie scattered ends there."""

MAX_OPEN_LOGS = 512
"""Entry logs held open for reading."""

LAST_ENTRY = -1
MAX_ENTRY_ID = 2**63 - 1

T = TypeVar("T")


@dataclass(slots=True)
class _Loading:
    """A read ahead under way: later reads of entries it may bring wait for it."""

    first: int
    end: int
    done: asyncio.Future[None]


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
        self._listing = asyncio.Lock()
        self._failure: Exception | None = None
        self._on_failure = on_failure
        self._half = options.write_cache // 2
        self._active = WriteCache(self._half)
        self._flushing: WriteCache | None = None  # swapped out, not completely on disk yet
        self._read_cache = ReadCache(options.read_cache)
        self._open_logs: dict[int, OpenLog] = {}  # oldest opened first
        self._loading: dict[int, _Loading] = {}  # the latest read ahead of each ledger
        self._deleted: dict[int, object] = {}  # ledgers whose locations are to be dropped; a token for each deletion
        self._epoch = 0  # grows when what was read before may be obsolete: flush done, ledger deleted, log removed
        self._room: asyncio.Future[None] | None = None  # done at the next change that may have made room

    # --- life ---

    async def open(self) -> None:
        """Open indexes and logs. Raises `CorruptStorageError`, `OSError`."""
        opened = await self._lane.submit(jobs.open_directory, self._runtime, self._options, self.path, self._index_path)
        self._writer, self._ledger_store, self._locations, self._reserve, loaded = opened
        self._index = LedgerIndex(loaded)
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
            self._open_logs.clear()
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
        self._active.drop_ledger(ledger_id)
        if self._flushing is not None:
            self._flushing.drop_ledger(ledger_id)
        self._read_cache.forget(ledger_id)
        self._deleted[ledger_id] = object()
        self._epoch += 1

    async def state_flags(self) -> int:
        return await self._lane.submit(ledger_index.read_flags, self._ledger_store)

    async def set_state_flags(self, flags: int) -> None:
        await self._lane.submit(ledger_index.write_flags, self._ledger_store, flags)

    # --- adding ---

    def add_entry(self, ledger_id: int, entry_id: int, entry: bytes) -> None:
        self._active.add(ledger_id, entry_id, entry)

    def add_entries(self, ledger_id: int, entry_ids: Sequence[int], entries: Sequence[bytes]) -> None:
        self._active.add_run(ledger_id, entry_ids, entries)

    def has_room(self, size: int, count: int) -> bool:
        """Whether the entries fit; starts a flush when the active cache is full, which makes room at once."""
        if self._active.has_room(size, count) and not self._runtime.buggify("write cache is full", 0.02):
            return True
        if self._flushing is not None or self._failure is not None:
            return False
        self._swap()
        self._scope.spawn(self._flush_swapped(), name="flush of a full cache")
        return True

    async def wait_for_room(self, size: int, count: int, timeout: float) -> bool:
        """Wait until there is room; False after `timeout` seconds. Raises `FatalBookieError`."""
        try:
            async with asyncio.timeout(timeout):
                while not self.has_room(size, count):
                    self._check_failure()
                    if self._room is None:
                        self._room = asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._room)
        except TimeoutError:
            return False
        return True

    # --- flushing ---

    @property
    def dirty(self) -> bool:
        """Whether anything is not on disk yet."""
        return bool(self._active.ledgers or self._flushing is not None or self._index.dirty or self._deleted)

    async def flush(self) -> None:
        """Make everything durable that was added or changed before the call.

        Raises `OSError` when there is no space: a later flush may succeed. Raises `FatalBookieError` for everything
        else.
        """
        async with self._flush_lock:
            self._check_failure()
            if self._flushing is not None:  # swapped out by `has_room`, or left by a flush that failed
                await self._write_out(self._flushing)
            if self._flushing is None and self.dirty:
                self._swap()  # else `has_room` did meanwhile
            if self._flushing is not None:
                await self._write_out(self._flushing)

    async def _flush_swapped(self) -> None:
        async with self._flush_lock:
            if self._flushing is not None and self._failure is None:
                try:
                    await self._write_out(self._flushing)
                except OSError as error:
                    log.warning("%s: early flush failed, the next flush tries again: %s", self.path, error)

    def _swap(self) -> None:
        assert self._flushing is None
        self._flushing = self._active
        self._active = WriteCache(self._half)

    async def _write_out(self, cache: WriteCache) -> None:
        # What is deleted from here on is written all the same, and dropped by the next flush.
        buffers, deleted = cache.in_order(), dict(self._deleted)
        await self._note_rewrites(buffers)
        changes = await self._index.take_changes()
        later: Changes = {i: None for i, value in changes.items() if value is None and i not in deleted}
        if later:  # a ledger's record goes with or after its locations, never before
            self._index.put_back(later)
            changes = {i: value for i, value in changes.items() if i not in later}
        try:
            await self._change(jobs.flush, self._ledger_store, buffers, list(deleted), changes)
        except BaseException:
            self._index.put_back(changes)
            self._wake()
            raise
        self._flushing = None
        self._epoch += 1
        for ledger_id, token in deleted.items():
            if self._deleted[ledger_id] is token:
                del self._deleted[ledger_id]
        for ledger_id, buffer in cache.ledgers.items():
            self._read_cache.forget(ledger_id)
            ledger = self._index.ledgers.get(ledger_id)
            if ledger is not None and ledger.last_indexed is not None:
                ledger.last_indexed = max(ledger.last_indexed, buffer.last())
        self._wake()
        cache.ledgers.clear()
        await self._lane.submit(self._reserve.restore)
        await self._lane.submit(jobs.release, buffers, self._runtime.give_way)

    async def _note_rewrites(self, buffers: list[tuple[int, LedgerBuffer]]) -> None:
        """Find the entries that are about to be flushed once more, and note them with their ledgers.

        In the logs an older copy of such an entry may follow its predecessor: a read that takes following records along
        must not take it for the entry (BI-1, and a copy that was repaired must not hide behind the damaged one).
        """
        suspects: list[tuple[int, LedgerBuffer]] = []
        for ledger_id, buffer in buffers:
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

    async def _change(self, job: Callable[..., T], *args: Any) -> T:
        """Run a job that changes logs and indexes. `OSError` is a lack of space, and it is to be done again; all else
        is the end."""
        self._check_failure()
        try:
            return await self._lane.submit(
                job, self._writer, self._locations, self._reserve, self._runtime.give_way, *args
            )
        except OSError as error:
            if error.errno in jobs.NO_SPACE:
                raise
            self._has_failed(error)
            raise FatalBookieError(f"{self.path}: {error}") from error
        except Exception as error:
            self._has_failed(error)
            raise

    def _has_failed(self, error: Exception) -> None:
        self._failure = error
        log.critical("%s: cannot write, this bookie must stop: %s", self.path, error)
        self._on_failure(error)

    def _wake(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise FatalBookieError(f"{self.path} cannot be written any more: {self._failure}") from self._failure

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
        return f"{self.path}/{fmt.log_name(log_id)}"

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
        return await self._change(jobs.rewrite, batch)

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
        self._open_logs.pop(log_id, None)
        self._epoch += 1

    def compact_index(self) -> None:
        """Rewrite the location index without what is obsolete. For a worker."""
        self._locations.compact()

    # --- reading ---

    def cached_entry(self, ledger_id: int, entry_id: int) -> bytes | None:
        buffer = self._active.ledgers.get(ledger_id)
        if buffer is not None and (entry := buffer.get(entry_id)) is not None:
            return entry
        if self._flushing is not None and (entry := self._flushing.get(ledger_id, entry_id)) is not None:
            return entry
        return self._read_cache.get(ledger_id, entry_id)

    async def read_entry(self, ledger_id: int, entry_id: int) -> bytes:
        if entry_id == LAST_ENTRY:
            return await self.last_entry(ledger_id)
        ledger = self._index.get(ledger_id)
        entry = self.cached_entry(ledger_id, entry_id)
        loading = self._loading.get(ledger_id)
        if entry is None and loading is not None and loading.first < entry_id < loading.end:
            await asyncio.wait([loading.done])
            entry = self.cached_entry(ledger_id, entry_id)
        if entry is not None:
            return entry
        options = self._options
        limit = min(_window(ledger, entry_id), options.read_ahead_bytes)
        records = await self._load(ledger_id, entry_id, 1 + options.read_ahead_entries, limit)
        if records is None:
            raise self._absent(ledger_id, entry_id)
        return records.raw[fmt.SIZE_WORD : records.offsets[1]]

    async def read_run(self, ledger_id: int, first: int, max_count: int, max_bytes: int) -> bytes:
        self._index.get(ledger_id)
        pieces: list[bytes] = []
        done = size = reads = 0
        while done < max_count and (not done or max_bytes - size >= size // done):
            piece, count = self._cached_run(ledger_id, first + done, max_count - done, max_bytes - size)
            if not count:
                if reads == RUN_READS:
                    break
                reads += 1
                loaded = await self._load(ledger_id, first + done, max_count - done, max_bytes - size)
                if loaded is not None:  # what came along may be cached by now, in a newer version
                    loaded = loaded.first(self._uncached(ledger_id, first + done, loaded.entries))
                    piece, count = loaded.raw, loaded.entries
            if not count or (pieces and size + len(piece) > max_bytes):
                break
            pieces.append(piece)
            done += count
            size += len(piece)
        if not pieces:
            raise self._absent(ledger_id, first)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def last_entry(self, ledger_id: int) -> bytes:
        if self._index.get(ledger_id).data.limbo:
            raise LimboError(f"ledger {ledger_id} is in limbo: its last entry is not known")
        last = max(await self._last_indexed(ledger_id), self._last_cached(ledger_id))
        if last < 0:
            raise NoEntryError(f"ledger {ledger_id} has no entry here")
        return await self.read_entry(ledger_id, last)

    async def list_entries(self, ledger_id: int) -> Sequence[int]:
        if self._index.get(ledger_id).data.limbo:
            raise LimboError(f"ledger {ledger_id} is in limbo: its entries are not known")
        # First what is in memory: an entry may move from there to the index while the index is read, not back.
        held = [
            rows
            for cache in self._write_caches()
            if ledger_id in cache.ledgers
            for rows in cache.ledgers[ledger_id].rows()
        ]
        async with self._listing:  # millions of ids may be in hand, one list at a time
            locations = None if ledger_id in self._deleted else self._locations
            return await self._readers.submit(jobs.list_entries, locations, ledger_id, held, self._runtime.give_way)

    async def entry_exists(self, ledger_id: int, entry_id: int) -> bool:
        ledger = self._index.ledgers.get(ledger_id)
        if ledger is None:
            return False
        if self.cached_entry(ledger_id, entry_id) is not None:
            return True
        if ledger_id not in self._deleted:
            location: int = await self._readers.submit(self._locations.get, ledger_id, entry_id)
            if location:
                return True
        if ledger.data.limbo:
            raise self._absent(ledger_id, entry_id)
        return False

    def _write_caches(self) -> list[WriteCache]:
        return [self._active] if self._flushing is None else [self._active, self._flushing]

    def _absent(self, ledger_id: int, entry_id: int) -> Exception:
        """The error for an entry that is not here."""
        if self._index.get(ledger_id).data.limbo:
            return LimboError(f"ledger {ledger_id} is in limbo: entry {entry_id} is not here, and may be lost")
        return NoEntryError(f"ledger {ledger_id} entry {entry_id} is not here")

    def _last_cached(self, ledger_id: int) -> int:
        return max(
            (cache.ledgers[ledger_id].last() for cache in self._write_caches() if ledger_id in cache.ledgers),
            default=-1,
        )

    async def _last_indexed(self, ledger_id: int) -> int:
        """The greatest id in the location index, -1 for none."""
        while True:
            ledger = self._index.get(ledger_id)
            if ledger.last_indexed is not None:
                return ledger.last_indexed
            if ledger_id in self._deleted:
                return -1
            epoch = self._epoch
            found = await self._readers.submit(self._locations.last, ledger_id)
            if epoch == self._epoch:  # else a flush may have put more meanwhile: look again
                ledger.last_indexed = -1 if found is None else found[0]

    def _cached_run(self, ledger_id: int, first: int, max_count: int, max_bytes: int) -> tuple[bytes, int]:
        """Records from `first` on that are in one cache, and their number.

        The first one is returned even when it is larger than `max_bytes`. Nothing cached: b"" and 0.
        """
        for cache in self._write_caches():
            buffer = cache.ledgers.get(ledger_id)
            if buffer is not None:
                records, count = _records(buffer, first, max_count, max_bytes)
                if count:
                    return records, count
        return self._read_cache.slice(ledger_id, first, self._uncached(ledger_id, first, max_count), max_bytes)

    def _uncached(self, ledger_id: int, first: int, count: int) -> int:
        """How many of `count` entries from `first` on come before one that a write cache has; at least 1.

        What the logs have of that one is older.
        """
        end = first + count
        for cache in self._write_caches():
            buffer = cache.ledgers.get(ledger_id)
            if buffer is not None:
                end = buffer.first_in(first + 1, end)
        return end - first

    async def _load(self, ledger_id: int, first: int, max_count: int, max_bytes: int) -> Records | None:
        """Records from `first` on from the entry log; None if the index has none. Keeps them in the read cache."""
        ledger = self._index.ledgers.get(ledger_id)
        if ledger is None or ledger_id in self._deleted or _surely_absent(ledger, first):
            return None
        epoch = self._epoch
        loading = _Loading(first, first + max_count, asyncio.get_running_loop().create_future())
        self._loading[ledger_id] = loading
        try:
            found = await self._readers.submit(
                jobs.read_cold,
                self._locations,
                self._writer,
                self._open_logs,
                self._runtime.files,
                self.path,
                ledger_id,
                first,
                max_count,
                max_bytes,
                _window(ledger, first),
                ledger.data.rewritten,
            )
            if found is None:
                await self._last_indexed(ledger_id)  # so that the next miss behind the end needs no look
                return None
            records = found.records
            if epoch != self._epoch:
                return records.first(1)  # a newer version of what came along may have reached the logs meanwhile
            self._keep_open(found.log_id, found.log)
            self._read_cache.put(ledger_id, first, records)
            ledger.read_to = first + records.entries
            ledger.read_together = 2 * len(records.raw) > min(FIRST_READ, max_bytes)
            return records
        finally:
            loading.done.set_result(None)
            if self._loading.get(ledger_id) is loading:
                del self._loading[ledger_id]

    def _keep_open(self, log_id: int, found: OpenLog) -> None:
        """Dropped files are closed when the last reader that has one in hand lets it go."""
        if log_id not in self._open_logs:
            self._open_logs[log_id] = found
            if len(self._open_logs) > MAX_OPEN_LOGS:
                del self._open_logs[next(iter(self._open_logs))]


def _window(ledger: Ledger, entry_id: int) -> int:
    """Bytes to read at first for a reader that asks for an entry."""
    return SEQUENTIAL_READ if entry_id == ledger.read_to and ledger.read_together else FIRST_READ


def _surely_absent(ledger: Ledger, entry_id: int) -> bool:
    return entry_id > MAX_ENTRY_ID or (ledger.last_indexed is not None and entry_id > ledger.last_indexed)


def _records(buffer: LedgerBuffer, first: int, max_count: int, max_bytes: int) -> tuple[bytes, int]:
    """Entries from `first` on as records, as many as fit, at least one if there is one; and their number."""
    pieces: list[bytes] = []
    count = size = 0
    while count < max_count and (entries := buffer.slice(first + count, min(CHUNK, max_count - count))):
        sizes = list(map(len, entries))
        ends = list(accumulate(map(fmt.SIZE_WORD.__add__, sizes), initial=size))
        fitting = bisect_right(ends, max_bytes) - 1
        if not count:
            fitting = max(fitting, 1)
        elif fitting <= 0:
            break
        part: list[bytes] = [b""] * (2 * fitting)
        part[::2] = words(sizes[:fitting])
        part[1::2] = entries[:fitting]
        pieces += part
        count += fitting
        size = ends[fitting]
        if fitting < len(entries):
            break
    return b"".join(pieces), count
