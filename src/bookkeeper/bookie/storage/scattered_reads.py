"""Reading entries that lie far from each other: many in one piece of work, and nothing beside them.

Theory of operation

A reader that jumps has no use for what lies behind an entry: reading it ahead costs more than the entry, and drives out
of the cache what others need. So the entry alone is read.

What such a read costs is mostly the way to a reader thread and back. So reads that come while all threads are busy, or
in the same turn of the loop, go together: a job looks up some of them in the index at once, then reads one after the
other. Threads stay side by side, because a disk serves several reads in the time of one.

Entries are kept in the read cache one by one, unless something changed while they were read (`caches`: epoch).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from ...errors import CorruptStorageError
from ...runtime import Files, Workers
from ..file_names import log_name
from .caches import Caches
from .directory_jobs import OpenLog, read_cold
from .entry_log import format as fmt
from .entry_log.reader import read_record
from .entry_log.writer import EntryLogWriter
from .index.locations import LocationIndex

ENTRIES_AT_ONCE = 16
"""Entries that one job reads: the way to the thread and back, shared by so many, is less than the read itself."""

Found = bytes | None | Exception
"""An entry; None if the index has none; or why it cannot be read."""

Key = tuple[int, int]
"""Ledger and entry."""


class ScatteredReads:
    """See the module. One for a ledger directory; belongs to the loop."""

    def __init__(
        self,
        readers: Workers,
        files: Files,
        path: str,
        caches: Caches,
        locations: LocationIndex,
        writer: EntryLogWriter,
        open_logs: Mapping[int, OpenLog],
        keep_open: Callable[[int, OpenLog], None],
    ) -> None:
        self._readers = readers
        self._where = _Where(locations, writer, open_logs, files, path)
        self._caches = caches
        self._keep_open = keep_open
        self._waiting: deque[_Request] = deque()
        self._jobs = 0  # under way
        self._due = False  # `_begin_jobs` is scheduled

    async def read(self, ledger_id: int, entry_ids: Sequence[int], max_bytes: int) -> list[Found]:
        """What the logs have of the first of these entries, in this order: about `max_bytes`, but one at least.

        Raises nothing of the disk's: see `Found`.
        """
        loop = asyncio.get_running_loop()
        parts = [entry_ids[at : at + ENTRIES_AT_ONCE] for at in range(0, len(entry_ids), ENTRIES_AT_ONCE)]
        room = max_bytes // max(1, len(parts))
        requests = [_Request(ledger_id, part, room, loop.create_future()) for part in parts]
        self._waiting += requests
        if not self._due:
            self._due = True
            loop.call_soon(self._begin_jobs)
        found: list[Found] = []
        try:
            for request in requests:
                part = await request.found
                found += part
                if len(part) < len(request.entry_ids):
                    break  # there was no room for all
        finally:
            for request in requests:
                request.found.cancel()  # nobody wants what has not begun
        return found

    def _begin_jobs(self) -> None:
        """Hand what waits to the threads that have nothing to do."""
        self._due = False
        waiting = self._waiting
        while waiting and self._jobs < self._readers.count:
            taken: list[_Request] = []
            count = 0
            while waiting and count + len(waiting[0].entry_ids) <= ENTRIES_AT_ONCE:
                request = waiting.popleft()
                if not request.found.done():
                    taken.append(request)
                    count += len(request.entry_ids)
            if taken:
                self._begin(taken)

    def _begin(self, requests: Sequence[_Request]) -> None:
        self._jobs += 1
        epoch = self._caches.epoch

        def done(outcome: _Outcome | None, error: BaseException | None) -> None:
            self._jobs -= 1
            if outcome is None:
                _fail(requests, error)
            else:
                self._answer(requests, outcome, epoch == self._caches.epoch)
            self._begin_jobs()

        try:
            self._readers.post(read_each, (self._where, requests), done)
        except RuntimeError as error:  # they are closed: nobody may wait for ever
            self._jobs -= 1
            _fail(requests, error)

    def _answer(self, requests: Sequence[_Request], outcome: _Outcome, unchanged: bool) -> None:
        for log_id, log in outcome.opened.items():
            self._keep_open(log_id, log)
        for request, found in zip(requests, outcome.found, strict=True):
            if unchanged:
                self._cache(request, found)
            if not request.found.done():
                request.found.set_result(found)

    def _cache(self, request: _Request, found: Sequence[Found]) -> None:
        put = self._caches.read_cache.put_one
        for entry_id, entry in zip(request.entry_ids, found, strict=False):
            if isinstance(entry, bytes):
                put(request.ledger_id, entry_id, entry)


class _Request(NamedTuple):
    """Entries of one ledger, of which about `room` bytes are wanted, but one entry at least."""

    ledger_id: int
    entry_ids: Sequence[int]
    room: int
    found: asyncio.Future[list[Found]]


def _fail(requests: Sequence[_Request], error: BaseException | None) -> None:
    failure = error if isinstance(error, Exception) else OSError(f"a read has ended: {error!r}")
    for request in requests:
        if not request.found.done():
            request.found.set_result([failure] * len(request.entry_ids))


class _Where(NamedTuple):
    """What a reader thread needs."""

    locations: LocationIndex
    writer: EntryLogWriter
    open_logs: Mapping[int, OpenLog]
    files: Files
    directory: str


class _Outcome(NamedTuple):
    found: list[list[Found]]
    """For each request."""
    opened: dict[int, OpenLog]
    """Logs that were not open before."""


def read_each(where: _Where, requests: Sequence[_Request]) -> _Outcome:
    """Look entries up together and read each by itself. For a worker."""
    keys = [(request.ledger_id, entry_id) for request in requests for entry_id in request.entry_ids]
    locations = iter(where.locations.get_many(keys))
    outcome = _Outcome([], {})
    for request in requests:
        places = list(islice(locations, len(request.entry_ids)))
        found: list[Found] = []
        room = request.room
        for entry_id, location in zip(request.entry_ids, places, strict=True):
            if found and room <= 0:
                break
            try:
                entry = _read(where, outcome.opened, (request.ledger_id, entry_id), location) if location else None
            except (CorruptStorageError, OSError) as error:
                found.append(error)
            else:
                found.append(entry)
                room -= len(entry or b"")
        outcome.found.append(found)
    return outcome


def _read(where: _Where, opened: dict[int, OpenLog], key: Key, location: int) -> bytes | None:
    log_id = fmt.log_of(location)
    log = where.open_logs.get(log_id) or opened.get(log_id)
    try:
        if log is None:
            log = opened[log_id] = OpenLog.of(where.files.open(f"{where.directory}/{log_name(log_id)}"))
    except FileNotFoundError:  # compaction may have moved the entry since it was looked up
        moved = read_cold(*where, *key, 1, 1, 1, None)
        return None if moved is None else moved.records.raw[fmt.SIZE_WORD :]
    return read_record(log.file, location, *key)
