"""The writing side of the entry logs of one directory.

Theory of operation

Entries are appended in runs, gathered to big writes, and become durable with `sync`; only then may an index point at
them (BI-11). A log that reached `logSizeLimit` is completed with its ledgers map and synced, then sealed: header
fields, sync. A log is never appended to by a later process: after a start the first append takes a new id. Ids only
grow and are never used again (BI-15): an id is noted durably in `lastId` before its file is created, and a start takes
the greatest of `lastId` and of all names in the directory.

A log may hold records that no index knows: what a crash, or a flush that failed, left behind. Such a record may be
torn, or older than the entry that the index has elsewhere. So the writer says which part of a log is *settled*: all
records in it were in the index at one time. A flush calls `settle` when its index entries are durable. Only then are
the logs sealed that became full in it: **a sealed log is settled as a whole**, in this process and every later one. A
log that a crash left unsealed is not settled at all.

A write that fails for want of space can be taken back: `rewind` cuts off what was appended since `mark`. This is
safe because no index entry points there yet. A failed sync cannot be taken back: the writer is of no use after it.

The writer belongs to its directory's lane (a `Workers` of one): no two of its calls run at a time.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from ....errors import CorruptStorageError, FatalBookieError
from ....runtime import File, Files
from ...file_names import LAST_LOG_ID, is_log_stray, log_ids, log_name, parse_log_name
from ..packing import JOIN_BELOW, words
from . import format as fmt

log = logging.getLogger(__name__)

WRITE_BYTES = 1 << 20
"""Records are gathered to writes of about this size."""

SYNC_BYTES = 16 << 20
"""Written data is synced at least this often. The disk begins with it as soon as it is written, so this sync, and the
one at the end of a flush, finds little left to do: the journal's syncs, on the same disk, wait behind them."""

REMEMBERED_LOGS = 256
"""Sealed logs of which the sizes are kept for garbage collection; those of the oldest are read from disk again."""


class EntryLogPosition(NamedTuple):
    """A place that the writer can be taken back to."""

    log_id: int | None
    position: int
    sizes: dict[int, int]


class _Full(NamedTuple):
    """A log that is complete and synced, and waits for `settle` to be sealed."""

    log_id: int
    file: File
    records_end: int
    sizes: dict[int, int]


