"""The metadata record of a ledger only ever takes legal steps (spec safety PI-1, PI-2, PI-4, PI-13)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import CorruptMetadata
from ...metadata.formats.ledger import parse
from ...metadata.ledger_metadata import LedgerMetadata
from ...metadata.memory import MemoryStore
from ...metadata.records.store import Record, Topic
from ...types import BookieId, LedgerState
from ..history import History, Violation


class MetadataChecker:
    """Sees every version of every record as the store takes it. `fail` is called with a violation."""

    def __init__(self, store: MemoryStore, history: History, fail: Callable[[Violation], None]) -> None:
        self._history = history
        self._fail = fail
        self._last: dict[int, tuple[int, LedgerMetadata]] = {}
        self.on_closed: Callable[[LedgerMetadata], None] | None = None
        self.on_step: Callable[[LedgerMetadata | None, LedgerMetadata], None] | None = None
        """Called with every change: before (None: created) and after."""
        self.on_moved: Callable[[LedgerMetadata, int, Sequence[BookieId]], None] | None = None
        """Called when members of a fragment were replaced: the record, the fragment's key, and the ensemble before."""
        store.on_change = self._changed

    def current(self, ledger_id: int) -> LedgerMetadata | None:
        """What the store has; None: no such ledger."""
        found = self._last.get(ledger_id)
        return None if found is None else found[1]

    def _changed(self, topic: Topic, key: str, record: Record | None) -> None:
        if topic is not Topic.LEDGERS:
            return
        try:
            if record is None:
                self._removed(int(key))
            else:
                self._stored(int(key), record)
        except Violation as violation:  # not into the store's face: it belongs to the system under test
            self._fail(violation)

    def _removed(self, ledger_id: int) -> None:
        self._last.pop(ledger_id, None)
        ledger = self._history.ledgers.get(ledger_id)
        if ledger is not None and not ledger.delete_started:
            raise Violation(f"ledger {ledger_id}: metadata vanished, and nobody deleted it")

    def _stored(self, ledger_id: int, record: Record) -> None:
        try:
            now = parse(record.data, ledger_id)
        except CorruptMetadata as error:
            raise Violation(f"ledger {ledger_id}: unreadable metadata: {error}") from error
        version, before = self._last.get(ledger_id, (-1, None))
        if record.version <= version:
            raise Violation(f"ledger {ledger_id}: version {record.version} after {version}")
        if before is not None:
            check_step(before, now)
        check_shape(now)
        if before is not None and self.on_moved is not None:
            for first in moved_fragments(before, now):
                self.on_moved(now, first, before.ensembles[first])
        self._last[ledger_id] = (record.version, now)
        if self.on_step is not None:
            self.on_step(before, now)
        if now.closed and (before is None or not before.closed):
            if ledger_id in self._history.ledgers:
                self._history.saw_closed(ledger_id, now.last_entry_id, now.length)
            if self.on_closed is not None:
                self.on_closed(now)


def check_shape(now: LedgerMetadata) -> None:
    """One version of a record, by itself."""
    if min(now.ensembles) != 0:
        raise Violation(f"ledger {now.ledger_id}: no fragment starts at 0")
    for first, members in now.ensembles.items():
        if len(set(members)) != len(members):
            raise Violation(f"ledger {now.ledger_id}: a bookie twice in the ensemble at {first}: {members}")
        if now.closed and first > now.last_entry_id + 1:
            raise Violation(f"ledger {now.ledger_id}: closed at {now.last_entry_id} with a fragment at {first}")


def moved_fragments(before: LedgerMetadata, now: LedgerMetadata) -> list[int]:
    """The fragments whose ensembles are others now: by re-replication, or by a writer that has none of it confirmed.

    A recovery that closes a ledger replaces bookies as well; what it leaves is looked at as a whole (`on_closed`).
    """
    if now.closed and not before.closed:
        return []
    return [first for first, members in before.ensembles.items() if now.ensembles.get(first, members) != members]


def check_step(before: LedgerMetadata, now: LedgerMetadata) -> None:
    """Two versions of a record, one directly after the other."""
    name = f"ledger {now.ledger_id}"
    sizes = (before.ensemble_size, before.write_quorum, before.ack_quorum)
    if sizes != (now.ensemble_size, now.write_quorum, now.ack_quorum):
        raise Violation(f"{name}: quorums changed")
    if before.closed and (not now.closed or (now.last_entry_id, now.length) != (before.last_entry_id, before.length)):
        raise Violation(f"{name}: was closed at {before.last_entry_id}, is {now.state.name} {now.last_entry_id}")
    if before.state is LedgerState.IN_RECOVERY and now.state is LedgerState.OPEN:
        raise Violation(f"{name}: in recovery, then open again")
    last_before = max(before.ensembles)
    for first in before.ensembles:
        if (first < last_before or before.closed) and first not in now.ensembles:
            raise Violation(f"{name}: the fragment at {first} vanished, and nothing is added to it any more")
    if before.state is LedgerState.IN_RECOVERY and not now.closed:
        check_step_of_recovery(before, now)
    if now.state is LedgerState.OPEN and max(now.ensembles) < last_before:
        raise Violation(f"{name}: the last fragment starts at {max(now.ensembles)}, before at {last_before}")


def check_step_of_recovery(before: LedgerMetadata, now: LedgerMetadata) -> None:
    """While a ledger is recovered, nothing changes but the bookies of fragments before the last, by re-replication."""
    last = max(before.ensembles)
    if now.ensembles.keys() != before.ensembles.keys() or now.ensembles[last] != before.ensembles[last]:
        raise Violation(f"ledger {now.ledger_id}: fragments changed during recovery, before the close")
