"""The last log mark: up to where a journal is not needed any more (spec bookie-storage §4.1).

File `lastMark` (one journal) or `lastMark.<index>` (several), a copy in each ledger directory:

    offset  size  field
    0       8     id of the journal file
    8       8     offset in it
    16      4     "BKLM"
    20      4     CRC32C of bytes [0, 20)

Java writes the first 16 bytes only, and reads no more of ours. Every effect of the journal's records before this
position is durable in the ledger storage. A copy is replaced as a whole (temporary file, sync, rename, sync of the
directory), so a crash leaves the old mark or the new one.

Of several copies the greatest counts; a copy that is missing or short does not. A damaged one, whose checksum does not
match, is reported and does not count either: a mark too far ahead would hide records from replay for good, one too far
back only costs time, down to none at all. So without any whole copy everything is replayed. A mark without a checksum
is told apart (`FoundMark.checked`): replay checks whether it can be true.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from typing import NamedTuple

import google_crc32c

from ...errors import CorruptStorageError
from ...runtime import Files

log = logging.getLogger(__name__)

_MARK = struct.Struct(">qq")
_SEALED = struct.Struct(">qq4s")
_CRC = struct.Struct(">I")
_MAGIC = b"BKLM"


class LogMark(NamedTuple):
    """A position in a journal. Marks order as positions do."""

    journal_id: int
    offset: int

    def encode(self) -> bytes:
        sealed = _SEALED.pack(self.journal_id, self.offset, _MAGIC)
        return sealed + _CRC.pack(google_crc32c.value(sealed))

    @classmethod
    def decode(cls, data: bytes) -> LogMark | None:
        """The mark in a file's content; None if it is too short to be one. Raises `CorruptStorageError`."""
        if len(data) < _MARK.size:
            return None
        mark = cls(*_MARK.unpack_from(data))
        sealed = data[: _SEALED.size]
        whole = data == sealed + _CRC.pack(google_crc32c.value(sealed)) and sealed.endswith(_MAGIC)
        if len(data) > _MARK.size and not whole:
            raise CorruptStorageError("its checksum does not match")
        if min(mark) < 0:
            raise CorruptStorageError(f"there is no position {mark.journal_id}, {mark.offset}")
        return mark


class FoundMark(NamedTuple):
    """A mark as it was found."""

    mark: LogMark
    checked: bool
    """A checksum vouches for it, or there is none at all."""


START = LogMark(0, 0)
"""No journal has been marked: everything is to be replayed."""


class MarkFiles:
    """The copies of one journal's mark. All calls block.

    `directories` are the `current` folders of all ledger directories.
    """

    def __init__(self, files: Files, directories: Sequence[str], name: str) -> None:
        self._files = files
        self._paths = [f"{directory}/{name}" for directory in directories]

    def read(self) -> FoundMark:
        """The greatest mark found, `START` if there is none. Raises `OSError` for a file that cannot be read."""
        found: list[FoundMark] = []
        damaged = 0
        for path in self._paths:
            data = self._files.read_bytes(path) if self._files.exists(path) else b""
            try:
                mark = LogMark.decode(data)
            except CorruptStorageError as error:
                damaged += 1
                log.error("%s is damaged and does not count: %s", path, error)
                continue
            if mark is not None:
                found.append(FoundMark(mark, checked=len(data) > _MARK.size))
        if damaged and not found:
            log.error("no copy of the mark is whole: the journals are replayed from their beginning")
        return max(found, default=FoundMark(START, checked=True))

    def write(self, mark: LogMark) -> bool:
        """Replace all copies; True if every one was. Raises `OSError` if none could be.

        A full ledger directory is written to like any other: a few bytes fit below the thresholds that make it full.
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
