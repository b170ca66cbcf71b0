"""Columns of records that are arrays: the values that `records` makes of objects, for all records of an entry at once.

Records of streams with keys are not among them, unless nobody asks for what their payloads mean.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .record_arrays import Int64s, RecordArrays

if TYPE_CHECKING:
    from .following import Facts

LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: Spark knows no later time."""

_DLSN = np.dtype([("version", "u1"), ("segment", ">i8"), ("entry", ">i8"), ("slot", ">i8"), ("fill", "V2")])
_DLSN_TEXT = 36
"""Characters of a position, of which the last two stand for the fill: with it the bytes are a multiple of three, so
that many positions are encoded as one."""


class Arrays(NamedTuple):
    """Records of an entry, and where it is."""

    facts: Facts
    ledger: int
    entry: int
    records: RecordArrays
    txid_as_timestamp: bool

    @property
    def rows(self) -> int:
        return self.records.rows

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """One of `records.TYPES`."""
        make = _COLUMNS.get(name)
        if make is None:
            return pa.nulls(self.rows, kind)
        made = make(self)
        return made if made.type == kind else made.view(kind)

    def _same(self, value: int) -> pa.Array:
        return pa.array(np.full(self.rows, value, np.int64))

    def _name(self) -> pa.Array:
        return texts(self.facts.stream.encode() * self.rows, self.rows)

    def _slots(self) -> npt.NDArray[np.int32]:
        first = self.records.slot
        return np.arange(first, first + self.rows, dtype=np.int32)

    def _zeros(self) -> pa.Array:
        return pa.array(np.zeros(self.rows, np.int32))

    def _dlsns(self) -> pa.Array:
        places = np.zeros(self.rows, _DLSN)
        places["version"], places["segment"], places["entry"] = 1, self.facts.number, self.entry
        places["slot"] = self._slots()
        text = np.frombuffer(bytearray(base64.b64encode(places.tobytes())), np.uint8).reshape(-1, _DLSN_TEXT)
        text[:, -2:] = ord("=")
        return texts(text.ravel().data, self.rows)

    def _txids(self) -> Int64s:
        """Of records that were written before they got their place, that of the segment."""
        txids, first = self.records.txids, self.facts.first_txid
        return txids if not self.rows or txids[0] >= first else np.maximum(txids, first)

    def _numbers(self) -> pa.Array:
        first = self.facts.sequence_id - 1 + self.records.position
        return pa.array(np.arange(first, first + self.rows, dtype=np.int64))

    def _times(self) -> pa.Array:
        if not self.txid_as_timestamp:
            return pa.nulls(self.rows, pa.int64())
        txids = self._txids()
        none = (txids < 0) | (txids > LATEST_MS)
        if not none.any():
            return pa.array(txids * 1000)
        return pa.array(np.where(none, 0, txids) * 1000, mask=none)


_ONCE = frozenset(("stream", "topic", "segment", "ledger_id", "partition", "timestampType"))
"""Columns that are the same in all entries of a ledger with as many records."""
_KEPT = 64
"""Arrays of such columns."""


class Columns:
    """Makes columns of entries that come one after the other: what is the same in many of them, once."""

    def __init__(self) -> None:
        self._ledger = -1
        self._same: dict[tuple[str, int], pa.Array] = {}

    def column(self, arrays: Arrays, name: str, kind: pa.DataType) -> pa.Array:
        """One of `records.TYPES`."""
        if name in _COLUMNS and name not in _ONCE:
            return arrays.column(name, kind)
        if arrays.ledger != self._ledger or len(self._same) >= _KEPT:
            self._ledger = arrays.ledger
            self._same.clear()
        key = (name, arrays.rows)
        if key not in self._same:
            self._same[key] = arrays.column(name, kind)
        return self._same[key]


def texts(data: bytes | memoryview, rows: int) -> pa.Array:
    """Strings of one length, which stand one after the other."""
    length = len(data) // rows if rows else 0
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(length)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


_COLUMNS: dict[str, Callable[[Arrays], pa.Array]] = {
    "stream": Arrays._name,
    "topic": Arrays._name,
    "segment": lambda arrays: arrays._same(arrays.facts.number),
    "ledger_id": lambda arrays: arrays._same(arrays.ledger),
    "entry_id": lambda arrays: arrays._same(arrays.entry),
    "slot": lambda arrays: pa.array(arrays._slots()),
    "dlsn": Arrays._dlsns,
    "txid": lambda arrays: pa.array(arrays._txids()),
    "sequence_id": Arrays._numbers,
    "offset": Arrays._numbers,
    "timestamp": Arrays._times,
    "payload": lambda arrays: arrays.records.payloads,
    "value": lambda arrays: arrays.records.payloads,
    "partition": Arrays._zeros,
    "timestampType": Arrays._zeros,
}
"""The other columns, of keys and times of their own, are null."""
