"""Protobuf's encoding, read and written by hand: where the generated code is too slow, or more than is needed.

A varint has seven bits a byte, lowest first, the top bit set on all but the last byte. A negative int64 is written as
its 64-bit two's complement, in ten bytes. A message is a row of fields, in any order:

| part | bytes |
|---|---|
| tag | varint of (field number << 3) or wire type |
| wire type 0 | varint: int32, int64, bool, enum |
| wire type 2 | varint size, then that many bytes: string (UTF-8), bytes, nested message |
| wire types 1, 5 | 8 and 4 bytes |
| wire types 3, 4 | open and close a group: only skipped |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

VARINT, FIXED64, BYTES, GROUP, GROUP_END, FIXED32 = range(6)
"""Wire types."""

MAX_DEPTH = 32
"""Nesting that is followed, of groups and of messages. Ours are two deep; more is an attack on the stack."""

_LONGEST = 10
_LONGEST_TAG = 5
_LAST_NUMBER = (1 << 29) - 1
_MASK64 = (1 << 64) - 1
_FIXED = {FIXED64: 8, FIXED32: 4}

BITS = 14
"""Of a number, which the tables below encode at once."""

ONE_BYTE = 0x80
"""Numbers below it take one byte."""

TABLE_SIZE = 1 << BITS
MASK = TABLE_SIZE - 1
_TWO_TABLES = 1 << 2 * BITS

LAST = [bytes((n,)) if n < 0x80 else bytes((n & 0x7F | 0x80, n >> 7)) for n in range(TABLE_SIZE)]
"""The encoding of each number below 2**14."""

MORE = [bytes((n & 0x7F | 0x80, n >> 7 | 0x80)) for n in range(TABLE_SIZE)]
"""The same 14 bits with more bytes to follow."""


class NotProtobuf(ValueError):
    """The bytes are not a message; the text says why."""


def varint(value: int) -> bytes:
    """Encode an int64 or uint64."""
    if 0 <= value < TABLE_SIZE:
        return LAST[value]
    if 0 <= value < _TWO_TABLES:
        return MORE[value & MASK] + LAST[value >> BITS]
    if value < 0:
        value += 1 << 64
    assert 0 <= value < 1 << 64
    pieces = []
    while value >= TABLE_SIZE:
        pieces.append(MORE[value & MASK])
        value >>= BITS
    pieces.append(LAST[value])
    return b"".join(pieces)


def varints(values: Sequence[int]) -> list[bytes]:
    """Encode each of these: quick where they have equally many bytes, and more so where they count up by one."""
    if not values:
        return []
    first, count = values[0], len(values)
    in_order = values[-1] - first == count - 1 and [*values] == [*range(first, first + count)]
    least, most = (first, values[-1]) if in_order else (min(values), max(values))
    if least >= 0 and most < TABLE_SIZE:
        return LAST[first : first + count] if in_order else [LAST[value] for value in values]
    if in_order and least >= 0 and least >> BITS == most >> BITS:
        end = varint(first >> BITS)
        return [start + end for start in MORE[first & MASK : (most & MASK) + 1]]
    if least >= TABLE_SIZE and most < _TWO_TABLES:
        return [MORE[value & MASK] + LAST[value >> BITS] for value in values]
    return [varint(value) for value in values]


@dataclass(frozen=True, slots=True)
class VarintForm:
    """The shortest encodings of 64-bit numbers that take `size` bytes. See `varint_form`."""

    size: int
    mask: int
    """The top bits of the bytes, as a little-endian number, ..."""
    tops: int
    """... and how they must be for it to be one varint."""
    ends: bytes
    """What the last byte may be."""

    def fits(self, encoded: bytes) -> bool:
        """Whether so many bytes are such a varint."""
        return int.from_bytes(encoded, "little") & self.mask == self.tops and encoded[-1] in self.ends

    def fits_all(self, encoded: Sequence[bytes]) -> bool:
        """The same for many, one at least."""
        joined, size = b"".join(encoded), self.size
        if joined[size - 1 :: size].translate(None, self.ends):
            return False
        return not any(joined[at::size].translate(None, _TOPS) for at in range(size - 1))


_TOPS = bytes(range(0x80, 0x100))


@lru_cache(maxsize=_LONGEST)
def varint_form(size: int) -> VarintForm:
    """The form of the varints of so many bytes, 1 to 10."""
    first, last = int(size > 1), 1 if size == _LONGEST else 0x7F
    return VarintForm(
        size,
        int.from_bytes(b"\x80" * size, "little"),
        int.from_bytes(b"\x80" * (size - 1), "little"),
        bytes(range(first, last + 1)),
    )


def unvarint(encoded: bytes) -> int:
    """Decode one complete varint as an int64."""
    if len(encoded) <= 4:
        packed = int.from_bytes(encoded, "little")
        return packed & 0x7F | packed >> 1 & 0x3F80 | packed >> 2 & 0x1FC000 | packed >> 3 & 0xFE00000
    value = 0
    for byte in reversed(encoded):
        value = value << 7 | byte & 0x7F
    value &= _MASK64
    return value - (1 << 64) if value >> 63 else value


def size_behind_its_varint(total: int) -> int:
    """The n for which the varint of n and n bytes are `total` bytes; -1 if there is none."""
    for size in range(max(0, total - 5), total):
        if len(varint(size)) + size == total:
            return size
    return -1


def read_varint(data: bytes, at: int, longest: int = _LONGEST) -> tuple[int, int]:
    """The varint at `at` as a uint64, and where it ends. Raises `NotProtobuf` if it ends neither within the data nor
    within `longest` bytes."""
    value = shift = 0
    for end, byte in enumerate(data[at : at + longest], at + 1):
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK64, end
        shift += 7
    raise NotProtobuf("it ends inside a number" if at + longest > len(data) else f"a number of over {longest} bytes")


def tag(number: int, wire_type: int) -> bytes:
    """What stands in front of a field's value."""
    return varint(number << 3 | wire_type)


