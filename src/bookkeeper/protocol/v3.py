"""Protocol version 3: protobuf messages (spec wire-protocol §3; the fields are in `v3_schema`).

The first half of this module handles any message. The second half is the data path: adds in bulk.

What is written by hand is always the canonical form: fields in the order of their numbers, shortest varints. What is
read by hand must be that form too, byte for byte; everything else is left to protobuf, which knows every legal
encoding. Peers do differ: newer Java clients write `flag` in front of the other fields.

A message without a required field is broken, but asking protobuf whether it is complete costs as much as parsing. Adds
and reads are known to be complete when no required field reads as its default; only then the question is not asked.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

from google.protobuf.message import DecodeError

from bookkeeper.errors import ProtocolError
from bookkeeper.types import MASTER_KEY_LENGTH

from . import entry as packaged
from . import messages as m
from .auth import plugin_name
from .frames import DEFAULT_MAX_FRAME_SIZE, FrameSplitter, frame
from .messages import HIGH_PRIORITY, V3, AddRun, Flags, Operation, Status
from .v3_schema import (
    ADD_RECOVERY_ADD,
    READ_ENTRY_PIGGYBACK,
    READ_FENCE_LEDGER,
    UNSET,
    UNSET_INT64,
    UNSET_STATUS,
    VERSION_THREE,
)
from .v3_schema import Request as WireRequest
from .v3_schema import Response as WireResponse
from .varint import unvarint, varint

# --- any message -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Form:
    """How one class of message is written: its operation, its field in `Request` or `Response`, and its own fields."""

    operation: Operation
    message: type[Any]
    field: str
    attributes: tuple[tuple[str, str], ...] = ()
    """Pairs of our attribute and protobuf's field, always there."""
    optional: tuple[tuple[str, str], ...] = ()
    """The same for fields whose absence is `None`."""

    def read(self, wire: Any) -> dict[str, Any]:
        values = {attribute: getattr(wire, name) for attribute, name in self.attributes}
        for attribute, name in self.optional:
            if wire.HasField(name):
                values[attribute] = getattr(wire, name)
        return values

    def write(self, message: Any, wire: Any) -> None:
        wire.SetInParent()
        for attribute, name in self.attributes:
            setattr(wire, name, getattr(message, attribute))
        for attribute, name in self.optional:
            value = getattr(message, attribute)
            if value is not None:
                setattr(wire, name, value)


_LEDGER = ("ledger_id", "ledgerId")
_ENTRY = ("entry_id", "entryId")
_KEY = ("master_key", "masterKey")
_BODY = ("body", "body")
_AUTH = (("plugin", "authPluginName"), ("payload", "payload"))

_REQUESTS = (
    _Form(
        Operation.READ_ENTRY,
        m.ReadRequest,
        "readRequest",
        (_LEDGER, _ENTRY),
        (_KEY, ("previous_lac", "previousLAC"), ("timeout_ms", "timeOut")),
    ),
    _Form(
        Operation.ADD_ENTRY,
        m.AddRequest,
        "addRequest",
        (_LEDGER, _ENTRY, ("entry", "body"), _KEY, ("write_flags", "writeFlags")),
    ),
    _Form(Operation.AUTH, m.AuthRequest, "authRequest", _AUTH),
    _Form(Operation.WRITE_LAC, m.WriteLacRequest, "writeLacRequest", (_LEDGER, ("lac", "lac"), _KEY, _BODY)),
    _Form(Operation.READ_LAC, m.ReadLacRequest, "readLacRequest", (_LEDGER,)),
    _Form(Operation.GET_BOOKIE_INFO, m.GetBookieInfoRequest, "getBookieInfoRequest", (("requested", "requested"),)),
    _Form(Operation.START_TLS, m.StartTlsRequest, "startTLSRequest"),
    _Form(Operation.FORCE_LEDGER, m.ForceLedgerRequest, "forceLedgerRequest", (_LEDGER,)),
    _Form(
        Operation.GET_LIST_OF_ENTRIES_OF_LEDGER,
        m.GetListOfEntriesRequest,
        "getListOfEntriesOfLedgerRequest",
        (_LEDGER,),
    ),
)

