"""Reading from one ledger directory: from memory, else with one index lookup and one read of an entry log.

Theory of operation

A read looks in the write caches and the read cache (`caches`), and then on a reader thread does one index lookup and
one read of the log. A reader that goes through a ledger gets the following entries along, and so does one that asks for
entries that lie side by side; one that jumps gets the entry alone (`scattered_reads`). So at every moment an entry is
found at one of these places: it leaves a write cache only after its location is in the index. What is taken along must
be what the index has: it is looked up where that is not sure (`entry_log`: settled), and left out where a cache has it
newer.

The loop owns all state here. Readers get the indexes, the log writer and the map of open logs, and only look up in the
latter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

from ...errors import BookieError, CorruptStorageError, LimboError, NoEntryError
from ...runtime import Runtime, Workers
from . import directory_jobs as jobs
from .caches import Caches
from .directory_jobs import DirectoryOptions, OpenLog
from .entry_log import format as fmt
from .entry_log.reader import FIRST_READ, Records
from .entry_log.writer import EntryLogWriter
from .examine import Examined, Judge, examine
from .index.ledgers import Ledger, LedgerIndex
from .index.locations import LocationIndex
from .scattered_reads import Found, ScatteredReads

SEQUENTIAL_READ = 128 << 10
"""Bytes read ahead for a reader that goes on where the last read ended, if that found all it read together."""

NEAR = 16
"""Entries. A reader that is no further from where a read ended goes on there; so do the readers of striped ledgers."""

READ_ENDS = 8
"""Of a ledger so many are remembered: of several readers, some of which jump."""

MAX_OPEN_LOGS = 512
"""Entry logs held open for reading."""

LAST_ENTRY = -1
MAX_ENTRY_ID = 2**63 - 1


@dataclass(slots=True)
class _Loading:
    """A read ahead under way: later reads of entries it may bring wait for it."""

    first: int
    end: int
    done: asyncio.Future[None]


class DirectoryReads:
    """See the module. `deleted`: ledgers whose locations do not count any more."""

    def __init__(
        self,
        runtime: Runtime,
        options: DirectoryOptions,
        path: str,
        readers: Workers,
        caches: Caches,
        index: LedgerIndex,
        locations: LocationIndex,
        writer: EntryLogWriter,
        deleted: Mapping[int, object],
    ) -> None:
        self._runtime = runtime
        self._options = options
        self._path = path
        self._readers = readers
        self._caches = caches
        self._index = index
        self._locations = locations
        self._writer = writer
        self._deleted = deleted
        self._listing = asyncio.Lock()
        self._open_logs: dict[int, OpenLog] = {}  # oldest opened first
        self._loading: dict[int, _Loading] = {}  # the latest read ahead of each ledger
        self._scattered = ScatteredReads(
            *(readers, runtime.files, path, caches, locations, writer, self._open_logs, self._keep_open)
        )
        self.of_logs = 0
        """Reads that went to the entry logs."""
        self.on_damage: Callable[[int, int], None] = _no_listener
        """Called with ledger and entry when an entry log has something else where the entry should be."""

    def forget_log(self, log_id: int) -> None:
        """A log is deleted. Its file is closed when the last reader that has it in hand lets it go."""
        self._open_logs.pop(log_id, None)

    def close(self) -> None:
        self._open_logs.clear()

    async def read_entry(self, ledger_id: int, entry_id: int) -> bytes:
        if entry_id == LAST_ENTRY:
            return await self.last_entry(ledger_id)
        ledger = self._index.get(ledger_id)
        entry = await self._in_memory(ledger_id, entry_id)
        if entry is not None:
            return entry
        if _goes_on(ledger, entry_id):
            return await self._read_ahead(ledger, ledger_id, entry_id, 1)
        (found,) = await self._read_scattered(ledger, ledger_id, (entry_id,), 0)
        if isinstance(found, Exception):
            raise found
        return found

    async def _in_memory(self, ledger_id: int, entry_id: int) -> bytes | None:
        """The entry, if a cache has it, or gets it by a read that is under way."""
        entry = self._caches.get(ledger_id, entry_id)
        loading = self._loading.get(ledger_id)
        if entry is None and loading is not None and loading.first < entry_id < loading.end:
            await asyncio.wait([loading.done])
            entry = self._caches.get(ledger_id, entry_id)
        return entry

    async def read_some(self, ledger_id: int, entry_ids: Sequence[int], max_bytes: int) -> list[bytes | Exception]:
        ledger = self._index.get(ledger_id)
        if not (_together(entry_ids) or (len(entry_ids) == 1 and _goes_on(ledger, entry_ids[0]))):
            return await self._read_scattered(ledger, ledger_id, entry_ids, max_bytes)
        last = entry_ids[-1]
        in_a_row = last - entry_ids[0] == len(entry_ids) - 1
        found: list[bytes | Exception] = []
        size = 0
        for entry_id in entry_ids:
            try:
                entry = await self._in_memory(ledger_id, entry_id)
                if entry is None:
                    wanted = last - entry_id + 1 if in_a_row else 1
                    entry = await self._read_ahead(ledger, ledger_id, entry_id, wanted)
            except (BookieError, OSError) as error:
                found.append(error)
                continue
            found.append(entry)
            size += len(entry)
            if size > max_bytes:
                break
        return found

    async def _read_ahead(self, ledger: Ledger, ledger_id: int, entry_id: int, wanted: int) -> bytes:
        """An entry. Somebody asks for it and the `wanted` - 1 that follow it."""
        options = self._options
        count, limit = wanted, SEQUENTIAL_READ if wanted > 1 else _window(ledger, entry_id)
        if wanted == 1 or _goes_on(ledger, entry_id):
            count = max(wanted, 1 + options.read_ahead_entries)
        records = await self._load(ledger_id, entry_id, count, min(limit, options.read_ahead_bytes))
        if records is None:
            raise self._absent(ledger_id, entry_id)
        return records.raw[fmt.SIZE_WORD : records.offsets[1]]

    async def _read_scattered(
        self, ledger: Ledger, ledger_id: int, entry_ids: Sequence[int], max_bytes: int
    ) -> list[bytes | Exception]:
        """The first of these entries, one at least: about `max_bytes`."""
        if ledger.entry_bytes * len(entry_ids) > max_bytes:
            entry_ids = entry_ids[: max(1, max_bytes // ledger.entry_bytes)]
        found: dict[int, Found] = {entry_id: self._caches.get(ledger_id, entry_id) for entry_id in entry_ids}
        missing = [
            entry_id for entry_id, entry in found.items() if entry is None and not _surely_absent(ledger, entry_id)
        ]
        if ledger_id in self._deleted:
            missing.clear()
        self.of_logs += len(missing)
        read = await self._scattered.read(ledger_id, missing, max_bytes) if missing else []
        found.update(zip(missing, read, strict=False))
        if None in read:
            await self._last_indexed(ledger_id)  # so that the next miss behind the end needs no look
        late = set(missing[len(read) :])
        outcome: list[bytes | Exception] = []
        for entry_id in takewhile(lambda entry_id: entry_id not in late, entry_ids):
            entry = found[entry_id]
            if isinstance(entry, CorruptStorageError):
                self.on_damage(ledger_id, entry_id)
            outcome.append(self._absent(ledger_id, entry_id) if entry is None else entry)
        self._note_read(ledger, entry_ids[len(outcome) - 1] + 1)
        ledger.entry_bytes = max((len(entry) for entry in outcome if isinstance(entry, bytes)), default=0)
        return outcome

    def _note_read(self, ledger: Ledger, end: int) -> None:
        """A read of the logs has ended in front of this entry."""
        ledger.read_ends = (end, *ledger.read_ends[: READ_ENDS - 1])

    async def read_run(self, ledger_id: int, first: int, max_count: int, max_bytes: int, max_reads: int) -> bytes:
        self._index.get(ledger_id)
        pieces: list[bytes] = []
        done = size = reads = 0
        while done < max_count and (not done or max_bytes - size >= size // done):
            piece, count = self._caches.run(ledger_id, first + done, max_count - done, max_bytes - size)
            if not count:
                if reads == max_reads:
                    break
                reads += 1
                loaded = await self._load(ledger_id, first + done, max_count - done, max_bytes - size)
                if loaded is not None:  # what came along may be cached by now, in a newer version
                    loaded = loaded.first(self._caches.uncached(ledger_id, first + done, loaded.entries))
                    piece, count = loaded.raw, loaded.entries
            if not count or (pieces and size + len(piece) > max_bytes):
                break
            pieces.append(piece)
            done += count
            size += len(piece)
        if not pieces:
            raise self._absent(ledger_id, first)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def last_entry(self, ledger_id: int) -> bytes:
        if self._index.get(ledger_id).data.limbo:
            raise LimboError(f"ledger {ledger_id} is in limbo: its last entry is not known")
        last = max(await self._last_indexed(ledger_id), self._caches.last(ledger_id))
        if last < 0:
            raise NoEntryError(f"ledger {ledger_id} has no entry here")
        return await self.read_entry(ledger_id, last)

    async def list_entries(self, ledger_id: int) -> Sequence[int]:
        if self._index.get(ledger_id).data.limbo:
            raise LimboError(f"ledger {ledger_id} is in limbo: its entries are not known")
        return await self.held_entries(ledger_id)

    async def held_entries(self, ledger_id: int) -> Sequence[int]:
        self._index.get(ledger_id)
        # First what is in memory: an entry may move from there to the index while the index is read, not back.
        held = [rows for buffer in self._caches.written(ledger_id) for rows in buffer.rows()]
        async with self._listing:  # millions of ids may be in hand, one list at a time
            locations = None if ledger_id in self._deleted else self._locations
            return await self._readers.submit(jobs.list_entries, locations, ledger_id, held, self._runtime.give_way)

    async def examine(self, ledger_id: int, first: int, max_count: int, judge: Judge) -> Examined:
        """See `api`. What is in a write cache now has, or gets, another place than the one that was looked at."""
        if ledger_id not in self._index.ledgers or ledger_id in self._deleted:
            return Examined(0, None, ())
        found = await self._readers.submit(
            examine,
            self._locations,
            self._runtime.files,
            self._path,
            self._runtime.give_way,
            ledger_id,
            first,
            max_count,
            judge,
        )
        written = self._caches.written(ledger_id)
        damage = [item for item in found.damage if all(buffer.get(item.entry_id) is None for buffer in written)]
        return found._replace(damage=damage)

    async def entry_exists(self, ledger_id: int, entry_id: int) -> bool:
        ledger = self._index.ledgers.get(ledger_id)
        if ledger is None:
            return False
        if self._caches.get(ledger_id, entry_id) is not None:
            return True
        if ledger_id not in self._deleted:
            location: int = await self._readers.submit(self._locations.get, ledger_id, entry_id)
            if location:
                return True
        if ledger.data.limbo:
            raise self._absent(ledger_id, entry_id)
        return False

    def _absent(self, ledger_id: int, entry_id: int) -> Exception:
        """The error for an entry that is not here."""
        if self._index.get(ledger_id).data.limbo:
            return LimboError(f"ledger {ledger_id} is in limbo: entry {entry_id} is not here, and may be lost")
        return NoEntryError(f"ledger {ledger_id} entry {entry_id} is not here")

    async def _last_indexed(self, ledger_id: int) -> int:
        """The greatest id in the location index, -1 for none."""
        while True:
            ledger = self._index.get(ledger_id)
            if ledger.last_indexed is not None:
                return ledger.last_indexed
            if ledger_id in self._deleted:
                return -1
            epoch = self._caches.epoch
            found = await self._readers.submit(self._locations.last, ledger_id)
            if epoch == self._caches.epoch:  # else a flush may have put more meanwhile: look again
                ledger.last_indexed = -1 if found is None else found[0]

    async def _load(self, ledger_id: int, first: int, max_count: int, max_bytes: int) -> Records | None:
        """Records from `first` on from the entry log; None if the index has none. Keeps them in the read cache."""
        ledger = self._index.ledgers.get(ledger_id)
        if ledger is None or ledger_id in self._deleted or _surely_absent(ledger, first):
            return None
        self.of_logs += 1
        epoch = self._caches.epoch
        loading = _Loading(first, first + max_count, asyncio.get_running_loop().create_future())
        self._loading[ledger_id] = loading
        try:
            found = await self._readers.submit(
                jobs.read_cold,
                self._locations,
                self._writer,
                self._open_logs,
                self._runtime.files,
                self._path,
                ledger_id,
                first,
                max_count,
                max_bytes,
                _window(ledger, first),
                ledger.data.rewritten,
            )
            if found is None:
                await self._last_indexed(ledger_id)  # so that the next miss behind the end needs no look
                return None
            records = found.records
            if epoch != self._caches.epoch:
                return records.first(1)  # a newer version of what came along may have reached the logs meanwhile
            self._keep_open(found.log_id, found.log)
            self._caches.read_cache.put(ledger_id, first, records)
            self._note_read(ledger, first + records.entries)
            ledger.read_together = 2 * len(records.raw) > min(FIRST_READ, max_bytes)
            return records
        except CorruptStorageError:
            self.on_damage(ledger_id, first)
            raise
        finally:
            loading.done.set_result(None)
            if self._loading.get(ledger_id) is loading:
                del self._loading[ledger_id]

    def _keep_open(self, log_id: int, found: OpenLog) -> None:
        """Dropped files are closed when the last reader that has one in hand lets it go."""
        if log_id not in self._open_logs:
            self._open_logs[log_id] = found
            if len(self._open_logs) > MAX_OPEN_LOGS:
                del self._open_logs[next(iter(self._open_logs))]


def _goes_on(ledger: Ledger, entry_id: int) -> bool:
    """Whether a reader that asks for an entry goes on where a read ended."""
    return any(0 <= entry_id - end <= NEAR for end in ledger.read_ends)


def _together(entry_ids: Sequence[int]) -> bool:
    """Whether these entries ascend, none far from the one before."""
    return len(entry_ids) > 1 and all(0 < after - before <= NEAR for before, after in pairwise(entry_ids))


def _window(ledger: Ledger, entry_id: int) -> int:
    """Bytes to read at first for a reader that asks for an entry."""
    return SEQUENTIAL_READ if entry_id in ledger.read_ends and ledger.read_together else FIRST_READ


def _no_listener(ledger_id: int, entry_id: int) -> None:
    """Nobody wants to know of damage."""


def _surely_absent(ledger: Ledger, entry_id: int) -> bool:
    return entry_id > MAX_ENTRY_ID or (ledger.last_indexed is not None and entry_id > ledger.last_indexed)
