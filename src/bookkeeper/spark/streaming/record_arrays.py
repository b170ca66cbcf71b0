"""The records of an entry as arrays, without a Python object for each (spec streams §5.1, §5.2).

Theory of operation

- Records of one size, as machines write them, are rows of a matrix: their headers and their payloads are columns of
  it. That they are of one size is seen by reading a length wherever one would stand then. If it is that of the first
  record everywhere, each record ends where the next one was taken to begin.
- Else a loop goes from length to length. Headers and payloads in turn are one Arrow array over the entry, of which
  every second element is taken.
- Everything that is not plain (flags, record sets, positions with gaps, damage) is left to `streams.formats`, which
  takes records apart one by one and knows what is wrong.

Only payloads are copied, once.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...streams.formats.entry import open_entry
from ...streams.formats.records import HEADER, HEADER_SIZE

WORTH = 4096
"""Bytes of an entry from which on arrays are quicker than objects."""

Int64s = npt.NDArray[np.int64]

_FIELDS = np.dtype([("meta", ">i8"), ("txid", ">i8"), ("length", ">i4")])
_STEP = 1 << 16
"""From one position to the next, in the first field; below are the flags."""
_POSITIONS = (1 << 31) - 1
_LENGTH = Struct(">i")
_LENGTH_AT = HEADER_SIZE - _LENGTH.size


class RecordArrays(NamedTuple):
    """Consecutive records of users in one entry."""

    slot: int
    """Of the first."""
    position: int
    """Of the first."""
    txids: Int64s
    payloads: pa.Array

    @property
    def rows(self) -> int:
        return len(self.txids)

    def cut(self, start: int, stop: int | None) -> RecordArrays:
        """Those from one slot of the entry up to another, without the latter."""
        begin = max(start - self.slot, 0)
        end = self.rows if stop is None else max(min(stop - self.slot, self.rows), begin)
        if begin == 0 and end == self.rows:
            return self
        part = slice(begin, end)
        return RecordArrays(self.slot + begin, self.position + begin, self.txids[part], self.payloads[part])


def take_records(entry: memoryview, *, enveloped: bool) -> RecordArrays | None:
    """The records of an entry; None: it is small, or not plain, and `decode_entry` has to take it apart.

    Raises `CorruptEntryError` for an envelope that is damaged.
    """
    if len(entry) < WORTH:
        return None
    body = np.frombuffer(open_entry(entry) if enveloped else entry, np.uint8)
    if len(body) < HEADER_SIZE:
        return None
    return _alike(body) or _one_by_one(body)


def _alike(body: npt.NDArray[np.uint8]) -> RecordArrays | None:
    length: int = HEADER.unpack_from(body.data)[2]
    count, rest = divmod(len(body), HEADER_SIZE + length) if length >= 0 else (0, 1)
    if rest:
        return None
    rows = body.reshape(count, HEADER_SIZE + length)
    fields = np.ascontiguousarray(rows[:, :HEADER_SIZE]).view(_FIELDS).ravel()
    if not (fields["length"] == length).all():
        return None
    offsets = np.arange(0, count * length + 1, length, dtype=np.int32) if length else np.zeros(count + 1, np.int32)
    payload = np.ascontiguousarray(rows[:, HEADER_SIZE:]).ravel()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(payload)]
    return _records(fields, lambda: pa.Array.from_buffers(pa.binary(), count, buffers))


def _one_by_one(body: npt.NDArray[np.uint8]) -> RecordArrays | None:
    starts: list[int] = []
    add, length_at, view = starts.append, _LENGTH.unpack_from, body.data
    at, end = 0, len(body)
    while at <= end - HEADER_SIZE:
        add(at)
        (length,) = length_at(view, at + _LENGTH_AT)
        if length < 0:
            return None
        at += HEADER_SIZE + length
    if at != end:
        return None
    bounds = np.empty(2 * len(starts) + 1, np.int32)
    bounds[:-1:2] = starts
    bounds[1::2] = bounds[:-1:2] + HEADER_SIZE
    bounds[-1] = end
    heads = body[bounds[:-1:2, None] + np.arange(HEADER_SIZE)]
    whole = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(body)])
    return _records(heads.view(_FIELDS).ravel(), lambda: whole.take(pa.array(np.arange(1, len(bounds) - 1, 2))))


def _records(fields: npt.NDArray[np.void], payloads: Callable[[], pa.Array]) -> RecordArrays | None:
    """None if a record has flags, or the positions do not follow each other."""
    first, count = int(fields["meta"][0]), len(fields)
    position = first // _STEP
    if first % _STEP or not 0 <= position <= _POSITIONS - count:
        return None
    if not (fields["meta"] == np.arange(first, first + count * _STEP, _STEP)).all():
        return None
    return RecordArrays(0, position, fields["txid"].astype(np.int64), payloads())
