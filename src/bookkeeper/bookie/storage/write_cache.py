"""Entries that are in memory because they are not in the entry logs yet.

Theory of operation

A `WriteCache` is filled by the loop, then handed as a whole to a flush, and never changes again. Per ledger it holds
a *run*, a list of entries with consecutive ids, because that is how a ledger is written: an entry in it costs one
list slot, needs no id object and is found by subtraction. Whatever does not continue the run (gaps of striped
ledgers, late entries) goes to a dict beside it.

Python's collector looks through every list of a young generation, whole: 20 ms and more for hundreds of thousands of
entries. So a collection soon after a run begins makes it old while it is short (`Aging`).

Sizes are real memory, not payload: `used` counts what CPython and its allocator take for an entry, measured with
100-byte and 1 KB entries. So `dbStorage_writeCacheMaxSizeMb` bounds what the process grows by.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from operator import lt

from ...protocol.messages import AddRun
from ...runtime import Runtime

RUN_OVERHEAD = 56
"""Bytes an entry in a run takes beside its data: object header, rounding of the allocator, list slot."""

STRAY_OVERHEAD = 176
"""The same for an entry beside the run: also an int object and a dict slot."""

LEDGER_OVERHEAD = 640
"""Bytes a ledger takes beside its entries."""

AGED_SECONDS = 0.1
"""So long after it began a run is short, and other ledgers that are written to now have begun theirs."""


class Aging:
    """Has runs that begin count as old soon."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._until = -1.0  # until then what has begun is collected by what was asked for last

    def ledger_begins(self) -> None:
        now = self._runtime.now()
        if now >= self._until:
            self._until = now + AGED_SECONDS
            self._runtime.collect_young(after=AGED_SECONDS)


class LedgerBuffer:
    """Entries of one ledger in a write cache."""

    __slots__ = ("expected", "first", "greatest_stray", "least_stray", "run", "strays")

    def __init__(self, first: int, entry: bytes) -> None:
        self.first = first
        """Id of the run's first entry."""
        self.run = [entry]
        """Entries first, first + 1, ..."""
        self.expected = first + 1
        """The id that continues the run; -1 when there are strays, so that an add looks closer."""
        self.strays: dict[int, bytes] = {}
        """Entries outside the run, by id. None of them is in the run, and none continues it."""
        self.greatest_stray = -1
        """The greatest id that ever was a stray; it is held still, here or in the run. -1 for none."""
        self.least_stray = first
        """The least id that ever was a stray; that of the first entry if there was none below it."""

    def get(self, entry_id: int) -> bytes | None:
        index = entry_id - self.first
        if 0 <= index < len(self.run):
            return self.run[index]
        return self.strays.get(entry_id) if self.strays else None

    def put(self, entry_id: int, entry: bytes) -> int:
        """Add an entry that does not simply continue a run without strays; returns by how much memory grows."""
        index = entry_id - self.first
        run = self.run
        if 0 <= index < len(run):
            grown = len(entry) - len(run[index])
            run[index] = entry
            return grown
        if index != len(run):
            old = self.strays.get(entry_id)
            self.strays[entry_id] = entry
            self.expected = -1
            if entry_id > self.greatest_stray:
                self.greatest_stray = entry_id
            if entry_id < self.least_stray:
                self.least_stray = entry_id
            return len(entry) - len(old) if old is not None else len(entry) + STRAY_OVERHEAD
        run.append(entry)
        following = entry_id + 1
        while (stray := self.strays.pop(following, None)) is not None:
            run.append(stray)
            following += 1
        self.expected = -1 if self.strays else following
        return len(entry) + RUN_OVERHEAD

    def put_above(self, entry_ids: Sequence[int], entries: Sequence[bytes]) -> None:
        """Add entries by ascending ids, none of which is held or continues the run: all are above all that is held."""
        self.strays.update(zip(entry_ids, entries, strict=True))
        self.expected = -1
        self.greatest_stray = entry_ids[-1]

    def slice(self, first: int, max_count: int) -> list[bytes]:
        """Entries from `first` on without a gap, as far as they are at hand in one piece."""
        index = first - self.first
        if 0 <= index < len(self.run):
            return self.run[index : index + max_count]
        found: list[bytes] = []
        while len(found) < max_count and (entry := self.strays.get(first + len(found))) is not None:
            found.append(entry)
        return found

    def first_in(self, start: int, end: int) -> int:
        """The least id held that is not below `start`; `end` if it is not below that."""
        found = max(start, self.first) if start < self.first + len(self.run) else end
        if self.strays:
            found = next((i for i in range(start, min(found, end)) if i in self.strays), found)
        return min(found, end)

    def last(self) -> int:
        """The greatest id held."""
        return max(self.first + len(self.run) - 1, self.greatest_stray)

    def least(self) -> int:
        """The least id held."""
        return min(self.first, self.least_stray)

    def ids(self) -> list[int]:
        """All ids, ascending."""
        return sorted([*range(self.first, self.first + len(self.run)), *self.strays])

    def rows(self) -> tuple[range, array[int]]:
        """All ids: those of the run, and the others in no order. A copy, which costs little on the loop."""
        return range(self.first, self.first + len(self.run)), array("q", self.strays)

    def __len__(self) -> int:
        return len(self.run) + len(self.strays)

    def in_order(self) -> Iterator[tuple[Sequence[int], list[bytes]]]:
        """All entries by ascending id, in at most three pieces of (ids, entries)."""
        strays = sorted(self.strays)
        below = [entry_id for entry_id in strays if entry_id < self.first]
        above = strays[len(below) :]
        if below:
            yield below, [self.strays[entry_id] for entry_id in below]
        yield range(self.first, self.first + len(self.run)), self.run
        if above:
            yield above, [self.strays[entry_id] for entry_id in above]


