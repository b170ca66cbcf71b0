"""The journal's blocking work, on three lanes: writing, syncing, and what checkpoints do.

Theory of operation

Writing goes on during a sync: the write lane hands what it has written straight on to the force lane. When there is
nothing to overlap, the write lane syncs the batch itself, which saves a quarter of the CPU.

A small batch is no work for a thread, if the system can sync without one (`BackgroundSync`): to wake a thread, and to
change the owner of the interpreter twice, takes as long as all the rest that a lone add does. So the loop writes it,
which is a copy to the page cache, and the system tells when it is synced. Where a write took long nevertheless (the
system may let those wait that write while others sync), the lanes write for a while.

A file is followed by the next one on the write lane, while the force lane has nothing to do: the old file is synced to
its end and closed, then the new one is made.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

from ...config import ServerConfiguration
from ...runtime import Runtime
from ...runtime.stalls import STALL_SECONDS
from .file import JournalFile
from .format import SealHeader
from .gathering import Batch
from .last_mark import LogMark

REST_SECONDS = 1.0
"""For so long the loop writes nothing after a write that was more than a copy: a stall of it (`STALL_SECONDS`)."""

Completion = Callable[[Batch, int | None, BaseException | None], None]
"""Called on the loop with the batch and the position that was reached, or an error."""


class Lanes:
    """See the module. `trim` is for checkpoints (`retention`); nothing else is done on it."""

    def __init__(self, runtime: Runtime, config: ServerConfiguration, index: int, directory: str) -> None:
        self._runtime = runtime
        self._files = runtime.files
        self._config = config
        self._directory = directory
        self.write = runtime.workers(f"journal-{index}-write")
        self.force = runtime.workers(f"journal-{index}-force")
        self.trim = runtime.workers(f"journal-{index}-checkpoint")
        self._background = runtime.background_sync()
        self._rests_until = 0.0  # the loop does not write
        # What the loop knows of them; the lanes do not look at it.
        self.writing = False
        """The write lane has a batch, or makes the next file."""
        self.rolling = False
        """The file is large enough: nothing more goes to it."""
        self.unsynced = 0
        """Batches on their way from the write lane to their completion that need a sync."""

    def create(self, journal_id: int, previous: LogMark) -> JournalFile:
        """A new file. Blocks: for the write lane, or before that has anything to do. Raises `OSError`."""
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

    def write_and_sync(self, file: JournalFile, batch: Batch, done: Completion) -> None:
        """Both on the write lane, or without a thread. The lanes must have nothing to do."""
        background, started = self._background, self._runtime.now()
        told = functools.partial(done, batch)
        if background is None or not batch.size or started < self._rests_until or not file.is_small(batch.size):
            self.write.post(_write_and_sync, (file, batch), told)
            return
        try:
            end = file.write(batch.pieces, batch.count)
        except Exception as error:
            asyncio.get_running_loop().call_soon(told, None, error)
            return
        if self._runtime.now() - started >= STALL_SECONDS:
            self._rests_until = started + REST_SECONDS
        if not file.begin_sync(background, told):
            self.write.post(file.sync, (end,), told)

    def write_then_sync(self, file: JournalFile, batch: Batch, written: Completion, synced: Completion) -> None:
        """Each on its lane. A batch that needs no sync is only `written`."""
        self.write.post(self._write, (file, batch, synced), functools.partial(written, batch))

    def _write(self, file: JournalFile, batch: Batch, synced: Completion) -> int:
        end = file.write(batch.pieces, batch.count)
        if batch.sync:
            self.force.post(file.sync, (end,), functools.partial(synced, batch))
        return end

    def roll(self, file: JournalFile, rolled: Callable[[JournalFile | None, BaseException | None], None]) -> None:
        """Go on to the next file. The force lane must have nothing to do."""
        self.write.post(self._roll, (file,), rolled)

    def _roll(self, file: JournalFile) -> JournalFile:
        file.sync(file.end)
        file.close()
        return self.create(file.journal_id + 1, LogMark(file.journal_id, file.end))

    async def close(self) -> None:
        """Finish what was given to the lanes."""
        for lane in (self.write, self.force, self.trim):
            await lane.close()
        if self._background is not None:
            await self._background.close()


def _write_and_sync(file: JournalFile, batch: Batch) -> int:
    return file.sync(file.write(batch.pieces, batch.count))