_RESPONSES = (
    _Form(
        Operation.READ_ENTRY,
        m.ReadResponse,
        "readResponse",
        (_LEDGER, _ENTRY),
        (("entry", "body"), ("max_lac", "maxLAC"), ("lac_update_timestamp", "lacUpdateTimestamp")),
    ),
    _Form(Operation.ADD_ENTRY, m.AddResponse, "addResponse", (_LEDGER, _ENTRY)),
    _Form(Operation.AUTH, m.AuthResponse, "authResponse", _AUTH),
    _Form(Operation.WRITE_LAC, m.WriteLacResponse, "writeLacResponse", (_LEDGER,)),
    _Form(
        Operation.READ_LAC,
        m.ReadLacResponse,
        "readLacResponse",
        (_LEDGER,),
        (("lac_body", "lacBody"), ("last_entry", "lastEntryBody")),
    ),
    _Form(
        Operation.GET_BOOKIE_INFO,
        m.GetBookieInfoResponse,
        "getBookieInfoResponse",
        (),
        (("total_disk_capacity", "totalDiskCapacity"), ("free_disk_space", "freeDiskSpace")),
    ),
    _Form(Operation.START_TLS, m.StartTlsResponse, "startTLSResponse"),
    _Form(Operation.FORCE_LEDGER, m.ForceLedgerResponse, "forceLedgerResponse", (_LEDGER,)),
    _Form(
        Operation.GET_LIST_OF_ENTRIES_OF_LEDGER,
        m.GetListOfEntriesResponse,
        "getListOfEntriesOfLedgerResponse",
        (_LEDGER,),
        (("availability", "availabilityOfEntriesOfLedger"),),
    ),
)

_REQUEST_OF_OPERATION = {int(form.operation): form for form in _REQUESTS}
_REQUEST_OF_CLASS = {form.message: form for form in _REQUESTS}
_RESPONSE_OF_OPERATION = {int(form.operation): form for form in _RESPONSES}
_RESPONSE_OF_CLASS = {form.message: form for form in _RESPONSES}

_STATUS = {int(status): status for status in Status}


def decode_request(body: bytes) -> m.Request:
    """Raises `ProtocolError` for bytes that are no complete message, and for an unknown operation.

    `version` is the header's: a bookie answers EBADVERSION unless it is 3 (for AUTH and START_TLS it does not look). An
    add carries the request's ids, which the bookie compares with those in the entry.
    """
    wire = _parse(WireRequest, body)
    header = wire.header
    if header.operation == _READ_ENTRY and (read := _read_read_request(wire, header)) is not None:
        return read
    _check_complete(wire, header)
    form = _REQUEST_OF_OPERATION.get(header.operation)
    if form is None or not wire.HasField(form.field):
        return m.UnsupportedRequest(header.operation, header.txnId, header.priority, header.version)
    inner = getattr(wire, form.field)
    values = form.read(inner)
    if form.message is m.AuthRequest:
        values["plugin"] = plugin_name(inner)
    elif form.message is m.ReadRequest:
        values["flags"] = _READ_FLAGS[inner.flag] | _priority_flag(header.priority)
    elif form.message is m.AddRequest:
        values["flags"] = _ADD_FLAGS[inner.flag] | _priority_flag(header.priority)
    message: m.Request = form.message(txn_id=header.txnId, priority=header.priority, version=header.version, **values)
    return message


def encode_request(message: m.Request) -> bytes:
    """The frame, length included; its version is 3, whatever `message.version` says.

    Priority is `message.priority`, else that which `Flags.HIGH_PRIORITY` stands for. Raises `ValueError` for what v3
    cannot say.
    """
    if isinstance(message, m.AddRequest):
        encoder = AddRequestEncoder(
            message.ledger_id, message.master_key, message.flags, message.write_flags, message.priority
        )
        return encoder.encode(txn_token(message.txn_id), message.entry_id, message.entry)
    if isinstance(message, m.BatchReadRequest):
        raise ValueError("v3 has no batch read")
    wire = WireRequest()
    priority = message.priority
    if isinstance(message, m.UnsupportedRequest):
        operation = message.operation
    else:
        form = _REQUEST_OF_CLASS[type(message)]
        operation = form.operation
        inner = getattr(wire, form.field)
        form.write(message, inner)
        if isinstance(message, m.ReadRequest):
            priority = priority or _priority(message.flags)
            if flag := _read_flag(message.flags):
                inner.flag = flag
    _write_header(wire.header, VERSION_THREE, operation, message.txn_id, priority)
    return frame(wire.SerializeToString())


