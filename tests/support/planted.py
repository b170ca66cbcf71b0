"""Planted bugs: the rules that keep the protocol safe, each with a name, and the decisions without one of them.

A checker that finds nothing proves nothing. The model checker, the scenarios and the directed tests switch single
rules off, and must then see an invariant of spec safety §1.4 broken. Production code knows no such switch: a bug is a
subclass of what decides (`bookkeeper.quorum`), and differs from it in that one rule. The MU numbers are those of spec
safety §2.2.

`planted_client` puts the same bugs into the shipped client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TypeVar

from bookkeeper.errors import NoSuchEntryError
from bookkeeper.quorum.coverage import OK, CoverageSet, is_known
from bookkeeper.quorum.ensemble import Decision, EnsembleKeeper, Resend
from bookkeeper.quorum.recovery import Action, LedgerRecovery, Phase, ReadFrom, WriteBack
from bookkeeper.quorum.window import PendingWindow
from bookkeeper.types import BookieId


@dataclass(frozen=True, slots=True)
class ProtocolRules:
    """False plants the bug."""

    # the writer
    confirm_in_order: bool = True
    """Appends are acknowledged strictly by id (MU-16)."""
    close_at_lac: bool = True
    """A writer closes its ledger at the last confirmed entry, not at the last one pushed (MU-5)."""
    revoke_replaced_acks: bool = True
    """Acks of a bookie that an ensemble change replaced no longer count (MU-9)."""
    store_before_use: bool = True
    """A new ensemble is used only after the metadata store has it (MU-10)."""

    # recovery
    fencing_coverage: bool = True
    """Recovery reads begin only when no unfenced ack quorum is left; off: after one answer."""
    lac_floor: bool = True
    """Recovery starts no lower than the last fragment (MU-11)."""
    fencing_reads: bool = True
    """Every recovery read fences (MU-1)."""
    negatives_need_coverage: bool = True
    """The ledger ends where a quorum coverage of bookies denies the entry; off: at the first denial (MU-2)."""
    unknown_is_not_negative: bool = True
    """A timeout or error says nothing about an entry; off: it counts as a denial (MU-3)."""
    reads_from_frozen_ensembles: bool = True
    """Recovery reads go to the fragments as they were when recovery began (MU-12)."""
    recovered_ensembles_in_memory: bool = True
    """Recovery's own ensemble changes reach the store with the close only (MU-13)."""
    close_after_write_backs: bool = True
    """Recovery closes only when every entry found is back on an ack quorum (MU-4)."""
    failed_write_back_fails: bool = True
    """A write-back that cannot reach its ack quorum fails the recovery (MU-6)."""
    write_back_fenced_lac: bool = True
    """Written-back entries carry the LAC that fencing found, not the recoverer's progress."""

    @property
    def broken(self) -> tuple[str, ...]:
        """The rules that are off."""
        return tuple(field.name for field in fields(self) if not getattr(self, field.name))


SAFE = ProtocolRules()


# --- the writer's window and ensemble ---


class ConfirmsInAnyOrder(PendingWindow):
    """The highest complete entry confirms all below it."""

    def confirm(self) -> range:
        first = self.head + 1
        last = max((e for e, mask in self._by_masks().items() if self._complete(e, mask)), default=self.head)
        self._advance(max(last, self.head))
        for entry_id in range(first, self.head + 1):
            if entry_id in self.open:
                self._tell(entry_id, entry_id)
        self._settle_answered(range(first, self.head + 1))
        return range(first, self.head + 1)


class KeepsRevokedAcks(PendingWindow):
    """An ack counts, whoever is in its bookie's place now."""

    def revoke(self, indexes: Any) -> None:
        masks = self._by_masks()
        pending = {entry_id: mask for entry_id, mask in masks.items() if entry_id > self.head}
        super().revoke(indexes)
        masks.update(pending)


class UsesProposedEnsembles(EnsembleKeeper):
    """Whoever proposes an ensemble to the store tells `on_proposed`."""

    def on_proposed(self, ensemble: Sequence[BookieId]) -> Resend:
        return self._use(ensemble)

    def on_changed(self, ensemble: Sequence[BookieId]) -> Decision:
        return self._ask() if self.delayed else self._use(ensemble)


