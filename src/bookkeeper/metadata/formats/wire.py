"""The binary form of a `schema.Message`: protobuf's (see `protocol.protobuf`).

Fields are written in number order. Reading takes them in any order, skips unknown fields (also a known number with
another wire type, as protobuf does), treats an unknown enum number as unset, and raises `CorruptMetadata` for
everything that is not a message.
"""

from __future__ import annotations

from typing import Any

from ...errors import CorruptMetadata
from ...protocol import protobuf
from .schema import Field, Kind, MessageType, Values

_NUMBERS = (Kind.INT32, Kind.INT64, Kind.ENUM)


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
    if field.kind in _NUMBERS:
        return protobuf.tag(field.number, protobuf.VARINT) + protobuf.varint(value)
    if field.message is not None:
        body = encode(field.message, value)
    else:
        body = value.encode() if field.kind is Kind.STRING else value
    return protobuf.tag(field.number, protobuf.BYTES) + protobuf.sized(body)


def decode(message: MessageType, data: bytes, *, depth: int = 0) -> Values:
    """The message in all of `data`. Raises `CorruptMetadata`."""
    values: Values = {}
    try:
        for number, wire_type, value in protobuf.fields(data):
            field = message.by_number.get(number)
            if field is None or wire_type != (protobuf.VARINT if field.kind in _NUMBERS else protobuf.BYTES):
                continue
            if isinstance(value, bytes):
                message.store(values, field, _decode_body(field, value, depth))
            elif field.kind is not Kind.ENUM or value in field.names.values():
                message.store(values, field, _signed(value, field.kind))
    except protobuf.NotProtobuf as error:
        raise CorruptMetadata(f"not a {message.name}: {error}") from None
    return message.check_complete(values)


def _signed(raw: int, kind: Kind) -> int:
    bits = 32 if kind is Kind.INT32 else 64
    raw &= (1 << bits) - 1
    return raw - (1 << bits) if raw >> (bits - 1) else raw


def _decode_body(field: Field, body: bytes, depth: int) -> Any:
    if field.message is not None:
        if depth >= protobuf.MAX_DEPTH:
            raise CorruptMetadata("messages are nested too deep")
        return decode(field.message, body, depth=depth + 1)
    if field.kind is Kind.BYTES:
        return body
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise CorruptMetadata(f"{field.name} is not UTF-8") from None
