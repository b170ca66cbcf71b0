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
| key, headers | binary, array of key and value | of streams whose codec is kv1; else null |

Files that segments were offloaded to (`archive.segment_file`) have event_time besides: the record's own time, or null.

With rowMode=kafka the columns are those of Spark's Kafka source: a stream is a topic with one partition, and the offset
of a record is its sequence id. Of a stream whose codec is kv1 (`formats.keyed`) the payload is the value alone, and the
timestamp the record's own, if it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
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
from ...streams.formats.keyed import KeyedRecord
from ...streams.formats.stored import StoredRecords
from ..errors import OptionError
from ..pieces import Piece
from ..rows import SMALL_BYTES, SMALL_ROWS, gathered
from .record_arrays import take_records
from .record_columns import LATEST_MS, Arrays, Columns
from .stream_options import StreamOptions, check_record_columns

if TYPE_CHECKING:
    from .following import Facts

_MOMENT = pa.timestamp("us", tz="UTC")
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_ARROW_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
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
    "event_time": (TimestampType(), _MOMENT),
    "payload": (BinaryType(), pa.binary()),
    "key": (BinaryType(), pa.binary()),
    "value": (BinaryType(), pa.binary()),
    "topic": (StringType(), pa.string()),
    "partition": (IntegerType(), pa.int32()),
    "offset": (LongType(), pa.int64()),
    "timestampType": (IntegerType(), pa.int32()),
    "headers": (ArrayType(_HEADER), pa.list_(pa.field("element", _ARROW_HEADER))),
}
OF_KEYED = frozenset(("payload", "value", "key", "headers", "timestamp", "event_time"))
"""Columns that differ where the codec is kv1."""


class Entry(NamedTuple):
    """An entry of a segment, and those of its records that are wanted."""

    facts: Facts
    ledger: int
    entry: int
    stored: StoredRecords
    keyed: Sequence[KeyedRecord] | None = None
    """What the payloads mean; None: nothing, for the stream is raw, or nobody asks."""

    def txids(self) -> Sequence[int]:
        """Of records that were written before they got their place, that of the segment."""
        txids, first = self.stored.txids, self.facts.first_txid
        return txids if not txids or txids[0] >= first else [max(txid, first) for txid in txids]

    def times(self, *, by_txid: bool = True) -> Iterable[int | None]:
        """In microseconds: the records' own, or else the transaction ids, if those are milliseconds."""
        own = (each.event_ms for each in self.keyed) if self.keyed is not None else repeat(None)
        for txid, event_ms in zip(self.txids(), own, strict=False):
            ms = txid if event_ms is None and by_txid else event_ms
            yield ms * 1000 if ms is not None and 0 <= ms <= LATEST_MS else None

    def values(self) -> Iterable[bytes | None]:
        return self.stored.payloads if self.keyed is None else (each.value for each in self.keyed)

    def keys(self) -> Iterable[bytes | None]:
        return repeat(None, len(self.stored)) if self.keyed is None else (each.key for each in self.keyed)

    def headers(self) -> Iterable[list[dict[str, object]] | None]:
        """As Spark's Kafka source has them: null where there are none."""
        for record in self.keyed or repeat(None, len(self.stored)):
            some = record.headers if record is not None else ()
            yield [{"key": name, "value": value} for name, value in some] or None

    def sequence_ids(self) -> Iterable[int]:
        return map((self.facts.sequence_id - 1).__add__, self.stored.positions)

    def dlsns(self) -> Iterable[str]:
        return (str(DLSN(self.facts.number, self.entry, slot)) for slot in self.stored.slots)


def _same(value: Callable[[Entry], Any]) -> Callable[[Entry], Iterable[Any]]:
    """One value for all records of an entry."""
    return lambda entry: repeat(value(entry), len(entry.stored))


_VALUES: dict[str, Callable[[Entry], Iterable[Any]]] = {
    "stream": _same(lambda entry: entry.facts.stream),
    "topic": _same(lambda entry: entry.facts.stream),
    "segment": _same(lambda entry: entry.facts.number),
    "ledger_id": _same(lambda entry: entry.ledger),
    "entry_id": _same(lambda entry: entry.entry),
    "slot": lambda entry: entry.stored.slots,
    "dlsn": Entry.dlsns,
    "txid": Entry.txids,
    "sequence_id": Entry.sequence_ids,
    "offset": Entry.sequence_ids,
    "payload": Entry.values,
    "value": Entry.values,
    "key": Entry.keys,
    "headers": Entry.headers,
}
"""Of the records of an entry, by column; the other columns are the same everywhere."""


def record_schema(columns: Iterable[str]) -> StructType:
    """The Spark schema of these columns."""
    return StructType([StructField(name, TYPES[name][0], nullable=True) for name in columns])


