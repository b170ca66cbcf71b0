"""Reading a range of entries with one request for each (spec client §9.2 to §9.4).

Theory of operation

- Requests go out in waves: all entries of a wave that begin at the same replica leave in one call and share one
  `ReadCall`. Which replica that is may change with every entry, or with every run of them (`ledger_reads`). How many
  may be outstanding is decided in `budget`; the next wave goes out when half of them are in.
- An entry that arrives good from the first replica asked costs its check and one tuple, nothing else. Only an entry
  that meets trouble (an error, bad data, silence) gets a state of its own, an `EntryRead`: it decides which bookie to
  ask next and what its error is.
- Answers of one socket read come together; retries they cause leave together.
- A wave is looked at when its speculation delay is over (`waves`): every entry of it that is still missing, and none
  of whose bookies has answered anything good in this read, is asked for from the next replica as well.
- The first entry that fails ends the read. With `prefix`, what lies before it is still read, and returned with the
  error. With `max_bytes`, no more is asked for when about so many bytes are there or under way, and the read ends with
  what was asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from ...errors import BKError, ClientClosedError, DigestMismatchError, TooManyRequestsError, from_code
from ...protocol.entry import HEADER_SIZE
from ...quorum.reading import EntryRead
from ...types import BookieId
from ..entry import LedgerEntry, ledger_entries
from ..wire.calls import Answer, ReadCall, ReadSink, Row, answers_of
from ..wire.results import DIGEST_MISMATCH, OK
from .budget import ReadBudget
from .ledger_reads import ENTRY_OVERHEAD, LedgerReads, Orders
from .speculation import Speculation
from .waves import Waves

SIZE_SAMPLE = 16
"""One answer of so many is looked at to learn the size of entries."""

_new_entry = tuple.__new__


def _by_turn(entry_ids: range, turns: int, run: int) -> dict[int, Sequence[int]]:
    """Whose turn it is (0 to `turns` - 1) -> the entries, if it changes with every run of `run` entries."""
    if run == 1:
        return {first % turns: range(first, entry_ids.stop, turns) for first in entry_ids[:turns]}
    first, stop = entry_ids.start, entry_ids.stop
    parts: dict[int, Sequence[int]] = {}
    while first < stop:
        number = first // run
        end = min(stop, (number + 1) * run)
        part = parts.get(number % turns)
        parts[number % turns] = range(first, end) if part is None else [*part, *range(first, end)]
        first = end
    return parts


class Attempt(ReadCall):
    """Entries asked from one replica of one ensemble."""

    __slots__ = ("ensemble", "orders", "run")

    def __init__(
        self,
        read: RangeRead,
        index: int,
        ensemble: tuple[BookieId, ...],
        orders: Orders,
        run: int,
        deadline: float,
    ) -> None:
        """`run`: the length of the runs that `orders` are for."""
        super().__init__(ensemble[index], index, read, deadline)
        self.ensemble = ensemble
        self.orders = orders
        self.run = run

    def order(self, entry_id: int) -> tuple[int, ...]:
        """Ensemble indexes in the order to ask them for an entry."""
        return self.orders[entry_id // self.run % len(self.orders)]


class RangeRead(ReadSink):
    """Reads `first`..`last` once: `await RangeRead(...).run()`.

    With `whole`, the data of what it returns are the entries as bookies store them, header and digest included.
    """

    def __init__(
        self,
        reads: LedgerReads,
        first: int,
        last: int,
        *,
        prefix: bool = False,
        whole: bool = False,
        max_bytes: int = 0,
    ) -> None:
        """`max_bytes`: end after about so many bytes, but not before the first entry; 0: read to `last`."""
        assert 0 <= first <= last
        assert prefix or not max_bytes
        context = reads.context
        self._reads = reads
        self._bookies = context.bookies
        self._digest = reads.digest
        self._first = first
        self._end = last + 1  # entries from here on are not wanted (any more)
        self._next = first  # entries below were sent
        self._results: list[LedgerEntry | None] = [None] * (last + 1 - first)
        self._missing = last + 1 - first  # results that are None, below _end
        self._outstanding = 0  # entries sent and still missing
        self._budget = ReadBudget(context.config.readEntriesWindow, context.config.readEntriesWindowBytes, max_bytes)
        self._head_size = HEADER_SIZE + reads.digest.size
        self._prefix = prefix
        self._whole = whole
        self._error: BKError | None = None
        self._troubled: dict[int, EntryRead] = {}
        self._responsive: dict[BookieId, None] = {}  # bookies that answered something good
        self._waves = Waves(context.runtime, Speculation.for_reads(context.config), self._speculate)
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> tuple[list[LedgerEntry], BKError | None]:
        """The entries, and None. On failure the error, with the entries before the failed one if `prefix`, else
        none. There are fewer than asked for without an error where `max_bytes` ended the read."""
        self._send_waves()
        return await self.wait()

    async def wait(self) -> tuple[list[LedgerEntry], BKError | None]:
        """`run`, for what was sent already."""
        try:
            await self._finished
            if self._error is not None and not self._prefix:
                return [], self._error
            results = self._results[: self._end - self._first]
            return results, self._error  # type: ignore[return-value]  # none is missing
        finally:
            self._stop()

    def take_over(self, index: int, ensemble: tuple[BookieId, ...], orders: Orders, run: int, *, late: bool) -> Attempt:
        """Instead of `run`, with `wait`: go on with a read of one entry that was sent to its first replica.

        `late`: that one has been silent for the speculation's delay. What it answers is for the attempt returned.
        """
        attempt = Attempt(self, index, ensemble, orders, run, self._bookies.read_deadline())
        self._next = self._end
        self._outstanding = 1
        if len(orders[0]) > 1:
            self._waves.sent(range(self._first, self._end), attempt, late=late)
        return attempt

    def _stop(self) -> None:
        """Nothing that comes later counts."""
        self._end = self._first
        self._waves.stop()

    # --- asking ---

    def _send_waves(self) -> None:
        size = self._reads.entry_size
        affordable = self._budget.affordable(size, self._next - self._first, self._outstanding)
        if affordable == 0:
            self._end_at(min(self._end, self._next))
            return
        stop = min(self._end, self._next + min(affordable, self._budget.outstanding(size) - self._outstanding))
        metadata = self._reads.current_metadata()
        while self._next < stop:
            boundary = metadata.next_ensemble_change(self._next)
            upto = stop if boundary < 0 else min(stop, boundary)
            self._send_wave(range(self._next, upto), metadata.ensemble_at(self._next))
            self._outstanding += upto - self._next
            self._next = upto

    def _send_wave(self, entry_ids: range, ensemble: tuple[BookieId, ...]) -> None:
        orders = self._reads.orders(ensemble)
        deadline = self._bookies.read_deadline()
        run = self._reads.run_length
        for place, asked in _by_turn(entry_ids, len(orders), run).items():
            attempt = Attempt(self, orders[place][0], ensemble, orders, run, deadline)
            self._send(asked, attempt)
        if len(orders[0]) > 1:
            self._waves.sent(entry_ids, attempt)

    def _send(self, entry_ids: Sequence[int], attempt: Attempt) -> None:
        try:
            self._bookies.read_entries(self._reads.ledger_id, entry_ids, attempt)
        except (ClientClosedError, TooManyRequestsError) as error:
            failed: list[Answer] = [(entry_id, error.code, None, None) for entry_id in entry_ids]
            asyncio.get_running_loop().call_soon(self.on_answers, attempt, failed)

    def _send_retries(self, by_index: dict[int, list[int]], failed: Attempt) -> None:
        deadline = self._bookies.read_deadline()
        for index, entry_ids in by_index.items():
            self._send(entry_ids, Attempt(self, index, failed.ensemble, failed.orders, failed.run, deadline))

    # --- hearing ---

    def on_row(self, call: ReadCall, row: Row) -> None:
        assert isinstance(call, Attempt)
        entry_ids, entries, lac = row
        place = self._place_of(entry_ids)
        checked = None if place is None else self._digest.verify_row(self._reads.ledger_id, entry_ids, entries)
        if place is None or checked is None:
            self.on_answers(call, answers_of(row))
            return
        lengths, payloads = checked
        kept = entries if self._whole else payloads
        self._results[place] = ledger_entries(self._reads.ledger_id, entry_ids, kept, lengths)
        if lac is not None and lac >= 0:
            self._reads.raise_lac(lac)
        self._arrived(call, len(entry_ids), entry_ids, entries)

    def _place_of(self, entry_ids: Sequence[int]) -> slice | None:
        """Where the results of these are kept, if they are in order, at equal distances, and all are missing."""
        first, last = entry_ids[0], entry_ids[-1]
        step = entry_ids[1] - first if len(entry_ids) > 1 else 1
        if step < 1 or last >= self._end or last - first != step * (len(entry_ids) - 1):
            return None
        if entry_ids != (*range(first, last + 1, step),):
            return None
        place = slice(first - self._first, last + 1 - self._first, step)
        return place if self._results[place].count(None) == len(entry_ids) else None

    def on_answers(self, call: ReadCall, answers: list[Answer]) -> None:
        assert isinstance(call, Attempt)
        ledger_id = self._reads.ledger_id
        verify = self._digest.verify
        results = self._results
        first = self._first
        end = self._end
        whole = self._whole
        got = 0
        best_lac = -1
        retries: dict[int, list[int]] = {}
        for entry_id, code, data, lac in answers:
            if entry_id >= end or results[entry_id - first] is not None:
                continue
            if code == OK:
                try:
                    _, length, payload = verify(ledger_id, entry_id, data)  # type: ignore[arg-type]
                except DigestMismatchError:
                    code = DIGEST_MISMATCH
                else:
                    kept = data if whole else payload
                    results[entry_id - first] = _new_entry(LedgerEntry, (ledger_id, entry_id, kept, length))
                    got += 1
                    if lac is not None and lac > best_lac:
                        best_lac = lac
                    continue
            self._entry_failed(call, entry_id, code, retries)
            end = self._end
        if best_lac >= 0:
            self._reads.raise_lac(best_lac)
        if retries:
            self._send_retries(retries, call)
        if got:
            entry_ids, _, entries, _ = zip(*answers, strict=True)
            self._arrived(call, got, entry_ids, entries)

    def _arrived(self, call: Attempt, count: int, entry_ids: Sequence[int], entries: Sequence[bytes | None]) -> None:
        """So many entries are new, of those that a bookie has answered for."""
        self._responsive[call.bookie] = None
        self._outstanding -= count
        if self._error is None:
            self._missing -= count
        else:
            self._missing = self._results[: self._end - self._first].count(None)
        if self._troubled:
            self._note_slow(call, entry_ids)
        self._learn(count, entry_ids[-1], entries)
        if self._missing == 0:
            self._finish()
        elif self._outstanding <= self._budget.outstanding(self._reads.entry_size) // 2:
            self._send_waves()

    def _learn(self, count: int, last: int, entries: Sequence[bytes | None]) -> None:
        """How large entries are, from some of those that came, up to `last`."""
        sizes = [len(entry) - self._head_size for entry in entries[::SIZE_SAMPLE] if entry]
        if not sizes:
            return
        size = sum(sizes) / len(sizes)
        self._budget.received(count * (size + ENTRY_OVERHEAD))
        entry = self._results[last - self._first] if last < self._end else None
        if entry is not None:
            self._reads.saw(count, size, last, entry.ledger_length)

    def _entry_failed(self, call: Attempt, entry_id: int, code: int, retries: dict[int, list[int]]) -> None:
        """A replica did not deliver an entry: ask the next one, or give up."""
        self._reads.failed_at(call.index, call.bookie, entry_id, code)
        state = self._state_of(entry_id, call)
        state.fail(code)
        if state.outcome is not None:
            self._give_up(from_code(state.outcome, ledger_id=self._reads.ledger_id, entry_id=entry_id), entry_id)
        elif code == ClientClosedError.code:
            self._give_up(ClientClosedError(ledger_id=self._reads.ledger_id, entry_id=entry_id), entry_id)
        elif state.idle:
            index = state.send_next()
            assert index is not None  # else the outcome would be known
            retries.setdefault(index, []).append(entry_id)

    def _state_of(self, entry_id: int, sample: Attempt) -> EntryRead:
        """The entry's state; made when it first meets trouble, as of having asked its first replica."""
        state = self._troubled.get(entry_id)
        if state is None:
            state = self._troubled[entry_id] = EntryRead(sample.order(entry_id))
            state.send_next()
        return state

    def _give_up(self, error: BKError, entry_id: int) -> None:
        """An entry cannot be read: it, and all behind it, are out."""
        self._error = error
        self._end_at(entry_id if self._prefix else self._first)

    def _end_at(self, entry_id: int) -> None:
        """Only what lies before this entry is wanted any more."""
        self._end = entry_id
        self._missing = self._results[: self._end - self._first].count(None)
        if self._missing == 0:
            self._finish()

    def _finish(self) -> None:
        if not self._finished.done():
            self._finished.set_result(None)

    def _note_slow(self, call: Attempt, entry_ids: Iterable[int]) -> None:
        """Replicas that were asked before the one that delivered count as slow."""
        slow: dict[BookieId, None] = {}
        for entry_id in entry_ids:
            state = self._troubled.get(entry_id)
            if state is None or self._results[entry_id - self._first] is None:
                continue  # no trouble, or this answer was no good copy either
            if state.succeed(call.index):
                slow.update(dict.fromkeys(call.ensemble[index] for index in state.asked[:-1] if index != call.index))
        if slow:
            self._reads.context.placement.note_slow(list(slow))

    # --- speculation ---

    def _speculate(self, entry_ids: Sequence[int], sample: Attempt) -> list[int]:
        """The delay of a wave is over: ask one more replica for what is missing. Returns for what it did."""
        by_index: dict[int, list[int]] = {}
        asked: list[int] = []
        for entry_id in entry_ids:
            if entry_id >= self._end or self._results[entry_id - self._first] is not None:
                continue
            state = self._state_of(entry_id, sample)
            if any(sample.ensemble[index] in self._responsive for index in state.asked):
                continue
            index = state.send_next()
            if index is not None:
                by_index.setdefault(index, []).append(entry_id)
                asked.append(entry_id)
        self._send_retries(by_index, sample)
        return asked