class EntryLogWriter:
    """Appends to the entry logs of one directory."""

    def __init__(self, files: Files, directory: str, size_limit: int) -> None:
        self.past_cache_from: int | None = None
        """Writes of entries of so many bytes on average go past the system's page cache, where that can be."""
        self._files = files
        self._directory = directory
        self._limit = size_limit
        self._last_id = last_log_id(files, directory)
        self._file: File | None = None
        self._log_id: int | None = None
        self._pieces: list[bytes] = []  # appended, not yet written
        self._records = 0  # of which _pieces are
        self._written = 0  # offset of the first byte of _pieces in the file
        self._position = 0  # _written + bytes in _pieces
        self._unsynced = 0  # bytes written since the last sync
        self._sizes: dict[int, int] = {}  # record bytes per ledger in the current log
        self._full: list[_Full] = []  # became full since the last `settle`
        self._sealed: dict[int, dict[int, int]] = {}  # record bytes per ledger of logs closed since `take_sealed`
        self._settled: dict[int, int] = {}  # of each log of this process: all records before this offset are settled

    @property
    def active_log(self) -> int | None:
        """The log that the next entry would go to; None before the first append of this process."""
        return self._log_id

    @property
    def last_id(self) -> int:
        """The greatest log id ever given out in this directory; -1 for none."""
        return self._last_id

    def settled(self, log_id: int) -> int | None:
        """Up to which offset all records of a log were in the index; None for a log that this process did not write.

        May be called from any thread.
        """
        return self._settled.get(log_id)

    def append(self, ledger_id: int, entries: Sequence[bytes]) -> array[int]:
        """`append_mixed` of one ledger's entries."""
        return self.append_mixed([ledger_id] * len(entries), entries)

    def append_mixed(self, ledger_ids: Sequence[int], entries: Sequence[bytes]) -> array[int]:
        """Append entries, each of its ledger; returns their locations. They are durable after `sync`."""
        sizes = list(map(len, entries))
        steps = list(map(fmt.SIZE_WORD.__add__, sizes))
        total = sum(steps)
        if self._file is None or self._position + total > self._limit:
            return self._append_over_roll(ledger_ids, entries, steps)
        records: list[bytes] = [b""] * (2 * len(entries))
        records[::2] = words(sizes)
        records[1::2] = entries
        start = fmt.location_of(self._current_id(), self._position + fmt.SIZE_WORD)
        if total < JOIN_BELOW * len(entries):
            self._pieces.append(b"".join(records))
        else:
            self._pieces += records
        self._records += len(entries)
        self._position += total
        self._count(ledger_ids, steps)
        if self._position - self._written >= WRITE_BYTES:
            self._write()
        locations = array("q", accumulate(steps, initial=start))
        locations.pop()  # where the next entry would be
        return locations

    def _count(self, ledger_ids: Sequence[int], steps: Sequence[int]) -> None:
        """Note how many bytes of which ledgers are in the current log."""
        sizes = self._sizes
        first = ledger_ids[0]
        if ledger_ids.count(first) == len(ledger_ids):
            sizes[first] = sizes.get(first, 0) + sum(steps)
            return
        for ledger_id, step in zip(ledger_ids, steps, strict=True):
            sizes[ledger_id] = sizes.get(ledger_id, 0) + step

    def mark(self) -> EntryLogPosition:
        """The current place. Nothing may be waiting to be written: call it right after `sync`."""
        assert not self._pieces
        return EntryLogPosition(self._log_id, self._position, dict(self._sizes))

    def rewind(self, mark: EntryLogPosition) -> None:
        """Forget what was appended since `mark`. Logs that became full since then keep what they have, and are never
        sealed: no index knows it."""
        self._forget_pieces()
        self._leave_unsealed()
        if self._file is None:
            return
        if self._log_id == mark.log_id:
            self._position, self._sizes = mark.position, dict(mark.sizes)
        else:
            self._position, self._sizes = fmt.HEADER_SIZE, {}
        self._written = self._position
        self._file.truncate(self._position)

    def sync(self) -> None:
        """Write and sync all that was appended."""
        self._write()
        if self._unsynced:
            self._sync_file()

    def settle(self) -> None:
        """All that was appended is synced and in the index: seal the logs that became full."""
        assert not self._pieces
        while self._full:
            full = self._full[0]
            full.file.pwrite(fmt.seal_fields(full.records_end, len(full.sizes)), fmt.SEAL_OFFSET)
            self._sync_file(full.file)
            full.file.close()
            self._settled[full.log_id] = fmt.MAX_OFFSET
            del self._full[0]
        if self._log_id is not None:
            self._settled[self._log_id] = self._position

    def roll(self) -> None:
        """Complete the current log; the next append begins another one. `settle` seals it."""
        if self._file is None:
            return
        self._write()
        self._file.pwrite(fmt.encode_ledgers_map(self._sizes), self._position)
        self._sync_file()
        self._full.append(_Full(self._current_id(), self._file, self._position, self._sizes))
        self._forget_current()

    def end_log(self) -> None:
        """Close the current log without a seal: what was appended since the last `settle` stays unsettled."""
        self._leave_unsealed()
        if self._file is not None:
            self._file.close()
            self._forget_current()

    def _leave_unsealed(self) -> None:
        while self._full:
            self._full.pop().file.close()

    def _forget_current(self) -> None:
        self._sealed[self._current_id()] = self._sizes
        if len(self._sealed) > REMEMBERED_LOGS:
            del self._sealed[next(iter(self._sealed))]
        self._file, self._log_id, self._unsynced, self._sizes = None, None, 0, {}

    def forget(self, log_id: int) -> None:
        """A log was deleted."""
        self._settled.pop(log_id, None)

    def take_sealed(self) -> dict[int, dict[int, int]]:
        """Record bytes per ledger in the logs closed since the last call, counted as they were appended: what a log
        may hold, whatever has become of it on disk. Of the last `REMEMBERED_LOGS`."""
        sealed, self._sealed = self._sealed, {}
        return sealed

    def close(self) -> None:
        """Seal the current log. All in it must be settled."""
        self.roll()
        self.settle()

    def abandon(self) -> None:
        """Close the current log as it is, after a failure."""
        self._forget_pieces()
        self._leave_unsealed()
        if self._file is not None:
            self._file.close()
            self._file, self._log_id = None, None

    def _append_over_roll(self, ledger_ids: Sequence[int], entries: Sequence[bytes], steps: list[int]) -> array[int]:
        locations: array[int] = array("q")
        start = 0
        while start < len(entries):
            if self._file is None:
                self._begin()
            room = self._limit - self._position
            end = start
            used = 0
            while end < len(entries) and used + steps[end] <= room:
                used += steps[end]
                end += 1
            if end == start and self._position == fmt.HEADER_SIZE:
                end += 1  # larger than a whole log: it gets one of its own
                locations.extend(self._append_alone(ledger_ids[start], entries[start]))
            elif end > start:
                locations.extend(self.append_mixed(ledger_ids[start:end], entries[start:end]))
            if end < len(entries):
                self.roll()
            start = end
        return locations

    def _append_alone(self, ledger_id: int, entry: bytes) -> array[int]:
        limit, self._limit = self._limit, fmt.MAX_OFFSET
        try:
            return self.append(ledger_id, [entry])
        finally:
            self._limit = limit

    def _begin(self) -> None:
        log_id = self._last_id + 1
        if log_id > fmt.MAX_LOG_ID:
            raise FatalBookieError(f"{self._directory}: all entry log ids are used up")
        self._last_id = log_id
        self._files.write_atomically(f"{self._directory}/{LAST_LOG_ID}", b"%x\n" % log_id)
        path = f"{self._directory}/{log_name(log_id)}"
        file = self._files.open(path, "x+")
        try:
            file.pwrite(fmt.new_header(), 0)
        except OSError:
            file.close()
            self._files.unlink(path)
            raise
        self._file, self._log_id, self._sizes = file, log_id, {}
        self._settled[log_id] = 0
        self._written = self._position = fmt.HEADER_SIZE
        self._sync_file()
        try:
            self._files.fsync_dir(self._directory)
        except OSError as error:
            raise FatalBookieError(f"cannot sync {self._directory}: {error}") from error

    def _write(self) -> None:
        if not self._pieces or self._file is None:
            return
        if self._goes_past_cache():
            self._file.write_through(self._pieces, self._written)
        else:
            size = self._file.pwritev(self._pieces, self._written)
            self._file.start_writeback(size, self._written)
        self._forget_pieces()
        self._unsynced += self._position - self._written
        self._written = self._position
        if self._unsynced >= SYNC_BYTES:
            self._sync_file()

    def _goes_past_cache(self) -> bool:
        least = self.past_cache_from
        return least is not None and self._position - self._written >= self._records * least

    def _forget_pieces(self) -> None:
        self._pieces.clear()
        self._records = 0

    def _sync_file(self, file: File | None = None) -> None:
        """What a failed sync leaves on the disk is unknown, and the next one would not tell: so it is fatal (BI-17)."""
        file = self._file if file is None else file
        assert file is not None
        try:
            file.fdatasync()
        except OSError as error:
            raise FatalBookieError(f"cannot sync {file.path}: {error}") from error
        if file is self._file:
            self._unsynced = 0

    def _current_id(self) -> int:
        assert self._log_id is not None
        return self._log_id


def last_log_id(files: Files, directory: str) -> int:
    """The greatest entry log id that this directory knows of; -1 for none."""
    names = files.listdir(directory)
    ids = [log_id for name in names for log_id in log_ids(name)]
    if LAST_LOG_ID in names:
        text = files.read_bytes(f"{directory}/{LAST_LOG_ID}")
        try:
            ids.append(int(text, 16))
        except ValueError:
            log.warning("%s/%s is not readable (%r): ids continue after the greatest log", directory, LAST_LOG_ID, text)
    return max(ids, default=-1)


def list_logs(files: Files, directory: str) -> dict[int, int]:
    """Size of each entry log in the directory, by ascending id."""
    found = {}
    for name in files.listdir(directory):
        log_id = parse_log_name(name)
        if log_id is not None:
            found[log_id] = files.size(f"{directory}/{name}")
    return dict(sorted(found.items()))


def check_log_names(files: Files, directory: str) -> None:
    """Refuse a directory with `.log` files that are not entry logs. Raises `CorruptStorageError`."""
    for name in files.listdir(directory):
        if is_log_stray(name):
            raise CorruptStorageError(f"{directory}/{name} is not an entry log: move it out of this directory")