def decode_response(body: bytes) -> m.Response:
    """Raises `ProtocolError` for bytes that are no complete message.

    `status` is the effective one (spec §3.4): the response's if that is an error, else the operation's own. An error
    without its operation's message becomes a `HeaderOnlyResponse`.
    """
    wire = _parse(WireResponse, body)
    header = wire.header
    if header.operation == _READ_ENTRY and (read := _read_read_response(wire, header)) is not None:
        return read
    _check_complete(wire, header)
    status = wire.status
    form = _RESPONSE_OF_OPERATION.get(header.operation)
    if form is None or not wire.HasField(form.field):
        if status == Status.EOK:
            raise ProtocolError(f"successful response to operation {header.operation} without its message")
        return m.HeaderOnlyResponse(_status(status), header.operation, header.txnId, header.priority, header.version)
    inner = getattr(wire, form.field)
    values = form.read(inner)
    if form.message is m.AuthResponse:
        values["plugin"] = plugin_name(inner)
        values["priority"] = header.priority
    elif form.message is not m.StartTlsResponse:
        status = status or inner.status
    message: m.Response = form.message(status=_status(status), txn_id=header.txnId, version=header.version, **values)
    return message


def encode_response(message: m.Response) -> bytes:
    """The frame, length included, with the status in both places.

    The version is 3, except in answers that copy the request's header, as it came: AUTH and `HeaderOnlyResponse`.
    """
    if isinstance(message, m.ReadResponse):
        return _encode_read_response(message)
    if isinstance(message, m.AddResponse):
        return encode_add_response(message.txn_id, message.ledger_id, message.entry_id, message.status)
    if isinstance(message, m.BatchReadResponse):
        raise ValueError("v3 has no batch read")
    wire = WireResponse(status=message.status)
    if isinstance(message, m.HeaderOnlyResponse):
        _write_header(wire.header, message.version, message.operation, message.txn_id, message.priority)
        return frame(wire.SerializeToString())
    form = _RESPONSE_OF_CLASS[type(message)]
    inner = getattr(wire, form.field)
    form.write(message, inner)
    if isinstance(message, m.AuthResponse):
        _write_header(wire.header, message.version, form.operation, message.txn_id, message.priority)
        return frame(wire.SerializeToString())
    if not isinstance(message, m.StartTlsResponse):
        inner.status = message.status
    _write_header(wire.header, VERSION_THREE, form.operation, message.txn_id, 0)
    return frame(wire.SerializeToString())


_READ_FLAGS = {0: 0, READ_FENCE_LEDGER: int(Flags.DO_FENCING), READ_ENTRY_PIGGYBACK: int(Flags.ENTRY_PIGGYBACK)}
_ADD_FLAGS = {0: 0, ADD_RECOVERY_ADD: int(Flags.RECOVERY_ADD)}
_RECOVERY_ADD = int(Flags.RECOVERY_ADD)
_HIGH_PRIORITY_FLAG = int(Flags.HIGH_PRIORITY)


def _parse(wire_class: Any, body: bytes) -> Any:
    try:
        return wire_class.FromString(body)
    except DecodeError as error:
        raise ProtocolError(f"broken v3 message: {error}") from None


def _check_complete(wire: Any, header: Any) -> None:
    if header.version == UNSET or header.operation == UNSET or not wire.IsInitialized():
        raise ProtocolError("v3 message lacks a required field, or has an unknown version, operation or status")


def _status(code: int) -> Status:
    if code == UNSET_STATUS:
        raise ProtocolError("v3 response with an unknown status")
    return _STATUS[code]


def _write_header(header: Any, version: int, operation: int, txn_id: int, priority: int) -> None:
    header.version = version
    header.operation = operation
    header.txnId = txn_id
    if priority:
        header.priority = priority


def _priority(flags: int) -> int:
    return HIGH_PRIORITY if flags & _HIGH_PRIORITY_FLAG else 0


def _priority_flag(priority: int) -> int:
    return _HIGH_PRIORITY_FLAG if priority else 0


def _read_flag(flags: int) -> int:
    fence = flags & Flags.DO_FENCING
    piggyback = flags & Flags.ENTRY_PIGGYBACK
    if fence and piggyback:
        raise ValueError("a v3 read cannot fence and ask for the entry with the LAC")
    if fence:
        return READ_FENCE_LEDGER
    return READ_ENTRY_PIGGYBACK if piggyback else 0


