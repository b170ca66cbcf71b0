"""What clients and bookies say to each other, independent of how it is written.

The codecs (`v2`, `v3`) turn bytes into these values and back. One class per message; plain slotted classes, because
an add request and its response are made for every entry. Everything a version cannot say is left at its default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from itertools import repeat


class Status(IntEnum):
    """Outcome of a request; the numbers are v3's (spec wire-protocol §5.1)."""

    EOK = 0
    ENOLEDGER = 402
    ENOENTRY = 403
    EBADREQ = 404
    EIO = 501
    EUA = 502
    EBADVERSION = 503
    EFENCED = 504
    EREADONLY = 505
    ETOOMANYREQUESTS = 506
    EUNKNOWNLEDGERSTATE = 507


class Operation(IntEnum):
    """Kinds of requests; the numbers are v3's `OperationType`."""

    READ_ENTRY = 1
    ADD_ENTRY = 2
    RANGE_READ_ENTRY = 3
    RANGE_ADD_ENTRY = 4
    AUTH = 5
    WRITE_LAC = 6
    READ_LAC = 7
    GET_BOOKIE_INFO = 8
    START_TLS = 9
    FORCE_LEDGER = 10
    GET_LIST_OF_ENTRIES_OF_LEDGER = 11
    BATCH_READ_ENTRY = 12


class Flags(IntFlag):
    """Request flags; the numbers are v2's. v3 writes them as `flag` fields and as priority."""

    NONE = 0
    DO_FENCING = 1
    RECOVERY_ADD = 2
    HIGH_PRIORITY = 4
    ENTRY_PIGGYBACK = 0x10000
    """v3 only; outside the 16 flag bits of a v2 packet."""


V2 = 2
V3 = 3

HIGH_PRIORITY = 100
"""The v3 priority that Java clients send; a bookie tests `> 0` only."""


@dataclass(slots=True, kw_only=True)
class Message:
    """What every message carries besides its own fields."""

    txn_id: int = 0
    """v3: pairs an answer with its request. 0 in v2."""
    version: int = V2


@dataclass(slots=True, kw_only=True)
class Urgency(Message):
    """A message that may say how urgent it is."""

    priority: int = 0
    """v3; see `HIGH_PRIORITY`."""


@dataclass(slots=True)
class Answer(Message):
    """What every response carries besides its own fields."""

    status: int


@dataclass(slots=True)
class V3Answer(Answer):
    """A response that only v3 has."""

    version: int = field(default=V3, kw_only=True)


@dataclass(slots=True, kw_only=True)
class V3Request(Urgency):
    """A request that only v3 has."""

    version: int = V3


@dataclass(slots=True)
class AddRequest(Urgency):
    """Store one packaged entry. `entry` is what is stored: ids, LAC, length, digest, payload (§6.1).

    `ledger_id` and `entry_id` are the request's; in v2 they are read from the entry itself.
    """

    ledger_id: int
    entry_id: int
    entry: bytes
    master_key: bytes
    flags: int = 0
    write_flags: int = 0


@dataclass(slots=True)
class AddRun:
    """Adds of one ledger, with the same key and flags, that arrived together: a bookie's unit of work.

    Only adds whose form is beyond doubt are in a run: ids are not negative, every entry has at least 24 bytes, and the
    ids are those inside the entry. Whatever is not so comes out of the codec as a single `AddRequest`.
    """

    ledger_id: int
    master_key: bytes
    flags: int
    write_flags: int
    version: int
    entry_ids: list[int] = field(default_factory=list)
    entries: list[bytes] = field(default_factory=list)
    """The packaged entry of each id, what is stored."""
    txn_tokens: list[bytes] = field(default_factory=list)
    """v3: the transaction id of each add, as it stands on the wire (`v3.txn_token`). Not used in v2."""


@dataclass(slots=True)
class MixedAdds:
    """Adds of many ledgers that arrived together, hardly two of one: columns, as a run for each would cost more than
    the add itself.

    As to their form they are what is said of runs, and they are plain: without flags, and with keys of 20 bytes. Adds
    of one ledger are in the order in which they came.
    """

    version: int
    ledger_ids: Sequence[int]
    master_keys: Sequence[bytes]
    entry_ids: Sequence[int]
    lacs: Sequence[int]
    """The LAC field of each entry."""
    entries: Sequence[bytes]
    txn_tokens: Sequence[bytes]
    """As in runs."""

    def runs(self) -> list[AddRun]:
        """The same as runs, one for each ledger and key, in the order in which they begin."""
        runs: dict[tuple[int, bytes], AddRun] = {}
        tokens = self.txn_tokens or repeat(b"")
        columns = zip(self.ledger_ids, self.master_keys, self.entry_ids, self.entries, tokens, strict=False)
        for ledger_id, key, entry_id, entry, token in columns:
            run = runs.get((ledger_id, key))
            if run is None:
                run = runs[ledger_id, key] = AddRun(ledger_id, key, 0, 0, self.version)
            run.entry_ids.append(entry_id)
            run.entries.append(entry)
            if self.txn_tokens:
                run.txn_tokens.append(token)
        return [*runs.values()]

    def at(self, places: Sequence[int]) -> MixedAdds:
        """Those at these places, of which there is one at least."""
        return MixedAdds(
            self.version,
            [self.ledger_ids[place] for place in places],
            [self.master_keys[place] for place in places],
            [self.entry_ids[place] for place in places],
            [self.lacs[place] for place in places],
            [self.entries[place] for place in places],
            [self.txn_tokens[place] for place in places] if self.txn_tokens else (),
        )


