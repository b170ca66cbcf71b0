"""The blocking work of a ledger directory: what its lane and the reader threads run (see `db_directory`).

Each function gets all it needs as arguments and returns what it found; none touches the loop's state. Those of the
lane change the logs and indexes, one at a time. They give the interpreter back between chunks (`give_way`).
"""

from __future__ import annotations

import errno
import logging
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from heapq import merge
from itertools import accumulate, groupby, pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from ...config import AutoBool
from ...errors import CorruptStorageError, FatalBookieError
from ...runtime import NO_SPACE, File, Files, KeyValueStore, Runtime
from ..file_names import LEDGERS, log_name
from .compaction import LiveEntry, finish_compactions
from .entry_log import format as fmt
from .entry_log.reader import Records, read_records
from .entry_log.writer import WRITE_BYTES, EntryLogWriter, check_log_names, list_logs
from .index import ledgers as ledger_index
from .index.ledger_data import LedgerData
from .index.ledgers import Changes
from .index.locations import Located, LocationIndex
from .index.rebuild import open_locations, put_in_place
from .packing import CHUNK
from .reserve import Reserve
from .write_cache import LedgerBuffer

log = logging.getLogger(__name__)

LIST_CHUNK = 8192
"""Ids that are put together at a time, in less than a millisecond."""

INDEX_BYTES = 64
"""What an entry or a ledger takes in an index at most, its value aside."""

Piece = tuple[int, Sequence[int], Sequence[bytes]]
"""A ledger, entry ids of it, and the entries."""


@dataclass(frozen=True, slots=True)
class DirectoryOptions:
    """One directory's share of the settings."""

    write_cache: int
    """Bytes of both write caches together."""
    read_cache: int
    read_ahead_entries: int
    read_ahead_bytes: int
    """Bound of one read ahead."""
    log_size_limit: int
    past_cache: AutoBool
    """Whether entry logs are written past the page cache, see `entry_log.page_cache`."""
    locations: Mapping[str, Any]
    """Options of the location index, see `Runtime.open_key_value`."""
    ledgers: Mapping[str, Any]
    reserved_space: int
    """Bytes kept for writing the index on a full disk."""


class Chunk(NamedTuple):
    """Entries that are appended together, of one ledger or of many, by columns."""

    ledger_ids: list[int]
    entry_ids: list[int]
    entries: list[bytes]


class Opened(NamedTuple):
    """The parts of an open directory."""

    writer: EntryLogWriter
    ledgers: KeyValueStore
    locations: LocationIndex
    reserve: Reserve
    loaded: dict[int, LedgerData]


class OpenLog(NamedTuple):
    """An entry log that is open for reading."""

    file: File
    sealed: bool
    """When it was opened; then all of it is settled (see `entry_log`)."""

    @classmethod
    def of(cls, file: File) -> OpenLog:
        """Raises `CorruptStorageError` if the file is not an entry log, `OSError`."""
        header = fmt.parse_header(file.pread(fmt.HEADER_SIZE, 0))
        return cls(file, header.map_offset > 0)


class ColdRead(NamedTuple):
    """What a reader thread found."""

    records: Records
    log_id: int
    log: OpenLog


def open_directory(runtime: Runtime, options: DirectoryOptions, path: str, index_path: str) -> Opened:
    files = runtime.files
    files.makedirs(path)
    files.makedirs(index_path)
    check_log_names(files, path)
    reserve = Reserve(files, index_path, options.reserved_space)
    reserve.release_if_low()
    ledgers = _open_ledgers(runtime, options, index_path)
    try:
        loaded = ledger_index.load(ledgers)
        locations = open_locations(runtime, index_path, path, options.locations, loaded)
        try:
            finish_compactions(files, path, locations, runtime.give_way)
            writer = EntryLogWriter(files, path, options.log_size_limit)
            reserve.restore()
            return Opened(writer, ledgers, locations, reserve, loaded)
        except BaseException:
            locations.close()
            raise
    except BaseException:
        ledgers.close()
        raise


