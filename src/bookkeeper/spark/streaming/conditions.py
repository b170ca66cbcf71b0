"""`where` on streams: which records of a read are given (spec streams §17.2).

    txid between 100 and 200 and segment >= 3
    timestamp >= '2024-01-01T00:00:00Z'

Theory of operation

Of each batch only the rows that fit are given: that alone decides. Before that whole segments are left out, when their
records say of themselves that none of theirs can fit. So a condition changes nothing but which rows there are: places,
limits and checkpoints are those of the whole stream.

A time is the column `timestamp`: where records have times of their own it says nothing of the transaction ids, by which
segments could be left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from ...streams.formats.segment import SegmentMetadata
from ...types import MAX_LEDGER_ID
from ..bounds import ALL, Bounds
from ..where import Read, parse_conditions


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is left of the values of some columns."""

    segment: Bounds = ALL
    txid: Bounds = ALL
    sequence_id: Bounds = ALL
    timestamp: Bounds = ALL
    """Milliseconds since 1970."""

    @classmethod
    def parse(cls, text: str) -> Conditions:
        """Raises `OptionError` that says where a text is no such condition."""
        columns: dict[str, Read] = {"segment": int, "txid": int, "sequence_id": int, "timestamp": moment}
        return cls(**parse_conditions(text, columns))

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that are compared."""
        return tuple(name for name in self.__slots__ if getattr(self, name) != ALL)

    def may_hold(self, segment: SegmentMetadata, *, keyed: bool, by_txid: bool) -> bool:
        """Whether a segment may have records that fit.

        - `keyed`: they may have times of their own. `by_txid`: else transaction ids are times.
        """
        last_txid = segment.last_txid if segment.completed else MAX_LEDGER_ID
        first = segment.sequence_id
        last = first + segment.records - 1 if segment.completed else MAX_LEDGER_ID
        known = [
            (self.segment, segment.number, segment.number),
            (self.txid, segment.first_txid, last_txid),
            (self.sequence_id, first, last),
        ]
        if by_txid and not keyed:
            known.append((self.timestamp, segment.first_txid, last_txid))
        return all(bounds.pieces(least, greatest) for bounds, least, greatest in known)

    def filtered(self, batches: Iterable[pa.RecordBatch], columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows that fit, with these columns; the batches have those of `columns` besides."""
        for batch in batches:
            rows = batch
            for name in self.columns:
                rows = rows.filter(_holds(rows.column(name), getattr(self, name)))
            if rows.num_rows:
                yield rows.select(columns)


EVERY = Conditions()


def moment(text: str) -> int:
    """Milliseconds since 1970 of a number, or a time in quotes as ISO 8601 has it; without a zone it is UTC. Raises
    `ValueError`."""
    if not text.startswith("'"):
        return int(text)
    time = datetime.fromisoformat(text.strip("'"))
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return round(time.timestamp() * 1000)


def _holds(column: pa.Array, bounds: Bounds) -> pa.Array:
    """For each value whether it fits; null does not."""
    if pa.types.is_timestamp(column.type):
        column = pc.divide(column.cast(pa.int64()), 1000)
    held = pc.and_(pc.greater_equal(column, bounds.least), pc.less_equal(column, bounds.greatest))
    if bounds.among is None:
        return held
    return pc.and_(held, pc.is_in(column, pa.array(sorted(bounds.among), pa.int64())))