# --- recovery ---


class UnfencedRead(ReadFrom):
    """A read that does not fence."""


class WriteBackWithOwnLac(WriteBack):
    """An entry that carries the LAC of the recoverer's window."""


class OneAnswer(CoverageSet):
    """Any answer covers."""

    @property
    def covered(self) -> bool:
        return any(is_known(code) for code in self._codes)


class FencesOneBookie(LedgerRecovery):
    def start_fencing(self) -> list[Action]:
        self._coverage = OneAnswer(self._distribution)
        return super().start_fencing()


class ForgetsTheFloor(LedgerRecovery):
    def _start_reading(self) -> list[Action]:
        self.start = self._best_lac
        self._next = self._batch_end = self.start + 1
        self.phase = Phase.READING
        return self._next_batch()


class ReadsWithoutFence(LedgerRecovery):
    def _ask_next(self, entry_id: int) -> list[Action]:
        reads = super()._ask_next(entry_id)
        return [UnfencedRead(a.entry_id, a.index, a.bookie) for a in reads if isinstance(a, ReadFrom)]


class EndsAtTheFirstDenial(LedgerRecovery):
    def _begin_read(self, entry_id: int, negatives_to_end: int | None) -> Action:
        return super()._begin_read(entry_id, None if negatives_to_end is None else 1)


class TakesSilenceForDenial(LedgerRecovery):
    def on_read_answer(
        self, entry_id: int, index: int, code: int, payload: bytes = b"", length: int = 0
    ) -> list[Action]:
        return super().on_read_answer(entry_id, index, OK if code == OK else NoSuchEntryError.code, payload, length)


class ReadsFromItsOwnEnsembles(LedgerRecovery):
    def _ensemble_at(self, entry_id: int) -> tuple[BookieId, ...]:
        ensembles = {**self._ensembles, **self.recovered}
        return ensembles[max(first for first in ensembles if first <= entry_id)]


class ClosesBeforeWriteBacks(LedgerRecovery):
    def _finish_if_done(self) -> list[Action]:
        backlog, self._backlog = self._backlog, []
        try:
            return super()._finish_if_done()
        finally:
            self._backlog = backlog


class ClosesAfterFailedWriteBack(LedgerRecovery):
    def on_write_back_failed(self, code: int) -> list[Action]:
        assert code != OK
        return [] if self.phase is Phase.DONE else self._close(self._next - 1 - len(self._backlog))


class WritesBackItsOwnLac(LedgerRecovery):
    def _deliver(self) -> list[Action]:
        return [
            WriteBackWithOwnLac(a.entry_id, a.payload, a.length, a.lac) if isinstance(a, WriteBack) else a
            for a in super()._deliver()
        ]


BUGS: dict[str, type] = {
    "confirm_in_order": ConfirmsInAnyOrder,
    "revoke_replaced_acks": KeepsRevokedAcks,
    "store_before_use": UsesProposedEnsembles,
    "fencing_coverage": FencesOneBookie,
    "lac_floor": ForgetsTheFloor,
    "fencing_reads": ReadsWithoutFence,
    "negatives_need_coverage": EndsAtTheFirstDenial,
    "unknown_is_not_negative": TakesSilenceForDenial,
    "reads_from_frozen_ensembles": ReadsFromItsOwnEnsembles,
    "close_after_write_backs": ClosesBeforeWriteBacks,
    "failed_write_back_fails": ClosesAfterFailedWriteBack,
    "write_back_fenced_lac": WritesBackItsOwnLac,
}
"""By the rule that is off. Two rules are missing: `close_at_lac` and `recovered_ensembles_in_memory` are up to
those who carry decisions out, `planted_client` and the actors of the model."""


Decider = TypeVar("Decider", PendingWindow, EnsembleKeeper, LedgerRecovery)


@cache
def planted(decider: type[Decider], rules: ProtocolRules) -> type[Decider]:
    """`PendingWindow`, `EnsembleKeeper` or `LedgerRecovery` with the bugs that concern it; itself if there is none."""
    bugs = [BUGS[name] for name in rules.broken if name in BUGS and issubclass(BUGS[name], decider)]
    if len(bugs) < 2:
        return bugs[0] if bugs else decider
    return type(decider.__name__, tuple(bugs), {})