def _open_ledgers(runtime: Runtime, options: DirectoryOptions, index_path: str) -> KeyValueStore:
    put_in_place(runtime, index_path, LEDGERS)
    try:
        return runtime.open_key_value(f"{index_path}/{LEDGERS}", options.ledgers)
    except CorruptStorageError as error:
        raise CorruptStorageError(
            f"{error}. Fences and master keys stand nowhere else, so this bookie does not start: bring the index "
            f"directory back from a copy, or build the database anew with all ledgers fenced (`bookkeeper shell "
            f"rebuild-db-ledgers-index`), or remove this bookie's data and cookie, and let its entries be replicated "
            f"again from other bookies"
        ) from error


def close_directory(writer: EntryLogWriter, locations: LocationIndex, ledgers: KeyValueStore, healthy: bool) -> None:
    """Seal the current log and close all. Without `healthy`, or without space for the seal, the log stays unsealed.

    Everything is closed, whatever fails; the first failure other than a lack of space is raised.
    """
    with ExitStack() as parts:
        for close in (ledgers.close, locations.close, writer.abandon, *([writer.close] if healthy else [])):
            parts.callback(_unless_no_space, close)


def _unless_no_space(close: Callable[[], None]) -> None:
    try:
        close()
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        log.warning("not closed orderly, which the next start makes up for: %s", error)


def in_order(buffers: list[tuple[int, LedgerBuffer]]) -> list[tuple[int, LedgerBuffer]]:
    """By ascending ledger id. Sorted in parts: one sort of all would not let go of the interpreter before its end."""
    parts = [sorted(buffers[start : start + CHUNK]) for start in range(0, len(buffers), CHUNK)]
    return list(merge(*parts))


def flush(
    writer: EntryLogWriter,
    locations: LocationIndex,
    reserve: Reserve,
    give_way: Callable[[], None],
    ledgers: KeyValueStore,
    buffers: list[tuple[int, LedgerBuffer]],
    deleted: list[int],
    changes: Changes,
    past_cache_from: int | None,
) -> None:
    """One flush. `past_cache_from`: see `EntryLogWriter`.

    Raises `OSError` if there was no space: then it is to be done again. Else `FatalBookieError`.
    """
    reserve.require(_index_bytes(sum(len(buffer) for _, buffer in buffers), deleted, changes))
    if buffers:
        reserve.leave_for_index(lambda: _log_bytes(buffers))
    located = _append(writer, _pieces(buffers), give_way, past_cache_from)
    with _indexing(writer, "flush failed"):
        if buffers or deleted:
            locations.write(deleted, located, give_way)
        writer.settle()
        if changes:
            ledger_index.write(ledgers, changes, give_way)


def _log_bytes(buffers: list[tuple[int, LedgerBuffer]]) -> int:
    return sum(len(entry) + fmt.SIZE_WORD for _, _, entries in _pieces(buffers) for entry in entries)


def _index_bytes(entries: int, deleted: Sequence[int], changes: Changes) -> int:
    """About what an index grows by."""
    values = sum(len(value) for value in changes.values() if value is not None)
    return INDEX_BYTES * (entries + len(deleted) + len(changes)) + values


def rewrite(
    writer: EntryLogWriter,
    locations: LocationIndex,
    reserve: Reserve,
    give_way: Callable[[], None],
    batch: list[LiveEntry],
    past_cache_from: int | None,
) -> int:
    """Move live entries to the current log: append, sync, set locations. Returns how many really moved.

    Raises `OSError` if there was no space: then nothing counts as moved. Else `FatalBookieError`.
    """
    reserve.require(_index_bytes(len(batch), (), {}))
    reserve.leave_for_index(lambda: sum(len(item.entry) + fmt.SIZE_WORD for item in batch))
    pieces: list[Piece] = []
    for ledger_id, group in groupby(batch, key=attrgetter("ledger_id")):
        items = list(group)
        pieces.append((ledger_id, [item.entry_id for item in items], [item.entry for item in items]))
    places = _append(writer, pieces, give_way, past_cache_from).locations
    moves = [(item.ledger_id, item.entry_id, item.location, place) for item, place in zip(batch, places, strict=True)]
    with _indexing(writer, "moving entries failed"):
        moved = locations.move(moves, give_way)
        if moved == len(moves):
            writer.settle()
        else:
            writer.end_log()  # it has copies that the index does not know
    return moved