def sized(value: bytes) -> bytes:
    """A value of wire type `BYTES`."""
    return varint(len(value)) + value


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Number, wire type and value of each field of a message: a uint64 of `VARINT`, else bytes. Groups are left out.

    Raises `NotProtobuf` where the data stops being a message.
    """
    at = 0
    while at < len(data):
        number, wire_type, at = _read_tag(data, at)
        if wire_type == GROUP:
            at = _behind_group(data, at, number)
        else:
            value, at = _read_value(data, at, number, wire_type)
            yield number, wire_type, value


def _read_tag(data: bytes, at: int) -> tuple[int, int, int]:
    """Field number, wire type, and where the tag ends."""
    both, at = read_varint(data, at, _LONGEST_TAG)
    number = both >> 3
    if not 0 < number <= _LAST_NUMBER:
        raise NotProtobuf(f"a field has the number {number}")
    return number, both & 7, at


def _read_value(data: bytes, at: int, number: int, wire_type: int) -> tuple[int | bytes, int]:
    if wire_type == VARINT:
        return read_varint(data, at)
    if wire_type == BYTES:
        size, at = read_varint(data, at)
    elif wire_type in _FIXED:
        size = _FIXED[wire_type]
    else:
        raise NotProtobuf(f"field {number} has wire type {wire_type}")
    if size > len(data) - at:
        raise NotProtobuf(f"field {number} has {size} bytes, of which {len(data) - at} are there")
    return data[at : at + size], at + size


def _behind_group(data: bytes, at: int, number: int) -> int:
    """Where the group `number` ends whose tag ends at `at`."""
    inside = [number]
    while inside:
        if len(inside) > MAX_DEPTH:
            raise NotProtobuf("groups are nested too deep")
        number, wire_type, at = _read_tag(data, at)
        if wire_type == GROUP:
            inside.append(number)
        elif wire_type != GROUP_END:
            _, at = _read_value(data, at, number, wire_type)
        elif inside.pop() != number:
            raise NotProtobuf(f"group {number} ends and was not open")
    return at
