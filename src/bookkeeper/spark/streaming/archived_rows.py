"""The rows of archived segments, as a read of the stream wants them: with other columns, from and to any record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ...streams.dlsn import DLSN
from ..archive.ranges import ArchivedRange
from ..archive.segment_file import opened
from ..errors import ArchiveError
from ..files import open_files
from .records import TYPES
from .stream_options import StreamOptions

_FROM = {
    "topic": "stream", "value": "payload", "offset": "sequence_id",
}  # fmt: skip
"""Columns that have another name in the file."""

Make = Callable[[pa.RecordBatch], pa.Array]
_MADE: dict[str, tuple[tuple[str, ...], Make]] = {
    "dlsn": (("segment", "entry_id", "slot"), lambda batch: _dlsns(batch)),
    "partition": ((), lambda batch: pa.array([0] * batch.num_rows, pa.int32())),
    "timestampType": ((), lambda batch: pa.array([0] * batch.num_rows, pa.int32())),
}
"""Columns that no file has: what they are made of, and how."""


def _dlsns(batch: pa.RecordBatch) -> pa.Array:
    places = zip(*(batch.column(name).to_pylist() for name in ("segment", "entry_id", "slot")), strict=True)
    return pa.array([str(DLSN(*place)) for place in places], pa.string())


class ArchiveReader:
    """Makes record batches of ranges of archived segments."""

    def __init__(self, options: StreamOptions) -> None:
        self._columns = options.columns
        self._max_rows = options.reads.max_batch_rows
        self._renamed = _FROM if options.txid_as_timestamp else {**_FROM, "timestamp": "event_time"}
        self.schema = pa.schema([pa.field(name, TYPES[name][1]) for name in self._columns])

    def batches(self, ranges: Sequence[ArchivedRange]) -> Iterator[pa.RecordBatch]:
        """All rows, in order. Raises `ArchiveError` for a file that is gone, damaged, or another one."""
        for piece in ranges:
            try:
                yield from self._of(piece)
            except (pa.ArrowInvalid, OSError) as error:
                raise ArchiveError(f"the segment that was offloaded to {piece.uri} cannot be read: {error}") from error

    def _of(self, piece: ArchivedRange) -> Iterator[pa.RecordBatch]:
        files, path = open_files(piece.uri)
        with opened(files, path) as parquet:
            if parquet.metadata.num_rows != piece.rows:
                raise ArchiveError(
                    f"{piece.uri} has {parquet.metadata.num_rows} rows, and was written with {piece.rows}"
                )
            groups = groups_of(parquet.metadata, piece)
            for batch in parquet.iter_batches(self._max_rows, row_groups=groups, columns=self._wanted()):
                rows = batch.filter(_within(batch, piece))
                if rows.num_rows:
                    yield pa.RecordBatch.from_arrays(
                        [self._column(rows, name) for name in self._columns], schema=self.schema
                    )

    def _wanted(self) -> list[str]:
        """Of the file."""
        wanted = {"entry_id": None, "slot": None}
        for name in self._columns:
            wanted.update(dict.fromkeys(_MADE[name][0] if name in _MADE else (self._renamed.get(name, name),)))
        return list(wanted)

    def _column(self, rows: pa.RecordBatch, name: str) -> pa.Array:
        if name in _MADE:
            return _MADE[name][1](rows)
        return rows.column(self._renamed.get(name, name)).cast(TYPES[name][1])


def groups_of(metadata: pa.parquet.FileMetaData, piece: ArchivedRange) -> list[int]:
    """The row groups that have some of these entries, by what they say of themselves."""
    place = metadata.schema.to_arrow_schema().get_field_index("entry_id")
    found = []
    for group in range(metadata.num_row_groups):
        statistics = _statistics(metadata, group, place)
        if statistics is None or (statistics[0] <= piece.last and statistics[1] >= piece.first):
            found.append(group)
    return found


def _statistics(metadata: pa.parquet.FileMetaData, group: int, column: int) -> tuple[int, int] | None:
    said = metadata.row_group(group).column(column).statistics
    return (said.min, said.max) if said is not None and said.has_min_max else None


def _within(batch: pa.RecordBatch, piece: ArchivedRange) -> pa.Array:
    """Which rows are in a range."""
    entry, slot = batch.column("entry_id"), batch.column("slot")
    begun = pc.or_(
        pc.greater(entry, piece.first),
        pc.and_(pc.equal(entry, piece.first), pc.greater_equal(slot, piece.first_slot)),
    )
    if piece.stop_slot is None:
        return pc.and_(begun, pc.less_equal(entry, piece.last))
    ended = pc.and_(pc.equal(entry, piece.last), pc.less(slot, piece.stop_slot))
    return pc.and_(begun, pc.or_(pc.less(entry, piece.last), ended))
