"""One journal file while it is written (layout: `format`).

Its methods block and run on the journal's lanes: `write` on the write lane, `sync` on the force lane, at the same time.
What they share are two numbers, each set by one of them: `end`, how far the file is written, and `synced`. While the
lanes have nothing to do the loop may write and `begin_sync` in their place, what `is_small` (`lanes`).
After a failure every further call fails: a second sync that succeeds would prove nothing about the first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from ...errors import FatalBookieError
from ...runtime import BackgroundSync, File, Files
from ..file_names import journal_name
from ..storage.packing import JOIN_BELOW
from .format import SEALED_SINCE, SealHeader, encode_header, sealed_padding

CACHE_BEHIND = 8 << 20
"""Bytes before the synced position that are left in the page cache, and the step in which older ones are dropped."""

CHUNK = 4 << 20
"""Bytes written again at once."""

SMALL = 128 << 10
"""Bytes of records that are copied to the page cache so quickly that the loop may do it."""


def write_again(files: Files, path: str, start: int, end: int) -> None:
    """Make durable what is seen of a file in [start, end). Blocks. Raises `OSError`.

    A sync alone would not do: one that failed has left pages that count as clean and are on no disk.
    """
    with files.open(path, "r+") as file:
        for at in range(start, end, CHUNK):
            file.pwrite(file.pread(min(CHUNK, end - at), at), at)
        file.fsync()


class JournalFile:
    """Creates the file durably: its header is synced, and so is its name."""

    def __init__(
        self,
        files: Files,
        directory: str,
        version: int,
        seal: SealHeader,
        *,
        alignment: int,
        step: int,
        drop_cache: bool,
    ) -> None:
        self.journal_id = seal.journal_id
        self._version = version
        self._alignment = alignment
        self._step = step  # bytes allocated at once
        self._drop_cache = drop_cache
        self._dropped = 0  # bytes before this were dropped from the page cache
        self._error: BaseException | None = None
        header = encode_header(version, seal)
        self._file: File = files.open(f"{directory}/{journal_name(seal.journal_id)}", "x+")
        try:
            self._file.pwrite(header, 0)
            self._file.allocate(len(header), step - len(header))
            self._file.fsync()
            files.fsync_dir(directory)
        except BaseException:
            self._file.close()
            with contextlib.suppress(OSError):  # it takes space, and holds nothing
                files.unlink(self._file.path)
            raise
        self._allocated = step
        self.end = self.synced = len(header)

    def write(self, pieces: Sequence[bytes], count: int) -> int:
        """Write `count` records, given as pieces, as one batch; returns the new end. They are not synced yet."""
        self._check()
        if not pieces:
            return self.end
        try:
            start = self.end
            size = sum(map(len, pieces))
            if size < JOIN_BELOW * len(pieces):
                pieces = (b"".join(pieces),)
            if self._version >= SEALED_SINCE:
                seal = sealed_padding(pieces, self.journal_id, start, count, self.synced, self._alignment)
            else:
                seal = b""
            end = start + size + len(seal)
            if end > self._allocated:
                step = max(self._step, end - self._allocated)
                self._file.allocate(self._allocated, step)
                self._allocated += step
            self._file.pwritev((*pieces, seal), start)
            self.end = end
            return end
        except BaseException as error:
            self._error = error
            raise

    def sync(self, end: int) -> int:
        """Make the file durable at least up to `end`; returns how far it is."""
        self._check()
        if self.synced >= end:
            return self.synced
        try:
            reached = self.end  # whatever is written before the sync begins is covered by it
            self._file.fdatasync()
            self.synced = reached
            if self._is_to_drop(reached):
                self._file.drop_cache(self._dropped, reached - CACHE_BEHIND - self._dropped)
                self._dropped = reached - CACHE_BEHIND
            return reached
        except BaseException as error:
            self._error = error
            raise

    def is_small(self, size: int) -> bool:
        """Whether to write and sync so many bytes of records is quick, with nothing to be done beside it."""
        return (
            size <= SMALL
            and self.end + size + 2 * self._alignment <= self._allocated
            and not self._is_to_drop(self.synced)
        )

    def begin_sync(self, background: BackgroundSync, done: Callable[[int | None, BaseException | None], None]) -> bool:
        """Make what is written durable in the background, then `done(how far, error)` on the loop; False if that is
        refused. Nothing is to be written or synced meanwhile."""
        self._check()
        reached = self.end

        def is_over(error: OSError | None) -> None:
            if error is None:
                self.synced = reached
                done(reached, None)
            else:
                self._error = error
                done(None, error)

        return background.start(self._file, is_over)

    def _is_to_drop(self, synced: int) -> bool:
        return self._drop_cache and synced - CACHE_BEHIND - self._dropped >= CACHE_BEHIND

    def close(self) -> None:
        self._file.close()

    def _check(self) -> None:
        if self._error is not None:
            raise FatalBookieError("the journal has failed before") from self._error
