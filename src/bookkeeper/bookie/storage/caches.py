"""The entries of one ledger directory that are in memory: two write caches and the read cache.

Theory of operation

An entry is added to the active cache. The caches are swapped: the full one is being flushed, and a new one is active.
It is let go when its entries are in the logs and the index. What was read ahead from the logs is in the read cache.
What is in the logs may be in the system's page cache: `page_cache` says what is put there.

An entry may be in all three. The active cache has the newest version, then the one being flushed. So a run of entries
that comes from the read cache or from the logs ends before the next one that a write cache has.

A flush shares the interpreter with the loop, which then needs twice as long for what it does. So it rests after each
piece for as long as that took of the processor (`FlushPace`): but only while entries are added, while the active cache
has room enough that nobody will have to wait for the flush, and where flushes do not take most of the time anyway.

The epoch tells a read that took time whether what it found may be obsolete: it grows when a flush is done, a ledger is
deleted, or a log removed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from ...protocol.messages import AddRun
from ...runtime import Runtime
from ..stats import OpStats
from .entry_log import format as fmt
from .entry_log.page_cache import PageCacheChoice
from .packing import READ_CHUNK, words
from .read_cache import ReadCache
from .write_cache import LedgerBuffer, WriteCache

PACED_BELOW = 0.5
"""Of the active cache: from there on the flush of the other one has to be done soon."""

LONGEST_REST_SECONDS = 0.005
"""After a piece that took more there were several, or the machine stood still."""


class Caches:
    """See the module."""

    __slots__ = (
        "_ledger_begins",
        "active",
        "epoch",
        "flushes",
        "flushing",
        "half",
        "hits",
        "misses",
        "page_cache",
        "read_cache",
        "writes_hit",
    )

    def __init__(
        self, write_cache: int, read_cache: int, page_cache: PageCacheChoice, ledger_begins: Callable[[], None]
    ) -> None:
        """Bytes of both write caches together, and of the read cache. `ledger_begins`: see `WriteCache`."""
        self.half = write_cache // 2
        """Bytes of one write cache."""
        self._ledger_begins = ledger_begins
        self.active = WriteCache(self.half, ledger_begins)
        self.flushing: WriteCache | None = None
        """Swapped out, not completely on disk yet."""
        self.read_cache = ReadCache(read_cache)
        self.page_cache = page_cache
        self.epoch = 0
        self.flushes = OpStats()
        """Write caches that were written out."""
        self.writes_hit = 0
        """Lookups of an entry that a write cache had, """
        self.hits = 0
        """the read cache,"""
        self.misses = 0
        """or neither."""

    def add_entry(self, ledger_id: int, entry_id: int, entry: bytes) -> None:
        self.active.add(ledger_id, entry_id, entry)

    def add_entries(self, ledger_id: int, entry_ids: Sequence[int], entries: Sequence[bytes]) -> None:
        self.active.add_run(ledger_id, entry_ids, entries)

    def add_mixed(self, ledger_ids: Sequence[int], entry_ids: Sequence[int], entries: Sequence[bytes]) -> None:
        self.active.add_mixed(ledger_ids, entry_ids, entries)

    def add_runs(self, runs: Sequence[AddRun]) -> None:
        self.active.add_runs(runs)

    def swap(self) -> None:
        """What was added so far is to be flushed. The flush before must be done."""
        assert self.flushing is None
        self.flushing = self.active
        self.active = WriteCache(self.half, self._ledger_begins)

    def flushed(self) -> None:
        """All of the swapped cache is in the logs and the index. What was read of its ledgers before is old."""
        assert self.flushing is not None
        self.read_cache.forget_all(self.flushing.ledgers)
        self.flushing = None
        self.epoch += 1

    def drop_ledger(self, ledger_id: int) -> None:
        """The ledger is deleted."""
        for cache in self.write_caches():
            cache.drop_ledger(ledger_id)
        self.read_cache.forget(ledger_id)
        self.epoch += 1

    def log_removed(self) -> None:
        """An entry log is gone."""
        self.epoch += 1

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        """The newest version of an entry; None if it is not in memory."""
        buffer = self.active.ledgers.get(ledger_id)
        if buffer is not None and (entry := buffer.get(entry_id)) is not None:
            self.writes_hit += 1
            return entry
        if self.flushing is not None and (entry := self.flushing.get(ledger_id, entry_id)) is not None:
            self.writes_hit += 1
            return entry
        entry = self.read_cache.get(ledger_id, entry_id)
        if entry is None:
            self.misses += 1
        else:
            self.hits += 1
        return entry

    def write_caches(self) -> list[WriteCache]:
        """Newest first."""
        return [self.active] if self.flushing is None else [self.active, self.flushing]

    def written(self, ledger_id: int) -> list[LedgerBuffer]:
        """A ledger's part of the write caches, newest first."""
        return [cache.ledgers[ledger_id] for cache in self.write_caches() if ledger_id in cache.ledgers]

    def last(self, ledger_id: int) -> int:
        """The greatest id of a ledger in the write caches; -1 for none."""
        return max((buffer.last() for buffer in self.written(ledger_id)), default=-1)

    def run(self, ledger_id: int, first: int, max_count: int, max_bytes: int) -> tuple[bytes, int]:
        """Records from `first` on that are in one cache, and their number.

        The first one is returned even when it is larger than `max_bytes`. Nothing cached: b"" and 0.
        """
        for cache in self.write_caches():
            buffer = cache.ledgers.get(ledger_id)
            if buffer is not None:
                records, count = _records(buffer, first, max_count, max_bytes)
                if count:
                    return records, count
        return self.read_cache.slice(ledger_id, first, self.uncached(ledger_id, first, max_count), max_bytes)

    def uncached(self, ledger_id: int, first: int, count: int) -> int:
        """How many of `count` entries from `first` on come before one that a write cache has; at least 1.

        What the logs have of that one is older.
        """
        end = first + count
        for cache in self.write_caches():
            buffer = cache.ledgers.get(ledger_id)
            if buffer is not None:
                end = buffer.first_in(first + 1, end)
        return end - first


