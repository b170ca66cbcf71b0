"""Which bookies a writer sends to, and when it replaces them (spec client §5.4, §6).

Failures come in, decisions come out; the shell carries them out and reports back. One change runs at a time:

    failure -> AskForChange(failed) -> [the metadata store] -> on_changed(new ensemble) -> Resend
                                                            -> on_refused(state), or an error: GiveUp

While a change runs, nothing may be confirmed (`changing`): the new fragment begins at LAC + 1, and that must stay
true until every entry above the LAC has been re-evaluated against the new ensemble. Indexes that failed are *held*:
nothing is sent to them until the change is over. Failures of other bookies that arrive meanwhile wait in `delayed`, and
start another round before the first one is put to use.

A failure of an entry that already has its ack quorum does not hurt it: the entry has fewer copies than it should, and
the bookie is replaced when the next entry is about to be sent. With `delay_changes` not even that: bookies are replaced
only when an entry cannot reach its ack quorum otherwise, or the bookie says that it is read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..errors import (
    ClientClosedError,
    IllegalOpError,
    LedgerClosedError,
    LedgerFencedError,
    NotEnoughBookiesError,
    RequestTimeoutError,
    UnauthorizedError,
    WriteError,
    WriteOnReadOnlyError,
)
from ..types import BookieId, LedgerState
from .window import PendingWindow

FATAL = (ClientClosedError.code, IllegalOpError.code, LedgerFencedError.code, UnauthorizedError.code)
"""Answers after which a writer must not go on, whichever entry they are about."""

Choose = Callable[[Sequence[BookieId], int, Sequence[BookieId]], BookieId]
"""A bookie for one index of an ensemble, none of the excluded. Raises `NotEnoughBookiesError`."""


@dataclass(frozen=True, slots=True)
class AskForChange:
    """Store an ensemble without these bookies, then report `on_changed` or `on_refused`."""

    failed: Mapping[int, BookieId]
    avoid: tuple[BookieId, ...] = ()
    """Bookies that failed this writer before: no replacements while there are others."""


@dataclass(frozen=True, slots=True)
class Resend:
    """Send `PendingWindow.resend(index)` to the bookie now at each of these indexes, and confirm what can be."""

    indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RetryLater:
    """No change is allowed: after a pause, call `retry`."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The writer must stop. All pending entries fail with `code`."""

    code: int
    withdraw: bool = False
    """Another client is closing the ledger: leave the metadata alone."""


Decision = AskForChange | Resend | RetryLater | GiveUp


@dataclass(frozen=True, slots=True)
class EnsemblePolicy:
    """How a writer deals with failing bookies."""

    delay_changes: bool = False
    """`delayEnsembleChange`."""
    max_changes: int = 2**31 - 1
    """`maxNumEnsembleChanges`."""
    deferred_sync: bool = False
    """A failure ends the writer: `force` on a new ensemble would not cover the old one."""


def replace_failed(
    ensemble: Sequence[BookieId], failed: Mapping[int, BookieId], choose: Choose, avoid: Sequence[BookieId] = ()
) -> tuple[BookieId, ...]:
    """The ensemble with each failed bookie that is still in its place replaced.

    When the bookies run out after at least one replacement, the rest stay: they fail again and are asked for again.
    Raises `NotEnoughBookiesError` when not one could be replaced.
    """
    new = list(ensemble)
    excluded = list(failed.values())
    avoided = excluded + [bookie for bookie in avoid if bookie not in excluded]
    replaced = False
    for index, bookie in failed.items():
        if new[index] != bookie:
            continue
        try:
            new[index] = _choose(new, index, avoided, excluded, choose)
        except NotEnoughBookiesError:
            if not replaced:
                raise
            break
        replaced = True
    return tuple(new)


def _choose(
    ensemble: Sequence[BookieId],
    index: int,
    avoided: Sequence[BookieId],
    excluded: Sequence[BookieId],
    choose: Choose,
) -> BookieId:
    """None of `avoided` if possible, none of `excluded` in any case."""
    try:
        return choose(ensemble, index, avoided)
    except NotEnoughBookiesError:
        if len(avoided) == len(excluded):
            raise
        return choose(ensemble, index, excluded)


