"""The add pipeline (`client.adds.pipeline`) without connections and clock: window and keeper decide, this sends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bookkeeper.errors import AddEntryQuorumTimeoutError, NotEnoughBookiesError
from bookkeeper.quorum.distribution import Distribution
from bookkeeper.quorum.ensemble import (
    AskForChange,
    Decision,
    EnsembleKeeper,
    EnsemblePolicy,
    GiveUp,
    Resend,
    RetryLater,
)
from bookkeeper.quorum.window import PendingWindow
from bookkeeper.types import BookieId
from tests.support.planted import ProtocolRules, planted

from .messages import OK, Add, Added, Message


class Owner(Protocol):
    """A writer, or a recoverer that writes back."""

    name: str
    out: list[Message]
    breaches: list[tuple[str, str]]

    def change_ensemble(self, change: AskForChange) -> None: ...
    def give_up(self, code: int, withdraw: bool) -> None: ...
    def confirmed(self, entries: range) -> None: ...


class Adds:
    """Adds of one client. `stopped` as in the client's pipeline."""

    def __init__(
        self,
        owner: Owner,
        distribution: Distribution,
        ensemble: Sequence[BookieId],
        policy: EnsemblePolicy,
        rules: ProtocolRules,
        *,
        recovery: bool = False,
        last_entry_id: int = -1,
    ) -> None:
        self.owner = owner
        self.distribution = distribution
        self.recovery = recovery
        self.window = planted(PendingWindow, rules)(
            distribution, last_entry_id=last_entry_id, deferred_sync=policy.deferred_sync
        )
        self.keeper = planted(EnsembleKeeper, rules)(self.window, ensemble, policy)
        self.stopped: int | None = None
        self.paused = False
        """No change is allowed for now: `retry` ends the pause."""

    def push(self, payload: str, *, lac: int | None = None, entry: int | None = None) -> int | None:
        """Send an entry; its id, or None when the pipeline has stopped."""
        window = self.window
        if self.keeper.delayed and self.stopped is None:
            self.carry_out(self.keeper.before_push())
        if self.stopped is not None:
            return None
        if entry is None:
            entry = window.lap + 1
        length = window.length + len(payload)
        frame = f"{window.lac if lac is None else lac}|{length}|{payload}".encode()
        window.push(entry, len(payload), frame)
        for index in self.distribution.write_set(entry):
            if index not in self.keeper.held:
                self._send(index, entry)
        return entry

    def _send(self, index: int, entry: int) -> None:
        lac, length, payload = self.window.frame(entry).decode().split("|", 2)
        bookie = self.keeper.ensemble[index]
        self.owner.out.append(Add(self.owner.name, bookie, entry, int(lac), int(length), payload, self.recovery))

    def on_added(self, answer: Added) -> None:
        """A bookie answered, or will not (then the code says why)."""
        bookie = BookieId(answer.bookie)
        index = self.keeper.index_of(bookie)
        if index is None or self.stopped is not None:
            return
        if answer.code == OK:
            self.window.ack(index, [answer.entry])
            self._confirm()
        else:
            self.carry_out(self.keeper.on_failures(bookie, [(answer.entry, answer.code)]))

    def on_lost(self, bookie: BookieId, code: int) -> None:
        """Nothing sent to this bookie and not answered yet will be."""
        if self.stopped is None:
            self.carry_out(self.keeper.on_channel_lost(bookie, code))

    def sweep(self, now: float, quorum_timeout: float) -> None:
        """Time passes; a timeout of zero is none."""
        self.window.now = now
        if quorum_timeout > 0 and self.stopped is None and self.window.overdue(now - quorum_timeout) is not None:
            self.carry_out(GiveUp(AddEntryQuorumTimeoutError.code))

    def retry(self) -> None:
        """The pause is over."""
        self.paused = False
        self.carry_out(self.keeper.retry())

    def unanswered(self, bookie: BookieId) -> list[int]:
        """What a bookie of the ensemble owes an answer for."""
        index = self.keeper.index_of(bookie)
        if index is None or self.stopped is not None or index in self.keeper.held:
            return []
        return self.window.unanswered(index)

    def awaits(self, bookie: str, entry: int, *, returning: bool) -> bool:
        """Whether an ack of this bookie can still count; `returning`: a replaced bookie may come back."""
        answers = self.window.answers(entry)
        if self.stopped is not None or not set(answers) & {".", "f"}:
            return False
        index = self.keeper.index_of(BookieId(bookie))
        return returning if index is None else answers[index] in ".f"

    def _confirm(self) -> None:
        if self.keeper.changing:
            return
        window = self.window
        before = {entry: len(window.acked(entry)) for entry in window.pending}
        confirmed = window.confirm()
        for entry in confirmed:
            if before.get(entry, 0) < self.distribution.ack_quorum:
                self.owner.breaches.append(("PI-15", f"e{entry} was acknowledged before it had its ack quorum"))
        if confirmed:
            self.owner.confirmed(confirmed)

    # --- decisions ---

    def carry_out(self, decision: Decision | None) -> None:
        if self.stopped is not None or decision is None:
            return
        if isinstance(decision, Resend):
            for index in decision.indexes:
                for entry in self.window.resend(index):
                    self._send(index, entry)
            self._confirm()
        elif isinstance(decision, AskForChange):
            self.owner.change_ensemble(decision)
        elif isinstance(decision, GiveUp):
            self.owner.give_up(decision.code, decision.withdraw)
        else:
            assert isinstance(decision, RetryLater)
            self.paused = True

    def check(self) -> None:
        """What must hold after every step."""
        self.keeper.check()

    def stop(self, code: int) -> list[int]:
        """Fail all pending entries; their ids."""
        self.stopped = code
        return list(self.window.drain())


class Spares:
    """Chooses replacements: the last bookie of a list that is not in the ensemble and not known to fail."""

    def __init__(self, bookies: Sequence[str]) -> None:
        self.bookies = tuple(BookieId(bookie) for bookie in bookies)

    def __call__(self, ensemble: Sequence[BookieId], index: int, excluded: Sequence[BookieId]) -> BookieId:
        for bookie in reversed(self.bookies):
            if bookie not in ensemble and bookie not in excluded:
                return bookie
        raise NotEnoughBookiesError
