"""What really happened in a run, as no node of it can know: what was sent, acknowledged, read, closed.

Payloads are a function of ledger and entry id, so that any entry read anywhere can be checked on its own.
A broken promise raises `Violation` at the step where it is seen: rules H1 to H9 and H11 of spec safety §4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


class Violation(AssertionError):
    """A promise of the system was broken."""


def payload(ledger_id: int, entry_id: int) -> bytes:
    """What entry `entry_id` of a ledger holds: 0 to some 700 bytes, in every eighth ledger up to 20,000."""
    stem = b"%d/%d:" % (ledger_id, entry_id)
    size = entry_id * 7919 % 20_000 if ledger_id % 8 == 7 else entry_id * 37 % 701
    return b"" if entry_id % 17 == 16 else stem + bytes([entry_id & 0xFF]) * size


@dataclass
class LedgerHistory:
    """One ledger's life."""

    ledger_id: int
    write_quorum: int
    ack_quorum: int
    password: bytes
    deferred: bool = False
    """Written with DEFERRED_SYNC: only what was forced must survive."""
    advanced: bool = False
    """The writer chose the ids: the lengths in the entries are in the order of sending."""
    sent: int = 0
    """Entries handed to the writer: ids below this may exist."""
    acked: int = -1
    """Highest entry id whose append succeeded; all below succeeded too."""
    forced: int = -1
    """With `deferred`: the highest entry that a successful `force` covers."""
    length_unknown: bool = False
    """A recovery could not read the last entry, and said that it records an estimate."""
    closed: tuple[int, int] | None = None
    """(last entry id, length) as first seen closed."""
    delete_started: bool = False
    deleted: bool = False
    offered: dict[bytes, None] | None = None
    """What its writer was given, where its id is not known beforehand. None: see `payload`."""
    given: dict[int, bytes] = field(default_factory=dict)
    """With `offered`: what each id got, as soon as a client has seen it."""
    read_up_to: int = -1
    """The highest confirmed entry that was delivered to some reader."""

    def is_as_given(self, entry_id: int, data: bytes) -> bool:
        """Whether an entry may be this. Once it was seen, it is that for ever."""
        if self.offered is None:
            return data == payload(self.ledger_id, entry_id)
        return data in self.offered and self.given.setdefault(entry_id, data) == data

    @property
    def safe(self) -> int:
        """Entries up to here may never be lost."""
        return self.forced if self.deferred else self.acked


