"""A writer: `bookkeeper.client.writer` without connections, clock and loop (spec safety §1.3, ACT-2, ACT-5 to ACT-9).

What it waits for from the metadata store happens in `store_turn`, one compare-and-set at a time. With `slow_store` the
write and the news of it are two turns: between them the store knows and the writer does not.
"""

from __future__ import annotations

from bookkeeper.client.adds.life import WRITER_LIFE, WriterEvent, WriterState
from bookkeeper.errors import BKError, LedgerClosedError, MetadataVersionError, from_code
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.quorum.distribution import Distribution
from bookkeeper.quorum.ensemble import AskForChange, EnsemblePolicy, GiveUp, replace_failed
from bookkeeper.types import LedgerState
from tests.support.planted import SAFE, ProtocolRules, UsesProposedEnsembles

from .adds import Adds, Spares
from .messages import OK, Message
from .store import Record, Store, Update


class Writer:
    """The one writer of the ledger."""

    def __init__(
        self,
        name: str,
        record: Record,
        spares: Spares,
        *,
        policy: EnsemblePolicy | None = None,
        rules: ProtocolRules = SAFE,
        slow_store: bool = False,
    ) -> None:
        value = record.value
        self.name = name
        self.rules = rules
        self.known = record
        self.spares = spares
        self.slow_store = slow_store
        self.out: list[Message] = []
        self.breaches: list[tuple[str, str]] = []
        self.notes: list[str] = []
        """What the application is told."""
        self.acked = -1
        """The last append whose success was reported."""
        self.payloads: dict[int, str] = {}
        """What was appended."""
        self.lengths: dict[int, int] = {}
        """Length of the ledger with each entry."""
        self.update: Update | None = None
        self.answered: tuple[bool, Record] | None = None  # the store's answer, not yet heard
        self.state = WriterState.OPEN
        self._change = AskForChange({})  # what the running change is about
        self._end = (-1, 0)  # last entry and length to close with
        distribution = Distribution(*value.quorums)
        policy = policy or EnsemblePolicy()
        self.deferred_sync = policy.deferred_sync
        self.adds = Adds(self, distribution, value.last_ensemble[1], policy, rules)

    @property
    def ended(self) -> str | None:
        """'sealed' (or about to be), 'withdrawn', or None while it takes appends."""
        if self.state is WriterState.WITHDRAWN:
            return "withdrawn"
        return "sealed" if self.state.ended else None

    def _happened(self, event: WriterEvent) -> None:
        self.state = WRITER_LIFE.after(self.state, event)

    def check(self) -> None:
        """What must hold after every step."""
        self.adds.check()

    # --- the application ---

    def append(self, payload: str, entry: int | None = None) -> int | None:
        """Append (an advanced writer says as which entry); its id, or None and a note if it was refused."""
        window = self.adds.window
        if entry is not None and self.ended is None and window.check_id(entry) != OK:
            self.notes.append(f"append of e{entry} refused: {name_of(window.check_id(entry))}")
            return None
        entry = self.adds.push(payload, entry=entry)
        if entry is None:
            self.notes.append(f"append refused: {name_of(LedgerClosedError.code)}")
            return None
        self.payloads[entry] = payload
        self.lengths[entry] = window.length
        return entry

    def close(self) -> None:
        self._seal(LedgerClosedError.code)

    # --- what the pipeline needs done ---

    def confirmed(self, entries: range) -> None:
        self.acked = entries[-1]
        self.notes += [f"e{entry} acknowledged" for entry in entries]
        if self.known.value.last_ensemble[1] != self.adds.keeper.ensemble:
            self.breaches.append(("PI-14", f"e{entries[-1]} was acknowledged by an ensemble that is not in the store"))

    def change_ensemble(self, change: AskForChange) -> None:
        self._change = change
        self.update = Update("ensemble change", self._needs_change, self._changed)
        self.answered = None

    def _needs_change(self, value: LedgerMetadata) -> bool:
        if value.state is not LedgerState.OPEN:
            return False
        _, ensemble = value.last_ensemble
        return any(ensemble[index] == bookie for index, bookie in self._change.failed.items())

    def _changed(self, value: LedgerMetadata) -> LedgerMetadata:
        window = self.adds.window
        _, ensemble = value.last_ensemble
        new = replace_failed(ensemble, self._change.failed, self.spares, self._change.avoid)
        if isinstance(self.adds.keeper, UsesProposedEnsembles):
            self.adds.carry_out(self.adds.keeper.on_proposed(new))
        last_first, _ = value.last_ensemble
        if window.lac + 1 < last_first:
            self.breaches.append(("PI-2", f"a fragment at e{window.lac + 1} was attempted after one at e{last_first}"))
        return value.with_ensemble(window.lac + 1, new)

    def give_up(self, code: int, withdraw: bool) -> None:
        if withdraw:
            self._happened(WriterEvent.WITHDRAW)
            self._stop(code)
        else:
            self._seal(code)

    def _stop(self, code: int) -> None:
        self.update = self.answered = None
        self.notes += [f"e{entry} failed: {name_of(code)}" for entry in self.adds.stop(code)]

    def _seal(self, code: int) -> None:
        if self.ended is not None:
            return
        window = self.adds.window
        pushed = window.lap
        self._happened(WriterEvent.SEAL)
        self._stop(code)
        self._end = (window.lac if self.rules.close_at_lac else pushed, window.length)
        self.update = Update("close", self._needs_close, self._closed)

    def _needs_close(self, value: LedgerMetadata) -> bool:
        if value.closed and (value.last_entry_id, value.length) != self._end:
            raise MetadataVersionError
        return not value.closed

    def _closed(self, value: LedgerMetadata) -> LedgerMetadata:
        last, length = self._end
        if self.deferred_sync:  # the length then counts what was acknowledged and not forced
            return value.close(last, length)
        if last > self.adds.window.lac or length != sum(len(self.payloads[entry]) for entry in range(last + 1)):
            self.breaches.append(("PI-16", f"the writer closed at e{last} with length {length}"))
        return value.close(last, length)

    # --- the store ---

    def store_turn(self, store: Store) -> None:
        """The store, or with `slow_store` the network between, does what this writer waits for."""
        assert self.update is not None
        if self.answered is None:
            try:
                self.answered = self.update.step(self.known, store)
            except BKError as error:
                self._update_failed(error)
                return
            if self.slow_store:
                return
        over, self.known = self.answered
        self.answered = None
        if not over:
            return
        update, self.update = self.update, None
        value = self.known.value
        if update.name == "close":
            self._happened(WriterEvent.STORED)
            self.notes.append(f"close succeeded: last {value.last_entry_id} length {value.length}")
        elif value.state is LedgerState.OPEN:
            self.adds.carry_out(self.adds.keeper.on_changed(value.last_ensemble[1]))
        else:
            self.adds.carry_out(self.adds.keeper.on_refused(value.state))

    def _update_failed(self, error: BKError) -> None:
        assert self.update is not None
        update, self.update = self.update, None
        if update.name == "close":
            self._happened(WriterEvent.REFUSED)
            self.notes.append(f"close failed: {type(error).__name__}")
        else:
            self.adds.carry_out(GiveUp(error.code))


def name_of(code: int) -> str:
    """The error a code stands for."""
    return type(from_code(code)).__name__
