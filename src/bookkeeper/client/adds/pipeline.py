"""The add pipeline: entries out to their bookies, answers in, decisions carried out.

What to do is decided in `quorum` (the window and the ensemble keeper); this module sends, receives and keeps time. A
writer uses it to append, recovery to write back. Its owner is told of the two things it cannot do itself: put another
ensemble into the metadata, and end the ledger; and it is asked whether a quiet pipeline may be given up.

    push -> window -> channels of the write set ... socket read -> on_add_responses -> window -> futures

Theory of operation

- A frame is encoded once; all bookies of the write set, and replacements later, get the same bytes.
- Nothing is remembered per request: the window knows what is outstanding where. What takes too long is noticed by the
  channels (`wire.add_channel`), and here by `deadlines`.
- What is pushed in one turn of the loop leaves together, with that of all writers (`outbox`, `wire.departures`).
- Answers are taken by the batch that a socket read brought: acks first, then what they confirm, then refusals.
- While an ensemble change is under way nothing is confirmed, and indexes being replaced are sent nothing.
- The connections keep the pipeline alive, and the pipeline keeps the callers' futures, but only a weak reference to
  its owner: a writer that is dropped without being closed can be noticed. Changes of the ensemble need an owner, so a
  pipeline without one stops at the first failure.
- However the pipeline ends, all callers that wait for it get an error. An unexpected error (a placement policy that
  raises) is such an end too; the client being closed is another, told by the channels.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple, Protocol, cast

from ...config import ClientConfiguration
from ...errors import (
    AddEntryQuorumTimeoutError,
    BKError,
    ClientClosedError,
    LedgerClosedError,
    UnexpectedError,
    from_code,
)
from ...quorum.distribution import Distribution
from ...quorum.ensemble import AskForChange, Decision, EnsembleKeeper, EnsemblePolicy, GiveUp, Resend, RetryLater
from ...quorum.window import PendingWindow
from ...types import BookieId, WriteFlag
from ..context import ClientContext
from .deadlines import AddDeadlines
from .encoding import EncodeAdd
from .outbox import Lane, Outbox
from .waiters import Flushes, fail

log = logging.getLogger(__name__)


class AddOwner(Protocol):
    """What a pipeline needs done. Both may be called from inside `push` and from the loop."""

    def change_ensemble(self, change: AskForChange) -> None:
        """Replace bookies; sooner or later call `AddPipeline.carry_out` with the keeper's next decision."""

    def give_up(self, code: int, withdraw: bool) -> None:
        """The pipeline cannot go on. Call `AddPipeline.stop`; with `withdraw` leave the metadata alone."""

    def rest(self) -> bool:
        """Nothing was under way for a while: the pipeline may be given up, by `AddPipeline.let_go`."""


class End(NamedTuple):
    """How a pipeline ended."""

    failed_entries: int
    failure: BKError | None
    """Why; None when its owner or the client was closed."""


NO_FAILURE = End(0, None)


