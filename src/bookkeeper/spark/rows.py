"""Columns of entries as Spark knows them: their types, and record batches that fit exactly.

| column | type | meaning |
|---|---|---|
| ledger_id, entry_id | bigint | where the entry is |
| payload | binary | what the writer appended |
| length | bigint | payload bytes of the ledger up to and including this entry |
| last_confirmed | bigint | the last add confirmed that the writer knew when it sent the entry |
| bookies | array<string> | the bookies that must have a copy, in the order they are asked |
| bad_copies | array<string> | bookies whose copy was found damaged while the entry was read; with verify=all, every \
bookie without a good copy |
| digest_ok | boolean | with verify=all: whether every copy is good |

Spark takes a batch only if its schema is the expected one to the letter: types, order, and that all may be null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from ..quorum.distribution import Distribution
from .errors import OptionError
from .options import ReadOptions, check_columns
from .pieces import Piece, bad_flags

SPARK_TYPES: dict[str, DataType] = {
    "ledger_id": LongType(),
    "entry_id": LongType(),
    "payload": BinaryType(),
    "length": LongType(),
    "last_confirmed": LongType(),
    "bookies": ArrayType(StringType()),
    "bad_copies": ArrayType(StringType()),
    "digest_ok": BooleanType(),
}
_STRINGS = pa.list_(pa.field("element", pa.string()))
ARROW_TYPES: dict[str, pa.DataType] = {
    "ledger_id": pa.int64(),
    "entry_id": pa.int64(),
    "payload": pa.binary(),
    "length": pa.int64(),
    "last_confirmed": pa.int64(),
    "bookies": _STRINGS,
    "bad_copies": _STRINGS,
    "digest_ok": pa.bool_(),
}

SMALL_BYTES = 128 << 10
SMALL_ROWS = 4096
"""Batches that are smaller than both are put together."""


def spark_schema(columns: Iterable[str]) -> StructType:
    """The Spark schema of these columns."""
    return StructType([StructField(name, SPARK_TYPES[name], nullable=True) for name in columns])


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """The Arrow schema of these columns."""
    return pa.schema([pa.field(name, ARROW_TYPES[name]) for name in columns])


def adopt_schema(options: ReadOptions, schema: StructType) -> ReadOptions:
    """The options for a schema that the user gave. Raises `OptionError` if it does not fit the data."""
    columns = check_columns([field.name for field in schema.fields])
    for field in schema.fields:
        if field.dataType != SPARK_TYPES[field.name]:
            raise OptionError(
                f"the column {field.name} is {SPARK_TYPES[field.name].simpleString()}, and cannot be read as"
                f" {field.dataType.simpleString()}: cast it in the query"
            )
        if not field.nullable:
            raise OptionError(
                f"the column {field.name} may be null to Spark, as all columns of this source: say it without NOT NULL"
            )
    if options.columns_given and columns != options.columns:
        raise OptionError("the schema and the option columns name different columns: give one of them")
    if "digest_ok" in columns and not options.verify_all:
        raise OptionError("the column digest_ok says whether every copy is good: it needs verify=all")
    return options.with_columns(columns)


class BatchMaker:
    """Makes record batches of pieces."""

    def __init__(self, options: ReadOptions) -> None:
        self._columns = options.columns
        self.schema = arrow_schema(options.columns)
        self._max_bytes = options.max_batch_bytes
        self._max_rows = options.max_batch_rows

    def batches(self, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
        """All rows of the pieces, in order; small pieces together."""
        made = ((self._batch(part), part.run.payload_bytes) for piece in pieces for part in self._parts(piece))
        return gathered(made, self._max_bytes, self._max_rows)

    def _parts(self, piece: Piece) -> Iterator[Piece]:
        """The piece, cut where it is larger than a batch may be."""
        run = piece.run
        start = 0
        while start < run.rows:
            limit = int(run.offsets[start]) + self._max_bytes
            stop = int(np.searchsorted(run.offsets, limit, side="right")) - 1
            stop = max(start + 1, min(stop, start + self._max_rows, run.rows))
            yield piece if stop - start == run.rows else Piece(piece.metadata, run.cut(start, stop), piece.bad)
            start = stop

    def _batch(self, piece: Piece) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([_array(name, piece) for name in self._columns], schema=self.schema)


def gathered(batches: Iterable[tuple[pa.RecordBatch, int]], max_bytes: int, max_rows: int) -> Iterator[pa.RecordBatch]:
    """Batches, each with the bytes that it has of payloads: small ones together, within these bounds; those with too
    many rows cut."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch, more in batches:
        if waiting and (size + more > max_bytes or rows + batch.num_rows > max_rows):
            yield _together(waiting)
            waiting, rows, size = [], 0, 0
        if batch.num_rows > max_rows:
            yield from (batch.slice(start, max_rows) for start in range(0, batch.num_rows, max_rows))
            continue
        waiting.append(batch)
        rows += batch.num_rows
        size += more
        if size >= SMALL_BYTES or rows >= SMALL_ROWS:
            yield _together(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _together(waiting)


def _together(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _array(name: str, piece: Piece) -> pa.Array:
    from ..client.reads.arrow import column  # the client: who plans needs the types only

    run = piece.run
    match name:
        case "bookies":
            return _write_sets(piece)
        case "bad_copies":
            lists = [list(piece.bad.get(entry_id, ())) for entry_id in range(run.first, run.last + 1)]
            return pa.array(lists, _STRINGS)
        case "digest_ok":
            return pa.array(~bad_flags(piece))
    return column(name, run)


def _write_sets(piece: Piece) -> pa.Array:
    metadata, run = piece.metadata, piece.run
    schedule = Distribution(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    ensemble = metadata.ensemble_at(run.first)
    sets = pa.array([[ensemble[index] for index in indexes] for indexes in schedule.write_sets], _STRINGS)
    return sets.take(pa.array(np.arange(run.first, run.last + 1) % schedule.ensemble_size))