@contextmanager
def _indexing(writer: EntryLogWriter, what: str) -> Iterator[None]:
    """Index writes that follow an append. Those that find no space leave the log's end unknown to the index."""
    with _fatal(what):
        try:
            yield
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            writer.end_log()
            no_space = error
        else:
            return
    raise no_space


class _fatal:  # noqa: N801 - used like a function
    """Whatever fails inside leaves it unknown what is on disk: `FatalBookieError`."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, FatalBookieError):
            raise FatalBookieError(f"{self._what}: {error}") from error


def _pieces(buffers: list[tuple[int, LedgerBuffer]]) -> Iterator[Piece]:
    for ledger_id, buffer in buffers:
        for entry_ids, entries in buffer.in_order():
            yield ledger_id, entry_ids, entries


def _chunks(pieces: Iterable[Piece]) -> Iterator[Chunk]:
    """Parts so small that one append neither keeps the interpreter for long nor makes a huge write, and so large that
    thousands of ledgers with a few entries each cost little more than one with many.

    Only what is in a part is looked at for it: the lengths of a whole cache would hold the interpreter for 20 ms.
    """
    chunk, filled = Chunk([], [], []), 0
    for ledger_id, entry_ids, entries in pieces:
        start = 0
        while start < len(entries):
            part = entries[start : start + CHUNK - len(chunk.entries)]
            ends = list(accumulate(map(len, part), initial=filled))
            at_least = 0 if chunk.entries else 1  # an entry larger than any part may be gets one of its own
            fitting = max(bisect_right(ends, WRITE_BYTES) - 1, at_least)
            end = start + fitting
            chunk.ledger_ids.extend([ledger_id] * fitting)
            chunk.entry_ids.extend(entry_ids[start:end])
            chunk.entries.extend(part[:fitting])
            start, filled = end, ends[fitting]
            if start < len(entries) or len(chunk.entries) == CHUNK:
                yield chunk
                chunk, filled = Chunk([], [], []), 0
    if chunk.entries:
        yield chunk


def _append(
    writer: EntryLogWriter, pieces: Iterable[Piece], give_way: Callable[[], None], past_cache_from: int | None
) -> Located:
    """Append entries to the log and sync it; returns where they are.

    Raises `OSError` when there is no space: then the log is as before. Raises `FatalBookieError`.
    """
    located = Located()
    mark = writer.mark()
    writer.past_cache_from = past_cache_from
    with _fatal("the entry log cannot be written"):
        try:
            for chunk in _chunks(pieces):
                located.add(chunk.ledger_ids, chunk.entry_ids, writer.append_mixed(chunk.ledger_ids, chunk.entries))
                give_way()
            writer.sync()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            writer.rewind(mark)
            no_space = error
        else:
            return located
    raise no_space


def closed_logs(writer: EntryLogWriter, files: Files, path: str) -> dict[int, int]:
    active = writer.active_log
    return {log_id: size for log_id, size in list_logs(files, path).items() if log_id != active}


def remove_log(
    writer: EntryLogWriter,
    locations: LocationIndex,
    reserve: Reserve,
    files: Files,
    path: str,
    log_id: int,
    generation: int | None,
) -> None:
    """Delete a log. `generation`: that of the index, when it was found to have no entry in this log.

    The index may have had changes then that were never made durable, or were lost since: then the log stays, which is
    an `OSError`. None: all ledgers in the log are deleted, whatever the index says.
    """
    if generation is not None:
        reserve.require(0)
        locations.sync()
        if locations.generation != generation:
            raise OSError(errno.ENOSPC, "the index has lost changes for want of space", f"{path}/{log_id:x}")
    files.unlink(f"{path}/{log_name(log_id)}")
    files.fsync_dir(path)
    writer.forget(log_id)


def release(buffers: list[tuple[int, LedgerBuffer]], give_way: Callable[[], None]) -> None:
    """Free the entries of a flushed cache, whose last owner this is. At once, that would stop the loop for many ms."""
    freed = 0
    while buffers:
        buffer = buffers.pop()[1]
        while len(buffer.run) > CHUNK:
            del buffer.run[-CHUNK:]
            give_way()
        freed += 1 + len(buffer)
        if freed >= CHUNK:
            freed = 0
            give_way()


def read_cold(
    locations: LocationIndex,
    writer: EntryLogWriter,
    open_logs: Mapping[int, OpenLog],
    files: Files,
    directory: str,
    ledger_id: int,
    entry_id: int,
    max_count: int,
    max_bytes: int,
    window: int,
    rewritten: tuple[int, int] | None,
) -> ColdRead | None:
    """Look an entry up and read it with those that follow; None if the index has no such entry."""
    missing = 0
    while location := locations.get(ledger_id, entry_id):
        log_id = fmt.log_of(location)
        found = open_logs.get(log_id)
        try:
            if found is None:
                found = OpenLog.of(files.open(f"{directory}/{log_name(log_id)}"))
        except FileNotFoundError:
            if location == missing:
                raise CorruptStorageError(
                    f"{directory}: entry log {log_id:x} is gone, but has ledger {ledger_id} entry {entry_id}"
                ) from None
            missing = location  # compaction may have moved the entry between the two steps: look again (BI-25)
            continue
        settled = writer.settled(log_id)
        if settled is None:
            settled = fmt.MAX_OFFSET if found.sealed else 0
        records = read_records(found.file, location, ledger_id, entry_id, max_count, max_bytes, window)
        records = _current(locations, location, ledger_id, entry_id, records, settled, rewritten)
        return ColdRead(records, log_id, found)
    return None


def _current(
    locations: LocationIndex,
    location: int,
    ledger_id: int,
    first: int,
    records: Records,
    settled: int,
    rewritten: tuple[int, int] | None,
) -> Records:
    """The records up to the first one that is not what the index points at.

    Looked up are only those that may be unknown to the index, because they end behind the settled part of the log, and
    those that were rewritten.
    """
    last = first + records.entries - 1
    unsure = range(0)
    start = fmt.offset_of(location) - fmt.SIZE_WORD
    if start + records.offsets[-1] > settled:
        unsure = range(first + max(1, bisect_right(records.offsets, settled - start) - 1), last + 1)
    again = range(0) if rewritten is None else range(max(first + 1, rewritten[0]), min(last, rewritten[1]) + 1)
    asked = sorted({*unsure, *again})
    places = locations.get_many([(ledger_id, entry_id) for entry_id in asked]) if asked else []
    for entry_id, found in zip(asked, places, strict=True):
        place = entry_id - first
        if found != location + records.offsets[place]:
            return records.first(place)
    return records


def list_entries(
    locations: LocationIndex | None, ledger_id: int, held: Sequence[Sequence[int]], give_way: Callable[[], None]
) -> array[int]:
    """The ids in the index, if one is given, and those held in memory; ascending, each once."""
    parts: list[Sequence[int]] = [sorted(part) if isinstance(part, array) else part for part in held]
    if locations is not None:
        parts.append(locations.entries(ledger_id))
    parts = sorted((part for part in parts if part), key=lambda part: part[0])
    merged: array[int] = array("q")
    if all(before[-1] < after[0] for before, after in pairwise(parts)):
        for part in parts:
            for start in range(0, len(part), LIST_CHUNK):
                merged.extend(part[start : start + LIST_CHUNK])
                give_way()
        return merged
    for entry_id in merge(*parts):
        if not merged or entry_id != merged[-1]:
            merged.append(entry_id)
            if len(merged) % LIST_CHUNK == 0:
                give_way()
    return merged


def find_rewrites(
    _writer: EntryLogWriter,
    locations: LocationIndex,
    _reserve: Reserve,
    give_way: Callable[[], None],
    suspects: list[tuple[int, LedgerBuffer]],
) -> list[tuple[int, int, list[int]]]:
    """Of each ledger: the greatest id in the index, and the ids in the buffer that are in the index already."""
    found: list[tuple[int, int, list[int]]] = []
    for ledger_id, buffer in suspects:
        last = locations.last(ledger_id)
        greatest = -1 if last is None else last[0]
        overlap = [entry_id for entry_id in buffer.ids() if entry_id <= greatest] if buffer.least() <= greatest else []
        places = locations.get_many([(ledger_id, entry_id) for entry_id in overlap])
        found.append(
            (ledger_id, greatest, [entry_id for entry_id, place in zip(overlap, places, strict=True) if place])
        )
        give_way()
    return found
