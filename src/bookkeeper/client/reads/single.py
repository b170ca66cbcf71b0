"""Reading one entry, as cheaply as the usual case allows (spec client §9.2 to §9.4).

Theory of operation

Programs that jump read entries one by one, many side by side. Mostly the first replica gives a good copy at once: that
costs a request, a check and an entry here. A read that meets trouble, an error, bad data or silence, becomes a
`RangeRead` of one entry, which knows how to go on; what the first replica has answered, or answers yet, goes there.

One timer serves all such reads of a ledger: they have the same patience, so the oldest is due first.
"""

from __future__ import annotations

import asyncio

from ...errors import BKError, ClientClosedError, DigestMismatchError, TooManyRequestsError
from ...runtime import TimerHandle
from ...types import BookieId
from ..entry import LedgerEntry
from ..wire.calls import Answer, ReadCall
from ..wire.results import OK
from .ledger_reads import LedgerReads, Orders
from .range import Attempt, RangeRead
from .speculation import Speculation

SIZE_SAMPLE = 16
"""The size of one entry of so many is looked at."""

_new_entry = tuple.__new__

Outcome = tuple[list[LedgerEntry], BKError | None]
"""As of `RangeRead.run`."""


class _Read(ReadCall):
    """A read of one entry, asked of its first replica."""

    __slots__ = ("attempt", "due", "ensemble", "entry_id", "orders", "outcome", "owner", "run")

    def __init__(
        self,
        owner: SingleReads,
        entry_id: int,
        ensemble: tuple[BookieId, ...],
        orders: Orders,
        run: int,
        deadline: float,
    ) -> None:
        index = orders[entry_id // run % len(orders)][0]
        super().__init__(ensemble[index], index, self, deadline)
        self.owner = owner
        self.entry_id = entry_id
        self.ensemble = ensemble
        self.orders = orders
        self.run = run
        self.due = 0.0  # when the next replica is asked as well
        self.attempt: Attempt | None = None  # what it has become part of
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def on_answers(self, _call: ReadCall, answers: list[Answer]) -> None:
        if self.outcome.done():
            return
        if self.attempt is None:
            entry = self.owner.good(self.entry_id, answers[0])
            if entry is not None:
                self.outcome.set_result(([entry], None))
                return
            self.owner.take_trouble(self, late=False)
        if self.attempt is not None:
            self.attempt.sink.on_answers(self.attempt, answers)


class SingleReads:
    """The reads of single entries of one ledger."""

    __slots__ = ("_delay", "_reads", "_seen", "_timer", "_under_way")

    def __init__(self, reads: LedgerReads) -> None:
        self._reads = reads
        speculation = Speculation.for_reads(reads.context.config)
        self._delay = speculation.first if speculation is not None else None
        self._under_way: dict[_Read, None] = {}  # those that had no trouble yet, oldest first
        self._timer: TimerHandle | None = None  # set while there are any, unless nothing is ever late
        self._seen = 0  # entries that came

    async def read(self, entry_id: int) -> Outcome:
        """The entry, or its error."""
        reads = self._reads
        bookies = reads.context.bookies
        ensemble = reads.current_metadata().ensemble_at(entry_id)
        read = _Read(self, entry_id, ensemble, reads.orders(ensemble), reads.run_length, bookies.read_deadline())
        try:
            bookies.read_entries(reads.ledger_id, (entry_id,), read)
        except (ClientClosedError, TooManyRequestsError) as error:
            failed: list[Answer] = [(entry_id, error.code, None, None)]
            asyncio.get_running_loop().call_soon(read.on_answers, read, failed)
        self._begins(read)
        try:
            return await read.outcome
        finally:
            self._ends(read)

    def good(self, entry_id: int, answer: Answer) -> LedgerEntry | None:
        """The entry of a good answer; None for any other."""
        _, code, data, lac = answer
        if code != OK or data is None:
            return None
        reads = self._reads
        try:
            _, length, payload = reads.digest.verify(reads.ledger_id, entry_id, data)
        except DigestMismatchError:
            return None
        if lac is not None:
            reads.raise_lac(lac)
        if self._seen % SIZE_SAMPLE == 0:
            reads.saw(1, len(payload), entry_id, length)
        self._seen += 1
        entry: LedgerEntry = _new_entry(LedgerEntry, (reads.ledger_id, entry_id, payload, length))
        return entry

    def take_trouble(self, read: _Read, *, late: bool) -> None:
        """Let a `RangeRead` go on with a read; what becomes of it there is its outcome.

        So is what prevents it from beginning, such as an error in a placement policy: others read on.
        """
        try:
            rest = RangeRead(self._reads, read.entry_id, read.entry_id)
            read.attempt = rest.take_over(read.index, read.ensemble, read.orders, read.run, late=late)
        except Exception as error:
            read.outcome.set_exception(error)
            return
        going_on = self._reads.context.runtime.spawn(rest.wait(), name=f"entry of ledger {self._reads.ledger_id}")

        def ended(task: asyncio.Task[Outcome]) -> None:
            if not read.outcome.done():
                if task.cancelled():
                    read.outcome.cancel()
                elif (failure := task.exception()) is not None:
                    read.outcome.set_exception(failure)
                else:
                    read.outcome.set_result(task.result())

        going_on.add_done_callback(ended)
        read.outcome.add_done_callback(lambda _: going_on.cancel())

    # --- silence ---

    def _begins(self, read: _Read) -> None:
        if self._delay is not None and len(read.orders[0]) > 1:
            read.due = self._reads.context.runtime.now() + self._delay
            self._under_way[read] = None
            if self._timer is None:
                self._timer = self._reads.context.runtime.call_later(self._delay, self._look)

    def _ends(self, read: _Read) -> None:
        self._under_way.pop(read, None)
        if not self._under_way and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """The oldest read may be due."""
        self._timer = None
        runtime = self._reads.context.runtime
        now = runtime.now()
        for read in list(self._under_way):
            if read.due > now:
                self._timer = runtime.call_later(read.due - now, self._look)
                return
            del self._under_way[read]
            if read.attempt is None and not read.outcome.done():
                self.take_trouble(read, late=True)
