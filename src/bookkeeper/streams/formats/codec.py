"""How records are compressed: the two lowest bits of an entry's flags, and of a record set's (spec streams §5.1, §5.3).

Java takes the numbers 2 and 3, which mean nothing, for *not compressed*; here they are damage.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

from ..errors import CorruptEntryError
from . import lz4

CODEC_BITS = 0x3

Buffer = TypeVar("Buffer", bytes, memoryview)

MOST_RECORD_BYTES = 1 << 20
"""Records of an entry or set, not compressed: writers keep below it, so that a reader may refuse what claims more."""


class Compression(IntEnum):
    """The codecs by number; their names in settings are `none` and `lz4`."""

    NONE = 0
    """As they are."""
    LZ4 = 1
    """A block of LZ4, without a frame."""


def pack(data: bytes | memoryview, compression: Compression) -> bytes | memoryview:
    """As it is stored."""
    return lz4.compress(bytes(data)) if compression is Compression.LZ4 else data


def unpack(stored: Buffer, flags: int, size: int, at: int) -> Buffer | bytes:
    """What was stored, of `size` bytes; its header is at `at`. Raises `CorruptEntryError`."""
    codec = flags & CODEC_BITS
    if not 0 <= size <= MOST_RECORD_BYTES:
        raise CorruptEntryError(f"{size} bytes of records are more than an entry may have", at)
    if codec == Compression.NONE:
        if size != len(stored):
            raise CorruptEntryError(f"{len(stored)} bytes are stored for {size}, and not compressed", at)
        return stored
    if codec == Compression.LZ4:
        return lz4.decompress(bytes(stored), size)
    raise CorruptEntryError(f"there is no codec {codec}", at)
