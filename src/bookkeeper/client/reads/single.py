"""Reading one entry, as cheaply as the usual case allows (spec client §9.2 to §9.4).

Theory of operation

Programs that jump read entries one by one, many side by side. Those that are asked for in one turn of the loop and
begin at the same replica leave together when the turn ends (`wire.departures`), and share one call. Mostly the replica
gives a good copy at once: that costs an entry and its check here. A read that meets trouble, an error, bad data or
silence, becomes a `RangeRead` of one entry, which knows how to go on; what the first replica has answered, or answers
yet, goes there.

One timer serves all such reads of a ledger: they have the same patience, so the oldest is due first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ...errors import BKError, ClientClosedError, DigestMismatchError, TooManyRequestsError
from ...runtime import TimerHandle, guarded
from ...types import BookieId
from ..entry import LedgerEntry, ledger_entries
from ..wire.calls import Answer, ReadCall, ReadSink, Row, answers_of
from ..wire.results import OK
from .ledger_reads import LedgerReads, Orders
from .range import Attempt, RangeRead
from .speculation import Speculation

SIZE_SAMPLE = 16
"""The size of one entry of so many is looked at."""

_new_entry = tuple.__new__

Outcome = tuple[list[LedgerEntry], BKError | None]
"""As of `RangeRead.run`."""


class _SharedCall(ReadCall, ReadSink):
    """Reads of single entries that leave together for the first replica of each of them."""

    __slots__ = ("ensemble", "late_at", "orders", "owner", "run", "taken_over", "waiting")

    def __init__(
        self, owner: SingleReads, index: int, ensemble: tuple[BookieId, ...], orders: Orders, run: int
    ) -> None:
        super().__init__(ensemble[index], index, self, 0.0)
        self.owner = owner
        self.ensemble = ensemble
        self.orders = orders
        self.run = run
        self.late_at = 0.0
        """When the next replica is asked as well."""
        self.waiting: dict[int, asyncio.Future[Outcome]] = {}
        """By entry id, the reads that had no trouble yet."""
        self.taken_over: dict[int, Attempt] = {}
        """By entry id, what the others have become part of."""

    def leave(self) -> None:
        """The turn is over."""
        self.owner.send(self)

    def on_answers(self, _call: ReadCall, answers: list[Answer]) -> None:
        self.owner.heard(self, answers)

    def on_row(self, _call: ReadCall, row: Row) -> None:
        self.owner.heard_row(self, row)


_Turn = tuple[Orders, int, dict[int, _SharedCall]]
"""What the reads from one ensemble have in common during a turn: orders, the length of the runs that they are for, and
by ensemble index the call that leaves for that replica."""


class SingleReads:
    """The reads of single entries of one ledger."""

    __slots__ = ("_delay", "_leaving", "_new_outcome", "_reads", "_seen", "_timer", "_under_way")

    def __init__(self, reads: LedgerReads) -> None:
        self._reads = reads
        speculation = Speculation.for_reads(reads.context.config)
        self._new_outcome: Callable[[], asyncio.Future[Outcome]] = asyncio.get_running_loop().create_future
        self._delay = speculation.first if speculation is not None else None
        self._leaving: dict[tuple[BookieId, ...], _Turn] = {}  # of this turn, by ensemble
        self._under_way: dict[_SharedCall, None] = {}  # those with reads that had no trouble yet, oldest first
        self._timer: TimerHandle | None = None  # set while there are any, unless nothing is ever late
        self._seen = SIZE_SAMPLE  # entries that came since one was looked at

    def read(self, entry_id: int) -> asyncio.Future[Outcome]:
        """The entry, or its error. It is asked for when this turn of the loop ends."""
        ensemble = self._reads.current_metadata().ensemble_at(entry_id)
        turn = self._leaving.get(ensemble) or (self._reads.orders(ensemble), self._reads.run_length, {})
        orders, run, calls = turn
        index = orders[entry_id // run % len(orders)][0]
        call = calls.get(index)
        if call is None or entry_id in call.waiting:
            call = calls[index] = _SharedCall(self, index, ensemble, orders, run)
            self._leaving[ensemble] = turn
            self._reads.context.departures.gathered(call.leave)
        outcome = call.waiting[entry_id] = self._new_outcome()
        return outcome

    # --- asking ---

    def send(self, call: _SharedCall) -> None:
        """A call leaves, without the reads that were cancelled meanwhile."""
        self._leaving.clear()  # all calls of a turn leave together
        for entry_id in [entry_id for entry_id, outcome in call.waiting.items() if outcome.done()]:
            del call.waiting[entry_id]
        if not call.waiting:
            return
        try:
            call.deadline = self._reads.context.bookies.read_deadline()
            self._ask(call, list(call.waiting))
        except Exception as error:
            for outcome in call.waiting.values():
                if not outcome.done():
                    outcome.set_exception(error)
            raise
        self._begins(call)

    def _ask(self, call: _SharedCall, entry_ids: Sequence[int]) -> None:
        """As many of these as there is room for on the connection: there may be none for all of them together."""
        try:
            self._reads.context.bookies.read_entries(self._reads.ledger_id, entry_ids, call)
        except (ClientClosedError, TooManyRequestsError) as error:
            if len(entry_ids) == 1 or isinstance(error, ClientClosedError):
                self.heard(call, [(entry_id, error.code, None, None) for entry_id in entry_ids])
                return
            half = len(entry_ids) // 2
            self._ask(call, entry_ids[:half])
            self._ask(call, entry_ids[half:])

    # --- hearing ---

    def heard_row(self, call: _SharedCall, row: Row) -> None:
        """`heard`, where all is good."""
        entry_ids, data, lac = row
        reads = self._reads
        waiting = call.waiting
        outcomes = [waiting[entry_id] for entry_id in entry_ids if entry_id in waiting]
        checked = reads.digest.verify_row(reads.ledger_id, entry_ids, data) if len(outcomes) == len(data) else None
        if checked is None:
            self.heard(call, answers_of(row))
            return
        lengths, payloads = checked
        entries = ledger_entries(reads.ledger_id, entry_ids, payloads, lengths)
        for outcome, entry in zip(outcomes, entries, strict=True):
            del waiting[entry.entry_id]
            if not outcome.done():
                outcome.set_result(([entry], None))
        self._came(call, len(entries), entries[-1], -1 if lac is None else lac)

    def heard(self, call: _SharedCall, answers: list[Answer]) -> None:
        """What one socket read brought for a call."""
        reads = self._reads
        ledger_id = reads.ledger_id
        verify = reads.digest.verify
        waiting = call.waiting
        best_lac = -1
        count = 0
        entry: LedgerEntry | None = None
        for answer in answers:
            entry_id, code, data, lac = answer
            outcome = waiting.pop(entry_id, None)
            if outcome is None:
                self._pass_on(call, answer)
            elif not outcome.done():
                try:
                    good = verify(ledger_id, entry_id, data) if code == OK else None  # type: ignore[arg-type]
                except DigestMismatchError:
                    good = None
                if good is None:
                    self._take_trouble(call, entry_id, outcome, late=False)
                    self._pass_on(call, answer)
                else:
                    entry = _new_entry(LedgerEntry, (ledger_id, entry_id, good[2], good[1]))
                    outcome.set_result(([entry], None))
                    count += 1
                    if lac is not None and lac > best_lac:
                        best_lac = lac
        self._came(call, count, entry, best_lac)

    def _came(self, call: _SharedCall, count: int, last: LedgerEntry | None, lac: int) -> None:
        """So many good entries, of which the last is this, were handed out; a bookie knows of this LAC."""
        if not call.waiting:
            self._ends(call)
        if lac >= 0:
            self._reads.raise_lac(lac)
        self._seen += count
        if last is not None and self._seen >= SIZE_SAMPLE:
            self._seen = 0
            self._reads.saw(1, len(last.data), last.entry_id, last.ledger_length)

    def _take_trouble(self, call: _SharedCall, entry_id: int, outcome: asyncio.Future[Outcome], *, late: bool) -> None:
        """Let a `RangeRead` go on with a read; what becomes of it there is its outcome.

        So is what prevents it from beginning, such as an error in a placement policy: others read on.
        """
        try:
            rest = RangeRead(self._reads, entry_id, entry_id)
            call.taken_over[entry_id] = rest.take_over(call.index, call.ensemble, call.orders, call.run, late=late)
        except Exception as error:
            outcome.set_exception(error)
            return
        going_on = self._reads.context.runtime.spawn(rest.wait(), name=f"entry of ledger {self._reads.ledger_id}")

        def ended(task: asyncio.Task[Outcome]) -> None:
            if not outcome.done():
                if task.cancelled():
                    outcome.cancel()
                elif (failure := task.exception()) is not None:
                    outcome.set_exception(failure)
                else:
                    outcome.set_result(task.result())

        going_on.add_done_callback(ended)
        outcome.add_done_callback(lambda _: going_on.cancel())

    def _pass_on(self, call: _SharedCall, answer: Answer) -> None:
        """Tell a read that was taken over what the first replica says."""
        attempt = call.taken_over.pop(answer[0], None)
        if attempt is not None:
            with guarded(f"answer of bookie {call.bookie} to a read"):
                attempt.sink.on_answers(attempt, [answer])

    # --- silence ---

    def _begins(self, call: _SharedCall) -> None:
        if self._delay is not None and len(call.orders[0]) > 1 and call.waiting:
            runtime = self._reads.context.runtime
            call.late_at = runtime.now() + self._delay
            self._under_way[call] = None
            if self._timer is None:
                self._timer = runtime.call_later(self._delay, self._look)

    def _ends(self, call: _SharedCall) -> None:
        self._under_way.pop(call, None)
        if not self._under_way and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """The oldest reads may be late."""
        self._timer = None
        runtime = self._reads.context.runtime
        now = runtime.now()
        for call in list(self._under_way):
            if call.late_at > now:
                self._timer = runtime.call_later(call.late_at - now, self._look)
                return
            del self._under_way[call]
            late, call.waiting = call.waiting, {}
            for entry_id, outcome in late.items():
                if not outcome.done():
                    self._take_trouble(call, entry_id, outcome, late=True)
