"""Protocol version 3: protobuf messages (spec wire-protocol §3; the fields are in `protocol.schema`).

This module handles any message; the data path is in `adds`, `acks` (a client's acknowledgements) and `reads`.

A message without a required field is broken, but asking protobuf whether it is complete costs as much as parsing. Reads
are known to be complete when no required field reads as its default; only otherwise the question is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any

from google.protobuf.message import DecodeError

from ...errors import ProtocolError
from .. import messages as m
from ..auth import plugin_name
from ..frames import frame
from ..messages import Operation, Status
from ..protobuf import varint
from ..schema import UNSET, UNSET_INT64, UNSET_STATUS, VERSION_THREE
from ..schema import Request as WireRequest
from ..schema import Response as WireResponse
from .acks import encode_add_response
from .adds import AddRequestEncoder, txn_token
from .flags import ADD_FLAGS, READ_FLAGS, priority_flag, priority_of, read_flag
from .reads import (
    READ_HEADER,
    READ_TAG,
)


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
        return m.UnsupportedRequest(
            header.operation, txn_id=header.txnId, priority=header.priority, version=header.version
        )
    inner = getattr(wire, form.field)
    values = form.read(inner)
    if form.message is m.AuthRequest:
        values["plugin"] = plugin_name(inner)
    elif form.message is m.ReadRequest:
        values["flags"] = READ_FLAGS[inner.flag] | priority_flag(header.priority)
    elif form.message is m.AddRequest:
        values["flags"] = ADD_FLAGS[inner.flag] | priority_flag(header.priority)
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
            priority = priority or priority_of(message.flags)
            if flag := read_flag(message.flags):
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
        return m.HeaderOnlyResponse(
            _status(status),
            header.operation,
            txn_id=header.txnId,
            priority=header.priority,
            version=header.version,
        )
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


# --- reads -----------------------------------------------------------------------------------------------------


_READ_ENTRY = int(Operation.READ_ENTRY)
_pack_length = Struct(">I").pack


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
        READ_FLAGS[inner.flag] | priority_flag(priority),
        key if key or inner.HasField("masterKey") else None,
        None if previous_lac == UNSET_INT64 else previous_lac,
        None if timeout_ms == UNSET_INT64 else timeout_ms,
        txn_id=txn_id,
        priority=priority,
        version=version,
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
        txn_id=txn_id,
        version=version,
    )


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
    header = b"\x0a" + varint(len(READ_HEADER) + len(token)) + READ_HEADER + token + b"\x10" + code + READ_TAG
    inner_size = len(before) + len(entry) + len(after)
    header += varint(inner_size)
    return b"".join((_pack_length(len(header) + inner_size), header, before, entry, after))