# --- written by hand -------------------------------------------------------------------------------------------

_READ_HEADER = b"\x08\x03\x10\x01\x18"
_ADD_HEADER = b"\x08\x03\x10\x02\x18"
"""BKPacketHeader up to its txn id: version 3 and the operation."""

_READ_RESPONSE_TAG = b"\xa2\x06"
_ADD_TAG = b"\xaa\x06"
"""`addRequest` in a request, `addResponse` in a response."""

_PRIORITY_TAG = b"\x20"
_RECOVERY_ADD_FIELD = b"\xa0\x06\x01"
_SUCCESS = b"\x10\x00" + _ADD_TAG
_pack_length = Struct(">I").pack


def txn_token(txn_id: int) -> bytes:
    """A transaction id as it stands on the wire: what `AddRequestEncoder` takes and `AddRun` holds."""
    return varint(txn_id)


class AddRequestEncoder:
    """Writes the add requests of one ledger.

    Between two adds only txn id, entry id and entry differ. The bytes around them are kept for the last *shape* (the
    sizes of these three) and laid out again when it changes.
    """

    __slots__ = ("_end", "_ids", "_key", "_middle", "_priority", "_shape", "_start", "_with_size")

    def __init__(
        self, ledger_id: int, master_key: bytes, flags: int = 0, write_flags: int = 0, priority: int = 0
    ) -> None:
        priority = priority or _priority(flags)
        self._priority = _PRIORITY_TAG + varint(priority) if priority else b""
        self._ids = b"\x08" + varint(ledger_id) + b"\x10"
        self._key = b"\x1a" + varint(len(master_key)) + master_key + b"\x22"
        self._end = (b"\x28" + varint(write_flags) if write_flags else b"") + (
            _RECOVERY_ADD_FIELD if flags & _RECOVERY_ADD else b""
        )
        self._shape = (0, 0, 0)
        # The frame is _start, txn id, _middle, entry id, _with_size, entry, _end; the first two hold for _shape only.
        self._start = self._middle = self._with_size = b""

    def encode(self, token: bytes, entry_id: int, entry: bytes) -> bytes:
        """The frame that stores a packaged entry; the same for every bookie. `token` is the txn id's `txn_token`."""
        number = varint(entry_id)
        shape = (len(token), len(number), len(entry))
        if shape != self._shape:
            self._lay_out(shape)
        return b"".join((self._start, token, self._middle, number, self._with_size, entry, self._end))

    def _lay_out(self, shape: tuple[int, int, int]) -> None:
        token_size, number_size, entry_size = shape
        self._with_size = self._key + varint(entry_size)
        add_size = len(self._ids) + number_size + len(self._with_size) + entry_size + len(self._end)
        self._middle = self._priority + _ADD_TAG + varint(add_size) + self._ids
        header_size = len(_ADD_HEADER) + token_size + len(self._priority)
        header = b"\x0a" + varint(header_size) + _ADD_HEADER
        size = len(header) + token_size + len(self._middle) - len(self._ids) + add_size
        self._start = _pack_length(size) + header
        self._shape = shape


def encode_add_response(txn_id: int, ledger_id: int, entry_id: int, status: int = Status.EOK) -> bytes:
    """The frame that answers one add."""
    token = varint(txn_id)
    number = varint(entry_id)
    ledger = varint(ledger_id)
    start, middle = _add_response_around(len(token), len(number), ledger, status)
    return start + token + middle + number


def encode_add_responses(run: AddRun, status: int = Status.EOK) -> bytes:
    """The frames that answer all adds of a run alike."""
    ledger = varint(run.ledger_id)
    token_size = number_size = 0
    start = middle = b""
    pieces: list[bytes] = []
    add = pieces.append
    for token, entry_id in zip(run.txn_tokens, run.entry_ids, strict=True):
        number = varint(entry_id)
        if len(token) != token_size or len(number) != number_size:
            token_size = len(token)
            number_size = len(number)
            start, middle = _add_response_around(token_size, number_size, ledger, status)
        add(b"%b%b%b%b" % (start, token, middle, number))
    return b"".join(pieces)


