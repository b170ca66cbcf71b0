"""The messages of v3: protobuf (proto2) descriptors, built from the tables below (spec wire-protocol §3.2, §3.3).

A field is `(number, name, type, label)`; a type is a protobuf scalar, or the name of a message or enum of this page.
Names are bare, as in BookKeeper's own definition, and live in a descriptor pool of their own: another library in the
process may define the same names.

All enums are closed: an unknown value in an optional field leaves it unset; in a required field it makes the
message incomplete, which `ParseFromString` does not report: check `IsInitialized()` after every parse.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_REQUIRED = descriptor_pb2.FieldDescriptorProto.LABEL_REQUIRED
_OPTIONAL = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
_REPEATED = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED

_ENUMS: dict[str, dict[str, int]] = {
    "ProtocolVersion": {"VERSION_ONE": 1, "VERSION_TWO": 2, "VERSION_THREE": 3},
    "StatusCode": {
        "EOK": 0,
        "ENOLEDGER": 402,
        "ENOENTRY": 403,
        "EBADREQ": 404,
        "EIO": 501,
        "EUA": 502,
        "EBADVERSION": 503,
        "EFENCED": 504,
        "EREADONLY": 505,
        "ETOOMANYREQUESTS": 506,
        "EUNKNOWNLEDGERSTATE": 507,
    },
    "OperationType": {
        "READ_ENTRY": 1,
        "ADD_ENTRY": 2,
        "RANGE_READ_ENTRY": 3,
        "RANGE_ADD_ENTRY": 4,
        "AUTH": 5,
        "WRITE_LAC": 6,
        "READ_LAC": 7,
        "GET_BOOKIE_INFO": 8,
        "START_TLS": 9,
        "FORCE_LEDGER": 10,
        "GET_LIST_OF_ENTRIES_OF_LEDGER": 11,
        "BATCH_READ_ENTRY": 12,
    },
    "ReadRequest.Flag": {"FENCE_LEDGER": 1, "ENTRY_PIGGYBACK": 2},
    "AddRequest.Flag": {"RECOVERY_ADD": 1},
}
"""`Message.Enum` is an enum nested in a message."""

UNSET = 0
UNSET_STATUS = -1
"""What an absent enum field reads as: a first value, ours and never written, in each of the enums above. It saves
asking for presence, a question as costly as two reads. A peer that does send it has said nothing, which is what it
means to BookKeeper too: an unknown value leaves the field unset."""

UNSET_INT64 = -(2**63)
"""What the optional int64 fields of a read and its response read as when they are absent, for the same reason."""

_MESSAGES: dict[str, list[tuple[int, str, str, int]]] = {
    "BKPacketHeader": [
        (1, "version", "ProtocolVersion", _REQUIRED),
        (2, "operation", "OperationType", _REQUIRED),
        (3, "txnId", "uint64", _REQUIRED),
        (4, "priority", "uint32", _OPTIONAL),
    ],
    "ContextPair": [
        (1, "key", "string", _REQUIRED),
        (2, "value", "string", _REQUIRED),
    ],
    "Request": [
        (1, "header", "BKPacketHeader", _REQUIRED),
        (100, "readRequest", "ReadRequest", _OPTIONAL),
        (101, "addRequest", "AddRequest", _OPTIONAL),
        (102, "authRequest", "AuthMessage", _OPTIONAL),
        (103, "writeLacRequest", "WriteLacRequest", _OPTIONAL),
        (104, "readLacRequest", "ReadLacRequest", _OPTIONAL),
        (105, "getBookieInfoRequest", "GetBookieInfoRequest", _OPTIONAL),
        (106, "startTLSRequest", "StartTLSRequest", _OPTIONAL),
        (107, "forceLedgerRequest", "ForceLedgerRequest", _OPTIONAL),
        (108, "getListOfEntriesOfLedgerRequest", "GetListOfEntriesOfLedgerRequest", _OPTIONAL),
        (200, "requestContext", "ContextPair", _REPEATED),
    ],
    "ReadRequest": [
        (1, "ledgerId", "int64", _REQUIRED),
        (2, "entryId", "int64", _REQUIRED),
        (3, "masterKey", "bytes", _OPTIONAL),
        (4, "previousLAC", "int64", _OPTIONAL),
        (5, "timeOut", "int64", _OPTIONAL),
        (100, "flag", "ReadRequest.Flag", _OPTIONAL),
    ],
    "AddRequest": [
        (1, "ledgerId", "int64", _REQUIRED),
        (2, "entryId", "int64", _REQUIRED),
        (3, "masterKey", "bytes", _REQUIRED),
        (4, "body", "bytes", _REQUIRED),
        (5, "writeFlags", "int32", _OPTIONAL),
        (100, "flag", "AddRequest.Flag", _OPTIONAL),
    ],
    "StartTLSRequest": [],
    "WriteLacRequest": [
        (1, "ledgerId", "int64", _REQUIRED),
        (2, "lac", "int64", _REQUIRED),
        (3, "masterKey", "bytes", _REQUIRED),
        (4, "body", "bytes", _REQUIRED),
    ],
    "ForceLedgerRequest": [(1, "ledgerId", "int64", _REQUIRED)],
    "ReadLacRequest": [(1, "ledgerId", "int64", _REQUIRED)],
    "GetBookieInfoRequest": [(1, "requested", "int64", _OPTIONAL)],
    "GetListOfEntriesOfLedgerRequest": [(1, "ledgerId", "int64", _REQUIRED)],
    "Response": [
        (1, "header", "BKPacketHeader", _REQUIRED),
        (2, "status", "StatusCode", _REQUIRED),
        (100, "readResponse", "ReadResponse", _OPTIONAL),
        (101, "addResponse", "AddResponse", _OPTIONAL),
        (102, "authResponse", "AuthMessage", _OPTIONAL),
        (103, "writeLacResponse", "WriteLacResponse", _OPTIONAL),
        (104, "readLacResponse", "ReadLacResponse", _OPTIONAL),
        (105, "getBookieInfoResponse", "GetBookieInfoResponse", _OPTIONAL),
        (106, "startTLSResponse", "StartTLSResponse", _OPTIONAL),
        (107, "forceLedgerResponse", "ForceLedgerResponse", _OPTIONAL),
        (108, "getListOfEntriesOfLedgerResponse", "GetListOfEntriesOfLedgerResponse", _OPTIONAL),
    ],
    "ReadResponse": [
        (1, "status", "StatusCode", _REQUIRED),
        (2, "ledgerId", "int64", _REQUIRED),
        (3, "entryId", "int64", _REQUIRED),
        (4, "body", "bytes", _OPTIONAL),
        (5, "maxLAC", "int64", _OPTIONAL),
        (6, "lacUpdateTimestamp", "int64", _OPTIONAL),
    ],
    "AddResponse": [
        (1, "status", "StatusCode", _REQUIRED),
        (2, "ledgerId", "int64", _REQUIRED),
        (3, "entryId", "int64", _REQUIRED),
    ],
    "AuthMessage": [
        (1, "authPluginName", "string", _REQUIRED),
        (2, "payload", "bytes", _REQUIRED),
    ],
    "WriteLacResponse": [
        (1, "status", "StatusCode", _REQUIRED),
        (2, "ledgerId", "int64", _REQUIRED),
    ],
    "ForceLedgerResponse": [
        (1, "status", "StatusCode", _REQUIRED),
        (2, "ledgerId", "int64", _REQUIRED),
    ],
    "ReadLacResponse": [
        (1, "status", "StatusCode", _REQUIRED),
        (2, "ledgerId", "int64", _REQUIRED),
        (3, "lacBody", "bytes", _OPTIONAL),
        (4, "lastEntryBody", "bytes", _OPTIONAL),
    ],
    "GetBookieInfoResponse": [
        (1, "status", "StatusCode", _REQUIRED),
        (2, "totalDiskCapacity", "int64", _OPTIONAL),
        (3, "freeDiskSpace", "int64", _OPTIONAL),
    ],
    "GetListOfEntriesOfLedgerResponse": [
        (1, "status", "StatusCode", _REQUIRED),
        (2, "ledgerId", "int64", _REQUIRED),
        (3, "availabilityOfEntriesOfLedger", "bytes", _OPTIONAL),
    ],
    "StartTLSResponse": [],
}

_UNSET_INT64_FIELDS = {
    ("ReadRequest", "previousLAC"),
    ("ReadRequest", "timeOut"),
    ("ReadResponse", "maxLAC"),
    ("ReadResponse", "lacUpdateTimestamp"),
}

_SCALARS = {
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "uint32": descriptor_pb2.FieldDescriptorProto.TYPE_UINT32,
    "uint64": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
}


def _add_enum(target: Any, name: str, values: dict[str, int]) -> None:
    enum = target.enum_type.add(name=name)
    enum.value.add(name=f"{name}_UNSET", number=UNSET_STATUS if name == "StatusCode" else UNSET)
    for value_name, number in values.items():
        enum.value.add(name=value_name, number=number)


def _add_field(message: descriptor_pb2.DescriptorProto, number: int, name: str, kind: str, label: int) -> None:
    field = message.field.add(name=name, number=number)
    if (message.name, name) in _UNSET_INT64_FIELDS:
        field.default_value = str(UNSET_INT64)
    field.label = label  # type: ignore[assignment]
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        is_enum = kind in _ENUMS
        field.type = field.TYPE_ENUM if is_enum else field.TYPE_MESSAGE
        field.type_name = f".{kind}"


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="bookkeeper-v3", syntax="proto2")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for number, name, kind, label in fields:
            _add_field(message, number, name, kind, label)
    messages = {message.name: message for message in file.message_type}
    for path, values in _ENUMS.items():
        outer, _, name = path.rpartition(".")
        _add_enum(messages[outer] if outer else file, name, values)
    return file


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in _MESSAGES}


_built = _classes()

Request: Any = _built["Request"]
Response: Any = _built["Response"]
Header: Any = _built["BKPacketHeader"]
AuthMessage: Any = _built["AuthMessage"]

VERSION_THREE = 3
READ_FENCE_LEDGER = 1
READ_ENTRY_PIGGYBACK = 2
ADD_RECOVERY_ADD = 1
