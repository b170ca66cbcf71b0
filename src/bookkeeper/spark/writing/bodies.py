"""Records of a draft's entries, made of a column of payloads without a Python object for each (spec streams §5.2).

Payloads of one size become the rows of a matrix, behind a column of headers; others are joined to their headers by
Arrow. Either way each byte is copied once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...streams.formats.records import HEADER_SIZE, LARGEST_PAYLOAD
from ...streams.publishing.drafts import UNSTAMPED

WORTH = 64 << 10
"""Bytes of payloads from which on an entry of their own is made of them; fewer wait for others."""

_STEP = 1 << 16
"""From one position to the next, in the first field of a header."""
_FIELDS = np.dtype([("meta", ">i8"), ("txid", ">i8"), ("length", ">i4")])

Int64s = npt.NDArray[np.int64]


def lengths_of(values: pa.BinaryArray) -> Int64s:
    """Of each payload."""
    offsets = _offsets(values).astype(np.int64)
    return offsets[1:] - offsets[:-1]


def are_worth_it(values: pa.BinaryArray) -> bool:
    """Whether they fill entries of their own, and each fits one."""
    lengths = lengths_of(values)
    return bool(lengths.sum() >= WORTH and lengths.max() <= LARGEST_PAYLOAD)


def bodies(values: pa.BinaryArray, first_position: int, wanted: int) -> Iterator[tuple[memoryview, int]]:
    """The records of entries of about `wanted` bytes each, and how many they are; none is null, each fits an entry.

    Positions count from `first_position`; there are no transaction ids yet.
    """
    ends = np.cumsum(lengths_of(values) + HEADER_SIZE)
    start, before = 0, 0
    while start < len(ends):
        # Equal parts of what is left, so that no small one remains; a large record takes an entry for itself.
        parts = max(1, round((int(ends[-1]) - before) / wanted))
        goal = before + (int(ends[-1]) - before) / parts
        stop = max(start + 1, int(np.searchsorted(ends, goal, side="right")))
        yield _body(values[start:stop], first_position + start), stop - start
        start, before = stop, int(ends[stop - 1])


def _body(values: pa.BinaryArray, first_position: int) -> memoryview:
    count, lengths = len(values), lengths_of(values)
    heads = np.empty(count, _FIELDS)
    heads["meta"] = np.arange(first_position, first_position + count) * _STEP
    heads["txid"] = UNSTAMPED
    heads["length"] = lengths
    length = int(lengths[0])
    if (lengths == length).all():
        rows = np.empty((count, HEADER_SIZE + length), np.uint8)
        rows[:, :HEADER_SIZE] = heads.view(np.uint8).reshape(count, HEADER_SIZE)
        rows[:, HEADER_SIZE:] = _data(values).reshape(count, length)
        return rows.ravel().data
    bounds = np.arange(count + 1, dtype=np.int32) * np.int32(HEADER_SIZE)
    headers = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(heads)])
    joined = pc.binary_join_element_wise(headers, values, pa.scalar(b"", pa.binary()))
    return _data(joined).data


def _offsets(values: pa.BinaryArray) -> npt.NDArray[np.int32]:
    found = np.frombuffer(values.buffers()[1] or b"\0\0\0\0", np.int32)
    return found[values.offset : values.offset + len(values) + 1]


def _data(values: pa.BinaryArray) -> npt.NDArray[np.uint8]:
    """The payloads, one behind the other."""
    offsets = _offsets(values)
    whole = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    return whole[offsets[0] : offsets[-1]]
