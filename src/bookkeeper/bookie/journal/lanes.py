"""The journal's blocking work, on three lanes: writing, syncing, and what checkpoints do.

Theory of operation

Writing goes on during a sync: the write lane hands what it has written straight on to the force lane. When there is
nothing to overlap, the write lane syncs the batch itself, which saves a quarter of the CPU.

A file is followed by the next one on the write lane, while the force lane has nothing to do: the old file is synced to
its end and closed, then the new one is made.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from ...config import ServerConfiguration
from ...runtime import Runtime
from .file import JournalFile
from .format import SealHeader
from .gathering import Batch
from .last_mark import LogMark

Completion = Callable[[Batch, int | None, BaseException | None], None]
"""Called on the loop with the batch and the position that was reached, or an error."""


class Lanes:
    """See the module. `trim` is for checkpoints (`retention`); nothing else is done on it."""

    def __init__(self, runtime: Runtime, config: ServerConfiguration, index: int, directory: str) -> None:
        self._files = runtime.files
        self._config = config
        self._directory = directory
        self.write = runtime.workers(f"journal-{index}-write")
        self.force = runtime.workers(f"journal-{index}-force")
        self.trim = runtime.workers(f"journal-{index}-checkpoint")
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
        """Both on the write lane; the force lane must have nothing to do."""
        self.write.post(_write_and_sync, (file, batch), functools.partial(done, batch))

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


def _write_and_sync(file: JournalFile, batch: Batch) -> int:
    return file.sync(file.write(batch.pieces, batch.count))