@dataclass(slots=True)
class ReadRun:
    """Reads of entries of one ledger, by their ids and without anything else, that arrived together."""

    ledger_id: int
    version: int
    entry_ids: list[int] = field(default_factory=list)
    txn_tokens: list[bytes] = field(default_factory=list)
    """v3: the transaction id of each read, as it stands on the wire (`v3.txn_token`). Not used in v2."""

    def part(self, start: int, end: int | None = None) -> ReadRun:
        """Those from `start` on, up to `end`."""
        return ReadRun(self.ledger_id, self.version, self.entry_ids[start:end], self.txn_tokens[start:end])

    def only(self, places: Sequence[int]) -> ReadRun:
        """Those at these places."""
        tokens = [self.txn_tokens[place] for place in places] if self.txn_tokens else []
        return ReadRun(self.ledger_id, self.version, [self.entry_ids[place] for place in places], tokens)


@dataclass(slots=True)
class ReadRequest(Urgency):
    """Read one entry, the last entry (-1), fence, or long-poll (`previous_lac` given)."""

    ledger_id: int
    entry_id: int
    flags: int = 0
    master_key: bytes | None = None
    previous_lac: int | None = None
    timeout_ms: int | None = None


@dataclass(slots=True)
class BatchReadRequest(Message):
    """Read consecutive entries (v2 only). `max_count` <= 0: no limit."""

    ledger_id: int
    entry_id: int
    request_id: int
    max_count: int
    max_size: int
    flags: int = 0
    master_key: bytes | None = None


@dataclass(slots=True)
class AuthRequest(Urgency):
    plugin: str
    payload: bytes


@dataclass(slots=True)
class StartTlsRequest(V3Request):
    """No fields of its own."""


@dataclass(slots=True)
class WriteLacRequest(V3Request):
    ledger_id: int
    lac: int
    master_key: bytes
    body: bytes


@dataclass(slots=True)
class ReadLacRequest(V3Request):
    ledger_id: int


@dataclass(slots=True)
class ForceLedgerRequest(V3Request):
    ledger_id: int


TOTAL_CAPACITY = 1
FREE_SPACE = 2


@dataclass(slots=True)
class GetBookieInfoRequest(V3Request):
    """`requested` is a mask of `TOTAL_CAPACITY` and `FREE_SPACE`."""

    requested: int


@dataclass(slots=True)
class GetListOfEntriesRequest(V3Request):
    ledger_id: int


@dataclass(slots=True)
class UnsupportedRequest(V3Request):
    """A legal v3 request that lacks its operation's message, or whose operation has none: answered EBADREQ."""

    operation: int


Request = (
    AddRequest
    | ReadRequest
    | BatchReadRequest
    | AuthRequest
    | StartTlsRequest
    | WriteLacRequest
    | ReadLacRequest
    | ForceLedgerRequest
    | GetBookieInfoRequest
    | GetListOfEntriesRequest
    | UnsupportedRequest
)


@dataclass(slots=True)
class AddResponse(Answer):
    ledger_id: int
    entry_id: int


@dataclass(slots=True)
class ReadResponse(Answer):
    """`entry_id` echoes the request (-1 stays -1), except for a long poll that delivers an entry."""

    ledger_id: int
    entry_id: int
    entry: bytes | None = None
    max_lac: int | None = None
    lac_update_timestamp: int | None = None


Packed = bytes | memoryview
"""A run of entries. What was received is a view of its frame, so that megabytes need not be copied."""


@dataclass(slots=True)
class BatchReadResponse(Answer):
    """`body` holds, for each entry, its size (int32) and the packaged entry: as on disk in an entry log."""

    ledger_id: int
    entry_id: int
    request_id: int
    body: Packed = b""


@dataclass(slots=True)
class AuthResponse(Answer):
    plugin: str
    payload: bytes
    priority: int = field(default=0, kw_only=True)


@dataclass(slots=True)
class StartTlsResponse(V3Answer):
    """No fields of its own."""


@dataclass(slots=True)
class WriteLacResponse(V3Answer):
    ledger_id: int


@dataclass(slots=True)
class ReadLacResponse(V3Answer):
    ledger_id: int
    lac_body: bytes | None = None
    last_entry: bytes | None = None


@dataclass(slots=True)
class ForceLedgerResponse(V3Answer):
    ledger_id: int


@dataclass(slots=True)
class GetBookieInfoResponse(V3Answer):
    total_disk_capacity: int | None = None
    free_disk_space: int | None = None


@dataclass(slots=True)
class GetListOfEntriesResponse(V3Answer):
    """`availability` is the encoding of §9 (see `availability`)."""

    ledger_id: int
    availability: bytes | None = None


@dataclass(slots=True)
class HeaderOnlyResponse(V3Answer):
    """A v3 response without an operation's message: EUA before authentication, EBADREQ for what is unsupported."""

    operation: int
    priority: int = field(default=0, kw_only=True)


Response = (
    AddResponse
    | ReadResponse
    | BatchReadResponse
    | AuthResponse
    | StartTlsResponse
    | WriteLacResponse
    | ReadLacResponse
    | ForceLedgerResponse
    | GetBookieInfoResponse
    | GetListOfEntriesResponse
    | HeaderOnlyResponse
)
