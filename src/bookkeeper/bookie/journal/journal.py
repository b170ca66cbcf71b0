"""The journal: where a write becomes durable before it is acknowledged (spec bookie-storage §3, bookie-server §2.5).

Theory of operation

The loop gathers what is appended in batches. A batch is written in one call, with a padding record that seals it, and
synced; then one callback on the loop completes everything it holds. There are two lanes, so that writing can go on
during a sync: the write lane hands what it has written straight on to the force lane. Batches are written, synced and
completed in order, and a sync covers all that was written before it, so batches that waited for it need none of their
own. When there is nothing to overlap (no other batch unsynced, and this one is not full), the write lane syncs the
batch itself, which saves a quarter of the CPU.

When a batch leaves is decided by `group_commit`; a batch of `journalBufferedWritesThreshold` bytes (or
`journalBufferedEntriesThreshold` records, if set) is full. With `journalFlushWhenQueueEmpty`, or
`journalMaxGroupWaitMSec` <= 0, nothing is waited for but the lanes. `room` decides what may wait to be written, and who
waits for room.

Rolling. When a file has passed `journalMaxSizeMB`, nothing more is written until all of it is synced and the next
file exists durably (its header and its name in the directory). So no two files are ever unsynced together, no
acknowledgement can outrun the sync of an older file, and the new file's header can say where the old one ended
(`scan`).

The mark is the end of the last synced batch, or the first record of a new file. Whoever checkpoints takes it before
flushing the storage, and gives it back through `checkpoint_complete` afterwards.

Failure. The first failed write or sync ends the journal: nothing is completed any more, `on_fatal` is told once, and
the bookie must stop. What is on disk then is for the next start to find out.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bookkeeper.config import ServerConfiguration
from bookkeeper.errors import FatalBookieError
from bookkeeper.runtime import Runtime, TimerHandle, Workers

from .file import JournalFile
from .format import EXPLICIT_LAC, MINIMUM_VERSION, SealHeader, journal_ids
from .group_commit import Departure, GroupCommit
from .last_mark import START, LogMark, MarkFiles
from .replay import Apply, Damage, replay
from .retention import Retention
from .room import Room

log = logging.getLogger(__name__)

DONE_AT_ONCE = 256
"""Callbacks in one turn of the loop. Adds that came together have one; fences and LACs have one each."""

DIRECT_MEMORY_SHARE = 0.05
"""Share of the memory that the journals' queues may use if `journalMaxMemorySizeMb` is not set."""

LARGEST_ENTRY = 64 << 20
"""A record of a journal without seals that is longer than this, and than four frames, is taken for torn."""

Done = Callable[[], None]


class _Batch:
    """What is written and synced together."""

    __slots__ = ("count", "early", "full", "late", "pieces", "size", "sync")

    def __init__(self, sync: bool) -> None:
        self.pieces: list[bytes] = []
        self.size = 0
        self.count = 0
        self.early: list[Done] = []  # to call when written
        self.late: list[Done] = []  # to call when synced
        self.sync = sync  # holds if `late` is not empty
        self.full = False


@dataclass(slots=True)
class JournalStats:
    """Counters since the start."""

    records: int = 0
    bytes: int = 0
    """Without padding."""
    batches: int = 0
    full_batches: int = 0
    syncs: int = 0
    """Completed syncs of batches; one call of the system may serve several."""
    files: int = 0


