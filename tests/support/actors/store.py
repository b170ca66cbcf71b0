"""The metadata store: one ledger's record, changed by compare-and-set."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.types import BookieId, LedgerState


class Record(NamedTuple):
    """A record and its version, as somebody read it."""

    version: int
    value: LedgerMetadata

    def __str__(self) -> str:
        value = self.value
        fragments = " ".join(f"{first}:[{' '.join(ensemble)}]" for first, ensemble in value.ensembles.items())
        end = f" last {value.last_entry_id} length {value.length}" if value.closed else ""
        return f"v{self.version} {value.state.name}{end} {fragments}"


def new_ledger(ensemble: int, write_quorum: int, ack_quorum: int, bookies: list[str]) -> Record:
    """The record of a ledger that has just been created."""
    members = tuple(BookieId(name) for name in bookies[:ensemble])
    return Record(0, LedgerMetadata(0, ensemble, write_quorum, ack_quorum, {0: members}))


class Store:
    """Holds the record. Breaches of spec safety PI-1, PI-2, PI-4 and PI-13 are put into `breaches`."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.breaches: list[tuple[str, str]] = []

    def write(self, value: LedgerMetadata, version: int) -> bool:
        """Put a new value over a version; False if the record has another one by now."""
        if version != self.record.version:
            return False
        self._check(self.record.value, value)
        self.record = Record(version + 1, value)
        return True

    def _check(self, old: LedgerMetadata, new: LedgerMetadata) -> None:
        if (new.ensemble_size, new.write_quorum, new.ack_quorum) != (
            old.ensemble_size,
            old.write_quorum,
            old.ack_quorum,
        ):
            self.breaches.append(("PI-1", "the quorums of the ledger changed"))
        firsts = list(new.ensembles)
        if firsts[0] != 0 or firsts != sorted(firsts) or any(len(set(e)) != len(e) for e in new.ensembles.values()):
            self.breaches.append(("PI-2", f"bad fragments {dict(new.ensembles)}"))
        if old.closed:
            self.breaches.append(("PI-4", "a closed ledger was changed"))
        if old.state is LedgerState.IN_RECOVERY and not new.closed:
            self.breaches.append(("PI-13", "a ledger in recovery was changed but not closed"))


class Update:
    """One run of the update loop of `bookkeeper.metadata.update`, taken in steps.

    Both functions are methods of the client that runs it, so that the two are copied together.
    """

    def __init__(
        self,
        name: str,
        needs: Callable[[LedgerMetadata], bool],
        transform: Callable[[LedgerMetadata], LedgerMetadata],
    ) -> None:
        self.name = name
        self.needs = needs
        self.transform = transform

    def step(self, known: Record, store: Store) -> tuple[bool, Record]:
        """One attempt. Returns whether the loop is over, and the record now known."""
        if self.needs(known.value):
            if not store.write(self.transform(known.value), known.version):
                return False, store.record
            return True, store.record
        return True, known
