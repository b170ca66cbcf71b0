"""The binary form of a `schema.Message`.

| part | bytes |
|---|---|
| tag | varint of (field number << 3) or wire type |
| wire type 0 | varint: int32, int64 (negative ones as 64-bit two's complement, 10 bytes), enum |
| wire type 2 | varint length, then that many bytes: string (UTF-8), bytes, nested message |
| wire types 1, 5 | 8 and 4 bytes; 3 and 4 open and close a group: only skipped |

Fields are written in number order. Reading takes them in any order, skips unknown fields (also a known number with
another wire type, as protobuf does), treats an unknown enum number as unset, and raises `CorruptMetadata` for
everything that is not a message.
"""

from __future__ import annotations

from typing import Any

from ...errors import CorruptMetadata
from .schema import MAX_DEPTH, Field, Kind, MessageType, Values

_VARINT, _FIXED64, _LENGTH, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
_MASK64 = (1 << 64) - 1
_MAX_VARINT_BYTES = 10


def encode_varint(value: int) -> bytes:
    """Base-128, least significant group first; a negative number as its 64-bit two's complement."""
    value &= _MASK64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_varint(data: bytes, offset: int, *, max_bytes: int = _MAX_VARINT_BYTES) -> tuple[int, int]:
    """The unsigned value at `offset` and the offset behind it."""
    value = shift = 0
    for at in range(offset, offset + max_bytes):
        if at >= len(data):
            raise CorruptMetadata("the message ends inside a number")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK64, at + 1
        shift += 7
    raise CorruptMetadata(f"a number is longer than {max_bytes} bytes")


def encode(message: MessageType, values: Values) -> bytes:
    """The binary form of a message."""
    out = bytearray()
    for field in message.fields:
        if field.name not in values:
            continue
        value = values[field.name]
        for item in value if field.repeated else (value,):
            out += _encode_field(field, item)
    return bytes(out)


def _encode_field(field: Field, value: Any) -> bytes:
    if field.kind in (Kind.INT32, Kind.INT64, Kind.ENUM):
        return encode_varint(field.number << 3 | _VARINT) + encode_varint(value)
    if field.message is not None:
        body = encode(field.message, value)
    else:
        body = value.encode() if field.kind is Kind.STRING else value
    return encode_varint(field.number << 3 | _LENGTH) + encode_varint(len(body)) + body


def decode(message: MessageType, data: bytes, *, depth: int = 0) -> Values:
    """The message in all of `data`. Raises `CorruptMetadata`."""
    values: Values = {}
    offset = 0
    while offset < len(data):
        tag, offset = decode_varint(data, offset)
        number, wire_type = tag >> 3, tag & 7
        field = message.by_number.get(number)
        if number == 0:
            raise CorruptMetadata(f"{message.name}: field number 0")
        if field is None or wire_type != _wire_type(field):
            offset = _skip(data, offset, number, wire_type, depth)
        elif wire_type == _VARINT:
            raw, offset = decode_varint(data, offset)
            if field.kind is not Kind.ENUM or raw in field.names.values():
                message.store(values, field, _signed(raw, field.kind))
        else:
            body, offset = _take(data, offset)
            message.store(values, field, _decode_body(field, body, depth))
    return message.check_complete(values)


def _wire_type(field: Field) -> int:
    return _VARINT if field.kind in (Kind.INT32, Kind.INT64, Kind.ENUM) else _LENGTH


def _signed(raw: int, kind: Kind) -> int:
    bits = 32 if kind is Kind.INT32 else 64
    raw &= (1 << bits) - 1
    return raw - (1 << bits) if raw >> (bits - 1) else raw


def _take(data: bytes, offset: int) -> tuple[bytes, int]:
    size, offset = decode_varint(data, offset)
    if size > len(data) - offset:
        raise CorruptMetadata(f"a field of {size} bytes reaches beyond the message")
    return data[offset : offset + size], offset + size


def _decode_body(field: Field, body: bytes, depth: int) -> Any:
    if field.message is not None:
        if depth >= MAX_DEPTH:
            raise CorruptMetadata("messages are nested too deep")
        return decode(field.message, body, depth=depth + 1)
    if field.kind is Kind.BYTES:
        return body
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise CorruptMetadata(f"{field.name} is not UTF-8") from None


def _skip(data: bytes, offset: int, number: int, wire_type: int, depth: int) -> int:
    """The offset behind an unknown field whose tag ends at `offset`."""
    if wire_type == _VARINT:
        return decode_varint(data, offset)[1]
    if wire_type == _LENGTH:
        return _take(data, offset)[1]
    if wire_type in (_FIXED64, _FIXED32):
        offset += 8 if wire_type == _FIXED64 else 4
        if offset > len(data):
            raise CorruptMetadata("the message ends inside a number")
        return offset
    if wire_type != _START_GROUP or depth >= MAX_DEPTH:
        raise CorruptMetadata(f"field {number} has wire type {wire_type}")
    while True:
        tag, offset = decode_varint(data, offset)
        if tag == number << 3 | _END_GROUP:
            return offset
        offset = _skip(data, offset, tag >> 3, tag & 7, depth + 1)
