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

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import count as counting
from itertools import repeat
from struct import Struct, error
from typing import Any, NamedTuple

from ..errors import CorruptEntryError
from .record_set import decode_set

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


class StoredRecord(NamedTuple):
    """A record of an entry. Payloads of a record set are records of their own here."""

    slot: int
    flags: int
    position: int
    txid: int
    payload: bytes


_stored: Callable[[Iterable[Any]], StoredRecord] = partial(tuple.__new__, StoredRecord)
"""Makes one from its fields, much faster than by a call of the class."""


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


def decode_records(body: bytes) -> list[StoredRecord]:
    """All records of an entry, sets taken apart. Raises `CorruptEntryError`."""
    return _alike(body) or _one_by_one(body)


def _alike(body: bytes) -> list[StoredRecord] | None:
    """All at once, if each is as large as the first one and none is a set. None: they must be looked at one by one.

    If what is read as lengths, under this assumption, is that of the first one everywhere, then the assumption holds:
    each record ends where the next one was taken to begin.
    """
    if len(body) < HEADER_SIZE:
        return None
    length = HEADER.unpack_from(body)[2]
    count, rest = divmod(len(body), HEADER_SIZE + length) if length >= 0 else (0, 1)
    if rest or count < FEW:
        return None
    metadata, txids, lengths, payloads = zip(*_whole_record(length).iter_unpack(body), strict=True)
    flags = [each & _FLAGS for each in metadata]
    if lengths.count(length) != count or any(flag & SET for flag in flags if flag):
        return None
    positions = [each >> 16 & _POSITIONS for each in metadata]
    return list(map(_stored, zip(range(count), flags, positions, txids, payloads, strict=True)))


def _one_by_one(body: bytes) -> list[StoredRecord]:
    found: list[StoredRecord] = []
    take = found.append
    unpack = HEADER.unpack_from
    at, end, slot = 0, len(body), 0
    try:
        while at < end:
            metadata, txid, length = unpack(body, at)
            start = at + HEADER_SIZE
            stop = start + length
            if length < 0 or stop > end:
                raise CorruptEntryError(f"a record with {length} bytes does not fit its entry", at)
            flags, position = metadata & _FLAGS, metadata >> 16 & _POSITIONS
            if flags & SET:
                inner = _decode_set_at(body[start:stop], start)
                rows = zip(counting(slot), repeat(0), counting(position), repeat(txid), inner, strict=False)
                found += map(_stored, rows)
                slot += len(inner)
            else:
                take(_stored((slot, flags, position, txid, body[start:stop])))
                slot += 1
            at = stop
    except error:
        raise CorruptEntryError("the header of a record is cut", at) from None
    return found


@lru_cache(maxsize=256)
def _whole_record(length: int) -> Struct:
    """The layout of a record whose payload has so many bytes."""
    return Struct(f"{HEADER.format}{length}s")


def _decode_set_at(payload: bytes, at: int) -> list[bytes]:
    try:
        return decode_set(payload)
    except CorruptEntryError as caught:
        raise CorruptEntryError(f"in the record set at byte {at}: {caught}", at + caught.offset) from caught
