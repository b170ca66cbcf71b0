"""Writing past the system's page cache.

Theory of operation

What is not read again soon gains nothing from the page cache: the copy into it can take longer than the disk does, and
pages that others need are given up for it. With `O_DIRECT` the disk takes the data from the process's memory. It wants
address, offset and size in units of its blocks. So whole pages go through a buffer, a part at a time; that copy stays
in the processor's caches. What begins or ends inside of a page is written through the page cache: no page is written
both ways, and none is read to be completed.

Not every file system can: what was not written so is the caller's to write.

It pays for much at once only, which nobody waits for. A journal, of which each batch is synced while the next one is
written, is no faster with it, and slower with large entries: the disk is waited for twice.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Sequence

from ..api import Buffer

BUFFER = 1 << 20
"""Bytes that are written at once. Disks take no more a second with larger ones."""

REFUSALS = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
"""Errors that say that the file system or the disk cannot write so."""

_O_DIRECT = getattr(os, "O_DIRECT", 0)


def whole_pages(offset: int, size: int) -> range:
    """The whole pages of `size` bytes at `offset`, as a range in them."""
    start = -offset % mmap.PAGESIZE
    return range(start, max(start, (offset + size) // mmap.PAGESIZE * mmap.PAGESIZE - offset))


def cut(pieces: Sequence[Buffer], start: int, stop: int) -> list[Buffer]:
    """What stands from `start` to `stop` in pieces that follow each other, not copied."""
    found: list[Buffer] = []
    at = 0  # where the piece begins
    for piece in pieces:
        end = at + len(piece)
        if end > start and at < stop:
            whole = start <= at and end <= stop
            found.append(piece if whole else memoryview(piece)[max(start - at, 0) : stop - at])
        at = end
    return found


class DirectWriter:
    """Writes to a file that exists. For one thread at a time."""

    def __init__(self, path: str) -> None:
        """Raises `OSError`, with one of `REFUSALS` where the file system cannot."""
        if not _O_DIRECT:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), path)
        self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | _O_DIRECT)
        self._buffer = memoryview(mmap.mmap(-1, BUFFER))

    def write(self, pieces: Sequence[Buffer], offset: int) -> int:
        """Write pieces one after the other, which are whole pages; returns how many bytes: all, or those before what
        was refused.

        Raises `OSError` for every other failure.
        """
        written = filled = 0
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                part = rest[: BUFFER - filled]
                self._buffer[filled : filled + len(part)] = part
                filled += len(part)
                rest = rest[len(part) :]
                if filled == BUFFER:
                    count = self._put(filled, offset + written)
                    written += count
                    if count < filled:
                        return written
                    filled = 0
        return written + self._put(filled, offset + written)

    def _put(self, size: int, offset: int) -> int:
        """Write what is in the buffer."""
        try:
            return os.pwrite(self._fd, self._buffer[:size], offset) if size else 0
        except OSError as error:
            if error.errno in REFUSALS:
                return 0
            raise

    def close(self) -> None:
        """Idempotent."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)