class WriteCache:
    """All entries added between two swaps."""

    def __init__(self, limit: int, ledger_begins: Callable[[], None]) -> None:
        """`ledger_begins` is told of each ledger that this cache has an entry of for the first time."""
        self.limit = limit
        """Bytes of memory this cache may take."""
        self._ledger_begins = ledger_begins
        self.used = 0
        self.ledgers: dict[int, LedgerBuffer] = {}
        self.dropped: list[tuple[int, LedgerBuffer]] = []
        """Of deleted ledgers: freed with the cache, by whoever frees that, as a large one takes its time."""

    @property
    def entries(self) -> int:
        """How many it holds."""
        return sum(len(buffer.run) + len(buffer.strays) for buffer in self.ledgers.values())

    def add(self, ledger_id: int, entry_id: int, entry: bytes) -> None:
        buffer = self.ledgers.get(ledger_id)
        if buffer is None:
            self.ledgers[ledger_id] = LedgerBuffer(entry_id, entry)
            self._ledger_begins()
            self.used += len(entry) + LEDGER_OVERHEAD
        elif entry_id == buffer.expected:
            buffer.run.append(entry)
            buffer.expected = entry_id + 1
            self.used += len(entry) + RUN_OVERHEAD
        else:
            self.used += buffer.put(entry_id, entry)

    def add_run(self, ledger_id: int, entry_ids: Sequence[int], entries: Sequence[bytes]) -> None:
        """`add` for each, at a fraction of the cost when the ids follow each other and what is here."""
        if len(entry_ids) == 1:
            self.add(ledger_id, entry_ids[0], entries[0])
            return
        buffer = self.ledgers.get(ledger_id)
        if buffer is not None and entry_ids:
            first = entry_ids[0]
            count = len(entry_ids)
            if first == buffer.expected and list(entry_ids) == list(range(first, first + count)):
                buffer.run += entries
                buffer.expected = first + count
                self.used += sum(map(len, entries)) + count * RUN_OVERHEAD
                return
            if first > buffer.last() + 1 and all(map(lt, entry_ids, entry_ids[1:])):
                buffer.put_above(entry_ids, entries)
                self.used += sum(map(len, entries)) + count * STRAY_OVERHEAD
                return
        for entry_id, entry in zip(entry_ids, entries, strict=True):
            self.add(ledger_id, entry_id, entry)

    def add_mixed(self, ledger_ids: Sequence[int], entry_ids: Sequence[int], entries: Sequence[bytes]) -> None:
        """`add` for each of many ledgers: most entries go where the ledger's last one did."""
        buffer_of = self.ledgers.get
        used = 0
        for ledger_id, entry_id, entry in zip(ledger_ids, entry_ids, entries, strict=True):
            buffer = buffer_of(ledger_id)
            if buffer is not None and buffer.expected == entry_id:
                buffer.run.append(entry)
                buffer.expected = entry_id + 1
                used += len(entry) + RUN_OVERHEAD
            else:
                self.add(ledger_id, entry_id, entry)
        self.used += used

    def add_runs(self, runs: Sequence[AddRun]) -> None:
        """`add_run` for each."""
        for run in runs:
            self.add_run(run.ledger_id, run.entry_ids, run.entries)

    def has_room(self, size: int, count: int) -> bool:
        """Whether `count` entries of together `size` bytes fit. An empty cache takes anything."""
        return self.used + size + count * RUN_OVERHEAD <= self.limit or not self.used

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        buffer = self.ledgers.get(ledger_id)
        return None if buffer is None else buffer.get(entry_id)

    def drop_ledger(self, ledger_id: int) -> None:
        """Forget a ledger. Its memory is kept, and counted, until the cache goes."""
        buffer = self.ledgers.pop(ledger_id, None)
        if buffer is not None:
            self.dropped.append((ledger_id, buffer))
