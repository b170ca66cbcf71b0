"""The last log mark: up to where a journal is not needed any more (spec bookie-storage §4.1).

File `lastMark` (one journal) or `lastMark.<index>` (several), a copy in each ledger directory. 16 bytes:

    offset  size  field
    0       8     id of the journal file
    8       8     offset in it

Every effect of the journal's records before this position is durable in the ledger storage. A copy is replaced as a
whole (temporary file, sync, rename, sync of the directory), so a crash leaves the old mark or the new one. Of several
copies the greatest counts; a copy that is missing or short does not.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from typing import NamedTuple

from bookkeeper.runtime import Files

log = logging.getLogger(__name__)

_MARK = struct.Struct(">qq")


class LogMark(NamedTuple):
    """A position in a journal. Marks order as positions do."""

    journal_id: int
    offset: int

    def encode(self) -> bytes:
        return _MARK.pack(self.journal_id, self.offset)

    @classmethod
    def decode(cls, data: bytes) -> LogMark | None:
        """The mark in a file's content; None if it is too short to be one."""
        return cls(*_MARK.unpack_from(data)) if len(data) >= _MARK.size else None


START = LogMark(0, 0)
"""No journal has been marked: everything is to be replayed."""


def file_name(index: int, journals: int) -> str:
    """The name of journal `index`'s mark file when there are `journals` of them."""
    return "lastMark" if journals == 1 else f"lastMark.{index}"


class MarkFiles:
    """The copies of one journal's mark. All calls block.

    `directories` are the `current` folders of all ledger directories.
    """

    def __init__(self, files: Files, directories: Sequence[str], name: str) -> None:
        self._files = files
        self._paths = [f"{directory}/{name}" for directory in directories]

    def read(self) -> LogMark:
        """The greatest mark found, `START` if there is none. Raises `OSError` for a file that cannot be read."""
        marks = [LogMark.decode(self._files.read_bytes(path)) for path in self._paths if self._files.exists(path)]
        return max((mark for mark in marks if mark is not None), default=START)

    def write(self, mark: LogMark) -> bool:
        """Replace all copies; True if every one was. Raises `OSError` if none could be.

        A full ledger directory is written to like any other: 16 bytes fit below the thresholds that make it full.
        """
        data = mark.encode()
        written = 0
        for path in self._paths:
            try:
                self._files.write_atomically(path, data)
                written += 1
            except OSError as error:
                log.error("cannot write %s: %s", path, error)
        if not written:
            raise OSError(f"the mark {mark} could not be written to any ledger directory")
        return written == len(self._paths)