class Journal:
    """The journal number `index` of a bookie, in `directory` (a `current` folder). Used on the loop only.

    Life: `replay`, `start`, then appends and checkpoints, `close`. `on_fatal` is called once, with the first failure;
    from then on nothing is completed.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: ServerConfiguration,
        index: int,
        directory: str,
        marks: MarkFiles,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._runtime = runtime
        self._files = runtime.files
        self._config = config
        self._directory = directory
        self._on_fatal = on_fatal
        self.index = index
        self.stats = JournalStats()
        memory = config.journalMaxMemorySizeMb
        journals = max(1, len(config.journalDirectories))
        total = int(runtime.physical_memory() * DIRECT_MEMORY_SHARE) if memory is None else memory << 20
        self.room = Room(total // journals, config.journalQueueSize)
        """For what waits to be written."""
        self._batch_size = config.journalBufferedWritesThreshold
        self._batch_count = config.journalBufferedEntriesThreshold or config.journalQueueSize
        longest_wait = 0.0 if config.journalFlushWhenQueueEmpty else config.journalMaxGroupWaitMSec / 2000
        self._group_commit = GroupCommit(max(0.0, longest_wait))
        self._max_size = config.journalMaxSizeMB << 20

        self._write_lane: Workers = runtime.workers(f"journal-{index}-write")
        self._force_lane: Workers = runtime.workers(f"journal-{index}-force")
        self._trim_lane: Workers = runtime.workers(f"journal-{index}-checkpoint")
        self.retention = Retention(runtime.files, directory, marks, config.journalMaxBackups, self._trim_lane)
        self.checkpoint_complete = self.retention.checkpoint_complete

        self._file: JournalFile | None = None  # from start() on
        self._growth = 0  # bytes written since _tell_growth was called
        self._growth_step = 0  # 0: nobody wants to know
        self._tell_growth: Callable[[], None] = _nobody
        self._mark = START  # only grows
        self._tail = START  # the end of the last file with anything in it, after replay
        self._error: FatalBookieError | None = None
        self._closing = False
        self._drained: asyncio.Future[None] | None = None

        self._queue: deque[_Batch] = deque()  # not yet given to the write lane; only the last one gathers
        self._write_busy = False  # the write lane has a batch, or makes the next file
        self._rolling = False  # the file is large enough: nothing more goes to it
        self._unsynced = 0  # batches on their way from the write lane to their completion that need a sync
        self._turn_ends = False  # _leave is scheduled for the end of this turn
        self._timer: TimerHandle | None = None  # _leave is scheduled for later
        self._done: deque[Done] = deque()  # written or synced, not told yet
        self._telling = False  # _tell_some is scheduled
        self._idle_sync: TimerHandle | None = None  # with journalSyncData=false: the sync now and then

    # --- life ---

    async def replay(self, apply: Apply) -> None:
        """Hand every record after the persisted mark to `apply`, in order; moves the mark after each file.

        A record whose ledger is unknown to storage and journal is the caller's to skip. Raises `CorruptStorageError` if
        a journal is damaged where it had been synced, and whatever `apply` raises.
        """
        self._mark = await self.retention.read_mark(self.index)
        await replay(
            self._files,
            self._force_lane,
            self._directory,
            self._mark,
            apply,
            max_entry=max(LARGEST_ENTRY, 4 * self._config.nettyMaxFrameSizeBytes),
            damage=Damage(self._config.skipReplayJournalInvalidRecord),
            reached=self._reached,
        )

    def _reached(self, mark: LogMark) -> None:
        self._tail = mark
        self._mark = max(self._mark, mark)

    def start(self) -> None:
        """Open a new file, after replay. Blocks. Raises `OSError`, `FatalBookieError`.

        Its id is beyond all there are, and beyond the mark, whatever the clock says: what is below the mark is never
        replayed.
        """
        assert self._file is None, "started already"
        ids = journal_ids(self._files.listdir(self._directory))
        next_id = max(ids[-1] if ids else self._runtime.wall_ms(), self._mark.journal_id) + 1
        try:
            self._opened(self._create(next_id, self._tail))
        except OSError as error:
            raise OSError(error.errno, self._reason(error)) from error

    def _create(self, journal_id: int, previous: LogMark) -> JournalFile:
        """Runs on the write lane, or before there is anything to do for it."""
        config = self._config
        alignment = config.journalAlignmentSize
        step = config.journalPreAllocSizeMB << 20
        return JournalFile(
            self._files,
            self._directory,
            config.journalFormatVersionToWrite,
            SealHeader(journal_id, *previous),
            alignment=alignment,
            step=step - step % alignment,
            drop_cache=config.journalRemoveFromPageCache,
        )

    def _opened(self, file: JournalFile) -> None:
        self._file = file
        self._mark = LogMark(file.journal_id, file.end)
        self.stats.files += 1

    async def close(self) -> None:
        """Write, sync and complete what was appended, then close. After a failure: only close. Idempotent."""
        self._closing = True
        self.room.close(_closed)
        if not self._idle() and self._error is None:
            if self._drained is None:  # all who close wait for the same
                self._drained = asyncio.get_running_loop().create_future()
            self._cancel_timers()
            self._group_commit.hurry()
            self._schedule()
            await asyncio.shield(self._drained)
        self._cancel_timers()
        self.room.refuse(_closed if self._error is None else self._refusal)
        for lane in (self._write_lane, self._force_lane, self._trim_lane):
            await lane.close()
        if self._file is not None:
            self._file.close()

    def watch_growth(self, step: int, tell: Callable[[], None]) -> None:
        """Call `tell()` after every `step` bytes written: the disk has so much less room."""
        self._growth_step, self._tell_growth = step, tell

    # --- appending ---

    @property
    def journals_explicit_lac(self) -> bool:
        """Whether the format that is written has explicit-LAC records; if not, append no pieces for one."""
        return self._config.journalFormatVersionToWrite >= MINIMUM_VERSION[EXPLICIT_LAC]

    def append(
        self, pieces: Sequence[bytes], size: int, count: int, done: Done, *, ack_before_sync: bool = False
    ) -> None:
        """Write `count` whole records, given as `pieces` of together `size` bytes, length words included.

        `done()` is called on the loop when they are durable; when they are written, with `ack_before_sync` or
        `journalSyncData=false`. It is never called after a failure, nor for what is appended after `close`. The caller
        has asked `room`.
        """
        if self._error is not None or self._closing:
            return
        early = ack_before_sync or not self._config.journalSyncData
        batch = self._gather(sync=self._config.journalSyncData)
        batch.pieces += pieces
        batch.size += size
        batch.count += count
        (batch.early if early else batch.late).append(done)
        batch.full = (
            batch.size >= self._batch_size
            or batch.count >= self._batch_count
            or self._runtime.buggify("journal batch is full")
        )
        self.room.fill(size, count)
        self._schedule()

    def force(self, done: Done) -> None:
        """Call `done()` when everything appended before is synced, whatever `journalSyncData` says."""
        if self._error is not None or self._closing:
            return
        self._gather(sync=True).late.append(done)
        self._schedule()

    def _gather(self, sync: bool) -> _Batch:
        """The batch that takes what is appended now."""
        assert self._file is not None, "not started"
        if not self._queue or self._queue[-1].full:
            self._queue.append(_Batch(sync))
        batch = self._queue[-1]
        batch.sync = batch.sync or sync
        return batch

    # --- when a batch leaves ---

    def _schedule(self) -> None:
        """See to it that the next batch leaves when it should. Called whenever something changed."""
        if not self._queue or self._write_busy or self._rolling or self._turn_ends:
            return
        batch = self._queue[0]
        departure = self._group_commit.departure(
            full=batch.full, answers_when_written=bool(batch.early), unsynced=self._unsynced
        )
        if departure is Departure.NOW:
            self._send()
        elif departure is Departure.AT_TURN_END and self._timer is None:
            self._turn_ends = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._turn_ends = False
        if not self._queue or self._write_busy or self._rolling:
            return
        if wait := self._group_commit.wait(self._runtime.now()):
            self._timer = self._runtime.call_later(wait, self._wait_over)
        else:
            self._send()

    def _wait_over(self) -> None:
        self._timer = None
        if self._queue and not self._write_busy and not self._rolling:
            self._send()

    def _send(self) -> None:
        """Give the first batch to the write lane."""
        assert not self._write_busy
        assert self._file is not None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch = self._queue.popleft()
        self._write_busy = True
        self._unsynced += batch.sync
        self._group_commit.left(self._runtime.now(), batch.count)
        if batch.sync and self._unsynced == 1 and not batch.full and not batch.early:
            self._write_lane.post(_write_and_sync, (self._file, batch), functools.partial(self._completed, batch))
        else:
            self._write_lane.post(self._write, (self._file, batch), functools.partial(self._written, batch))

    # --- on the write lane ---

    def _write(self, file: JournalFile, batch: _Batch) -> int:
        end = file.write(batch.pieces, batch.count)
        if batch.sync:
            self._force_lane.post(file.sync, (end,), functools.partial(self._synced, batch))
        return end

    def _roll(self, file: JournalFile) -> JournalFile:
        """The next file. The force lane has nothing to do with the old one any more."""
        file.sync(file.end)
        file.close()
        return self._create(file.journal_id + 1, LogMark(file.journal_id, file.end))

    # --- completions, on the loop ---

    def _written(self, batch: _Batch, end: int | None, error: BaseException | None) -> None:
        if self._failed(error):
            return
        assert end is not None
        self._count_written(batch, end)
        if not batch.sync and self._idle_sync is None:
            delay = self._config.journalPageCacheFlushIntervalMSec / 1000
            self._idle_sync = self._runtime.call_later(delay, self._sync_now_and_then)
        self._complete(batch.early)

    def _synced(self, batch: _Batch, end: int | None, error: BaseException | None) -> None:
        if self._failed(error):
            return
        assert end is not None
        self._count_synced(end)
        self._complete(batch.late)

    def _completed(self, batch: _Batch, end: int | None, error: BaseException | None) -> None:
        """Written and synced in one go."""
        if self._failed(error):
            return
        assert end is not None
        self._count_written(batch, end)
        self._count_synced(end)
        self._complete(batch.late)

    def _complete(self, records: list[Done]) -> None:
        """Tell those whose records are where they wanted them, in order: many thousands in more than one turn."""
        self._done += records
        self._go_on()
        if not self._telling:
            self._tell_some()

    def _tell_some(self) -> None:
        self._telling = False
        done = self._done
        try:
            for _ in range(DONE_AT_ONCE):
                if not done:
                    break
                done.popleft()()
        finally:
            if done:
                self._telling = True
                asyncio.get_running_loop().call_soon(self._tell_some)
            elif self._closing:
                self._go_on()

    def _count_written(self, batch: _Batch, end: int) -> None:
        self._write_busy = False
        self._rolling = end > self._max_size or self._runtime.buggify("journal file is full")
        stats = self.stats
        stats.batches += 1
        stats.full_batches += batch.full
        stats.records += batch.count
        stats.bytes += batch.size
        self._growth += batch.size
        if self._growth >= self._growth_step > 0:
            self._growth = 0
            self._tell_growth()
        self.room.empty(batch.size, batch.count)

    def _count_synced(self, end: int) -> None:
        assert self._file is not None
        self._unsynced -= 1
        self.stats.syncs += 1
        self._mark = LogMark(self._file.journal_id, end)

    def _rolled(self, file: JournalFile | None, error: BaseException | None) -> None:
        if self._failed(error):
            return
        assert file is not None
        self._write_busy = self._rolling = False
        self._opened(file)
        self._go_on()

    def _go_on(self) -> None:
        """A lane has become free."""
        if self._closing and self._idle():
            if self._drained is not None and not self._drained.done():
                self._drained.set_result(None)
        elif not self._rolling:
            self._schedule()
        elif not self._write_busy and self._unsynced == 0:
            self._write_busy = True
            self._write_lane.post(self._roll, (self._file,), self._rolled)

    def _idle(self) -> bool:
        return not self._queue and not self._write_busy and self._unsynced == 0 and not self._done

    def _sync_now_and_then(self) -> None:
        self._idle_sync = None
        self.force(lambda: None)

    def _failed(self, error: BaseException | None) -> bool:
        """Whether the journal has failed, by `error` or before."""
        if self._error is not None:
            return True
        if error is None:
            return False
        reason = self._reason(error)
        self._error = FatalBookieError(reason)
        self._error.__cause__ = error
        log.critical("%s", reason)
        self._queue.clear()
        self._done.clear()
        self._cancel_timers()
        self.room.refuse(self._refusal)
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._on_fatal(self._error)
        return True

    def _refusal(self) -> FatalBookieError:
        """The failure, for one that wants to append: raising an error adds to its traceback, so each has its own."""
        assert self._error is not None
        error = FatalBookieError(str(self._error))
        error.__cause__ = self._error.__cause__
        return error

    def _reason(self, error: BaseException) -> str:
        """What happened, and what to do about it."""
        path = f"journal {self.index} in {self._directory}"
        if not isinstance(error, OSError):
            return f"{path} failed: {error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return (
                f"{path} has no space left: free some, or lower journalMaxBackups "
                f"({self._config.journalMaxBackups} now); the next start deletes the oldest journals beyond it"
            )
        return f"{path} failed: {error.strerror or error}"

    def _cancel_timers(self) -> None:
        for timer in (self._timer, self._idle_sync):
            if timer is not None:
                timer.cancel()
        self._timer = self._idle_sync = None

    # --- checkpoints ---

    def mark(self) -> LogMark:
        """Everything before it is synced (or was replayed). Take it before flushing the storage; give it back through
        `checkpoint_complete` (`retention`)."""
        return self._mark


def _nobody() -> None:
    """Nobody wants to know."""


def _closed() -> FatalBookieError:
    return FatalBookieError("the journal is closed")


def _write_and_sync(file: JournalFile, batch: _Batch) -> int:
    """Runs on the write lane, while the force lane has nothing to do."""
    return file.sync(file.write(batch.pieces, batch.count))
