"""Recovering a ledger whose writer is gone: what recovery concludes from the answers it gets.

Spec client §10.2 to §10.5. The metadata says IN_RECOVERY before anything here begins, so the ensembles cannot change
under us.

    FENCING   Ask every bookie of the last ensemble to fence and to tell its LAC. When the answers cover the
              ensemble, no ack quorum of unfenced bookies is left. Begin at the highest LAC heard, but not below the
              last fragment: all before that was confirmed when the fragment was made.
    READING   Read entry after entry from there, in batches, fencing with every read. One good copy: the entry may have
              been acknowledged, so it is written back through a writer's window, to an ack quorum. A quorum coverage of
              denials: it was not acknowledged and never will be; the ledger ends before it. Neither: recovery fails,
              and a client tries again later. Silence is not denial.
    LENGTH    If nothing had to be read, the ledger's length is still to be found: in the entry at the LAC. If that
              cannot be read now the ledger is closed all the same, as its writer waits for that, with a length that
              some bookie told with its LAC.
    DONE      Close the metadata with last entry, length and the ensembles that write-backs had to change.

Reads go to the fragments as they were at the start. Bookies that fail a write-back are replaced in memory only; the
store learns of it with the close, so that an attempt that dies leaves no trace.

Written-back entries carry the LAC that fencing found. With the recoverer's own progress in them, two recoverers at
once could make a reader believe in a LAC beyond the end at which the other one closes (spec safety §4.2).

Feed events in, carry out the actions that come back, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from ..errors import ReadError, RequestTimeoutError, UnauthorizedError, UnexpectedError
from ..types import BookieId
from .coverage import OK, CoverageSet, is_known, is_negative
from .distribution import Distribution, quorum_coverage
from .reading import EntryRead

Ensembles = Mapping[int, tuple[BookieId, ...]]
"""First entry id -> members, ascending."""

ReadOrder = Callable[[int, Sequence[BookieId], Sequence[int]], Sequence[int]]
"""Entry id, ensemble and write set -> the write set in the order to ask."""


class Phase(Enum):
    FENCING = "fencing"
    READING = "reading"
    LENGTH = "length"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Fence:
    """Send a fencing read of the last entry; report `on_fence_answer`."""

    index: int
    bookie: BookieId


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """Send a fencing read of high priority; report `on_read_answer`. Consider `speculate` when it takes long."""

    entry_id: int
    index: int
    bookie: BookieId


@dataclass(frozen=True, slots=True)
class WriteBack:
    """Add the entry with RECOVERY_ADD; report `on_written_back` or `on_write_back_failed`."""

    entry_id: int
    payload: bytes
    length: int
    """Length of the ledger, this entry included, as the writer recorded it."""
    lac: int
    """The LAC to put into the entry."""


@dataclass(frozen=True, slots=True)
class Close:
    """Compare-and-set the metadata to CLOSED, its ensembles being `closing_ensembles` of what is stored."""

    last_entry_id: int
    length: int
    length_known: bool = True
    """False: the last entry cannot be read now, and the length is an estimate."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Recovery failed. The metadata stays IN_RECOVERY."""

    code: int


Action = Fence | ReadFrom | WriteBack | Close | Fail


def write_set_order(_entry_id: int, _ensemble: Sequence[BookieId], write_set: Sequence[int]) -> Sequence[int]:
    """The plain order of asking."""
    return write_set


class Backlog:
    """Entries that are being written back, oldest first, and how many of them there may be."""

    __slots__ = ("_max_entries", "_sizes", "bytes", "max_bytes")

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._max_entries = max_entries
        self.max_bytes = max_bytes
        self._sizes: list[int] = []
        self.bytes = 0
        """Of their payloads."""

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def full(self) -> bool:
        """No more should be read now."""
        return len(self._sizes) >= self._max_entries or self.bytes >= self.max_bytes

    def add(self, size: int) -> None:
        """An entry of so many payload bytes is sent."""
        self._sizes.append(size)
        self.bytes += size

    def done(self, count: int) -> None:
        """The oldest `count` are confirmed."""
        assert count <= len(self._sizes), f"{count} of {self} are confirmed"
        self.bytes -= sum(self._sizes[:count])
        del self._sizes[:count]

    def __str__(self) -> str:
        return f"{len(self._sizes)} ({self.bytes} bytes)"

    def check(self) -> None:
        """For tests: raises `AssertionError`."""
        assert self.bytes == sum(self._sizes), f"{self}: {self._sizes}"


