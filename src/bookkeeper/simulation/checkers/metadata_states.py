"""The metadata record of a ledger only ever takes legal steps (spec safety PI-1, PI-2, PI-4, PI-13)."""

from __future__ import annotations

from ...errors import CorruptMetadata
from ...metadata.ledger_metadata import LedgerMetadata
from ...metadata.ledger_serde import parse
from ...metadata.memory import MemoryStore
from ...metadata.records.store import Topic
from ...types import LedgerState
from ..history import History, Violation


class MetadataChecker:
    """Compares each version of each record with the one before. Call `check` as often as is affordable."""

    def __init__(self, store: MemoryStore, history: History) -> None:
        self._store = store
        self._history = history
        self._last: dict[int, tuple[int, LedgerMetadata]] = {}

    def check(self) -> None:
        records = {int(key): record for key, record in self._store.records(Topic.LEDGERS).items()}
        for ledger_id, record in records.items():
            before = self._last.get(ledger_id)
            if before is not None and before[0] == record.version:
                continue
            try:
                now = parse(record.data, ledger_id)
            except CorruptMetadata as error:
                raise Violation(f"ledger {ledger_id}: unreadable metadata: {error}") from error
            if before is not None:
                if record.version < before[0]:
                    raise Violation(f"ledger {ledger_id}: version {record.version} after {before[0]}")
                check_step(before[1], now)
            check_shape(now)
            self._last[ledger_id] = (record.version, now)
            if now.closed and ledger_id in self._history.ledgers:
                self._history.saw_closed(ledger_id, now.last_entry_id, now.length)
        for ledger_id in [ledger_id for ledger_id in self._last if ledger_id not in records]:
            del self._last[ledger_id]
            ledger = self._history.ledgers.get(ledger_id)
            if ledger is not None and not ledger.delete_started:
                raise Violation(f"ledger {ledger_id}: metadata vanished, and nobody deleted it")


def check_shape(now: LedgerMetadata) -> None:
    """One version of a record, by itself."""
    if min(now.ensembles) != 0:
        raise Violation(f"ledger {now.ledger_id}: no fragment starts at 0")
    for first, members in now.ensembles.items():
        if len(set(members)) != len(members):
            raise Violation(f"ledger {now.ledger_id}: a bookie twice in the ensemble at {first}: {members}")
        if now.closed and first > now.last_entry_id + 1:
            raise Violation(f"ledger {now.ledger_id}: closed at {now.last_entry_id} with a fragment at {first}")


def check_step(before: LedgerMetadata, now: LedgerMetadata) -> None:
    """Two versions of a record, one after the other (several steps may lie between them)."""
    name = f"ledger {now.ledger_id}"
    sizes = (before.ensemble_size, before.write_quorum, before.ack_quorum)
    if sizes != (now.ensemble_size, now.write_quorum, now.ack_quorum):
        raise Violation(f"{name}: quorums changed")
    if before.closed and (not now.closed or (now.last_entry_id, now.length) != (before.last_entry_id, before.length)):
        raise Violation(f"{name}: was closed at {before.last_entry_id}, is {now.state.name} {now.last_entry_id}")
    if before.state is LedgerState.IN_RECOVERY and now.state is LedgerState.OPEN:
        raise Violation(f"{name}: in recovery, then open again")
    last_before = max(before.ensembles)
    for first, members in before.ensembles.items():
        if first < last_before and now.ensembles.get(first) != members:
            raise Violation(f"{name}: the fragment at {first} changed, and it was not the last one")
    if before.state is LedgerState.IN_RECOVERY and not now.closed and now.ensembles != before.ensembles:
        raise Violation(f"{name}: fragments changed during recovery, before the close")