def _add_response_around(token_size: int, number_size: int, ledger: bytes, status: int) -> tuple[bytes, bytes]:
    """The bytes in front of the txn id and those between it and the entry id, which ends the frame."""
    code = varint(status)
    ids = b"\x08" + code + b"\x10" + ledger + b"\x18"
    middle = b"\x10" + code + _ADD_TAG + varint(len(ids) + number_size) + ids
    header = b"\x0a" + varint(len(_ADD_HEADER) + token_size) + _ADD_HEADER
    return _pack_length(len(header) + token_size + len(middle) + number_size) + header, middle


def _encode_read_response(message: m.ReadResponse) -> bytes:
    """By hand, because protobuf would copy the entry twice more."""
    code = varint(message.status)
    token = varint(message.txn_id)
    before = b"\x08" + code + b"\x10" + varint(message.ledger_id) + b"\x18" + varint(message.entry_id)
    entry = message.entry
    if entry is not None:
        before += b"\x22" + varint(len(entry))
    else:
        entry = b""
    after = b""
    if message.max_lac is not None:
        after += b"\x28" + varint(message.max_lac)
    if message.lac_update_timestamp is not None:
        after += b"\x30" + varint(message.lac_update_timestamp)
    header = (
        b"\x0a" + varint(len(_READ_HEADER) + len(token)) + _READ_HEADER + token + b"\x10" + code + _READ_RESPONSE_TAG
    )
    inner_size = len(before) + len(entry) + len(after)
    header += varint(inner_size)
    return b"".join((_pack_length(len(header) + inner_size), header, before, entry, after))


# --- read by hand, or with the fewest questions to protobuf -----------------------------------------------------

_READ_ENTRY = int(Operation.READ_ENTRY)
_ADD_ENTRY = int(Operation.ADD_ENTRY)


def _read_read_request(wire: Any, header: Any) -> m.ReadRequest | None:
    """None if it takes more questions to know that the message is complete."""
    inner = wire.readRequest
    ledger_id = inner.ledgerId
    entry_id = inner.entryId
    txn_id = header.txnId
    version = header.version
    if not (ledger_id and entry_id and txn_id and version):
        return None
    key = inner.masterKey
    previous_lac = inner.previousLAC
    timeout_ms = inner.timeOut
    priority = header.priority
    return m.ReadRequest(
        ledger_id,
        entry_id,
        _READ_FLAGS[inner.flag] | (_HIGH_PRIORITY_FLAG if priority else 0),
        key if key or inner.HasField("masterKey") else None,
        None if previous_lac == UNSET_INT64 else previous_lac,
        None if timeout_ms == UNSET_INT64 else timeout_ms,
        txn_id,
        priority,
        version,
    )


def _read_read_response(wire: Any, header: Any) -> m.ReadResponse | None:
    """None if it takes more questions to know that the message is complete."""
    inner = wire.readResponse
    ledger_id = inner.ledgerId
    entry_id = inner.entryId
    txn_id = header.txnId
    version = header.version
    status = wire.status
    inner_status = inner.status
    if not (ledger_id and entry_id and txn_id and version) or UNSET_STATUS in (status, inner_status):
        return None
    entry = inner.body
    max_lac = inner.maxLAC
    timestamp = inner.lacUpdateTimestamp
    return m.ReadResponse(
        _STATUS[status or inner_status],
        ledger_id,
        entry_id,
        entry if entry or inner.HasField("body") else None,
        None if max_lac == UNSET_INT64 else max_lac,
        None if timestamp == UNSET_INT64 else timestamp,
        txn_id,
        version,
    )