class LedgerRecovery:
    """The state of one attempt. See the module."""

    def __init__(
        self,
        distribution: Distribution,
        ensembles: Ensembles,
        *,
        batch_size: int = 1,
        max_batch_size: int = 1,
        max_write_backs: int = 1000,
        max_write_back_bytes: int = 64 << 20,
        order: ReadOrder = write_set_order,
    ) -> None:
        """`batch_size` entries are read at once at first. When all entries of a batch exist, the next batch is twice as
        large, up to `max_batch_size` entries, and about `max_write_back_bytes` bytes. Reading pauses while the entries
        being written back reach `max_write_backs` or `max_write_back_bytes`."""
        self._distribution = distribution
        self._ensembles = dict(ensembles)
        self._batch_size = batch_size
        self._max_batch_size = max(batch_size, max_batch_size)
        self._largest = 1  # payload bytes of the largest entry read
        self._order = order
        self.phase = Phase.FENCING
        self.recovered: dict[int, tuple[BookieId, ...]] = {}
        """Ensembles that write-backs changed, by first entry id."""
        self.start = -1
        """The LAC that fencing found, floor included: entries above it are read. Valid after FENCING."""
        self._coverage = CoverageSet(distribution)
        self._best_lac = -1
        self._length = 0
        self._last_error = ReadError.code
        self._reads: dict[int, tuple[EntryRead, tuple[BookieId, ...]]] = {}  # undecided or undelivered
        self._found: dict[int, tuple[bytes, int]] = {}  # good copies not yet delivered: payload, length
        self._next = 0  # the entry to deliver next; all below were
        self._batch_end = 0  # first entry not asked for; >= _next
        self._stopped = False  # the end of the ledger was found: entries _next and above do not exist
        self._backlog = Backlog(max_write_backs, max_write_back_bytes)  # they end at _next

    def __str__(self) -> str:
        """On one line, such as `reading start=4 next=7 reads=[7:asked 8:found] backlog=2 (20 bytes)`."""
        if self.phase is Phase.FENCING:
            return f"fencing lac={self._best_lac} {self._coverage}"
        reads = [f"{entry_id}:{read}" for entry_id, (read, _) in self._reads.items()]
        stopped = " stopped" * self._stopped
        recovered = f" recovered={sorted(self.recovered)}" if self.recovered else ""
        return (
            f"{self.phase.value} start={self.start} next={self._next}{stopped} reads=[{', '.join(reads)}] "
            f"backlog={self._backlog}{recovered}"
        )

    def check(self) -> None:
        """The relations that hold between any two calls. For tests: raises `AssertionError`."""
        self._backlog.check()
        for read, _ in self._reads.values():
            read.check()
        assert set(self._found) <= set(self._reads), f"what was found is not delivered yet: {self}"
        assert all(first > self.start for first in self.recovered), f"ensembles change above the start: {self}"
        if self.phase is Phase.FENCING:
            assert not self._reads, f"nothing is read before the ledger is fenced: {self}"
            assert not self._backlog, f"nothing is written back before it was read: {self}"
        else:
            assert self.start + 1 + len(self._backlog) <= self._next <= self._batch_end, f"what was asked for: {self}"
        if self.phase is Phase.READING:
            wanted = [] if self._stopped else list(range(self._next, self._batch_end))
            assert sorted(self._reads) == wanted, f"entries {wanted} are being read: {self}"

    # --- fencing ---

    def start_fencing(self) -> list[Action]:
        """The first actions."""
        _, ensemble = self._last_fragment()
        return [Fence(index, bookie) for index, bookie in enumerate(ensemble)]

    def on_fence_answer(self, index: int, code: int, lac: int = -1, length: int = 0) -> list[Action]:
        """A bookie answered the fencing read.

        `lac` and `length` are those of the record it returned. A record with a bad digest is reported as code 0 without
        them: the bookie has fenced, which is what counts.
        """
        if self.phase is not Phase.FENCING:
            return []
        if code == UnauthorizedError.code:
            return self._fail(code)
        self._coverage.add(index, code)
        if code == OK and lac > self._best_lac:
            self._best_lac, self._length = lac, length
        elif not is_known(code):
            self._last_error = code
        if self._coverage.covered:
            return self._start_reading()
        if self._coverage.complete:
            timed_out = self._last_error == RequestTimeoutError.code
            return self._fail(self._last_error if timed_out else ReadError.code)
        return []

    def _start_reading(self) -> list[Action]:
        first, _ = self._last_fragment()
        self.start = max(self._best_lac, first - 1)
        self._next = self._batch_end = self.start + 1
        self.phase = Phase.READING
        return self._next_batch()

    def _last_fragment(self) -> tuple[int, tuple[BookieId, ...]]:
        first = max(self._ensembles)
        return first, self._ensembles[first]

    # --- reading ---

    def _next_batch(self) -> list[Action]:
        first = self._batch_end
        fitting = max(1, self._backlog.max_bytes // self._largest)
        self._batch_end += min(self._batch_size, fitting)
        self._batch_size = min(2 * self._batch_size, self._max_batch_size)
        needed = quorum_coverage(self._distribution.write_quorum, self._distribution.ack_quorum)
        return [self._begin_read(entry_id, needed) for entry_id in range(first, self._batch_end)]

    def _begin_read(self, entry_id: int, negatives_to_end: int | None) -> Action:
        ensemble = self._ensemble_at(entry_id)
        order = self._order(entry_id, ensemble, self._distribution.write_set(entry_id))
        read = EntryRead(order, negatives_to_end=negatives_to_end)
        self._reads[entry_id] = (read, ensemble)
        (action,) = self._ask_next(entry_id)
        return action

    def _ask_next(self, entry_id: int) -> list[Action]:
        read, ensemble = self._reads[entry_id]
        index = read.send_next()
        if index is None:
            return []
        return [ReadFrom(entry_id, index, ensemble[index])]

    def _ensemble_at(self, entry_id: int) -> tuple[BookieId, ...]:
        return self._ensembles[max(first for first in self._ensembles if first <= entry_id)]

    def reading(self, entry_id: int) -> bool:
        """Whether the outcome of reading an entry is still open."""
        return entry_id in self._reads and self._reads[entry_id][0].outcome is None

    def speculate(self, entry_id: int) -> list[Action]:
        """An entry takes long to read: ask one more replica, if there is one."""
        if entry_id not in self._reads:
            return []
        return self._ask_next(entry_id)

    def on_read_answer(
        self, entry_id: int, index: int, code: int, payload: bytes = b"", length: int = 0
    ) -> list[Action]:
        """A replica answered: code 0 with the payload and length of an entry whose digest was checked, or an error."""
        if entry_id not in self._reads or self.phase not in (Phase.READING, Phase.LENGTH):
            return []
        read, _ = self._reads[entry_id]
        if code == OK:
            if read.succeed(index):
                self._found[entry_id] = (payload, length)
        else:
            read.fail(code)
        if read.outcome is None:
            return self._ask_next(entry_id) if read.idle else []
        return self._finish_length(entry_id) if self.phase is Phase.LENGTH else self._deliver()

    def _deliver(self) -> list[Action]:
        """Take what was read, strictly by id, as far as it goes."""
        actions: list[Action] = []
        while self._next in self._reads:
            read, _ = self._reads[self._next]
            if read.outcome is None:
                return actions
            if read.outcome != OK:
                if is_negative(read.outcome):
                    self._stopped = True
                    self._reads.clear()
                    self._found.clear()
                    return actions + self._finish_if_done()
                return actions + self._fail(read.outcome)
            del self._reads[self._next]
            payload, length = self._found.pop(self._next)
            self._length = length
            self._largest = max(self._largest, len(payload))
            self._backlog.add(len(payload))
            actions.append(WriteBack(self._next, payload, length, self.start))
            self._next += 1
        return actions + self._read_on()

    def _read_on(self) -> list[Action]:
        if self._stopped or self._next < self._batch_end or self._backlog.full:
            return []
        return self._next_batch()

    # --- writing back ---

    def on_written_back(self, count: int = 1) -> list[Action]:
        """The oldest `count` entries being written back are confirmed."""
        if self.phase is Phase.DONE:
            return []
        self._backlog.done(count)
        if self._stopped:
            return self._finish_if_done()
        return self._read_on()

    def on_write_back_failed(self, code: int) -> list[Action]:
        """An entry cannot be brought to its ack quorum."""
        if self.phase is Phase.DONE:
            return []
        return self._fail(code)

    def on_ensemble_changed(self, first_entry_id: int, ensemble: Sequence[BookieId]) -> None:
        """A write-back made its window use another ensemble from `first_entry_id` (its LAC + 1) on."""
        assert first_entry_id > self.start, f"an ensemble from {first_entry_id} on: {self}"
        self.recovered[first_entry_id] = tuple(ensemble)

    # --- the end ---

    def _finish_if_done(self) -> list[Action]:
        if self._backlog:
            return []
        last = self._next - 1
        if last > self.start:
            return self._close(last)
        if last < 0:
            self._length = 0
            return self._close(last)
        self.phase = Phase.LENGTH
        return [self._begin_read(last, None)]

    def _finish_length(self, entry_id: int) -> list[Action]:
        known = entry_id in self._found
        if known:
            _, self._length = self._found[entry_id]
        return self._close(entry_id, length_known=known)

    def _close(self, last_entry_id: int, *, length_known: bool = True) -> list[Action]:
        self.phase = Phase.DONE
        return [Close(last_entry_id, self._length, length_known)]

    def _fail(self, code: int) -> list[Action]:
        self.phase = Phase.DONE
        return [Fail(code)]


def closing_ensembles(stored: Ensembles, recovered: Ensembles) -> dict[int, tuple[BookieId, ...]]:
    """The ensembles of the closed record: a recovered one replaces the last stored one, or comes after it.

    Raises `UnexpectedError` when the store has a later fragment than recovery knew: another client changed the ensemble
    of a ledger that was in recovery.
    """
    last = max(stored)
    if any(first < last for first in recovered):
        raise UnexpectedError(f"the ledger got a new fragment at entry {last} while it was being recovered")
    return {**stored, **dict(sorted(recovered.items()))}
