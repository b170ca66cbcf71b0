"""What is still alive in an entry log, for deciding, for moving, and for proving that there is nothing left.

Theory of operation

An entry in a log is alive if the location index points at it; everything else in the log is garbage: entries of deleted
ledgers, of which the index knows nothing, and older copies of entries that were written again. Sizes per ledger that
were read back (from the ledgers map, or by a scan) only serve to choose which logs are worth compacting. No log is ever
deleted on their word: before it goes, a pass over all its records must find none alive, and must have come to the end
that the sealed log's header names (BI-13). Else, because a crash or damage may have cut the log off, the whole index is
searched for pointers into it.

All functions here are for a worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from ...errors import CorruptStorageError
from ...runtime import Files
from ..file_names import compacted, is_compacting, log_name
from .entry_log import format as fmt
from .entry_log.reader import LogRecord, LogScan
from .index.locations import LocationIndex
from .packing import CHUNK

log = logging.getLogger(__name__)

BATCH_ENTRIES = 4096
BATCH_BYTES = 4 << 20
"""Live entries that are moved together, with one sync."""


class LiveEntry(NamedTuple):
    """An entry that the index locates in the log at hand."""

    ledger_id: int
    entry_id: int
    location: int
    entry: bytes


def measure(files: Files, path: str, log_id: int, give_way: Callable[[], None]) -> dict[int, int]:
    """LogRecord bytes per ledger, from the ledgers map if it accounts for every byte, else from a scan.

    Raises `CorruptStorageError` if the file is not an entry log.
    """
    with files.open(path) as file:
        scan = LogScan(file, log_id)
        if scan.sealed:
            try:
                sizes = scan.ledgers_map()
            except CorruptStorageError as error:
                log.warning("%s: scanned, because its ledgers map cannot be used: %s", path, error)
            else:
                if sum(sizes.values()) == scan.end - fmt.HEADER_SIZE:
                    return sizes
        sizes = {}
        records = scan.records()
        while part := list(islice(records, CHUNK)):
            for record in part:
                sizes[record.ledger_id] = sizes.get(record.ledger_id, 0) + record.size + fmt.SIZE_WORD
            give_way()
        return sizes


def holds_any(files: Files, path: str, log_id: int, ledgers: frozenset[int], give_way: Callable[[], None]) -> bool:
    """Whether a log has, or might have, a record of one of these ledgers.

    Raises `CorruptStorageError` if the file is not an entry log.
    """
    with files.open(path) as file:
        scan = LogScan(file, log_id)
        records = scan.records()
        while part := list(islice(records, CHUNK)):
            if any(record.ledger_id in ledgers for record in part):
                return True
            give_way()
        return scan.torn or not scan.sealed


def count_pointers(locations: LocationIndex, log_id: int, give_way: Callable[[], None]) -> int:
    """Index entries that point into a log; walks the whole index."""
    count = 0
    everything = locations.all()
    while part := list(islice(everything, CHUNK)):
        count += sum(fmt.log_of(location) == log_id for _, _, location in part)
        give_way()
    return count


def finish_compactions(files: Files, directory: str, locations: LocationIndex, give_way: Callable[[], None]) -> None:
    """Bring transactional compactions of a Java bookie to their end (spec bookie-storage §9.6).

    `dst.log.compacting` was not finished: it goes. `dst.log.src.compacted` is a finished copy of what lived in `src`:
    it becomes `dst.log`, and entries that are still located in `src` move there. What is left of `src` is garbage.
    """
    for name in files.listdir(directory):
        path = f"{directory}/{name}"
        if is_compacting(name):
            files.unlink(path)
        elif (copy := compacted(name)) is not None:
            target, source = copy
            final = f"{directory}/{log_name(target)}"
            if not files.exists(final):
                files.link(path, final)
                files.fsync_dir(directory)
            with files.open(final) as file:
                _adopt(LogScan(file, target), source, locations, give_way)
            files.unlink(path)
            files.fsync_dir(directory)
            log.info("%s: compaction of log %x finished", final, source)


def _adopt(scan: LogScan, source: int, locations: LocationIndex, give_way: Callable[[], None]) -> None:
    """Move the locations of entries that are in log `source` to their copies in the log of the scan."""
    records = scan.records()
    while part := list(islice(records, CHUNK)):
        found = locations.get_many([(record.ledger_id, record.entry_id) for record in part])
        moves = [
            (record.ledger_id, record.entry_id, old, record.location)
            for record, old in zip(part, found, strict=True)
            if old and fmt.log_of(old) == source
        ]
        if moves:
            locations.move(moves, give_way)


class LogMover:
    """One pass over a closed log that hands out its live entries in batches."""

    def __init__(
        self,
        files: Files,
        path: str,
        log_id: int,
        locations: LocationIndex,
        known: frozenset[int],
        give_way: Callable[[], None],
    ) -> None:
        """`known`: the ledgers that the index may have entries of; others are not looked up."""
        self._files = files
        self._path = path
        self._log_id = log_id
        self._locations = locations
        self._known = known
        self._give_way = give_way
        self._scan: LogScan | None = None

    @property
    def torn(self) -> bool:
        """After the last batch: the records ended before the log did."""
        return self._scan is not None and self._scan.torn

    @property
    def sealed(self) -> bool:
        """After the first batch: whether the log's header says where its records end."""
        return self._scan is not None and self._scan.sealed

    def next_batch(self) -> list[LiveEntry]:
        """The next live entries, about `BATCH_BYTES`; empty at the end of the log.

        Raises `CorruptStorageError` if the file is not an entry log, `OSError`.
        """
        if self._scan is None:
            self._scan = LogScan(self._files.open(self._path), self._log_id)
            self._records = self._scan.records()
        batch: list[LiveEntry] = []
        size = 0
        while size < BATCH_BYTES and len(batch) < BATCH_ENTRIES:
            part = self._some_records()
            if not part:
                break
            for record in self._alive(part):
                batch.append(LiveEntry(record.ledger_id, record.entry_id, record.location, self._scan.entry(record)))
                size += record.size
            self._give_way()
        return batch

    def _some_records(self) -> list[LogRecord]:
        """Records that lie close together, so that their entries are at hand in the scan's buffer."""
        part: list[LogRecord] = []
        size = 0
        for record in self._records:
            part.append(record)
            size += record.size
            if len(part) >= CHUNK or size >= 512 << 10:
                break
        return part

    def _alive(self, part: list[LogRecord]) -> list[LogRecord]:
        asked = [record for record in part if record.ledger_id in self._known]
        found = self._locations.get_many([(record.ledger_id, record.entry_id) for record in asked])
        return [record for record, location in zip(asked, found, strict=True) if location == record.location]