def decode_add_runs(bodies: Sequence[bytes], start: int = 0) -> tuple[list[AddRun], int]:
    """Take the adds that stand at `bodies[start:]`, up to the first body that is something else.

    Returns one run per ledger, key and flags, in the order in which they begin, and the index of the first body not
    taken. That one goes through `decode_request`, which knows every form; never raises.

    Protobuf reads the first add. From then on an add that is laid out as that one was, canonical and with numbers of
    the same sizes, is read by hand; one that is not goes through protobuf again, and becomes the new example.
    """
    runs: dict[_RunKey, AddRun] = {}
    shape: _AddShape | None = None
    layouts: dict[int, _AddLayout | None] = {}  # by size of the body, for `shape`
    proven: dict[tuple[bytes, bytes], AddRun] = {}  # pairs of `middle` and `key` that fit, and the run they belong to
    run: AddRun | None = None
    run_middle = run_key = b""
    number_of = int.from_bytes
    taken = start
    for body in bodies[start:] if start else bodies:
        size = len(body)
        layout = layouts.get(size)
        if layout is None and shape is not None:
            layout = layouts[size] = _add_layout(size, shape)
        if layout is not None:
            head, token, middle, number, key, ledger_id, entry_id = layout.unpack(body)
            if middle != run_middle or key != run_key:
                run = proven.get((middle, key))
                if run is None and layout.fits(middle, key, ledger_id):
                    run = proven[middle, key] = _run_of(runs, ledger_id, key[2:22], 0, 0)
                run_middle, run_key = middle, key
            if (
                run is not None
                and ledger_id == run.ledger_id
                and head == layout.head
                and number == varint(entry_id)
                and number_of(token, "little") & layout.token_mask == layout.token_tops
            ):
                run.entry_ids.append(entry_id)
                run.entries.append(body[layout.entry_at :])
                run.txn_tokens.append(token)
                taken += 1
                continue
        add = _parse_add(body)
        if add is None:
            break
        ledger_id, entry_id, key, flags, write_flags, token, entry = add
        run = _run_of(runs, ledger_id, key, flags, write_flags)
        run.entry_ids.append(entry_id)
        run.entries.append(entry)
        run.txn_tokens.append(token)
        run_middle = run_key = b""
        taken += 1
        if len(key) == MASTER_KEY_LENGTH and not flags and not write_flags:
            shape = len(token), len(varint(ledger_id)), len(varint(entry_id))
            layouts.clear()
            proven.clear()
    return list(runs.values()), taken


_RunKey = tuple[int, bytes, int, int]
"""Ledger id, master key, flags and write flags."""

_AddShape = tuple[int, int, int]
"""Bytes of the varints of an add request: txn id, ledger id, entry id."""

_Add = tuple[int, int, bytes, int, int, bytes, bytes]
"""Ledger id, entry id, master key, flags, write flags, txn token and entry of an add request."""


def _run_of(runs: dict[_RunKey, AddRun], ledger_id: int, key: bytes, flags: int, write_flags: int) -> AddRun:
    run = runs.get((ledger_id, key, flags, write_flags))
    if run is None:
        run = runs[ledger_id, key, flags, write_flags] = AddRun(ledger_id, key, flags, write_flags, V3)
    return run


def _parse_add(body: bytes) -> _Add | None:
    """Read an add with protobuf; None for anything that has no place in a run."""
    try:
        wire = WireRequest.FromString(body)
    except DecodeError:
        return None
    header = wire.header
    if header.operation != _ADD_ENTRY or header.version != VERSION_THREE:
        return None
    add = wire.addRequest
    ledger_id, entry_id, entry = add.ledgerId, add.entryId, add.body
    if len(entry) < packaged.MIN_STORED_SIZE or ledger_id < 0 or entry_id < 0:
        return None
    if packaged.ids(entry) != (ledger_id, entry_id) or not wire.IsInitialized():
        return None
    flags = _ADD_FLAGS[add.flag] | _priority_flag(header.priority)
    return ledger_id, entry_id, add.masterKey, flags, add.writeFlags, varint(header.txnId), entry


@dataclass(frozen=True, slots=True)
class _AddLayout:
    """Where everything is in a canonical add request of one size, without flags and with a 20-byte key.

    head    0a h 08 03 10 02 18
    token   txn id
    middle  aa 06 n 08 ledger 10
    number  entry id
    key     1a 14 key 22 m
    entry   m bytes, of which the ids are read
    """

    unpack: Callable[[bytes], tuple[bytes, bytes, bytes, bytes, bytes, int, int]]
    """The fields above; of the entry its ledger and entry id."""
    head: bytes
    middle_start: bytes
    key_end: bytes
    entry_at: int
    token_mask: int
    """The top bits of the token's bytes, as a little-endian number, ..."""
    token_tops: int
    """... and how they must be for it to be one varint."""

    def fits(self, middle: bytes, key: bytes, ledger_id: int) -> bool:
        """Whether these fields are what a canonical request with the ledger id of its entry has there."""
        return (
            middle == self.middle_start + varint(ledger_id) + b"\x10"
            and key[:2] == b"\x1a\x14"
            and key[2 + MASTER_KEY_LENGTH :] == self.key_end
        )


