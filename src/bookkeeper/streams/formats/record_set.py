"""Record sets: many payloads in one record (spec streams §5.3).

The payload of a record with the flag *record set*:

    offset  size  field
    0       4     bits 0-1: codec; bits 12-15: version, 1
    4       4     number of payloads
    8       4     bytes, not compressed
    12      4     bytes, as stored
    16      ...   payloads, each behind 4 bytes with its length; perhaps compressed

All payloads have the txid of the record. They take a slot and a position each, beginning with the record's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct, error
from typing import Any

from ..errors import CorruptEntryError, RecordTooLargeError
from .codec import CODEC_BITS, Compression, pack, unpack

HEADER = Struct(">iiii")
_LENGTH = Struct(">i")
_VERSION_BITS = 0xF000
_VERSION_1 = 0x1000

LENGTH_SIZE = _LENGTH.size

LARGEST_SET = 1_040_384 - 20 - HEADER.size
"""Bytes of payloads and their lengths that one set may have: its record must fit an entry."""


def encode_set(payloads: Sequence[bytes], compression: Compression = Compression.NONE) -> bytes:
    """The payload of a record that carries these. Raises `RecordTooLargeError`."""
    pieces: list[Any] = [b""] * (2 * len(payloads))
    pieces[0::2] = map(_LENGTH.pack, map(len, payloads))
    pieces[1::2] = payloads
    data = b"".join(pieces)
    if len(data) > LARGEST_SET:
        raise RecordTooLargeError(f"a record set of {len(data)} bytes is too large: {LARGEST_SET} at most")
    stored = pack(data, compression)
    return HEADER.pack(_VERSION_1 | compression, len(payloads), len(data), len(stored)) + stored


def count_of(payload: bytes) -> int:
    """How many payloads a set has, without a look at them. Raises `CorruptEntryError`."""
    return _header(payload)[1]


def decode_set(payload: bytes) -> list[bytes]:
    """The payloads of a set. Raises `CorruptEntryError`."""
    flags, count, size, stored = _header(payload)
    if stored != len(payload) - HEADER.size:
        raise CorruptEntryError(f"a record set of {stored} bytes has {len(payload) - HEADER.size}", 12)
    data = bytes(unpack(payload[HEADER.size :], flags, size, 8))
    found = _alike(data) or _one_by_one(data)
    if len(found) != count:
        raise CorruptEntryError(f"a record set of {count} payloads has {len(found)}", 4)
    return found


def _alike(data: bytes) -> list[bytes] | None:
    """All at once, if each payload is as large as the first one; None: they must be looked at one by one. That lengths
    are read at the right places follows as in `records`."""
    if len(data) < LENGTH_SIZE:
        return None
    (length,) = _LENGTH.unpack_from(data)
    count, rest = divmod(len(data), LENGTH_SIZE + length) if length >= 0 else (0, 1)
    if rest or not count:
        return None
    lengths, payloads = zip(*_whole_payload(length).iter_unpack(data), strict=True)
    return list(payloads) if lengths.count(length) == count else None


@lru_cache(maxsize=256)
def _whole_payload(length: int) -> Struct:
    return Struct(f"{_LENGTH.format}{length}s")


def _one_by_one(data: bytes) -> list[bytes]:
    found: list[bytes] = []
    take = found.append
    unpack_length = _LENGTH.unpack_from
    at, end = 0, len(data)
    try:
        while at < end:
            (length,) = unpack_length(data, at)
            start = at + LENGTH_SIZE
            stop = start + length
            if length < 0 or stop > end:
                raise CorruptEntryError(f"a payload of {length} bytes does not fit its record set", at)
            take(data[start:stop])
            at = stop
    except error:
        raise CorruptEntryError("the last payload of a record set is cut", at) from None
    return found


def _header(payload: bytes) -> tuple[int, int, int, int]:
    if len(payload) < HEADER.size:
        raise CorruptEntryError("the header of a record set is cut", len(payload))
    flags, count, size, stored = HEADER.unpack_from(payload)
    if flags & _VERSION_BITS != _VERSION_1 or flags & ~(_VERSION_BITS | CODEC_BITS):
        raise CorruptEntryError(f"{flags:#x} is no kind of record set", 0)
    if count < 0:
        raise CorruptEntryError(f"a record set cannot have {count} payloads", 4)
    return flags, count, size, stored
