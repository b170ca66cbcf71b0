"""The journal: where a write becomes durable before it is acknowledged (spec bookie-storage §3, bookie-server §2.5).

Theory of operation

The loop gathers what is appended in batches (`gathering`). A batch is written in one call, with a padding record that
seals it, and synced (`lanes`); then one callback on the loop completes everything it holds, and `telling` calls those
who wait for that. Batches are written, synced and completed in order, and a sync covers all that was written before it,
so batches that waited for it need none of their own.

When a batch leaves is decided by `group_commit` (`departure`); a batch of `journalBufferedWritesThreshold` bytes (or
`journalBufferedEntriesThreshold` records, if set) is full. With `journalFlushWhenQueueEmpty`, or
`journalMaxGroupWaitMSec` <= 0, nothing is waited for but the lanes. `room` decides what may wait to be written, and who
waits for room.

Rolling. When a file has passed `journalMaxSizeMB`, nothing more is written until all of it is synced and the next
file exists durably (its header and its name in the directory). So no two files are ever unsynced together, no
acknowledgement can outrun the sync of an older file, and the new file's header can say where the old one ended
(`scan`).

The mark is the end of the last synced batch, or the first record of a new file. A checkpoint takes it before
flushing the storage, and gives it back through `checkpoint_complete` afterwards.

Failure. The first failed write or sync ends the journal: nothing is completed any more, `on_fatal` is told once, and
the bookie must stop. What is on disk then is for the next start to find out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...config import ServerConfiguration
from ...errors import FatalBookieError
from ...runtime import NO_SPACE, Runtime, TimerHandle
from ..file_names import journal_ids, journal_name
from ..stats import OpStats
from .departure import Departures
from .file import JournalFile, write_again
from .format import EXPLICIT_LAC, MINIMUM_VERSION
from .gathering import Batch, Gathering
from .lanes import Lanes
from .last_mark import START, LogMark, MarkFiles
from .replay import Apply, Damage, Seen, replay
from .retention import Retention
from .room import Room
from .telling import Done, Growth, Telling

log = logging.getLogger(__name__)

DIRECT_MEMORY_SHARE = 0.05
"""Share of the memory that the journals' queues may use if `journalMaxMemorySizeMb` is not set."""

LARGEST_ENTRY = 64 << 20
"""A record of a journal without seals that is longer than this, and than four frames, is taken for torn."""


