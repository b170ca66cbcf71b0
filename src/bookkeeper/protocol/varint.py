"""Protobuf's variable-length integers: seven bits a byte, lowest first, the top bit set on all but the last byte.

A negative int64 is written as its 64-bit two's complement, in ten bytes.
"""

from __future__ import annotations

_BITS = 14
_TABLE_SIZE = 1 << _BITS
_MASK = _TABLE_SIZE - 1
_TWO_TABLES = 1 << 2 * _BITS

_LAST = [bytes((n,)) if n < 0x80 else bytes((n & 0x7F | 0x80, n >> 7)) for n in range(_TABLE_SIZE)]
"""The encoding of each number below 2**14."""

_MORE = [bytes((n & 0x7F | 0x80, n >> 7 | 0x80)) for n in range(_TABLE_SIZE)]
"""The same 14 bits with more bytes to follow."""


def varint(value: int) -> bytes:
    """Encode an int64 or uint64."""
    if 0 <= value < _TABLE_SIZE:
        return _LAST[value]
    if 0 <= value < _TWO_TABLES:
        return _MORE[value & _MASK] + _LAST[value >> _BITS]
    if value < 0:
        value += 1 << 64
    assert 0 <= value < 1 << 64
    pieces = []
    while value >= _TABLE_SIZE:
        pieces.append(_MORE[value & _MASK])
        value >>= _BITS
    pieces.append(_LAST[value])
    return b"".join(pieces)


def unvarint(encoded: bytes) -> int:
    """Decode one complete varint as an int64."""
    if len(encoded) <= 4:
        packed = int.from_bytes(encoded, "little")
        return packed & 0x7F | packed >> 1 & 0x3F80 | packed >> 2 & 0x1FC000 | packed >> 3 & 0xFE00000
    value = 0
    for byte in reversed(encoded):
        value = value << 7 | byte & 0x7F
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def size_behind_its_varint(total: int) -> int:
    """The n for which the varint of n and n bytes are `total` bytes; -1 if there is none."""
    for size in range(max(0, total - 5), total):
        if len(varint(size)) + size == total:
            return size
    return -1
