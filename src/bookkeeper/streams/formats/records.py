"""Records, as they stand one after the other in an entry (spec streams §5.2, §5.4).

    offset  size  field
    0       8     bits 0-15: flags; bits 16-47: position; the others are 0
    8       8     transaction id (txid)
    16      4     length of the payload
    20      ...   payload

Position: how many user records the segment has up to and with this one, from 1. A record set counts as many as it has
and carries the position of its first; control records and the end of the stream repeat the position of the last.

A batch is encoded by a few calls, each over all of it: what is done in Python for a single record is what costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct, error
from typing import Any

from ..errors import CorruptEntryError
from .record_set import decode_set
from .stored import StoredRecords

HEADER = Struct(">qqi")
HEADER_SIZE = HEADER.size

CONTROL = 0x1
END = 0x2
"""End of the stream. Such a record is no control record."""
SET = 0x4

END_TXID = (1 << 63) - 1
"""The transaction id of the end of a stream, and of control records behind it."""

CONTROL_PAYLOAD = b"control"
KEEP_ALIVE_PAYLOAD = b"keepalive"
END_PAYLOAD = b"endOfStream"

LARGEST_PAYLOAD = 1_040_384 - HEADER_SIZE

FEW = 4
"""Records for which taking them apart all at once is not worth a try."""

_STEP = 1 << 16
_FLAGS = _STEP - 1
_POSITIONS = (1 << 31) - 1


def encode_record(payload: bytes, txid: int, position: int, flags: int = 0) -> bytes:
    """One record."""
    return HEADER.pack(position << 16 | flags, txid, len(payload)) + payload


def encode_records(payloads: Sequence[bytes], txids: Iterable[int], first_position: int) -> bytes:
    """User records, with positions from `first_position` on; a txid for each."""
    count = len(payloads)
    pieces: list[Any] = [b""] * (2 * count)
    begin = first_position << 16
    pieces[0::2] = map(HEADER.pack, range(begin, begin + count * _STEP, _STEP), txids, map(len, payloads))
    pieces[1::2] = payloads
    return b"".join(pieces)


def decode_records(body: bytes) -> StoredRecords:
    """All records of an entry, sets taken apart. Raises `CorruptEntryError`."""
    return _alike(body) or _one_by_one(body)


def _alike(body: bytes) -> StoredRecords | None:
    """All at once, if each is as large as the first one, and they are numbered one after the other and have no flags.
    None: they must be looked at one by one.

    If what is read as lengths, under this assumption, is that of the first one everywhere, then the assumption holds:
    each record ends where the next one was taken to begin.
    """
    if len(body) < HEADER_SIZE:
        return None
    first, _, length = HEADER.unpack_from(body)
    count, rest = divmod(len(body), HEADER_SIZE + length) if length >= 0 else (0, 1)
    position = first >> 16
    if rest or count < FEW or first & _FLAGS or not 0 <= position <= _POSITIONS - count:
        return None
    metadata, txids, lengths, payloads = zip(*_whole_record(length).iter_unpack(body), strict=True)
    if lengths.count(length) != count or metadata != tuple(range(first, first + count * _STEP, _STEP)):
        return None
    return StoredRecords(range(count), None, range(position, position + count), txids, payloads)


def _one_by_one(body: bytes) -> StoredRecords:
    flags: list[int] = []
    positions: list[int] = []
    txids: list[int] = []
    payloads: list[bytes] = []
    unpack = HEADER.unpack_from
    at, end = 0, len(body)
    try:
        while at < end:
            metadata, txid, length = unpack(body, at)
            start = at + HEADER_SIZE
            stop = start + length
            if length < 0 or stop > end:
                raise CorruptEntryError(f"a record with {length} bytes does not fit its entry", at)
            own, position = metadata & _FLAGS, metadata >> 16 & _POSITIONS
            if own & SET:
                inner = _decode_set_at(body[start:stop], start)
                flags += [0] * len(inner)
                positions += range(position, position + len(inner))
                txids += [txid] * len(inner)
                payloads += inner
            else:
                flags.append(own)
                positions.append(position)
                txids.append(txid)
                payloads.append(body[start:stop])
            at = stop
    except error:
        raise CorruptEntryError("the header of a record is cut", at) from None
    return StoredRecords(range(len(payloads)), flags if any(flags) else None, positions, txids, payloads)


@lru_cache(maxsize=256)
def _whole_record(length: int) -> Struct:
    """The layout of a record whose payload has so many bytes."""
    return Struct(f"{HEADER.format}{length}s")


def _decode_set_at(payload: bytes, at: int) -> list[bytes]:
    try:
        return decode_set(payload)
    except CorruptEntryError as caught:
        raise CorruptEntryError(f"in the record set at byte {at}: {caught}", at + caught.offset) from caught
