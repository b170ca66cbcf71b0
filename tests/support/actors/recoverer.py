"""A client that recovers the ledger: `bookkeeper.client.recovery` without connections, clock and loop.

Its steps are ACT-10 and ACT-12 to ACT-18 of spec safety §1.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from bookkeeper.errors import BKError, LedgerClosedError, NotEnoughBookiesError
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.quorum.distribution import Distribution
from bookkeeper.quorum.ensemble import AskForChange, EnsemblePolicy, GiveUp, replace_failed
from bookkeeper.quorum.recovery import (
    Action,
    Close,
    Fail,
    LedgerRecovery,
    Phase,
    ReadFrom,
    WriteBack,
    closing_ensembles,
)
from bookkeeper.quorum.recovery import Fence as FenceAction
from bookkeeper.types import BookieId, LedgerState
from tests.support.planted import SAFE, ProtocolRules, UnfencedRead, WriteBackWithOwnLac, planted

from .adds import Adds, Spares
from .messages import Added, Fence, Fenced, Got, Message, Read
from .store import Record, Store, Update
from .writer import name_of


class Recoverer:
    """One recovery of the ledger. `start`, then answers; `store_turn` whenever `update` is set."""

    def __init__(
        self,
        name: str,
        spares: Spares,
        *,
        batch_size: int = 1,
        eager: bool = False,
        policy: EnsemblePolicy | None = None,
        rules: ProtocolRules = SAFE,
    ) -> None:
        """`eager`: read every replica at once, as a client does whose speculative timeout is zero."""
        self.name = name
        self.rules = rules
        self.spares = spares
        self.batch_size = batch_size
        self.eager = eager
        self.policy = policy or EnsemblePolicy()
        self.out: list[Message] = []
        self.breaches: list[tuple[str, str]] = []
        self.notes: list[str] = []
        self.known: Record | None = None
        self.core: LedgerRecovery | None = None
        """None before the metadata says IN_RECOVERY, and after the end."""
        self.adds: Adds | None = None
        self.update: Update | None = None
        self.asked: dict[tuple[int, str], int] = {}
        """Reads whose answers count: entry (-1: the fencing read) and bookie -> ensemble index."""
        self.ended: str | None = None
        """None, 'closed' or 'failed'."""
        self._early: tuple[int, tuple[BookieId, ...]] | None = None  # MU-13: an ensemble stored before the close
        self._close: Close | None = None

    def check(self) -> None:
        """What must hold after every step."""
        if self.core is not None:
            self.core.check()
        if self.adds is not None:
            self.adds.check()

    # --- beginning ---

    def start(self, store: Store) -> None:
        """Open the ledger, and begin to recover it."""
        self.known = store.record
        self.update = Update("begin", self._is_open, self._in_recovery)
        self.store_turn(store)

    def _is_open(self, value: LedgerMetadata) -> bool:
        return value.state is LedgerState.OPEN

    def _in_recovery(self, value: LedgerMetadata) -> LedgerMetadata:
        return value.in_recovery()

    def _begun(self) -> None:
        assert self.known is not None
        value = self.known.value
        if value.closed:
            self._end("closed", f"found the ledger closed: last {value.last_entry_id} length {value.length}")
            return
        self.distribution = Distribution(*value.quorums)
        self.core = planted(LedgerRecovery, self.rules)(self.distribution, value.ensembles, batch_size=self.batch_size)
        self._do(self.core.start_fencing())

    # --- the core's actions ---

    def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if self.core is None:
                return
            match action:
                case FenceAction():
                    self.asked[-1, action.bookie] = action.index
                    self.out.append(Fence(self.name, action.bookie))
                case ReadFrom():
                    self._read(action)
                    if self.eager:
                        self._do(self.core.speculate(action.entry_id))
                case WriteBack():
                    self._write_back(action)
                case Close():
                    self._close = action
                    self.core.phase = Phase.DONE
                    self.asked.clear()
                    if self.update is None:
                        self.update = Update("close", self._in_recovery_still, self._closed)
                case Fail():
                    self._end("failed", f"recovery failed: {name_of(action.code)}")

    def _read(self, action: ReadFrom) -> None:
        self.asked[action.entry_id, action.bookie] = action.index
        self.out.append(Read(self.name, action.bookie, action.entry_id, not isinstance(action, UnfencedRead)))

    def _write_back(self, action: WriteBack) -> None:
        assert self.core is not None
        assert self.known is not None
        if self.adds is None:
            self.adds = Adds(
                self,
                self.distribution,
                self.known.value.last_ensemble[1],
                self.policy,
                self.rules,
                recovery=True,
                last_entry_id=self.core.start,
            )
        self.adds.window.length = action.length - len(action.payload)
        lac = None if isinstance(action, WriteBackWithOwnLac) else action.lac
        entry = self.adds.push(action.payload.decode(), lac=lac)
        assert entry in (action.entry_id, None)

    # --- answers ---

    def on_fenced(self, answer: Fenced) -> None:
        if not self.awaits(-1, answer.bookie):
            return
        assert self.core is not None
        index = self.asked.pop((-1, answer.bookie))
        self._do(self.core.on_fence_answer(index, answer.code, answer.lac, answer.length))
        self._forget_decided()

    def on_got(self, answer: Got) -> None:
        if not self.awaits(answer.entry, answer.bookie):
            return
        assert self.core is not None
        index = self.asked.pop((answer.entry, answer.bookie))
        payload = answer.payload.encode()
        self._do(self.core.on_read_answer(answer.entry, index, answer.code, payload, answer.length))
        self._forget_decided()

    def _forget_decided(self) -> None:
        core = self.core
        if core is None:
            return
        fencing = core.phase is Phase.FENCING
        self.asked = {
            (entry, bookie): index
            for (entry, bookie), index in self.asked.items()
            if (fencing if entry == -1 else core.reading(entry))
        }

    def on_added(self, answer: Added) -> None:
        if self.adds is not None:
            self.adds.on_added(answer)

    def on_silence(self, entry: int, bookie: str, code: int) -> None:
        """A read of an entry (-1: the fencing read) will not be answered; `code` says why."""
        if entry == -1:
            self.on_fenced(Fenced(self.name, bookie, code, -1, 0))
        else:
            self.on_got(Got(self.name, bookie, entry, code, 0, ""))

    def speculate(self, entry: int) -> None:
        """A read takes long: ask one more."""
        assert self.core is not None
        self._do(self.core.speculate(entry))

    def awaits(self, entry: int, bookie: str) -> bool:
        """Whether an answer to this read still counts."""
        return self.core is not None and (entry, bookie) in self.asked

    # --- what the pipeline needs done ---

    def confirmed(self, entries: range) -> None:
        assert self.core is not None
        self._do(self.core.on_written_back(len(entries)))

    def change_ensemble(self, change: AskForChange) -> None:
        assert self.adds is not None
        assert self.core is not None
        assert self.known is not None
        keeper = self.adds.keeper
        try:
            new = replace_failed(keeper.ensemble, change.failed, self.spares, change.avoid)
        except NotEnoughBookiesError as error:
            self.adds.carry_out(GiveUp(error.code))
            return
        if new != keeper.ensemble:
            first = self.adds.window.head + 1
            last = self.known.value.last_ensemble[0]
            if first < last:
                self.breaches.append(("PI-2", f"recovery made a fragment at e{first} after that at e{last}"))
            self.core.on_ensemble_changed(first, new)
            if not self.rules.recovered_ensembles_in_memory:
                self._early = first, new
                self.update = Update("early ensemble", self._in_recovery_still, self._with_early_ensemble)
        self.adds.carry_out(keeper.on_changed(new))

    def give_up(self, code: int, withdraw: bool) -> None:
        assert self.adds is not None
        self.adds.stop(code)
        if self.core is not None:
            self._do(self.core.on_write_back_failed(code))

    # --- the store ---

    def _in_recovery_still(self, value: LedgerMetadata) -> bool:
        return value.state is LedgerState.IN_RECOVERY

    def _with_early_ensemble(self, value: LedgerMetadata) -> LedgerMetadata:
        assert self._early is not None
        return value.with_ensemble(*self._early)

    def _closed(self, value: LedgerMetadata) -> LedgerMetadata:
        assert self.core is not None
        assert self._close is not None
        closing_ensembles(value.ensembles, self.core.recovered)
        for first, ensemble in self.core.recovered.items():
            value = value.with_ensemble(first, ensemble)
        return value.close(self._close.last_entry_id, self._close.length)

    def store_turn(self, store: Store) -> None:
        """One attempt of the update loop that is under way."""
        assert self.update is not None
        assert self.known is not None
        try:
            over, known = self.update.step(self.known, store)
        except BKError as error:
            self._end("failed", f"recovery failed: {type(error).__name__}")
            return
        self.known = known
        if not over:
            return
        update, self.update = self.update, None
        if update.name == "begin":
            self._begun()
        elif update.name == "close":
            value = self.known.value
            self._end("closed", f"recovered: last {value.last_entry_id} length {value.length}")
        elif self._close is not None:
            self.update = Update("close", self._in_recovery_still, self._closed)

    def _end(self, how: str, note: str) -> None:
        self.ended = how
        self.notes.append(note)
        self.core = None
        self.update = None
        self.asked.clear()
        if self.adds is not None and self.adds.stopped is None:
            self.adds.stop(LedgerClosedError.code)