@dataclass
class History:
    """All ledgers of a run."""

    ledgers: dict[int, LedgerHistory] = field(default_factory=dict)
    appended: int = 0
    reads: int = 0
    recoveries: int = 0
    bytes_only: bool = False
    """Numbers may be damaged under way, as nothing protects them: only the bytes of entries are promised."""
    on_acknowledged: Callable[[LedgerHistory, int], None] | None = None
    """A further check of each acknowledged entry."""
    on_forced: Callable[[LedgerHistory, int], None] | None = None
    """A further check of each `force`."""

    def is_deleted(self, ledger_id: int) -> bool:
        """Whether somebody has deleted a ledger, or has begun to."""
        ledger = self.ledgers.get(ledger_id)
        return ledger is not None and ledger.delete_started

    def broken(self, what: str) -> None:
        """A promise was not kept, other than that of an entry's bytes. Raises `Violation` where it was given."""
        if not self.bytes_only:
            raise Violation(what)

    def created(
        self,
        ledger_id: int,
        write_quorum: int,
        ack_quorum: int,
        password: bytes,
        *,
        deferred: bool = False,
        advanced: bool = False,
    ) -> LedgerHistory:
        if ledger_id in self.ledgers:
            raise Violation(f"ledger id {ledger_id} was handed out twice")
        ledger = LedgerHistory(ledger_id, write_quorum, ack_quorum, password, deferred, advanced)
        self.ledgers[ledger_id] = ledger
        return ledger

    def acknowledged(self, ledger_id: int, entry_id: int) -> None:
        """An append succeeded (RI-4, RI-9, PI-15)."""
        ledger = self.ledgers[ledger_id]
        if ledger.offered is None and entry_id != ledger.acked + 1:
            self.broken(f"ledger {ledger_id}: entry {entry_id} acknowledged after entry {ledger.acked}")
        if ledger.closed is not None and entry_id > ledger.closed[0] and not ledger.deferred:
            self.broken(f"ledger {ledger_id}: entry {entry_id} acknowledged, closed at {ledger.closed[0]}")
        ledger.acked = max(ledger.acked, entry_id)
        self.appended += 1
        if self.on_acknowledged is not None:
            self.on_acknowledged(ledger, entry_id)

    def was_forced(self, ledger_id: int, entry_id: int) -> None:
        """A `force` succeeded that was called when entries up to `entry_id` had been acknowledged (RI-14)."""
        ledger = self.ledgers[ledger_id]
        if ledger.closed is not None and entry_id > ledger.closed[0]:
            self.broken(f"ledger {ledger_id}: entry {entry_id} forced, closed at {ledger.closed[0]}")
        if self.on_forced is not None:
            self.on_forced(ledger, entry_id)
        ledger.forced = max(ledger.forced, entry_id)

    def length_unknown(self, ledger_id: object) -> None:
        """A recovery warned that it records an estimate of the length."""
        assert isinstance(ledger_id, int)
        self.ledgers[ledger_id].length_unknown = True

    def opened(self, ledger_id: int, safe_before: int, last: int, length: int) -> None:
        """An open with recovery returned (RI-1, RI-10, PI-3)."""
        self.recoveries += 1
        if last < safe_before:
            self.broken(f"ledger {ledger_id}: recovered up to {last}, but {safe_before} was acknowledged before")
        self.saw_closed(ledger_id, last, length)

    def saw_closed(self, ledger_id: int, last: int, length: int) -> None:
        """A client saw the ledger closed (PI-3, PI-4, PI-16)."""
        ledger = self.ledgers[ledger_id]
        name = f"ledger {ledger_id}"
        if ledger.closed is not None:
            if ledger.closed != (last, length):
                self.broken(f"{name}: closed as {ledger.closed}, then as {(last, length)}")
            return
        ledger.closed = (last, length)
        if last < ledger.safe:
            self.broken(f"{name}: closed at {last}, but {ledger.safe} was acknowledged")
        if last < ledger.read_up_to:
            self.broken(f"{name}: closed at {last}, but {ledger.read_up_to} was read as confirmed")
        if last >= ledger.sent:
            self.broken(f"{name}: closed at {last}, but only {ledger.sent} entries were ever sent")
            return
        if ledger.offered is not None:
            return
        expected = sum(len(payload(ledger_id, entry_id)) for entry_id in range(last + 1))
        # As in BookKeeper, the length of deferred ledgers counts what was not forced.
        if length != expected and not (ledger.deferred or ledger.advanced or ledger.length_unknown):
            self.broken(f"{name}: closed with length {length}, its entries have {expected} bytes")

    def content(self, ledger_id: int, entry_id: int, data: bytes) -> None:
        """A client was given an entry, confirmed or not (PI-8, RI-2, RI-12)."""
        ledger = self.ledgers[ledger_id]
        self.reads += 1
        if not ledger.is_as_given(entry_id, data):
            raise Violation(f"ledger {ledger_id}: entry {entry_id} was read with other bytes than were written")
        if entry_id >= ledger.sent:
            self.broken(f"ledger {ledger_id}: entry {entry_id} was read but never sent")


class Viewer:
    """What one handle has been told of a ledger; each promise about handles is checked here."""

    def __init__(self, history: History, ledger: LedgerHistory) -> None:
        self._history = history
        self._ledger = ledger
        self._lac = -1
        self._next: int | None = None

    def lac(self, lac: int) -> None:
        """The handle says that entries up to `lac` are confirmed (RI-6, RI-7, PI-17)."""
        ledger = self._ledger
        name = f"ledger {ledger.ledger_id}"
        if lac < self._lac:
            self._history.broken(f"{name}: the LAC of one handle fell from {self._lac} to {lac}")
        self._lac = lac
        if lac >= ledger.sent:
            self._history.broken(f"{name}: LAC {lac} reported, {ledger.sent} entries sent")
        if ledger.closed is not None and lac > ledger.closed[0]:
            self._history.broken(f"{name}: LAC {lac} reported, closed at {ledger.closed[0]}")

    def start_sequence(self, first: int) -> None:
        """The entries to come follow each other, from this one on."""
        self._next = first

    def delivered(self, entry_id: int, data: bytes, lac: int) -> None:
        """The handle, whose LAC is `lac`, has given out a confirmed entry (RI-2 to RI-5)."""
        ledger = self._ledger
        name = f"ledger {ledger.ledger_id}"
        self.lac(lac)
        if entry_id > lac:
            self._history.broken(f"{name}: entry {entry_id} was read with LAC {lac}")
        if self._next is not None:
            if entry_id != self._next:
                self._history.broken(f"{name}: entry {entry_id} came where {self._next} was due")
            self._next += 1
        self._history.content(ledger.ledger_id, entry_id, data)
        ledger.read_up_to = max(ledger.read_up_to, entry_id)
