"""The reading side of entry logs: records by location, and whole logs from end to end.

By location: the record there must be what the index says it is, or `CorruptStorageError` is raised (BI-10, BI-16).
The records behind it are taken along as long as they are the next entries of the same ledger; whatever else follows
just ends the run. More is read only while all that was read so far were such records: where a ledger's entries lie
scattered, no read brings much for nothing. That the index knows a record taken along is for the caller to check, unless
it lies in the settled part of the log (see `entry_log`).

By scan: a log says through its header where its records end, else (it was never sealed) its file's end does. A scan
that does not arrive exactly there says so (`LogScan.torn`), because "I could read no more" must never be taken for
"there is no more" when a log is to be deleted (safety JH-5). A log that was being written at a crash is legally torn.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from ....errors import CorruptStorageError
from ....runtime import File
from . import format as fmt

FIRST_READ = 16 << 10
"""Least bytes asked for at a location: enough for most single entries and some that follow."""

SINGLE_READ = 4 << 10
"""Bytes asked for at a location when nothing but the record there is wanted; a larger one takes a second read."""

GROWTH = 4
"""How many times as much is at hand after each further read."""

SCAN_READ = 1 << 20

_unpack = fmt.RECORD.unpack_from
_HEAD = fmt.RECORD.size


class Records(NamedTuple):
    """Records of consecutive entries of a ledger, as they stand in a log."""

    raw: bytes
    """Size word and entry of each."""
    offsets: array[int]
    """Where each begins in `raw`; and behind them, the end."""

    @property
    def entries(self) -> int:
        return len(self.offsets) - 1

    def first(self, count: int) -> Records:
        """The first `count` of them."""
        if count >= self.entries:
            return self
        return Records(self.raw[: self.offsets[count]], self.offsets[: count + 1])


def read_records(
    file: File, location: int, ledger_id: int, entry_id: int, max_count: int, max_bytes: int, window: int = FIRST_READ
) -> Records:
    """The record at a location and those of the next entries behind it.

    At least the first; at most `max_count`, and no more than `max_bytes` unless the first alone is larger. `window`:
    bytes of the first read. Raises `CorruptStorageError` if the record at the location is not the entry asked for,
    `OSError`.
    """
    offset = fmt.offset_of(location) - fmt.SIZE_WORD
    window = max(min(window, max_bytes), FIRST_READ)
    raw = file.pread(window, offset)
    ended = len(raw) < window
    size = _check_first(file, raw, offset, ledger_id, entry_id)
    end = size + fmt.SIZE_WORD
    if end > len(raw):
        raw += file.pread(end - len(raw), offset + len(raw))
        if end > len(raw):
            raise CorruptStorageError(f"{file.path}: record at {offset} is cut off")
    offsets = array("I", (0, end))
    while _walk(raw, ledger_id, entry_id, offsets, max_count, max_bytes) and not ended and len(raw) < max_bytes:
        wanted = min(GROWTH * len(raw), max_bytes) - len(raw)
        more = file.pread(wanted, offset + len(raw))
        ended = len(more) < wanted
        raw += more
    end = offsets[-1]
    return Records(raw if end == len(raw) else raw[:end], offsets)


def read_record(file: File, location: int, ledger_id: int, entry_id: int) -> bytes:
    """The entry at a location, and nothing behind it. Raises as `read_records`."""
    offset = fmt.offset_of(location) - fmt.SIZE_WORD
    raw = file.pread(SINGLE_READ, offset)
    end = _check_first(file, raw, offset, ledger_id, entry_id) + fmt.SIZE_WORD
    if end > len(raw):
        raw += file.pread(end - len(raw), offset + len(raw))
        if end > len(raw):
            raise CorruptStorageError(f"{file.path}: record at {offset} is cut off")
    return raw[fmt.SIZE_WORD : end]


def _check_first(file: File, raw: bytes, offset: int, ledger_id: int, entry_id: int) -> int:
    """The size of the entry whose record begins `raw`."""
    if offset < fmt.HEADER_SIZE or len(raw) < _HEAD:
        raise CorruptStorageError(f"{file.path}: no record at {offset} for ledger {ledger_id} entry {entry_id}")
    size, found_ledger, found_entry = _unpack(raw)
    if (found_ledger, found_entry) != (ledger_id, entry_id):
        raise CorruptStorageError(
            f"{file.path}: at {offset} there is ledger {found_ledger} entry {found_entry},"
            f" the index says ledger {ledger_id} entry {entry_id}"
        )
    if size < fmt.MIN_ENTRY_SIZE or (size + fmt.SIZE_WORD > len(raw) and offset + size + fmt.SIZE_WORD > file.size()):
        raise CorruptStorageError(f"{file.path}: record at {offset} has impossible size {size}")
    return int(size)


def _walk(raw: bytes, ledger_id: int, first: int, offsets: array[int], max_count: int, max_bytes: int) -> bool:
    """Go on with the offsets of the records that follow each other; the first is of entry `first`.

    Returns whether `raw` ended before the run did.
    """
    last_head = len(raw) - _HEAD
    limit = min(max_bytes, len(raw))
    end = offsets[-1]
    entry_id = first + len(offsets) - 2
    last_entry = first + max_count - 1
    while entry_id < last_entry:
        if end > last_head:
            return True
        size, found_ledger, found_entry = _unpack(raw, end)
        entry_id += 1
        end += size + fmt.SIZE_WORD
        if found_entry != entry_id or found_ledger != ledger_id or size < fmt.MIN_ENTRY_SIZE:
            return False
        if end > limit:
            return True
        offsets.append(end)
    return False


class LogRecord(NamedTuple):
    """A record met in a scan."""

    location: int
    ledger_id: int
    entry_id: int
    size: int
    """Bytes of the entry, without the size word."""


class LogScan:
    """One pass over a log's records. Raises `CorruptStorageError` at once if the file is not an entry log."""

    def __init__(self, file: File, log_id: int) -> None:
        self.log_id = log_id
        self.torn = False
        """Set when the pass ended before the log's end: the rest cannot be read as records."""
        self._file = file
        self._size = file.size()
        self.header = fmt.parse_header(file.pread(fmt.HEADER_SIZE, 0)) if self._size else fmt.LogHeader(1, 0, 0)
        sealed_inside = fmt.HEADER_SIZE <= self.header.map_offset <= self._size
        self.torn = bool(self.header.map_offset) and not sealed_inside
        self.end = self.header.map_offset if sealed_inside else self._size
        """Where the records end."""
        self._buffer = b""
        self._buffer_at = 0

    @property
    def sealed(self) -> bool:
        return self.header.map_offset > 0

    def ledgers_map(self) -> dict[int, int]:
        """LogRecord bytes per ledger as the sealed log's map says. Raises `CorruptStorageError`."""
        if not self.sealed or self.torn:
            raise CorruptStorageError(f"{self._file.path} has no ledgers map")
        return fmt.decode_ledgers_map(self._file.pread(self._size - self.end, self.end), self.header.ledger_count)

    def records(self) -> Iterator[LogRecord]:
        """All records with entries, in the order of the log."""
        offset = fmt.HEADER_SIZE
        while offset < self.end:
            head = self._peek(offset, _HEAD)
            if len(head) < _HEAD:
                self.torn = self.torn or bool(head.strip(b"\0\xf0"))
                return
            size, ledger_id, entry_id = _unpack(head)
            if size <= 0:
                offset = self._after_padding(offset)
                continue
            after = offset + fmt.SIZE_WORD + size
            if after > self.end or (size < fmt.MIN_ENTRY_SIZE and ledger_id != fmt.LEDGER_MAP_LEDGER):
                self.torn = True
                return
            if ledger_id >= 0:
                yield LogRecord(fmt.location_of(self.log_id, offset + fmt.SIZE_WORD), ledger_id, entry_id, size)
            elif ledger_id != fmt.LEDGER_MAP_LEDGER:
                self.torn = True
                return
            offset = after

    def entry(self, record: LogRecord) -> bytes:
        """The bytes of a record just met."""
        return self._peek(fmt.offset_of(record.location), record.size)

    def _peek(self, offset: int, size: int) -> bytes:
        """Bytes of the log; fewer at its end."""
        start = offset - self._buffer_at
        if start < 0 or start + size > len(self._buffer):
            wanted = min(max(size, SCAN_READ), self.end - offset)
            self._buffer, self._buffer_at, start = self._file.pread(wanted, offset), offset, 0
        return self._buffer[start : start + size]

    def _after_padding(self, offset: int) -> int:
        """The next offset worth a look: behind the zeros or 0xF0 bytes that begin here, else one byte on.

        A record's size word begins with zeros of its own, so at most three zeros in front of another byte belong to it.
        """
        rest = self._peek(offset, min(SCAN_READ, self.end - offset))
        for filler, kept in ((b"\xf0", 0), (b"\0", 3)):
            skipped = len(rest) - len(rest.lstrip(filler))
            if skipped - kept > 1:
                return offset + skipped - kept
        return offset + 1
