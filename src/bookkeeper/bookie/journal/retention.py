"""Which journal files may go: the mark that the ledger directories keep, and files before it (spec bookie-storage §4).

The mark is written after the storage has made durable what the journal holds before it. Files are deleted only when
every ledger directory has the mark; the marked one and `journalMaxBackups` before it are kept.
"""

from __future__ import annotations

import logging

from ...runtime import Files, Workers
from ..file_names import journal_ids, journal_name
from .last_mark import START, LogMark, MarkFiles
from .replay import believable

log = logging.getLogger(__name__)


class Retention:
    """See the module. Its blocking work is done on `lane`."""

    def __init__(self, files: Files, directory: str, marks: MarkFiles, max_backups: int, lane: Workers) -> None:
        self._files = files
        self._directory = directory
        self._marks = marks
        self._max_backups = max_backups
        self._lane = lane
        self.persisted = START
        """The mark that at least one ledger directory has; only grows."""
        self._everywhere = False  # all of them have it

    async def read_mark(self, index: int) -> LogMark:
        """The persisted mark of journal `index`; the beginning if there is none, or it is damaged."""
        self.persisted = await self._lane.submit(self._read_mark, index)
        return self.persisted

    def _read_mark(self, index: int) -> LogMark:
        mark, checked = self._marks.read()
        if checked or believable(self._files, self._directory, mark):
            return mark
        log.error(
            "the mark of journal %d, %d in %s, is not the end of anything: it is damaged and does not count; the "
            "journals are replayed from their beginning",
            index,
            mark.offset,
            journal_name(mark.journal_id),
        )
        return START

    async def checkpoint_complete(self, mark: LogMark, compact: bool) -> None:
        """The storage has made durable what the journal holds before `mark`: write that down, and with `compact`
        delete journals.

        A mark below the one written before changes nothing. One call at a time. Raises `OSError`.
        """
        if mark > self.persisted or (mark == self.persisted != START and not self._everywhere):
            self._everywhere = await self._lane.submit(self._marks.write, mark)
            self.persisted = mark
        if compact and self._everywhere:
            await self._lane.submit(self._trim, self.persisted.journal_id)

    def _trim(self, marked: int) -> None:
        old = [id_ for id_ in journal_ids(self._files.listdir(self._directory)) if id_ < marked]
        for id_ in old[: max(0, len(old) - self._max_backups)]:
            self._files.unlink(f"{self._directory}/{journal_name(id_)}")
            log.info("deleted journal %s/%s", self._directory, journal_name(id_))