class EnsembleKeeper:
    """The current ensemble of a writer and the changes to it. Marks failures in the window it is given."""

    __slots__ = (
        "_failed_before",
        "_policy",
        "changes_disabled",
        "changing",
        "delayed",
        "ensemble",
        "held",
        "index_of",
        "late_failures",
        "rounds",
        "window",
    )

    def __init__(self, window: PendingWindow, ensemble: Sequence[BookieId], policy: EnsemblePolicy) -> None:
        self.window = window
        """The entries sent to the ensemble."""
        self._policy = policy
        self.ensemble: tuple[BookieId, ...] = tuple(ensemble)
        """The bookies in use: what the metadata store has, or had when the running change began."""
        self.changing = False
        """A change is under way: do not confirm entries."""
        self.delayed: dict[int, BookieId] = {}
        """Failures that the next change takes care of. Each bookie is the one in `ensemble` at its index."""
        self.held: dict[int, None] = {}
        """Indexes that get nothing until the running change, or the pause before a retry, is over."""
        self._failed_before: dict[BookieId, None] = {}  # all that were to be replaced, ever
        self.rounds = 0
        """Changes asked for so far."""
        self.late_failures = 0
        """Copies missing from entries that had their ack quorum already."""
        self.changes_disabled = False
        """The feature `disable_ensemble_change`; may be switched at any time."""
        self.index_of = _places(self.ensemble)
        """A bookie's place in the current ensemble; None for one that was replaced: its answers mean nothing any
        more."""
        for index, bookie in enumerate(self.ensemble):
            if self.index_of(bookie) != index:  # in very old metadata: one bookie, twice; it counts once
                self.delayed[index] = bookie
                self.held[index] = None

    def __str__(self) -> str:
        """On one line, such as `ensemble=[b1 b2:held b3:delayed] changing rounds=2 late=1`."""
        members = [
            bookie + ":held" * (index in self.held) + ":delayed" * (index in self.delayed)
            for index, bookie in enumerate(self.ensemble)
        ]
        state = " changing" * self.changing + " disabled" * self.changes_disabled
        return f"ensemble=[{' '.join(members)}]{state} rounds={self.rounds} late={self.late_failures}"

    def check(self) -> None:
        """The relations that hold between any two calls, the window's included. For tests: raises `AssertionError`."""
        self.window.check()
        places = range(len(self.ensemble))
        found = [*map(self.index_of, self.ensemble)]
        assert found == [*map(self.ensemble.index, self.ensemble)], f"the index is that of the ensemble: {self}"
        assert all(index in places for index in self.held), f"held indexes exist: {self}"
        assert self.held or not self.changing, f"a change is about some index: {self}"
        for index, bookie in self.delayed.items():
            assert index in places, f"delayed indexes exist: {self}"
            assert bookie == self.ensemble[index], f"{bookie} is at {index}: {self}"

    @property
    def at_rest(self) -> bool:
        """No change is under way or due, and every index is sent to."""
        return not (self.changing or self.delayed or self.held)

    # --- failures ---

    def on_failures(self, bookie: BookieId, failed: Sequence[tuple[int, int]]) -> Decision | None:
        """A bookie refused entries: (entry id, result code)."""
        index = self.index_of(bookie)
        if index is None:
            return None
        for _, code in failed:
            if code in FATAL:
                return GiveUp(code)
        marked, incomplete = self.window.fail(index, [entry_id for entry_id, _ in failed])
        self.late_failures += marked - len(incomplete)
        if self._policy.delay_changes:
            read_only = {entry_id for entry_id, code in failed if code == WriteOnReadOnlyError.code}
            return self._change_if_needed(incomplete, read_only)
        if incomplete:
            return self._change({index: bookie})
        if marked and not self.changes_disabled and index not in self.held:
            self.delayed[index] = bookie
        return None

    def on_channel_lost(self, bookie: BookieId, code: int) -> Decision | None:
        """Everything sent to a bookie and not answered has failed with `code`."""
        index = self.index_of(bookie)
        if index is None or index in self.held:
            return None
        unanswered = self.window.unanswered(index)
        if not unanswered and code not in FATAL:
            return None
        return self.on_failures(bookie, [(entry_id, code) for entry_id in unanswered] or [(-1, code)])

    def on_overtaken(self, times: Sequence[float]) -> list[Decision]:
        """By index: its bookie acked something pushed at this time, long ago. What was pushed before that and is not
        answered never will be."""
        decisions: list[Decision] = []
        if not self.window.any_before(max(times)):
            return decisions  # as nearly always, and there may be ten thousand windows
        for index, bookie in enumerate(self.ensemble):
            if index in self.held:
                continue
            lost = self.window.unanswered_before(index, times[index])
            decision = self.on_failures(bookie, [(entry_id, RequestTimeoutError.code) for entry_id in lost])
            if decision is not None:
                decisions.append(decision)
        return decisions

    def before_push(self) -> Decision | None:
        """To be asked before an entry is sent whenever `delayed` is not empty.

        What is in `delayed` hurts no entry: where changes are disabled it waits until they are not.
        """
        if self.changing or not self.delayed or self.changes_disabled:
            return None
        return self._change({})

    def _change_if_needed(self, incomplete: Sequence[int], read_only: set[int]) -> Decision | None:
        todo: dict[int, BookieId] = {}
        for entry_id in incomplete:
            if entry_id in read_only or self.window.hopeless(entry_id):
                for index in self.window.failed_indexes(entry_id):
                    todo[index] = self.ensemble[index]
        return self._change(todo) if todo else None

    def _change(self, failed: Mapping[int, BookieId]) -> Decision | None:
        if self._policy.deferred_sync:
            return GiveUp(WriteError.code)
        if self.changes_disabled:
            waiting = bool(self.held)
            self.held.update(dict.fromkeys(failed))
            return None if waiting else RetryLater()
        for index, bookie in failed.items():
            if index not in self.held:  # else it is being replaced already
                self.delayed[index] = bookie
        self.held.update(dict.fromkeys(self.delayed))
        if self.changing or not self.delayed:
            return None
        self.changing = True
        return self._ask()

    def _ask(self) -> Decision:
        self.rounds += 1
        if self.rounds > self._policy.max_changes:
            return GiveUp(WriteError.code)
        failed, self.delayed = self.delayed, {}
        decision = AskForChange(failed, tuple(self._failed_before))
        self._failed_before.update(dict.fromkeys(failed.values()))
        return decision

    # --- outcomes ---

    def retry(self) -> Resend:
        """The pause that `RetryLater` asked for is over."""
        if self.changing:  # changes were allowed again meanwhile: the running one includes what is held
            return Resend(())
        indexes = tuple(sorted(self.held))
        self.held.clear()
        return Resend(indexes)

    def on_changed(self, ensemble: Sequence[BookieId]) -> Decision:
        """The store has this ensemble as the ledger's last one, and the ledger is open."""
        assert self.changing, self
        if self.delayed:
            return self._ask()
        return self._use(ensemble)

    def on_refused(self, state: LedgerState) -> GiveUp:
        """The change was not made, because the ledger is in recovery or closed."""
        assert state is not LedgerState.OPEN
        if state is LedgerState.CLOSED:
            return GiveUp(LedgerClosedError.code)
        return GiveUp(LedgerFencedError.code, withdraw=True)

    def _use(self, ensemble: Sequence[BookieId]) -> Resend:
        replaced = [i for i, (old, new) in enumerate(zip(self.ensemble, ensemble, strict=True)) if old != new]
        self.ensemble = tuple(ensemble)
        self.index_of = _places(self.ensemble)
        self.window.revoke(replaced)
        indexes = tuple(sorted({*replaced, *self.held}))
        self.held.clear()
        self.changing = False
        return Resend(indexes)


@lru_cache(maxsize=1024)
def _places(ensemble: tuple[BookieId, ...]) -> Callable[[BookieId], int | None]:
    """`EnsembleKeeper.index_of`, one for all writers with this ensemble."""
    found: dict[BookieId, int] = {}
    for index, bookie in enumerate(ensemble):
        found.setdefault(bookie, index)
    return found.get