@dataclass(slots=True)
class JournalStats:
    """Counters since the start."""

    records: int = 0
    bytes: int = 0
    """Without padding."""
    batches: int = 0
    full_batches: int = 0
    sync: OpStats = field(default_factory=OpStats)
    """Of a batch, from when it went to be written; one call of the system may serve several."""
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
        self._gathering = Gathering(
            config.journalBufferedWritesThreshold, config.journalBufferedEntriesThreshold or config.journalQueueSize
        )
        longest_wait = 0.0 if config.journalFlushWhenQueueEmpty else config.journalMaxGroupWaitMSec / 2000
        self._departures = Departures(runtime, max(0.0, longest_wait), self._can_leave, self._leave)
        self._lanes = Lanes(runtime, config, index, directory)
        self.retention = Retention(runtime.files, directory, marks, config.journalMaxBackups, self._lanes.trim)
        """Told when a checkpoint is complete."""
        self._telling = Telling(self._all_told)
        self.growth = Growth()
        self._file: JournalFile | None = None  # from start() on
        self._mark = START  # only grows
        self._tail = START  # where the last file ended, after replay
        self._seen: Seen | None = None  # what of that file may be on no disk
        self._error: FatalBookieError | None = None
        self._drained: asyncio.Future[None] | None = None  # from close() on; done when there is nothing left to do

        self._idle_sync: TimerHandle | None = None  # with journalSyncData=false: the sync now and then

    # --- life ---

    async def replay(self, apply: Apply) -> None:
        """Hand every record after the persisted mark to `apply`, in order; moves the mark after each file.

        A record whose ledger is unknown to storage and journal is the caller's to skip. Raises `CorruptStorageError` if
        a journal is damaged where it had been synced, and whatever `apply` raises.
        """
        self._mark = await self.retention.read_mark(self.index)
        await replay(
            self._runtime.files,
            self._lanes.force,
            self._directory,
            self._mark,
            apply,
            max_entry=max(LARGEST_ENTRY, 4 * self._config.nettyMaxFrameSizeBytes),
            damage=Damage(self._config.skipReplayJournalInvalidRecord),
            reached=self._reached,
        )

    def _reached(self, mark: LogMark, seen: Seen) -> None:
        self._tail, self._seen = mark, seen
        self._mark = max(self._mark, mark)

    def start(self) -> None:
        """Open a new file, after replay. Blocks. Raises `OSError`, `FatalBookieError`.

        Its id is beyond all there are, and beyond the mark, whatever the clock says: what is below the mark is never
        replayed. What replay has seen and no mark covers is on the disk before it is built upon.
        """
        assert self._file is None, "started already"
        ids = journal_ids(self._runtime.files.listdir(self._directory))
        next_id = max(ids[-1] if ids else self._runtime.wall_ms(), self._mark.journal_id) + 1
        try:
            if self._seen is not None and self.retention.persisted < self._tail:
                path = f"{self._directory}/{journal_name(self._seen.journal_id)}"
                write_again(self._runtime.files, path, self._seen.start, self._seen.end)
            self._opened(self._lanes.create(next_id, self._tail))
        except OSError as error:
            raise OSError(error.errno, self._reason(error)) from error

    def _opened(self, file: JournalFile) -> None:
        self._file = file
        self._mark = LogMark(file.journal_id, file.end)
        self.stats.files += 1

    async def close(self) -> None:
        """Write, sync and complete what was appended, then close. After a failure: only close. Idempotent."""
        if self._drained is None:  # all who close wait for the same
            self._drained = asyncio.get_running_loop().create_future()
        self.room.close(_closed)
        if not self._idle() and self._error is None:
            self._cancel_timers()
            self._departures.hurry()
            self._schedule()
            await asyncio.shield(self._drained)
        self._cancel_timers()
        self.room.refuse(_closed if self._error is None else self._refusal)
        await self._lanes.close()
        if self._file is not None:
            self._file.close()

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
        if self._error is not None or self._drained is not None:
            return
        early = ack_before_sync or not self._config.journalSyncData
        assert self._file is not None, "not started"
        batch = self._gathering.batch(self._config.journalSyncData)
        batch.pieces += pieces
        batch.size += size
        batch.count += count
        (batch.early if early else batch.late).append(done)
        batch.full = self._gathering.is_full(batch) or self._runtime.buggify("journal batch is full")
        self.room.fill(size, count)
        self._schedule()

    def force(self, done: Done) -> None:
        """Call `done()` when everything appended before is synced, whatever `journalSyncData` says."""
        if self._error is not None or self._drained is not None:
            return
        assert self._file is not None, "not started"
        self._gathering.batch(sync=True).late.append(done)
        self._schedule()

    # --- when a batch leaves ---

    def _schedule(self) -> None:
        """See to it that the next batch leaves when it should. Called whenever something changed."""
        if self._can_leave() and not self._departures.turn_ends:
            self._departures.schedule(self._gathering.queue[0], self._lanes.unsynced)

    def _can_leave(self) -> bool:
        lanes = self._lanes
        return not (lanes.writing or lanes.rolling) and bool(self._gathering.queue)

    def _leave(self) -> None:
        """Give the first batch to the write lane."""
        lanes = self._lanes
        assert self._file is not None
        batch = self._gathering.queue.popleft()
        batch.left = self._runtime.now()
        self._departures.left(batch)
        lanes.writing = True
        lanes.unsynced += batch.sync
        if batch.sync and lanes.unsynced == 1 and not batch.full and not batch.early:
            lanes.write_and_sync(self._file, batch, self._completed)
        else:
            lanes.write_then_sync(self._file, batch, self._written, self._synced)

    # --- completions, on the loop ---

    def _written(self, batch: Batch, end: int | None, error: BaseException | None) -> None:
        if self._failed(error):
            return
        assert end is not None
        self._count_written(batch, end)
        if not batch.sync and self._idle_sync is None:
            delay = self._config.journalPageCacheFlushIntervalMSec / 1000
            self._idle_sync = self._runtime.call_later(delay, self._sync_now_and_then)
        self._complete(batch.early)

    def _synced(self, batch: Batch, end: int | None, error: BaseException | None) -> None:
        if self._failed(error):
            return
        assert end is not None
        self._count_synced(batch, end)
        self._complete(batch.late)

    def _completed(self, batch: Batch, end: int | None, error: BaseException | None) -> None:
        """Written and synced in one go."""
        if self._failed(error):
            return
        assert end is not None
        self._count_written(batch, end)
        self._count_synced(batch, end)
        self._complete(batch.late)

    def _complete(self, records: list[Done]) -> None:
        """Tell those whose records are where they wanted them, in order: many thousands in more than one turn."""
        self._telling.add(records)
        self._go_on()
        self._telling.tell()

    def _all_told(self) -> None:
        if self._drained is not None:
            self._go_on()

    def _count_written(self, batch: Batch, end: int) -> None:
        self._lanes.writing = False
        self._lanes.rolling = end > self._config.journalMaxSizeMB << 20 or self._runtime.buggify("journal file is full")
        stats = self.stats
        stats.batches += 1
        stats.full_batches += batch.full
        stats.records += batch.count
        stats.bytes += batch.size
        self.growth.written(batch.size)
        self.room.empty(batch.size, batch.count)

    def _count_synced(self, batch: Batch, end: int) -> None:
        assert self._file is not None
        self._lanes.unsynced -= 1
        self.stats.sync.ok(self._runtime.now() - batch.left)
        self._mark = LogMark(self._file.journal_id, end)

    def _rolled(self, file: JournalFile | None, error: BaseException | None) -> None:
        if self._failed(error):
            return
        assert file is not None
        self._lanes.writing = self._lanes.rolling = False
        self._opened(file)
        self._go_on()

    def _go_on(self) -> None:
        """A lane has become free."""
        if self._drained is not None and self._idle():
            if not self._drained.done():
                self._drained.set_result(None)
        elif not self._lanes.rolling:
            self._schedule()
        elif not self._lanes.writing and self._lanes.unsynced == 0:
            self._lanes.writing = True
            assert self._file is not None
            self._lanes.roll(self._file, self._rolled)

    def _idle(self) -> bool:
        lanes = self._lanes
        return not (self._gathering.queue or lanes.writing or lanes.unsynced or self._telling.waiting)

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
        self._gathering.queue.clear()
        self._telling.stop()
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
        if error.errno in NO_SPACE:
            return (
                f"{path} has no space left: free some, or lower journalMaxBackups "
                f"({self._config.journalMaxBackups} now); the next start deletes the oldest journals beyond it"
            )
        return f"{path} failed: {error.strerror or error}"

    def _cancel_timers(self) -> None:
        self._departures.cancel()
        if self._idle_sync is not None:
            self._idle_sync.cancel()
            self._idle_sync = None

    # --- checkpoints ---

    def mark(self) -> LogMark:
        """Everything before it is synced (or was replayed). Take it before flushing the storage; give it back through
        `checkpoint_complete` (`retention`)."""
        return self._mark


def _closed() -> FatalBookieError:
    return FatalBookieError("the journal is closed")