def adopt_record_schema(options: StreamOptions, schema: StructType) -> StreamOptions:
    """The options for a schema that the user gave. Raises `OptionError` if it does not fit the data."""
    columns = check_record_columns([field.name for field in schema.fields], tuple(TYPES))
    if not set(columns) <= set(options.every):
        raise OptionError(f"the schema has columns that are not read; there are {', '.join(options.every)}")
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
        self._of_arrays = Columns()
        self._looks_inside = bool(OF_KEYED.intersection(self._columns))
        self.schema = pa.schema([pa.field(name, TYPES[name][1]) for name in self._columns])

    def batches(self, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
        """All records, in order; a batch may be larger than its bounds by what one entry has."""
        return gathered(self._parts(pieces), self._max_bytes, self._max_rows)

    def _parts(self, pieces: Iterable[Piece]) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Some records and their size: of an entry whose records are arrays by itself, of others together."""
        entries: list[Entry] = []
        size = rows = 0
        for facts, ledger, entry, data in self._entries(pieces):
            arrays = self._arrays(facts, ledger, entry, data)
            if arrays is None:
                entries.append(self._objects(facts, ledger, entry, bytes(data)))
                size, rows = size + len(data), rows + len(entries[-1].stored)
            if entries and (arrays is not None or size >= SMALL_BYTES or rows >= SMALL_ROWS):
                yield self._made([self._values(name, entries, rows) for name in self._columns]), size
                entries, size, rows = [], 0, 0
            if arrays is not None and arrays.rows:
                yield self._made([self._column(arrays, name) for name in self._columns]), len(data)
        if entries:
            yield self._made([self._values(name, entries, rows) for name in self._columns]), size

    def _entries(self, pieces: Iterable[Piece]) -> Iterator[tuple[Facts, int, int, memoryview]]:
        for piece in pieces:
            run = piece.run
            facts = self._facts[run.ledger_id]
            for entry, data in enumerate(run.entries(), run.first):
                yield facts, run.ledger_id, entry, data

    def _arrays(self, facts: Facts, ledger: int, entry: int, data: memoryview) -> Arrays | None:
        """None: its records are to be looked at one by one."""
        if facts.keyed and self._looks_inside:
            return None
        try:
            records = take_records(data, enveloped=facts.enveloped)
        except CorruptEntryError as error:
            raise _located(error, facts, ledger, entry) from error
        if records is None:
            return None
        first = facts.first[1] if entry == facts.first[0] else 0
        stop = facts.stop[1] if facts.stop is not None and entry == facts.stop[0] else None
        return Arrays(facts, ledger, entry, records.cut(first, stop), self._moments)

    def _objects(self, facts: Facts, ledger: int, entry: int, data: bytes) -> Entry:
        stored = _decode(facts, ledger, entry, data)
        return Entry(facts, ledger, entry, stored, self._keyed(stored, facts, ledger, entry))

    def _keyed(self, stored: StoredRecords, facts: Facts, ledger: int, entry: int) -> Sequence[KeyedRecord] | None:
        if not (facts.keyed and self._looks_inside):
            return None
        try:
            return list(map(KeyedRecord.decode, stored.payloads))
        except CorruptEntryError as error:
            raise _located(error, facts, ledger, entry) from error

    def _column(self, arrays: Arrays, name: str) -> pa.Array:
        return self._of_arrays.column(arrays, name, TYPES[name][1])

    def _made(self, columns: Iterable[Any]) -> pa.RecordBatch:
        kinds = zip(self._columns, columns, strict=True)
        arrays = [c if isinstance(c, pa.Array) else pa.array(c, TYPES[name][1]) for name, c in kinds]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _values(self, name: str, entries: list[Entry], rows: int) -> list[Any]:
        if name == "timestamp":
            return [moment for entry in entries for moment in entry.times(by_txid=self._moments)]
        if name == "event_time":
            return [moment for entry in entries for moment in entry.times(by_txid=False)]
        value = _VALUES.get(name)
        if value is None:  # partition, timestampType
            return [0] * rows
        return list(chain.from_iterable(map(value, entries)))


def _decode(facts: Facts, ledger: int, entry: int, data: bytes) -> StoredRecords:
    """The records of users; not those before the first that is wanted, or from where the read ends."""
    try:
        stored = decode_entry(data, enveloped=facts.enveloped)
    except CorruptEntryError as error:
        raise _located(error, facts, ledger, entry) from error
    stored = stored.users(facts.first[1] if entry == facts.first[0] else 0)
    if facts.stop is None or entry != facts.stop[0]:
        return stored
    stop = facts.stop[1]
    return stored.where(slot < stop for slot in stored.slots)


def _located(error: CorruptEntryError, facts: Facts, ledger: int, entry: int) -> CorruptEntryError:
    """With the place in its text."""
    where = f"stream {facts.stream}, segment {facts.number}, ledger {ledger}, entry {entry}"
    return CorruptEntryError(f"{where}: {error}", error.offset)
