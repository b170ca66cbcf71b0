"""Reading the LAC and the entry behind it together: the bookie answers when there is something new (spec client §9.9).

The bookies of the ensemble are asked one after the other, the next one when an answer brings nothing, fails, or is slow
(speculation); with `parallel`, all at once. One good entry ends the read. So does the news of a higher LAC. Answers
without news end it when so many bookies have said so that no ack quorum can know better.
"""

from __future__ import annotations

import asyncio
from functools import partial

from ...errors import (
    BKError,
    BookieUnavailableError,
    ClientClosedError,
    DigestMismatchError,
    NoSuchEntryError,
    TooManyRequestsError,
    UnauthorizedError,
    from_code,
)
from ...protocol.messages import Flags, ReadRequest, ReadResponse, Response
from ...quorum.coverage import OK, is_negative
from ...quorum.reading import first_error
from ...runtime import TimerHandle
from ...types import BookieId
from ..entry import LastConfirmedAndEntry, LedgerEntry
from ..wire.results import DIGEST_MISMATCH, UNAUTHORIZED
from .ledger_reads import LedgerReads
from .speculation import Speculation


class LongPollRead:
    """Waits for entry `entry_id` to be confirmed: `await LongPollRead(...).run()`."""

    def __init__(self, reads: LedgerReads, entry_id: int, lac: int, timeout: float, *, parallel: bool) -> None:
        distribution = reads.distribution
        self._reads = reads
        self._entry_id = entry_id
        self._lac = lac  # the highest heard of
        self._timeout = timeout
        self._parallel = parallel
        self._ensemble = reads.current_metadata().last_ensemble[1]
        self._order = reads.order_of_all(self._ensemble, entry_id)
        self._max_missed = distribution.ensemble_size - distribution.ack_quorum
        self._asked = 0  # the first so many of _order
        self._answered_count = 0  # <= _asked
        self._empty = 0
        self._missed = 0
        self._error = OK
        self._valid = False
        speculation = Speculation.for_long_polls(reads.context.config)
        self._speculation = None if parallel else speculation
        self._timer: TimerHandle | None = None
        self._done: asyncio.Future[LastConfirmedAndEntry] = asyncio.get_running_loop().create_future()

    async def run(self) -> LastConfirmedAndEntry:
        """Raises `BKError`."""
        try:
            self._ask_next()
            while self._parallel and self._ask_next():
                pass
            if self._speculation is not None:
                self._start_timer(self._speculation.first)
            return await self._done
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def end(self, lac: int) -> None:
        """The ledger was closed, its last entry being `lac`: there is nothing left to wait for."""
        if not self._done.done():
            self._lac = max(self._lac, lac)
            self._succeed(None)

    # --- asking ---

    def _ask_next(self) -> bool:
        """False when all bookies were asked."""
        if self._asked == len(self._order):
            return False
        bookie = self._ensemble[self._order[self._asked]]
        self._asked += 1
        request = ReadRequest(
            self._reads.ledger_id,
            -1,
            flags=Flags.ENTRY_PIGGYBACK,
            previous_lac=self._entry_id - 1,
            timeout_ms=int(self._timeout * 1000),
        )
        bookies = self._reads.context.bookies
        # The bookie may wait as long as it was told to before the time for its answer begins.
        timeout = self._timeout + bookies.read_timeout if bookies.read_timeout > 0 else 0.0
        try:
            bookies.call(bookie, request, timeout, partial(self._answered, bookie))
        except (ClientClosedError, TooManyRequestsError) as error:
            asyncio.get_running_loop().call_soon(self._answered, bookie, error.code, None)
        return True

    def _start_timer(self, delay: float) -> None:
        self._timer = self._reads.context.runtime.call_later(delay, self._speculate, delay)

    def _speculate(self, delay: float) -> None:
        assert self._speculation is not None
        self._timer = None
        if not self._done.done() and self._ask_next():
            self._start_timer(self._speculation.after(delay))

    # --- hearing ---

    def _answered(self, bookie: BookieId, code: int, response: Response | None) -> None:
        self._answered_count += 1
        entry: LedgerEntry | None = None
        if code == OK and isinstance(response, ReadResponse):
            if response.max_lac is not None:
                self._reads.raise_lac(response.max_lac)
                self._lac = max(self._lac, response.max_lac)
            try:
                entry = self._entry_in(response)
            except DigestMismatchError:
                code = DIGEST_MISMATCH
        if self._done.done():
            return
        if code == OK:
            self._valid = True
            self._heard(entry)
        elif code == UNAUTHORIZED:
            self._fail(UnauthorizedError(ledger_id=self._reads.ledger_id))
        elif code == ClientClosedError.code:
            self._fail(ClientClosedError(ledger_id=self._reads.ledger_id))
        else:
            self._failed(bookie, code)

    def _entry_in(self, response: ReadResponse) -> LedgerEntry | None:
        if response.entry_id == -1:
            return None
        ledger_id = self._reads.ledger_id
        _, length, payload = self._reads.digest.verify(ledger_id, self._entry_id, response.entry or b"")
        return LedgerEntry(ledger_id, self._entry_id, payload, length)

    def _heard(self, entry: LedgerEntry | None) -> None:
        if entry is not None or self._lac >= self._entry_id:
            self._succeed(entry)
            return
        self._empty += 1
        if self._empty > self._max_missed:
            self._succeed(None)
        else:
            self._go_on()

    def _failed(self, bookie: BookieId, code: int) -> None:
        self._error = first_error(self._error, code)
        if is_negative(code):
            self._missed += 1
            self._reads.context.placement.note_failed(bookie)
        if self._parallel and self._missed > self._max_missed:
            self._finish()
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Nothing is decided: ask the next bookie if none is outstanding, or end with what there is."""
        if self._asked > self._answered_count or self._ask_next():
            return
        self._finish()

    def _finish(self) -> None:
        """All have answered, and none had the entry."""
        if self._valid:
            self._succeed(None)
            return
        code = self._error
        if code == BookieUnavailableError.code and self._missed > self._max_missed:
            code = NoSuchEntryError.code
        self._fail(from_code(code, ledger_id=self._reads.ledger_id, entry_id=self._entry_id))

    def _succeed(self, entry: LedgerEntry | None) -> None:
        self._done.set_result(LastConfirmedAndEntry(self._lac, entry))

    def _fail(self, error: BKError) -> None:
        self._done.set_exception(error)
