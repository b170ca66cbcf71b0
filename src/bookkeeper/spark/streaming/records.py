"""Records of streams as columns (spec streams §17.2): what a task makes of entries.

| column | type | meaning |
|---|---|---|
| stream | string | its name |
| segment, ledger_id, entry_id, slot | bigint, bigint, bigint, int | where the record is |
| dlsn | string | the same as the text of a position |
| txid | bigint | transaction id |
| sequence_id | bigint | number in the stream, from 0 |
| timestamp | timestamp | the transaction id as milliseconds since 1970, if it can be; null with txidAsTimestamp=false |
| payload | binary | what was appended |

With rowMode=kafka the columns are those of Spark's Kafka source: a stream is a topic with one partition, and the offset
of a record is its sequence id. There are no keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ...streams.dlsn import DLSN
from ...streams.errors import CorruptEntryError
from ...streams.formats.entry import decode_entry
from ...streams.formats.records import StoredRecord
from ..errors import OptionError
from ..reading import Piece
from .following import Facts
from .stream_options import StreamOptions, check_record_columns

_MOMENT = pa.timestamp("us", tz="UTC")
TYPES: dict[str, tuple[DataType, pa.DataType]] = {
    "stream": (StringType(), pa.string()),
    "segment": (LongType(), pa.int64()),
    "ledger_id": (LongType(), pa.int64()),
    "entry_id": (LongType(), pa.int64()),
    "slot": (IntegerType(), pa.int32()),
    "dlsn": (StringType(), pa.string()),
    "txid": (LongType(), pa.int64()),
    "sequence_id": (LongType(), pa.int64()),
    "timestamp": (TimestampType(), _MOMENT),
    "payload": (BinaryType(), pa.binary()),
    "key": (BinaryType(), pa.binary()),
    "value": (BinaryType(), pa.binary()),
    "topic": (StringType(), pa.string()),
    "partition": (IntegerType(), pa.int32()),
    "offset": (LongType(), pa.int64()),
    "timestampType": (IntegerType(), pa.int32()),
}
LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: Spark knows no later time."""

Row = tuple[Facts, int, int, StoredRecord]
"""Segment, ledger, entry, record."""


def record_schema(columns: Iterable[str]) -> StructType:
    """The Spark schema of these columns."""
    return StructType([StructField(name, TYPES[name][0], nullable=True) for name in columns])


def adopt_record_schema(options: StreamOptions, schema: StructType) -> StreamOptions:
    """The options for a schema that the user gave. Raises `OptionError` if it does not fit the data."""
    columns = check_record_columns([field.name for field in schema.fields], tuple(TYPES))
    if not set(columns) <= set(options.columns):
        raise OptionError(f"the schema has columns that are not read; there are {', '.join(options.columns)}")
    for field in schema.fields:
        wanted = TYPES[field.name][0]
        if field.dataType != wanted or not field.nullable:
            raise OptionError(
                f"the column {field.name} is {wanted.simpleString()} and may be null: say it so, and cast in the query"
            )
    return options.with_columns(columns)


class RecordBatches:
    """Makes record batches of pieces of entries."""

    def __init__(self, options: StreamOptions, facts: dict[int, Facts]) -> None:
        self._columns = options.columns
        self._facts = facts
        self._max_bytes = options.reads.max_batch_bytes
        self._max_rows = options.reads.max_batch_rows
        self._moments = options.txid_as_timestamp
        self.schema = pa.schema([pa.field(name, TYPES[name][1]) for name in self._columns])

    def batches(self, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
        """All records, in order; a batch may be larger than its bounds by what one entry has."""
        rows: list[Row] = []
        size = 0
        for piece in pieces:
            run = piece.run
            facts = self._facts[run.ledger_id]
            payload = bytes(run.payload)
            for number, (start, stop) in enumerate(pairwise(run.offsets.tolist())):
                entry = run.first + number
                stored = _decode(facts, run.ledger_id, entry, payload[start:stop])
                rows += [(facts, run.ledger_id, entry, record) for record in stored]
                size += stop - start
                if size >= self._max_bytes or len(rows) >= self._max_rows:
                    yield from self._made(rows)
                    rows, size = [], 0
        yield from self._made(rows)

    def _made(self, rows: list[Row]) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(rows), self._max_rows):
            some = rows[start : start + self._max_rows]
            arrays = [pa.array(self._values(name, some), TYPES[name][1]) for name in self._columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _values(self, name: str, rows: list[Row]) -> list[Any]:
        match name:
            case "stream" | "topic":
                return [facts.stream for facts, _, _, _ in rows]
            case "segment":
                return [facts.number for facts, _, _, _ in rows]
            case "ledger_id":
                return [ledger for _, ledger, _, _ in rows]
            case "entry_id":
                return [entry for _, _, entry, _ in rows]
            case "slot":
                return [record.slot for _, _, _, record in rows]
            case "dlsn":
                return [str(DLSN(facts.number, entry, record.slot)) for facts, _, entry, record in rows]
            case "txid":
                return [max(record.txid, facts.first_txid) for facts, _, _, record in rows]
            case "sequence_id" | "offset":
                return [facts.sequence_id + record.position - 1 for facts, _, _, record in rows]
            case "payload" | "value":
                return [record.payload for _, _, _, record in rows]
            case "timestamp":
                return self._times(rows)
        return [None if name == "key" else 0] * len(rows)  # partition, timestampType

    def _times(self, rows: list[Row]) -> list[int | None]:
        if not self._moments:
            return [None] * len(rows)
        txids = (max(record.txid, facts.first_txid) for facts, _, _, record in rows)
        return [txid * 1000 if 0 <= txid <= LATEST_MS else None for txid in txids]


def _decode(facts: Facts, ledger: int, entry: int, data: bytes) -> list[StoredRecord]:
    """The records of users; not those before the first that is wanted, or from where the read ends."""
    try:
        stored = decode_entry(data, enveloped=facts.enveloped)
    except CorruptEntryError as error:
        raise CorruptEntryError(
            f"stream {facts.stream}, segment {facts.number}, ledger {ledger}, entry {entry}: {error}", error.offset
        ) from error
    least = facts.first[1] if entry == facts.first[0] else 0
    stop = facts.stop[1] if facts.stop is not None and entry == facts.stop[0] else None
    return [
        record
        for record in stored
        if not record.flags and record.slot >= least and (stop is None or record.slot < stop)
    ]