class AddPipeline:
    """Adds of one handle to one ledger. See the module. A `LaneUser`."""

    __slots__ = (
        "__weakref__", "_abandoned", "_change_is_due", "_clock", "_context", "_deadlines", "_encode", "_flushes",
        "_index_of", "_ledger_id", "_may_confirm", "_owner", "end", "keeper", "lane", "on_confirmed", "on_progress",
        "outbox", "stopped", "waiting", "window",
    )  # fmt: skip

    def __init__(
        self,
        context: ClientContext,
        ledger_id: int,
        distribution: Distribution,
        keeper: EnsembleKeeper,
        owner: AddOwner,
        encode: EncodeAdd,
        *,
        version: int,
        quorum_timeout: float = -1,
        on_confirmed: Callable[[range], None] | None = None,
    ) -> None:
        """`keeper`: what decides, see `new_keeper`; `quorum_timeout`: seconds an entry may take to its ack quorum; zero
        or less: no limit."""
        config = context.config
        self.keeper = keeper
        self.window = keeper.window
        self.stopped: int | None = None
        """None while it works, else the code that pending entries failed with."""
        self.end = NO_FAILURE
        """What failed when it stopped."""
        self.on_progress: Callable[[], None] = lambda: None
        """Called when a connection became writable; and, while there are `waiting`, for each answer."""
        self.waiting = 0
        """Those that wait for room; counted by who lets them in (`gate.Watched`). One more once it is abandoned."""
        self._context = context
        self._ledger_id = ledger_id
        self._change_is_due = False  # bookies that failed late are to be replaced; or nothing can be pushed any more
        self._owner = weakref.ref(owner)
        self._encode = encode
        self.on_confirmed = on_confirmed
        """Called with the entries that were confirmed, if anyone wants to hear."""
        self._flushes: Flushes | None = None  # made for the first that waits for it
        open_channel = partial(context.bookies.open_add_channel, ledger_id=ledger_id, sink=self, version=version)
        self.lane: Lane | None = None
        self.outbox = Outbox(self.keeper, distribution, open_channel, context.departures, ledger_id, self)
        self._deadlines = AddDeadlines(config, context.clock, quorum_timeout, self._on_tick)
        self._clock = self._deadlines.clock
        self._abandoned = False  # the owner is gone
        if config.enforceMinNumFaultDomainsForWrite:
            self.window.accept = self._acks_span_domains
        self._follow_keeper()
        self.outbox.open_channels()
        self._deadlines.run()

    def _follow_keeper(self) -> None:
        """What the keeper says, at hand for each entry. To be called whenever it was told something."""
        keeper = self.keeper
        self._change_is_due = bool(keeper.delayed)
        self._index_of = keeper.index_of if self.stopped is None else _of_nobody
        self._may_confirm = not keeper.changing
        self.outbox.route()

    # --- out ---

    def push(self, payload: bytes, future: asyncio.Future[int] | None = None, entry_id: int | None = None) -> int:
        """Give the payload an id and send it; the future gets the id when the entry is confirmed.

        `entry_id` only from an advanced writer. Raises `LedgerClosedError` when the pipeline has stopped.
        """
        if self._change_is_due:
            self._prepare_to_push()
        window = self.window
        if entry_id is None:
            entry_id = window.lap + 1
        size = len(payload)
        frame = self._encode(self._ledger_id, entry_id, window.lac, window.length + size, payload)
        window.now = self._clock.tick
        window.push(entry_id, size, frame, future)
        lane = self.lane
        if lane is None:
            self.outbox.put(entry_id, frame)
            return entry_id
        bundle = lane.bundles[0]
        if not (bundle.due and lane.watched):
            lane.put(frame)
            return entry_id
        bundle.put(frame)
        lane.count += 1
        return entry_id

    def _prepare_to_push(self) -> None:
        """Replace bookies that failed late, first."""
        if self.stopped is None:
            self.keeper.changes_disabled = self._context.ensemble_change_disabled
            self.carry_out(self.keeper.before_push())
        if self.stopped is not None:
            raise self.refusal()

    def refusal(self) -> BKError:
        """Why nothing can be pushed any more. Its cause is the failure that ended the ledger, if one did."""
        if self.stopped == ClientClosedError.code:
            return ClientClosedError(ledger_id=self._ledger_id)
        error = LedgerClosedError(ledger_id=self._ledger_id)
        error.__cause__ = self.end.failure
        return error

    # --- in ---

    def on_add_responses(self, bookie: BookieId, acked: list[int], failed: list[tuple[int, int]]) -> None:
        """One socket read's answers of one bookie."""
        index = self._index_of(bookie)
        if index is None:
            return
        try:
            if self.window.ack(index, acked) and self._may_confirm:
                self._confirm()
            if failed:
                self.keeper.changes_disabled = self._context.ensemble_change_disabled
                self.carry_out(self.keeper.on_failures(bookie, failed))
        except Exception:
            self._unexpected()
        if self.waiting:
            self._answered()

    def on_add_stored(self, bookie: BookieId, entry_id: int) -> None:
        """One entry."""
        index = self._index_of(bookie)
        if index is None:
            return
        try:
            if self.window.ack_one(index, entry_id) and self._may_confirm:
                self._confirm()
        except Exception:
            self._unexpected()
        if self.waiting:
            self._answered()

    def on_stored(self, entry_id: int) -> None:
        """One entry, by all bookies of the one lane."""
        lane = self.lane
        assert lane is not None, f"entry {entry_id} went to all by no lane"
        lane.answered += 1
        try:
            if self._may_confirm and self.window.confirm_next(entry_id):
                if self._flushes is not None or self.on_confirmed is not None:
                    self._tell_of(range(entry_id, entry_id + 1))
            elif self.window.ack_by(lane.indexes, (entry_id,)) and self._may_confirm:
                self._confirm()
        except Exception:
            self._unexpected()
        if self.waiting:
            self._answered()

    def on_stored_at(self, places: Sequence[int], entry_ids: Sequence[int]) -> None:
        """These entries, by several bookies of the one lane."""
        lane = self.lane
        assert lane is not None, f"entries {entry_ids} went to all by no lane"
        indexes = lane.indexes
        everywhere = len(places) == len(indexes)
        if everywhere:
            lane.answered += len(entry_ids)
        else:
            indexes = lane.count_answers(places, len(entry_ids))
        try:
            if everywhere and self._may_confirm and self.window.confirm_row(entry_ids):
                if self._flushes is not None or self.on_confirmed is not None:
                    self._tell_of(range(entry_ids[0], entry_ids[-1] + 1))
            elif self.window.ack_by(indexes, entry_ids) and self._may_confirm:
                self._confirm()
        except Exception:
            self._unexpected()
        if self.waiting:
            self._answered()

    def _answered(self) -> None:
        if self._abandoned:
            self._stop_if_idle()
        self.on_progress()

    def on_channel_lost(self, bookie: BookieId, error: BKError) -> None:
        """The connection to a bookie is gone, with all that was sent on it; or the client is closed."""
        if self.stopped is not None:
            return
        try:
            self.keeper.changes_disabled = self._context.ensemble_change_disabled
            closed = isinstance(error, ClientClosedError)
            self.carry_out(GiveUp(error.code) if closed else self.keeper.on_channel_lost(bookie, error.code))
        except Exception:
            self._unexpected()
        self.on_progress()

    def _unexpected(self) -> None:
        """Neither the window nor the ensemble can be relied on any more."""
        log.exception("ledger %d: unexpected error while appending: %s; %s", self._ledger_id, self.window, self.keeper)
        self.carry_out(GiveUp(UnexpectedError.code))

    def on_writable(self, bookie: BookieId) -> None:  # noqa: ARG002
        """A connection's buffer went below its low-water mark."""
        self.on_progress()

    def _confirm(self) -> None:
        confirmed = self.window.confirm()
        if confirmed:
            self._tell_of(confirmed)

    def _tell_of(self, confirmed: range) -> None:
        if self._flushes is not None:
            self._flushes.confirmed(confirmed[-1])
        if self.on_confirmed is not None:
            self.on_confirmed(confirmed)

    async def confirmed(self, entry_id: int) -> int:
        """Wait until everything up to an id is confirmed. Raises the error that stopped the pipeline before."""
        if self.window.head < entry_id:
            if self.stopped is not None:
                raise self.error_of_first()
            self._flushes = self._flushes or Flushes()
            await self._flushes.until(entry_id)
        return entry_id

    # --- decisions ---

    def carry_out(self, decision: Decision | None) -> None:
        """Do what the keeper decided."""
        if self.stopped is not None:
            return
        self._follow_keeper()
        if decision is None:
            return
        owner = self._owner()
        if isinstance(decision, Resend):
            self._resend(decision.indexes)
        elif isinstance(decision, RetryLater):
            delay = self._context.config.disabledEnsembleChangeResendMillis / 1000
            self._deadlines.pauses.timer = self._context.runtime.call_later(delay, self._retry)
        elif owner is None:
            self.stop(LedgerClosedError.code)
        elif isinstance(decision, AskForChange):
            pause = self._deadlines.pauses.before_change(self.window.head)
            if pause:
                self._deadlines.pauses.timer = self._context.runtime.call_later(pause, self._ask_owner, decision)
            else:
                owner.change_ensemble(decision)
        elif isinstance(decision, GiveUp):
            owner.give_up(decision.code, decision.withdraw)

    def _resend(self, indexes: Sequence[int]) -> None:
        self.outbox.open_channels()
        for index in indexes:
            for entry_id in self.window.resend(index):
                self.outbox.send_again(index, self.window.frame(entry_id))
        if self._may_confirm:
            self._confirm()
        self.on_progress()

    def _ask_owner(self, change: AskForChange) -> None:
        owner = self._owner()
        if self.stopped is not None:
            return
        if owner is None:
            self.stop(LedgerClosedError.code)
        else:
            owner.change_ensemble(change)

    def _retry(self) -> None:
        self.keeper.changes_disabled = self._context.ensemble_change_disabled
        self.carry_out(self.keeper.retry())

    def _acks_span_domains(self, acked: int) -> bool:
        bookies = [bookie for index, bookie in enumerate(self.keeper.ensemble) if acked >> index & 1]
        schedule = self.outbox.schedule
        return self._context.placement.acks_span_domains(bookies, schedule.write_quorum, schedule.ack_quorum)

    # --- time ---

    def _on_tick(self) -> None:
        self.window.now = self._deadlines.clock.tick
        if self.stopped is not None:
            self._deadlines.stop()
            return
        if not self.window.open:
            if self._deadlines.quiet(self.window.lap) and ((owner := self._owner()) is None or owner.rest()):
                self._deadlines.stop()
            return
        if not self.window.any_before(self._deadlines.clock.tick - 1):
            self._deadlines.in_time()
            return
        overtaken = self._deadlines.overtaken_before(self.window.acked_times)
        if overtaken is not None:
            self.keeper.changes_disabled = self._context.ensemble_change_disabled
            for decision in self.keeper.on_overtaken(overtaken):
                self.carry_out(decision)
            self._follow_keeper()
        overdue = self.window.overdue(self._deadlines.quorum_overdue)
        if overdue is not None and self.stopped is None:
            if len(self.window.acked(overdue)) >= self.outbox.schedule.ack_quorum:
                self._context.stats.WRITE_TIME_OUT_DUE_TO_NOT_ENOUGH_FAULT_DOMAINS += 1
            self.carry_out(GiveUp(AddEntryQuorumTimeoutError.code))

    @property
    def at_rest(self) -> bool:
        """Nothing is under way, nobody waits, and no change of the ensemble is due."""
        waiting = self._flushes is not None and self._flushes.waiting
        return self.stopped is None and not (self.window.open or waiting) and self.keeper.at_rest

    # --- the end ---

    def let_go(self) -> None:
        """Let go of the connections and the clock; another pipeline goes on with the keeper. Only when `at_rest`."""
        assert self.at_rest, f"{self.window}; {self.keeper}"
        self._deadlines.stop()
        self.window.accept = None  # it is ours
        self.outbox.close()

    def stop(self, code: int) -> None:
        """Fail all pending entries with `code`, in order, and let go of the connections. Idempotent."""
        if self.stopped is not None:
            return
        self.stopped = code
        self._change_is_due = True
        self._index_of = _of_nobody
        self._deadlines.stop()
        self._deadlines.pauses.end()
        self.outbox.take_back({entry_id: frame for entry_id, (_, _, frame, _) in self.window.open.items()})
        pending = self.window.drain()
        drained = list(pending)
        failure = None
        if code not in (LedgerClosedError.code, ClientClosedError.code):
            failure = from_code(code, ledger_id=self._ledger_id, entry_id=drained[0] if drained else None)
        self.end = End(len(drained), failure)
        if drained and code != LedgerClosedError.code:
            log.warning("ledger %d: %d appends failed: %s", self._ledger_id, len(drained), self._error(drained[0]))
        for entry_id, waiter in pending.items():
            if waiter is not None:
                fail(cast("asyncio.Future[int]", waiter), self._error(entry_id))  # `push` takes no others
        if self._flushes is not None:
            self._flushes.fail(self.error_of_first)
        self.outbox.close()
        self.on_progress()

    def _error(self, entry_id: int) -> BKError:
        assert self.stopped is not None
        return from_code(self.stopped, ledger_id=self._ledger_id, entry_id=entry_id)

    def error_of_first(self) -> BKError:
        """The error of the first entry that was not confirmed. Only when it has stopped."""
        return self._error(self.window.head + 1)

    def abandon(self) -> None:
        """The owner is gone: stop now if nothing is in flight, else when nothing is, or at the first failure."""
        if not self._abandoned:
            self._abandoned = True
            self.waiting += 1  # for the last answer
        self._stop_if_idle()

    def _stop_if_idle(self) -> None:
        if self.stopped is None and not self.window.open:
            self.stop(LedgerClosedError.code)


def _of_nobody(_bookie: BookieId) -> int | None:
    """`EnsembleKeeper.index_of` of a pipeline that has stopped: no answer means anything any more."""
    return None


def new_keeper(
    config: ClientConfiguration,
    distribution: Distribution,
    ensemble: Sequence[BookieId],
    *,
    last_entry_id: int = -1,
    write_flags: WriteFlag = WriteFlag.NONE,
) -> EnsembleKeeper:
    """What decides: a window, and the ensemble that its entries go to."""
    deferred_sync = bool(write_flags & WriteFlag.DEFERRED_SYNC)
    window = PendingWindow(distribution, last_entry_id=last_entry_id, deferred_sync=deferred_sync)
    return EnsembleKeeper(
        window, ensemble, _policy(config.delayEnsembleChange, config.maxNumEnsembleChanges, deferred_sync)
    )


@lru_cache(maxsize=8)
def _policy(delay_changes: bool, max_changes: int, deferred_sync: bool) -> EnsemblePolicy:
    """One for all writers with these settings."""
    return EnsemblePolicy(delay_changes=delay_changes, max_changes=max_changes, deferred_sync=deferred_sync)
