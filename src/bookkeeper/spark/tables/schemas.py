"""The metadata tables: their columns, and the options of a read (spec streams §17.2).

| table | a row for each | address |
|---|---|---|
| ledgers | ledger | of the cluster |
| fragments | part of a ledger with an ensemble of its own | of the cluster |
| bookies | bookie that belongs to the cluster | of the cluster |
| streams | stream | of the namespace |
| segments | segment of a stream | of the namespace |
| sinks | sink that has published | of the namespace |

What is not known yet is null, as the last entry of a ledger that is still written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..errors import OptionError
from ..options import CLIENT, METADATA, ReadOptions
from ..values import choice

_LONG = (LongType(), pa.int64())
_INT = (IntegerType(), pa.int32())
_TEXT = (StringType(), pa.string())
_FLAG = (BooleanType(), pa.bool_())
_TIME = (TimestampType(), pa.timestamp("us", tz="UTC"))
_NAMES = (ArrayType(StringType()), pa.list_(pa.field("element", pa.string())))
_MAP = (MapType(StringType(), BinaryType()), pa.map_(pa.string(), pa.binary()))

Columns = Mapping[str, tuple[DataType, pa.DataType]]

TABLES: Mapping[str, Columns] = {
    "ledgers": {
        "ledger_id": _LONG,
        "state": _TEXT,
        "entries": _LONG,
        "bytes": _LONG,
        "ensemble_size": _INT,
        "write_quorum": _INT,
        "ack_quorum": _INT,
        "digest": _TEXT,
        "created": _TIME,
        "fragments": _INT,
        "custom_metadata": _MAP,
    },
    "fragments": {
        "ledger_id": _LONG,
        "fragment": _INT,
        "first_entry": _LONG,
        "last_entry": _LONG,
        "bookies": _NAMES,
    },
    "bookies": {"bookie": _TEXT, "state": _TEXT, "disk_total": _LONG, "disk_free": _LONG},
    "streams": {
        "stream": _TEXT,
        "segments": _LONG,
        "records": _LONG,
        "last_txid": _LONG,
        "sealed": _FLAG,
        "owner": _TEXT,
    },
    "segments": {
        "stream": _TEXT,
        "segment": _LONG,
        "ledger_id": _LONG,
        "state": _TEXT,
        "records": _LONG,
        "sequence_id": _LONG,
        "first_txid": _LONG,
        "last_txid": _LONG,
        "completed": _TIME,
        "truncation": _TEXT,
        "first_dlsn": _TEXT,
        "version": _INT,
    },
    "sinks": {
        "sink": _TEXT,
        "epoch": _LONG,
        "query": _TEXT,
        "state": _TEXT,
        "streams": _NAMES,
        "published": _TIME,
    },
}
OF_NAMESPACES = ("streams", "segments", "sinks")
"""Their address is that of a namespace; of the others that of a cluster."""

_OF_LEDGERS = ("ledgers", "fragments")
_SELECTING = ("ledgers", "ledgersfrom", "ledgersto")
_COMMON = ("uri", "metadatatimeout")


@dataclass(frozen=True)
class TableOptions:
    """What a read of a metadata table is to do."""

    table: str
    reads: ReadOptions
    """The address, which ledgers, and how the client is set."""
    columns: tuple[str, ...]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Raises `OptionError` that says what is wrong with which option."""
        given = {key.lower(): value for key, value in options.items()}
        name = choice(given, "table", tuple(TABLES))
        rest = {key: value for key, value in options.items() if key.lower() not in ("table", "columns")}
        selecting = [key for key in rest if key.lower() in _SELECTING or key.lower().startswith(METADATA)]
        allowed = selecting if name in _OF_LEDGERS else []
        for key in rest:
            if key.lower() not in _COMMON and not key.lower().startswith(CLIENT) and key not in allowed:
                raise OptionError(f"{key}: it does not go with table={name}")
        if not selecting:
            rest["ledgers"] = "all"
        made = cls(name, ReadOptions.parse(rest), tuple(TABLES[name]))
        if "columns" not in given:
            return made
        return made.with_columns(tuple(each.strip() for each in given["columns"].split(",") if each.strip()))

    def with_columns(self, names: tuple[str, ...]) -> Self:
        """The same for other columns. Raises `OptionError` if there are none such."""
        every = TABLES[self.table]
        for name in names:
            if name not in every:
                raise OptionError(f"table={self.table} has no column {name!r}; the columns are {', '.join(every)}")
        if not names or len(set(names)) < len(names):
            raise OptionError("name each column of the table once, and at least one")
        return replace(self, columns=names)

    def adopt(self, schema: StructType) -> Self:
        """The same for a schema that the user gave. Raises `OptionError` if it does not fit."""
        made = self.with_columns(tuple(field.name for field in schema.fields))
        for ours, theirs in zip(made.spark_schema.fields, schema.fields, strict=True):
            if ours.dataType != theirs.dataType or not theirs.nullable:
                raise OptionError(
                    f"the column {ours.name} is {ours.dataType.simpleString()} and may be null: cast in the query"
                )
        return made

    @property
    def spark_schema(self) -> StructType:
        """What Spark is told."""
        every = TABLES[self.table]
        return StructType([StructField(name, every[name][0], nullable=True) for name in self.columns])

    @property
    def arrow_schema(self) -> pa.Schema:
        """What Spark is given."""
        every = TABLES[self.table]
        return pa.schema([pa.field(name, every[name][1]) for name in self.columns])


def is_of_tables(options: Mapping[str, str]) -> bool:
    """Whether these options ask for a metadata table."""
    return any(key.lower() == "table" for key in options)
