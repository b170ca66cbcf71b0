"""Many small big-endian fields at once.

Packing one 16-byte key takes about 0.15 µs, and an index flush packs one per entry. Done by array and cut by one
`Struct`, a key costs a quarter of that.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from struct import Struct

JOIN_BELOW = 4096
"""Pieces of a write up to this size on average are copied into one: each piece costs more than that, all the way to
the disk."""

CHUNK = 512
"""Entries that a worker handles between two offers of the interpreter to the loop (`Runtime.give_way`): about 0.2 ms of
work. An offer costs up to 30 µs of CPU, so much smaller chunks would be paid for by every entry."""


def big_endian(values: array[int]) -> bytes:
    """The array's bytes in big-endian order. Changes the array."""
    if sys.byteorder == "little":
        values.byteswap()
    return values.tobytes()


_CUTTERS = {width: Struct(f"{width}s" * CHUNK) for width in (4, 8, 16)}


def cut(data: bytes, width: int) -> Sequence[bytes]:
    """Cut into pieces of `width` bytes."""
    if len(data) == width * CHUNK:
        return _CUTTERS[width].unpack(data)
    return [data[offset : offset + width] for offset in range(0, len(data), width)]


def words(values: Sequence[int]) -> Sequence[bytes]:
    """Each value as int32."""
    return cut(big_endian(array("i", values)), 4)


def longs(values: Iterable[int]) -> Sequence[bytes]:
    """Each value as int64."""
    return cut(big_endian(array("q", values)), 8)


def pairs(first: int, seconds: Sequence[int]) -> Sequence[bytes]:
    """`first` and each of `seconds` as two int64."""
    count = len(seconds)
    both = array("q", [first]) * (2 * count)
    both[1::2] = array("q", seconds)
    return cut(big_endian(both), 16)
