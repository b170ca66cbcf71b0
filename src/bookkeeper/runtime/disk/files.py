"""Files of the operating system (see `api.Files`)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
from collections.abc import Sequence

from ..api import (
    Buffer,
    DiskUsage,
    File,
    Files,
)
from .direct_io import REFUSALS, DirectWriter, cut, whole_pages

_IOV_MAX = 1024
_OPEN_FLAGS = {
    "r": os.O_RDONLY,
    "r+": os.O_RDWR,
    "w+": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    "x+": os.O_RDWR | os.O_CREAT | os.O_EXCL,
}
_SYNC_FILE_RANGE_WRITE = 2
_sync_file_range = getattr(ctypes.CDLL(None), "sync_file_range", None)  # Linux has it
if _sync_file_range is not None:
    _sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]


class RealFile(File):
    """Its errors name the file, which those of the system do not once it is open."""

    _fd = -1  # until it is open
    _direct: DirectWriter | None = None  # from the first `write_through` on
    _past_cache = True  # as far as is known

    def __init__(self, path: str, mode: str) -> None:
        self.path = path
        self._fd = os.open(path, _OPEN_FLAGS[mode] | os.O_CLOEXEC, 0o644)

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        pieces = [data]
        got = len(data)
        while got < size and data:
            data = os.pread(self._fd, size - got, offset + got)
            pieces.append(data)
            got += len(data)
        return b"".join(pieces)

    def pwrite(self, data: Buffer, offset: int) -> None:
        try:
            written = os.pwrite(self._fd, data, offset)
            if written == len(data):
                return
            view = memoryview(data)
            while written < len(view):
                written += os.pwrite(self._fd, view[written:], offset + written)
        except OSError as error:
            self._name(error)
            raise

    def pwritev(self, pieces: Sequence[Buffer], offset: int) -> int:
        total = 0
        for start in range(0, len(pieces), _IOV_MAX):
            group = pieces[start : start + _IOV_MAX]
            size = sum(map(len, group))
            try:
                written = os.pwritev(self._fd, group, offset + total)
            except OSError as error:
                self._name(error)
                raise
            if written != size:
                self.pwrite(memoryview(b"".join(group))[written:], offset + total + written)
            total += size
        return total

    def write_through(self, pieces: Sequence[Buffer], offset: int) -> None:
        size = sum(map(len, pieces))
        pages = whole_pages(offset, size) if self._past_cache else range(0)
        if not pages:
            self.pwritev(pieces, offset)
            return
        start, stop = pages.start, pages.stop
        self.pwritev(cut(pieces, 0, start), offset)
        self._write_pages(cut(pieces, start, stop), offset + start)
        self.pwritev(cut(pieces, stop, size), offset + stop)

    def _write_pages(self, pieces: Sequence[Buffer], offset: int) -> None:
        written, size = 0, sum(map(len, pieces))
        try:
            if self._direct is None:
                self._direct = DirectWriter(self.path)
            written = self._direct.write(pieces, offset)
        except OSError as error:
            if error.errno not in REFUSALS:
                self._name(error)
                raise
        if written < size:
            self._past_cache = False
            self.pwritev(cut(pieces, written, size), offset + written)

    def start_writeback(self, size: int, offset: int) -> None:
        if _sync_file_range is not None:
            _sync_file_range(self._fd, offset, size, _SYNC_FILE_RANGE_WRITE)  # what fails, the next sync tells

    def fileno(self) -> int:
        """The system's number for it while it is open."""
        return self._fd

    def fdatasync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self._name(error)
            raise

    def fsync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            self._name(error)
            raise

    def _name(self, error: OSError) -> None:
        error.filename = self.path

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, offset: int, size: int) -> None:
        try:
            os.posix_fallocate(self._fd, offset, size)
        except OSError as error:
            self._name(error)
            raise

    def drop_cache(self, offset: int, size: int) -> None:
        with contextlib.suppress(OSError):
            os.posix_fadvise(self._fd, offset, size, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        self._past_cache = False  # it would be opened anew
        if self._direct is not None:
            self._direct.close()
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class RealFiles(Files):
    """The operating system's files."""

    def open(self, path: str, mode: str = "r") -> File:
        return RealFile(path, mode)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def makedirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def link(self, old: str, new: str) -> None:
        os.link(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def disk_usage(self, path: str) -> DiskUsage:
        stat = os.statvfs(path)
        return DiskUsage(
            total=stat.f_frsize * stat.f_blocks,
            usable=stat.f_frsize * stat.f_bavail,
            device=os.stat(path).st_dev,
        )
