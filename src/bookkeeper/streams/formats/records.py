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
                found += [StoredRecord(slot + n, 0, position + n, txid, each) for n, each in enumerate(inner)]
                slot += len(inner)
            else:
                take(StoredRecord(slot, flags, position, txid, body[start:stop]))
                slot += 1
            at = stop
    except error:
        raise CorruptEntryError("the header of a record is cut", at) from None
    return found


def _decode_set_at(payload: bytes, at: int) -> list[bytes]:
    try:
        return decode_set(payload)
    except CorruptEntryError as caught:
        raise CorruptEntryError(f"in the record set at byte {at}: {caught}", at + caught.offset) from caught