@functools.lru_cache(maxsize=1024)
def _add_layout(size: int, shape: _AddShape) -> _AddLayout | None:
    """The layout of a body of `size` bytes; None if no add of that size and shape has an entry that can be stored."""
    token_size, ledger_size, number_size = shape
    head = b"\x0a" + varint(len(_ADD_HEADER) + token_size) + _ADD_HEADER
    add_size = _size_behind_its_varint(size - len(head) - token_size - len(_ADD_TAG))
    entry_size = _size_behind_its_varint(add_size - (1 + ledger_size + 1 + number_size + 2 + MASTER_KEY_LENGTH + 1))
    if entry_size < packaged.MIN_STORED_SIZE:
        return None
    middle_start = _ADD_TAG + varint(add_size) + b"\x08"
    key_end = b"\x22" + varint(entry_size)
    fields = Struct(
        f">{len(head)}s{token_size}s{len(middle_start) + ledger_size + 1}s{number_size}s"
        f"{2 + MASTER_KEY_LENGTH + len(key_end)}sqq"
    )
    entry_at = size - entry_size
    assert fields.size == entry_at + 16
    return _AddLayout(
        fields.unpack_from,
        head,
        middle_start,
        key_end,
        entry_at,
        int.from_bytes(b"\x80" * token_size, "little"),
        int.from_bytes(b"\x80" * (token_size - 1) + b"\x00", "little"),
    )


def _size_behind_its_varint(total: int) -> int:
    """The n for which the varint of n and n bytes are `total` bytes; -1 if there is none."""
    for size in range(max(0, total - 5), total):
        if len(varint(size)) + size == total:
            return size
    return -1


class ResponseSplitter:
    """A v3 client's splitter: takes acknowledgements of adds out of the stream by the hundred.

    The frames of successful adds are alike except for their numbers, and of equal size as long as these have equally
    many bytes. A row of them is found by one pattern and read by one `Struct`; only what is left is cut into frames one
    by one.
    """

    __slots__ = ("_splitter",)

    def __init__(self, max_frame_size: int = DEFAULT_MAX_FRAME_SIZE) -> None:
        self._splitter = FrameSplitter(max_frame_size)

    @property
    def error(self) -> ProtocolError | None:
        """As in `FrameSplitter`: set when the stream broke; what was returned so far is good."""
        return self._splitter.error

    def feed(self, data: bytes) -> tuple[list[tuple[int, int]], list[bytes]]:
        """Ledger and entry ids of adds that succeeded, and the bodies of all other responses.

        `bodies` may hold add responses too: failed ones, and those behind other responses. Order within each list is
        that of arrival. Raises the `ProtocolError` of a stream that is broken already.
        """
        splitter = self._splitter
        if splitter.error is not None or splitter.pending >= _MAX_ACK_SIZE:
            return [], splitter.feed(data)
        data = splitter.take_pending() + data
        acks: list[tuple[int, int]] = []
        values = _Values()
        at = 0
        while (row := _ack_row_at(data, at)) is not None:
            end = row.end(data, at)
            if end == at:
                break
            acks += row.read(row.fields(data[at:end]), values)
            at = end
        rest = data[at:] if at else data
        return acks, splitter.feed(rest) if rest else []


class _Values(dict[bytes, int]):
    """The int64 of each varint met; decoded once."""

    def __missing__(self, encoded: bytes) -> int:
        value = self[encoded] = unvarint(encoded)
        return value


_Fields = Iterable[tuple[Any, ...]]
_Acks = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _AckRow:
    """Acknowledgements that stand in a row and have numbers of the same sizes.

    00 00 00 L   0a h 08 03 10 02 18 txn   10 00   aa 06 n 08 00 10 ledger 18 entry
    """

    end: Callable[[bytes, int], int]
    """Where the row that starts at this position ends."""
    fields: Callable[[bytes], _Fields]
    """Ledger id and entry id of each as they stand there, the latter in one or two pieces."""
    read: Callable[[_Fields, _Values], _Acks]
    """Both ids as numbers."""


_ACK_MIDDLE = _SUCCESS + b"\0"  # the last byte is a size, which varies
_ACK_LEDGER_TAG = b"\x08\x00\x10"
_ACK_ENTRY_TAG = b"\x18"
_ACK_HEADER_AT = 4
_MIN_ACK_SIZE = (
    _ACK_HEADER_AT + 2 + len(_ADD_HEADER) + 1 + len(_ACK_MIDDLE) + len(_ACK_LEDGER_TAG) + 1 + len(_ACK_ENTRY_TAG) + 1
)
_MAX_VARINT = 10
_MAX_ACK_SIZE = _MIN_ACK_SIZE + 3 * (_MAX_VARINT - 1)


