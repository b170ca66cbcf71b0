"""What really happened in a run, as no node of it can know: what was sent, acknowledged, read, closed.

Payloads are a function of ledger and entry id, so that any entry read anywhere can be checked on its own.
A broken promise raises `Violation` at the step where it is seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field


class Violation(AssertionError):
    """A promise of the system was broken."""


def payload(ledger_id: int, entry_id: int) -> bytes:
    """What entry `entry_id` of a ledger holds: 0 to some 700 bytes."""
    stem = b"%d/%d:" % (ledger_id, entry_id)
    return b"" if entry_id % 17 == 16 else stem + bytes([entry_id & 0xFF]) * (entry_id * 37 % 701)


@dataclass
class LedgerHistory:
    """One ledger's life."""

    ledger_id: int
    write_quorum: int
    ack_quorum: int
    password: bytes
    sent: int = 0
    """Entries handed to `append`: ids below this may exist."""
    acked: int = -1
    """Highest entry id whose append succeeded; all below succeeded too."""
    closed: tuple[int, int] | None = None
    """(last entry id, length) as first seen closed."""
    delete_started: bool = False
    deleted: bool = False
    read: dict[int, None] = field(default_factory=dict)
    """Ids delivered to some reader."""
    fenced_for: int | None = None
    """Lowest last entry that a recovery has returned."""


@dataclass
class History:
    """All ledgers of a run."""

    ledgers: dict[int, LedgerHistory] = field(default_factory=dict)
    appended: int = 0
    reads: int = 0
    recoveries: int = 0

    def created(self, ledger_id: int, write_quorum: int, ack_quorum: int, password: bytes) -> LedgerHistory:
        if ledger_id in self.ledgers:
            raise Violation(f"ledger id {ledger_id} was handed out twice")
        ledger = self.ledgers[ledger_id] = LedgerHistory(ledger_id, write_quorum, ack_quorum, password)
        return ledger

    def acknowledged(self, ledger_id: int, entry_id: int) -> None:
        """An append succeeded (RI-4, RI-9, PI-15)."""
        ledger = self.ledgers[ledger_id]
        if entry_id != ledger.acked + 1:
            raise Violation(f"ledger {ledger_id}: entry {entry_id} acknowledged after entry {ledger.acked}")
        if ledger.closed is not None and entry_id > ledger.closed[0]:
            raise Violation(f"ledger {ledger_id}: entry {entry_id} acknowledged, closed at {ledger.closed[0]}")
        ledger.acked = entry_id
        self.appended += 1

    def opened(self, ledger_id: int, acked_before: int, last: int, length: int) -> None:
        """An open with recovery returned (RI-1, RI-10, PI-3)."""
        self.recoveries += 1
        if last < acked_before:
            raise Violation(f"ledger {ledger_id}: recovered up to {last}, but {acked_before} was acknowledged before")
        self.saw_closed(ledger_id, last, length)

    def saw_closed(self, ledger_id: int, last: int, length: int) -> None:
        """Somebody saw the ledger closed (PI-3, PI-4)."""
        ledger = self.ledgers[ledger_id]
        if ledger.closed is None:
            ledger.closed = (last, length)
        elif ledger.closed != (last, length):
            raise Violation(f"ledger {ledger_id}: closed as {ledger.closed}, then as {(last, length)}")
        if last < ledger.acked:
            raise Violation(f"ledger {ledger_id}: closed at {last}, but {ledger.acked} was acknowledged")
        if last >= ledger.sent:
            raise Violation(f"ledger {ledger_id}: closed at {last}, but only {ledger.sent} entries were ever sent")
        expected = sum(len(payload(ledger_id, entry_id)) for entry_id in range(last + 1))
        if length != expected:
            raise Violation(f"ledger {ledger_id}: closed with length {length}, its entries have {expected} bytes")

    def delivered(self, ledger_id: int, entry_id: int, data: bytes, lac: int) -> None:
        """A reader was given an entry (RI-2, RI-5, RI-12)."""
        ledger = self.ledgers[ledger_id]
        self.reads += 1
        if entry_id > lac:
            raise Violation(f"ledger {ledger_id}: entry {entry_id} was read with LAC {lac}")
        if data != payload(ledger_id, entry_id):
            raise Violation(f"ledger {ledger_id}: entry {entry_id} was read with other bytes than were written")
        if entry_id >= ledger.sent:
            raise Violation(f"ledger {ledger_id}: entry {entry_id} was read but never sent")
        ledger.read[entry_id] = None

    def lac_seen(self, ledger_id: int, lac: int) -> None:
        """A reader learned a LAC (RI-7)."""
        ledger = self.ledgers[ledger_id]
        if lac >= ledger.sent:
            raise Violation(f"ledger {ledger_id}: LAC {lac} reported, {ledger.sent} entries sent")
        if ledger.closed is not None and lac > ledger.closed[0]:
            raise Violation(f"ledger {ledger_id}: LAC {lac} reported, closed at {ledger.closed[0]}")