def _records(buffer: LedgerBuffer, first: int, max_count: int, max_bytes: int) -> tuple[bytes, int]:
    """Entries from `first` on as records, as many as fit, at least one if there is one; and their number."""
    pieces: list[bytes] = []
    count = size = 0
    while count < max_count and (entries := buffer.slice(first + count, min(READ_CHUNK, max_count - count))):
        sizes = list(map(len, entries))
        ends = list(accumulate(map(fmt.SIZE_WORD.__add__, sizes), initial=size))
        fitting = bisect_right(ends, max_bytes) - 1
        if not count:
            fitting = max(fitting, 1)
        elif fitting <= 0:
            break
        part: list[bytes] = [b""] * (2 * fitting)
        part[::2] = words(sizes[:fitting])
        part[1::2] = entries[:fitting]
        pieces += part
        count += fitting
        size = ends[fitting]
        if fitting < len(entries):
            break
    return b"".join(pieces), count


class FlushPace:
    """How one flush gives way to the loop. For the worker that flushes."""

    def __init__(self, runtime: Runtime, caches: Caches, *, rests: bool) -> None:
        self._rests = rests
        self.rested = 0.0
        """Seconds, in all."""
        self._runtime = runtime
        self._caches = caches
        self._worked: float | None = None  # at the end of the piece before
        self._used = caches.active.used

    def __call__(self) -> None:
        """A piece is done."""
        worked, used = self._runtime.worked_seconds(), self._caches.active.used
        rest = 0.0
        goes_on = used != self._used and used < self._caches.half * PACED_BELOW
        if self._rests and goes_on and self._worked is not None:
            rest = min(worked - self._worked, LONGEST_REST_SECONDS)
            self.rested += rest
        self._worked, self._used = worked, used
        self._runtime.give_way(rest)