def _ack_row_at(data: bytes, at: int) -> _AckRow | None:
    """The row that the frame at this position is in, if it is an acknowledgement (which `end` decides)."""
    if len(data) - at < _MIN_ACK_SIZE:
        return None
    header_size = data[at + _ACK_HEADER_AT + 1]
    ledger_at = at + _ACK_HEADER_AT + 2 + header_size + len(_ACK_MIDDLE) + len(_ACK_LEDGER_TAG)
    ledger_size = 1
    for byte in data[ledger_at : ledger_at + _MAX_VARINT]:
        if byte < 0x80:
            break
        ledger_size += 1
    return _ack_row(data[at + 3], header_size, ledger_size)


@functools.lru_cache(maxsize=256)
def _ack_row(size: int, header_size: int, ledger_size: int) -> _AckRow | None:
    """Frames with these three sizes; None if no acknowledgement has them.

    The pattern fits nothing but complete, canonical frames.
    """
    token_size = header_size - len(_ADD_HEADER)
    before_ledger = 2 + header_size + len(_ACK_MIDDLE) + len(_ACK_LEDGER_TAG)
    number_size = size - before_ledger - ledger_size - len(_ACK_ENTRY_TAG)
    if not all(1 <= varint_size <= _MAX_VARINT for varint_size in (token_size, ledger_size, number_size)):
        return None
    inner_size = len(_ACK_LEDGER_TAG) + ledger_size + len(_ACK_ENTRY_TAG) + number_size
    pieces = (
        re.escape(_pack_length(size) + b"\x0a" + bytes((header_size,)) + _ADD_HEADER),
        _varint_pattern(token_size),
        re.escape(_SUCCESS + bytes((inner_size,)) + _ACK_LEDGER_TAG),
        _varint_pattern(ledger_size),
        re.escape(_ACK_ENTRY_TAG),
        _varint_pattern(number_size),
    )
    match = re.compile(b"(?:%b)*+" % b"".join(pieces), re.DOTALL).match
    number, read = _NUMBER_READERS.get(number_size, (f"{number_size}s", _read_other_numbers))
    fields = Struct(f"<{_ACK_HEADER_AT + before_ledger}x{ledger_size}sx{number}")
    assert fields.size == _ACK_HEADER_AT + size

    def end(data: bytes, at: int) -> int:
        found = match(data, at)
        assert found is not None  # the pattern fits an empty row, too
        return found.end()

    return _AckRow(end, fields.iter_unpack, read)


def _read_1_byte_numbers(fields: _Fields, values: _Values) -> _Acks:
    return [(values[ledger], a) for ledger, a in fields]


def _read_2_byte_numbers(fields: _Fields, values: _Values) -> _Acks:
    return [(values[ledger], a & 0x7F | a >> 1 & 0x3F80) for ledger, a in fields]


def _read_3_byte_numbers(fields: _Fields, values: _Values) -> _Acks:
    return [(values[ledger], a & 0x7F | a >> 1 & 0x3F80 | b << 14) for ledger, a, b in fields]


def _read_4_byte_numbers(fields: _Fields, values: _Values) -> _Acks:
    return [
        (values[ledger], a & 0x7F | a >> 1 & 0x3F80 | (b & 0x7F | b >> 1 & 0x3F80) << 14) for ledger, a, b in fields
    ]


def _read_other_numbers(fields: _Fields, values: _Values) -> _Acks:
    return [(values[ledger], values[number]) for ledger, number in fields]


_NUMBER_READERS = {
    1: ("B", _read_1_byte_numbers),
    2: ("H", _read_2_byte_numbers),
    3: ("HB", _read_3_byte_numbers),
    4: ("HH", _read_4_byte_numbers),
}
"""How entry ids up to 2**28 are read: two bytes at a time, as little-endian integers without their top bits."""


def _varint_pattern(size: int) -> bytes:
    """Fits the shortest encodings of numbers that need `size` bytes."""
    if size == 1:
        return rb"[\x00-\x7f]"
    last = rb"\x01" if size == _MAX_VARINT else rb"[\x01-\x7f]"
    return rb"[\x80-\xff]{%d}" % (size - 1) + last
