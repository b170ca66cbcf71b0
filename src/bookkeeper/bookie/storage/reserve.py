"""Space kept for what must be written on a full disk.

Theory of operation

A bookie on a full disk is read-only, but not idle: fences have to reach the ledger index, the deletions that give space
back have to reach the location index first, and a start opens both databases, which write some files. Entry logs, or
another program, may have taken the last byte before. So a file of `dbStorage_reservedSpaceMb` is kept, of no use but to
be deleted when less than that is free and the index has to be written. It is made again when there is plenty.

RocksDB does not take "no space" well (see `runtime.rocks`). So it is not asked to write while less is free than a write
may need: the change waits, and the caller is told `ENOSPC`.

For the directory's lane.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

from ...runtime import Files
from ..file_names import RESERVED_SPACE

log = logging.getLogger(__name__)

MAX_SHARE = 32
"""The file takes at most the file system's size divided by this."""

PLENTY = 4
"""The file is made when so many times its size is free."""

LEAST_FREE = 512 << 10
"""Bytes that must be free before anything is written to an index."""


class Reserve:
    """The reserved space of one index directory."""

    def __init__(self, files: Files, directory: str, size: int) -> None:
        """`size`: bytes to keep; 0: none."""
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{RESERVED_SPACE}"
        self._size = min(size, files.disk_usage(directory).total // MAX_SHARE)
        self._held = files.exists(self._path)
        if self._held and files.size(self._path) != self._size:  # of another setting, or cut off by a crash
            self.release()

    def require(self, size: int) -> None:
        """Return when `size` bytes can be written to the index, from the reserve if need be. Raises `OSError`."""
        if self._free() < size + LEAST_FREE:
            self.release()
            if self._free() < size + LEAST_FREE:
                raise OSError(errno.ENOSPC, "No space left for the index", self._directory)

    def leave_for_index(self, size: Callable[[], int]) -> None:
        """Before so many bytes go to the entry logs: what was reserved is not for them. Raises `OSError`."""
        if not self._held and self._size and self._free() < size() + self._size:
            raise OSError(errno.ENOSPC, "No space left but for the index", self._directory)

    def release_if_low(self) -> None:
        """Before the databases are opened, which writes an unknown amount."""
        if self._free() < self._size:
            self.release()

    def release(self) -> None:
        """Give the space up."""
        if self._held:
            self._held = False
            self._files.unlink(self._path)
            log.info("%s: the reserved space is given up", self._directory)

    def restore(self) -> None:
        """Make the file again if there is plenty of space."""
        if self._held or not self._size or self._free() < PLENTY * self._size:
            return
        try:
            with self._files.open(self._path, "w+") as file:
                self._held = True
                file.allocate(0, self._size)
        except OSError as error:
            log.warning("%s: no space is reserved: %s", self._directory, error)
            self.release()

    def _free(self) -> int:
        return self._files.disk_usage(self._directory).usable
