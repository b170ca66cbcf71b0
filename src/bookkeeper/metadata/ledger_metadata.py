"""The record that describes one ledger: an immutable value, replaced as a whole by compare-and-set (metadata §1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from ..errors import CorruptMetadata
from ..types import BookieId, DigestType, LedgerState, Quorums

CURRENT_FORMAT_VERSION = 3


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """Metadata of one ledger. Breaking an invariant raises `CorruptMetadata`, also when parsing."""

    ledger_id: int
    ensemble_size: int
    """Bookies that share the ledger at a time."""
    write_quorum: int
    """Bookies that store each entry."""
    ack_quorum: int
    """Bookies that must have an entry before it is acknowledged."""
    ensembles: Mapping[int, tuple[BookieId, ...]]
    """First entry id -> members; keys ascending; the last one is the current ensemble while not closed."""
    state: LedgerState = LedgerState.OPEN
    """Open while it is written, then in recovery if its writer was lost, then closed for good."""
    last_entry_id: int = -1
    """Only for CLOSED; otherwise -1. An empty closed ledger has -1."""
    length: int = 0
    """Payload bytes; only for CLOSED, otherwise 0."""
    digest_type: DigestType | None = DigestType.CRC32C
    """How entries are protected; None in the oldest records, which do not say it."""
    password: bytes | None = field(default=b"", repr=False)
    """Kept in clear; None where the record names no digest type."""
    ctime: int = -1
    """Milliseconds since 1970; -1 unknown."""
    store_ctime: bool = False
    """Whether ctime is part of the record (else it came from the store). Not serialized."""
    ctoken: int = 0
    """Random creation token; told apart from a foreign record by its creator only. Lost at the first update."""
    custom_metadata: Mapping[str, bytes] = field(default_factory=dict)
    """What the creator gave along."""
    format_version: int = CURRENT_FORMAT_VERSION
    """Of the stored bytes; 1 to 3."""

    def __post_init__(self) -> None:
        def must(ok: bool, what: str) -> None:
            if not ok:
                raise CorruptMetadata(f"metadata of ledger {self.ledger_id}: {what}")

        must(self.ledger_id >= 0, "negative ledger id")
        must(
            self.ensemble_size >= self.write_quorum >= self.ack_quorum,
            f"quorums {self.quorums} do not descend",
        )
        must(bool(self.ensembles), "no ensemble")
        previous = None
        for first, members in self.ensembles.items():
            must(previous is None or first > previous, "ensembles are not in ascending order")
            must(len(members) == self.ensemble_size, f"ensemble at {first} has {len(members)} members")
            previous = first
        must((self.digest_type is None) == (self.password is None), "digest type and password go together")
        if self.state is not LedgerState.CLOSED:
            must(self.last_entry_id == -1 and self.length == 0, "not closed, but has a last entry or length")

    @property
    def quorums(self) -> Quorums:
        return Quorums(self.ensemble_size, self.write_quorum, self.ack_quorum)

    @property
    def closed(self) -> bool:
        """Whether nothing is written to it any more; then `last_entry_id` and `length` are its end."""
        return self.state is LedgerState.CLOSED

    @property
    def last_ensemble(self) -> tuple[int, tuple[BookieId, ...]]:
        """First entry id and members of the current ensemble."""
        first = max(self.ensembles)
        return first, self.ensembles[first]

    def ensemble_at(self, entry_id: int) -> tuple[BookieId, ...]:
        """The ensemble that holds an entry: that of the greatest key not above it."""
        found: tuple[BookieId, ...] | None = None
        for first, members in self.ensembles.items():
            if first > entry_id:
                break
            found = members
        if found is None:
            raise CorruptMetadata(f"ledger {self.ledger_id} has no ensemble for entry {entry_id}")
        return found

    def next_ensemble_change(self, entry_id: int) -> int:
        """The first key above an entry; -1 if there is none."""
        return next((first for first in self.ensembles if first > entry_id), -1)

    # --- changes; each gives a new record without the creation token, as the Java builder does ---

    def in_recovery(self) -> Self:
        """The record while another client than the writer ends the ledger."""
        return replace(self, state=LedgerState.IN_RECOVERY, ctoken=0)

    def close(self, last_entry_id: int, length: int) -> Self:
        """The record of the ledger ended at this entry (-1: empty), with so many bytes of payload."""
        return replace(self, state=LedgerState.CLOSED, last_entry_id=last_entry_id, length=length, ctoken=0)

    def with_ensemble(self, first_entry_id: int, members: Sequence[BookieId]) -> Self:
        """Replace the ensemble at a key, or append one above the last key."""
        ensembles = dict(self.ensembles)
        if first_entry_id not in ensembles and first_entry_id < self.last_ensemble[0]:
            raise ValueError(f"ensemble at {first_entry_id} would come before the last one")
        ensembles[first_entry_id] = tuple(members)
        return replace(self, ensembles=ensembles, ctoken=0)
