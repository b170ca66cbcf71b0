"""Ingest: files and tables become records of streams, each row once (spec streams §18).

Spark's own readers read them, and the sink of streams writes. Files go as a query that ends with what is there: its
checkpoint knows which files were read, and the sink which batches are in the stream. So whoever begins an ingest again,
after a failure or when there are more files, gives the same checkpoint, and nothing is written twice. A file must not
change once it is there: give it its name when it is complete.

What Spark cannot read as a query, a table over JDBC, is one write. There the names of sink and epoch take the place of
the checkpoint: the same two again write nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from ..errors import OptionError
from .running import JobProgress, OnProgress, spark_errors

FORMATS = ("text", "json", "csv", "parquet", "orc", "jdbc")
"""Of the source; the first is the default."""

LOOK_SECONDS = 1
"""How often a query is asked how far it is: Spark keeps the progress of its last 100 batches."""

AS_JSON = "to_json(struct(*))"


@dataclass(frozen=True)
class IngestPlan:
    """What is to be ingested. Raises `OptionError` for what does not go together."""

    uri: str
    """Of the namespace."""
    stream: str
    source: str
    """A directory or pattern of files; for JDBC the name of a table."""
    format: str = FORMATS[0]
    checkpoint: str | None = None
    """Of files: a directory that says what was read."""
    sink_id: str | None = None
    epoch: int | None = None
    """Of JDBC, with `sink_id`."""
    payload: str | None = None
    """SQL: what of a row is the record. None: the line of a text, of other formats the row as JSON."""
    reading: Mapping[str, str] = field(default_factory=dict)
    """Options for Spark's reader."""
    writing: Mapping[str, str] = field(default_factory=dict)
    """Options for the sink."""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise OptionError(f"format={self.format!r} is none of {', '.join(FORMATS)}")
        if self.is_query and (self.checkpoint is None or self.epoch is not None):
            raise OptionError(
                "an ingest of files needs a checkpoint, and has no epoch: the checkpoint says what was read"
            )
        if not self.is_query and (self.sink_id is None or self.epoch is None or self.checkpoint is not None):
            raise OptionError("an ingest over JDBC needs a sink id and an epoch, and has no checkpoint")

    @property
    def is_query(self) -> bool:
        """Whether Spark follows the source, file by file."""
        return self.format != "jdbc"

    @property
    def sink(self) -> dict[str, str]:
        """All options of the sink."""
        named = {"sinkId": self.sink_id, "epoch": self.epoch, "checkpointLocation": _place(self.checkpoint)}
        given = {key: str(value) for key, value in named.items() if value is not None}
        return {**self.writing, **given, "uri": self.uri, "stream": self.stream}

    def records(self, rows: DataFrame) -> DataFrame:
        """One column: what the records are."""
        default = "value" if self.format == "text" else AS_JSON
        return rows.selectExpr(f"{self.payload or default} as payload")


@dataclass(frozen=True)
class IngestReport:
    """What one run did."""

    rows: int
    """Read in this run; none if all was there before."""
    batches: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class IngestPreview:
    """What would be ingested."""

    columns: str
    """Of the source, with their types, as SQL has them."""
    records: Sequence[bytes]
    """The first ones, as they would be."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"columns": self.columns, "records": [record.decode(errors="replace") for record in self.records]}


def preview(spark: SparkSession, plan: IngestPlan, count: int = 5) -> IngestPreview:
    """Look at the first rows, and write nothing. Raises `JobError`."""
    with spark_errors():
        rows = _table(spark, plan)
        records = plan.records(rows).selectExpr("cast(payload as binary) as payload").limit(count).collect()
    columns = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in rows.schema)
    return IngestPreview(columns, [bytes(row.payload) for row in records if row.payload is not None])


def ingest(spark: SparkSession, plan: IngestPlan, on_progress: OnProgress | None = None) -> IngestReport:
    """Ingest what is there and was not ingested before. Raises `JobError`, whatever went wrong in Spark."""
    started = time.monotonic()
    with spark_errors():
        if not plan.is_query:
            rows = _write_once(spark, plan)
            return IngestReport(rows, 1, time.monotonic() - started)
        batches = _follow(_begun(spark, plan), started, on_progress)
    return IngestReport(sum(batches.values()), len(batches), time.monotonic() - started)


def _write_once(spark: SparkSession, plan: IngestPlan) -> int:
    counted = Observation()
    records = plan.records(_table(spark, plan)).observe(counted, F.count(F.lit(1)).alias("rows"))
    records.write.format("bookkeeper").options(**plan.sink).mode("append").save()
    return int(counted.get["rows"])


def _table(spark: SparkSession, plan: IngestPlan) -> DataFrame:
    """The source as it is now."""
    reader = spark.read.format(plan.format)
    if not plan.is_query:
        return reader.options(dbtable=plan.source, **plan.reading).load()
    return reader.options(**plan.reading).load(_place(plan.source))


def _begun(spark: SparkSession, plan: IngestPlan) -> StreamingQuery:
    reader = spark.readStream.format(plan.format).options(**plan.reading)
    if plan.format != "text":
        reader = reader.schema(_table(spark, plan).schema)
    writer = plan.records(reader.load(_place(plan.source))).writeStream.format("bookkeeper").options(**plan.sink)
    return writer.trigger(availableNow=True).start()


def _follow(query: StreamingQuery, started: float, on_progress: OnProgress | None) -> dict[int, int]:
    """Waits for its end; rows by batch."""
    batches: dict[int, int] = {}
    try:
        over = False
        while not over:
            over = bool(query.awaitTermination(LOOK_SECONDS))
            batches |= {each["batchId"]: each["numInputRows"] for each in query.recentProgress if each["numInputRows"]}
            if on_progress is not None:
                rows = sum(batches.values())
                on_progress(JobProgress(rows, 0, 0, 0, time.monotonic() - started))
    finally:
        query.stop()
    return batches


def _place(path: str | None) -> str | None:
    """Spark takes a path without a scheme for one of its default file system, which here is this machine's."""
    return path if path is None or "://" in path else str(Path(path).absolute())
