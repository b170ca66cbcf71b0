"""Keys and values of the `ledgers` database (spec bookie-storage §6.2).

Key: int64 ledger id. (Java's rebuild tool writes 16 bytes: the id and 8 zero bytes.) Negative ids are reserved:
-0xeefd holds the storage's state flags as one int64.

Value: protobuf message, proto2

    field  type   name
    1      bool   exists       required, always true
    2      bool   fenced       required
    3      bytes  masterKey    required; empty or all zero: not known yet, to be replaced
    4      bytes  explicitLac  optional; the body of the last WRITE_LAC
    5      bool   limbo        optional; absent means false
    1000   bytes  rewritten    optional, ours; two int64: least and greatest id of entries that were added again after
                               they had been flushed: an older copy may lie in a log behind its predecessor

Written by hand: with three to six fields this is shorter than the generated code, and its bytes are those that Java
writes. Java keeps the field that it does not know. Read by hand too, any field order, unknown fields skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from ....errors import CorruptStorageError

STATE_FLAGS_KEY = (-0xEEFD).to_bytes(8, "big", signed=True)
NEEDS_INTEGRITY_CHECK = 0x1
KNOWN_FLAGS = NEEDS_INTEGRITY_CHECK

_ID = Struct(">q")
_IDS = Struct(">qq")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(slots=True)
class LedgerData:
    """Attributes of one ledger."""

    fenced: bool = False
    master_key: bytes = b""
    explicit_lac: bytes | None = None
    limbo: bool | None = None
    """None: never was in limbo, and the field is not written."""
    rewritten: tuple[int, int] | None = None
    """Least and greatest id of which there may be older copies in the logs."""


def ledger_key(ledger_id: int) -> bytes:
    return _ID.pack(ledger_id)


def long_ledger_key(ledger_id: int) -> bytes:
    """The key that Java's rebuild tool would use."""
    return _ID.pack(ledger_id) + bytes(8)


def ledger_of_key(key: bytes) -> int:
    """Raises `CorruptStorageError` for a key that is neither 8 nor 16 bytes long."""
    if len(key) not in (8, 16):
        raise CorruptStorageError(f"key of {len(key)} bytes in the ledger index: {key.hex()}")
    return int(_ID.unpack_from(key)[0])


def is_placeholder(master_key: bytes) -> bool:
    """Whether a stored key stands for "not known yet"."""
    return not any(master_key)


def encode(data: LedgerData) -> bytes:
    parts = [b"\x08\x01\x10\x01" if data.fenced else b"\x08\x01\x10\x00", b"\x1a", _sized(data.master_key)]
    if data.explicit_lac is not None:
        parts += (b"\x22", _sized(data.explicit_lac))
    if data.limbo is not None:
        parts.append(b"\x28\x01" if data.limbo else b"\x28\x00")
    if data.rewritten is not None:
        parts += (b"\xc2\x3e", _sized(_IDS.pack(*data.rewritten)))
    return b"".join(parts)


def decode(value: bytes) -> LedgerData:
    """Raises `CorruptStorageError`; also when a required field is missing."""
    fields: dict[int, int | bytes] = {}
    offset = 0
    while offset < len(value):
        tag, offset = _read_varint(value, offset)
        item, offset = _read_item(value, offset, tag & 7)
        fields[tag >> 3] = item
    exists, fenced, key = fields.get(1), fields.get(2), fields.get(3)
    lac, limbo, rewritten = fields.get(4), fields.get(5), fields.get(1000)
    if not (
        isinstance(exists, int)
        and isinstance(fenced, int)
        and isinstance(key, bytes)
        and isinstance(lac, bytes | None)
        and isinstance(limbo, int | None)
        and (rewritten is None or (isinstance(rewritten, bytes) and len(rewritten) == _IDS.size))
    ):
        raise CorruptStorageError(f"not a ledger record: {value.hex()}")
    span: tuple[int, int] | None = None if rewritten is None else _IDS.unpack(rewritten)
    return LedgerData(bool(fenced), key, lac, None if limbo is None else bool(limbo), span)


def encode_flags(flags: int) -> bytes:
    return _ID.pack(flags)


def decode_flags(value: bytes | None) -> int:
    """The state flags; 0 when none were written. Raises `CorruptStorageError` for flags unknown to us."""
    if value is None:
        return 0
    if len(value) != 8:
        raise CorruptStorageError(f"storage state flags of {len(value)} bytes")
    flags = int(_ID.unpack(value)[0])
    if flags & ~KNOWN_FLAGS:
        raise CorruptStorageError(f"unknown storage state flags {flags:#x}")
    return flags


def _sized(data: bytes) -> bytes:
    out = bytearray()
    size = len(data)
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out) + data


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if offset >= len(data):
            break
        byte = data[offset]
        offset += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, offset
    raise CorruptStorageError("ledger record is cut off")


def _read_item(data: bytes, offset: int, wire_type: int) -> tuple[int | bytes, int]:
    if wire_type == _VARINT:
        return _read_varint(data, offset)
    if wire_type == _BYTES:
        size, offset = _read_varint(data, offset)
    elif wire_type == _FIXED64:
        size = 8
    elif wire_type == _FIXED32:
        size = 4
    else:
        raise CorruptStorageError(f"ledger record has wire type {wire_type}")
    end = offset + size
    if end > len(data):
        raise CorruptStorageError("ledger record is cut off")
    return data[offset:end], end
