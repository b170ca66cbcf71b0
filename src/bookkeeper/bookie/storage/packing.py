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

CHUNK = 2048
"""Entries that a worker handles between two offers of the interpreter to the loop (`Runtime.give_way`): about 1 ms of
work that can be interrupted anywhere. An offer costs up to 30 µs of CPU, and the threads' changes: with 512, which is
what a chunk was once, a tenth of what a bookie does for an entry."""

INDEX_CHUNK = 1024
"""Entries in a batch of the location index: about 0.5 ms, up to 1 ms, in which nothing else can run (`RocksStore`)."""

READ_CHUNK = 512
"""Entries of which a batch read looks at the sizes at once, on the loop: of large ones it takes a few only."""


def big_endian(values: array[int]) -> bytes:
    """The array's bytes in big-endian order. Changes the array."""
    if sys.byteorder == "little":
        values.byteswap()
    return values.tobytes()


_CUTTERS = {
    (width, width * count): Struct(f"{width}s" * count)
    for width in (4, 8, 16)
    for count in (CHUNK, INDEX_CHUNK, READ_CHUNK)
}


def cut(data: bytes, width: int) -> Sequence[bytes]:
    """Cut into pieces of `width` bytes."""
    cutter = _CUTTERS.get((width, len(data)))
    if cutter is not None:
        return cutter.unpack(data)
    return [data[offset : offset + width] for offset in range(0, len(data), width)]


def words(values: Sequence[int]) -> Sequence[bytes]:
    """Each value as int32."""
    return cut(big_endian(array("i", values)), 4)


def longs(values: Iterable[int]) -> Sequence[bytes]:
    """Each value as int64."""
    return cut(big_endian(array("q", values)), 8)


def pairs(firsts: Sequence[int], seconds: Sequence[int]) -> bytes:
    """Each two of them as two int64, in one piece."""
    both = array("q", bytes(16 * len(seconds)))
    both[::2] = array("q", firsts)
    both[1::2] = array("q", seconds)
    return big_endian(both)
