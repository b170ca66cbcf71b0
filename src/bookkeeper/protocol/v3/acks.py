"""Acknowledgements of v3 adds in bulk, on the client's side.

    00 00 00 L   0a h 08 03 10 02 18 txn   10 00   aa 06 n   08 00 10 ledger 18 entry

is the canonical frame of an add that succeeded; L, h and n are sizes. Only it is read here, byte for byte; whatever
else a bookie may send for the same is left to `v3.decode_response`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Any

from ..frames import Acks, ResponseStream
from ..protobuf import VARINT, tag, unvarint
from .adds import ADD_HEADER, ADD_TAG

_pack_length = Struct(">I").pack


class _Values(dict[bytes, int]):
    """The int64 of each varint met; decoded once."""

    def __missing__(self, encoded: bytes) -> int:
        value = self[encoded] = unvarint(encoded)
        return value


_Fields = Iterable[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class _AckRow:
    """Acknowledgements that stand in a row and have numbers of the same sizes.

    00 00 00 L   0a h 08 03 10 02 18 txn   10 00   aa 06 n 08 00 10 ledger 18 entry
    """

    end: Callable[[bytes, int], int]
    """Where the row that starts at this position ends."""
    fields: Callable[[bytes], _Fields]
    """Ledger id and entry id of each as they stand there, the latter in one or two pieces."""
    read: Callable[[_Fields, _Values], Acks]
    """Both ids as numbers."""


_SUCCESS = b"\x10\x00" + ADD_TAG
_ACK_MIDDLE = _SUCCESS + b"\0"  # the last byte is a size, which varies
_ACK_LEDGER_TAG = b"\x08\x00\x10"
_ACK_ENTRY_TAG = tag(3, VARINT)
_ACK_HEADER_AT = 4
_MIN_ACK_SIZE = (
    _ACK_HEADER_AT + 2 + len(ADD_HEADER) + 1 + len(_ACK_MIDDLE) + len(_ACK_LEDGER_TAG) + 1 + len(_ACK_ENTRY_TAG) + 1
)
_MAX_VARINT = 10
_MAX_ACK_SIZE = _MIN_ACK_SIZE + 3 * (_MAX_VARINT - 1)


class Responses(ResponseStream):
    """The stream of v3: acknowledgements are of equal size as long as their numbers have equally many bytes."""

    __slots__ = ()
    _max_ack_size = _MAX_ACK_SIZE

    def _leading_acks(self, data: bytes) -> tuple[Acks, int]:
        acks: Acks = []
        values = _Values()
        at = 0
        while (row := _ack_row_at(data, at)) is not None:
            end = row.end(data, at)
            if end == at:
                break
            acks += row.read(row.fields(data[at:end]), values)
            at = end
        return acks, at


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
    token_size = header_size - len(ADD_HEADER)
    before_ledger = 2 + header_size + len(_ACK_MIDDLE) + len(_ACK_LEDGER_TAG)
    number_size = size - before_ledger - ledger_size - len(_ACK_ENTRY_TAG)
    if not all(1 <= varint_size <= _MAX_VARINT for varint_size in (token_size, ledger_size, number_size)):
        return None
    inner_size = len(_ACK_LEDGER_TAG) + ledger_size + len(_ACK_ENTRY_TAG) + number_size
    pieces = (
        re.escape(_pack_length(size) + b"\x0a" + bytes((header_size,)) + ADD_HEADER),
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


def _read_1_byte_numbers(fields: _Fields, values: _Values) -> Acks:
    return [(values[ledger], a) for ledger, a in fields]


def _read_2_byte_numbers(fields: _Fields, values: _Values) -> Acks:
    return [(values[ledger], a & 0x7F | a >> 1 & 0x3F80) for ledger, a in fields]


def _read_3_byte_numbers(fields: _Fields, values: _Values) -> Acks:
    return [(values[ledger], a & 0x7F | a >> 1 & 0x3F80 | b << 14) for ledger, a, b in fields]


def _read_4_byte_numbers(fields: _Fields, values: _Values) -> Acks:
    return [
        (values[ledger], a & 0x7F | a >> 1 & 0x3F80 | (b & 0x7F | b >> 1 & 0x3F80) << 14) for ledger, a, b in fields
    ]


def _read_other_numbers(fields: _Fields, values: _Values) -> Acks:
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
