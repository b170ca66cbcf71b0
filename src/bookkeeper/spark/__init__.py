"""Ledgers in Apache Spark: a data source, and jobs over whole clusters (docs/spark.md).

    df = spark.read.format("bookkeeper").option("uri", "zk://zk1:2181/ledgers").option("ledgers", "5,10-20").load()

    import bookkeeper.spark
    df = bookkeeper.spark.read_ledgers(spark, "zk://zk1:2181/ledgers", "all", where="ledger_id > 9 and entry_id < 100")
    bookkeeper.spark.export(spark, uri, "all", "s3://archive/ledgers")
    report = bookkeeper.spark.scrub(spark, uri)

Needs `pip install 'bookkeeper-ledger[spark]'` and a Java 17 or newer. Every function raises errors of this package
(`bookkeeper.BookKeeperError`) with one plain line, whatever Spark made of them on the way.

source    the data source `bookkeeper`
options   what a read's options are called, mean, and which go together
values    what the text of an option says
where     conditions on ids; bounds is what they leave
streaming/ reading streams, and ledgers that grow
writing/  writing streams
tables/   metadata as tables
planning  from a selection of ledgers to pieces of work of about equal size
reading   what a task does
rows      types of the columns, and batches of them; what makes columns of packed entries is client/reads/columns
session   one client per process and cluster
replicas  every copy of a range of entries, as arrays
jobs/     export, ingest, scrub, usage
errors    what goes wrong, in words for the person at the driver
launch    starting Spark from a command
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .launch import require_packages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .jobs.export import ExportReport
    from .jobs.ingest import IngestReport
    from .jobs.running import OnProgress
    from .jobs.scrub import ScrubReport
    from .jobs.usage import UsageReport
    from .options import ReadOptions

__all__ = ["enable", "export", "ingest", "read_ledgers", "scrub", "usage"]


def enable(spark: SparkSession) -> None:
    """Register the data source with this session. Needed only where Spark does not find it by itself, as on a Spark
    Connect server that was started without this package."""
    require_packages()
    from .source import BookKeeperDataSource

    spark.dataSource.register(BookKeeperDataSource)


def read_ledgers(
    spark: SparkSession, uri: str, ledgers: str | int = "all", *, where: str | None = None, **options: Any
) -> DataFrame:
    """`spark.read.format("bookkeeper")` with these options; values may be numbers and booleans too.

    `where`: conditions on ids, such as `"ledger_id in (5, 7) and entry_id between 10 and 20"`, which decide what is
    looked up and read from the bookies. The first action on the DataFrame fixes what it reads: load again to see more.
    """
    require_packages()
    if where is not None:
        options["where"] = where
    return spark.read.format("bookkeeper").options(**_texts(uri, ledgers, options)).load()


def export(
    spark: SparkSession,
    uri: str,
    ledgers: str | int,
    output: str,
    *,
    resume: bool = False,
    append: bool = False,
    compression: str = "zstd",
    on_progress: OnProgress | None = None,
    **options: Any,
) -> ExportReport:
    """Write ledgers to Parquet files in `output`, many small ledgers to a file, with a manifest; all read back.

    `append`: add what a finished export does not hold yet. `resume`: go on with one that stopped. `options` are those
    of a read. Raises `ExportError`, and what reading raises.
    """
    parsed = _parse(uri, ledgers, options)
    from .jobs import export as job

    return job.export(
        spark, parsed, output, resume=resume, append=append, compression=compression, on_progress=on_progress
    )


def ingest(
    spark: SparkSession,
    uri: str,
    stream: str,
    source: str,
    *,
    format: str = "text",
    checkpoint: str | None = None,
    sink_id: str | None = None,
    epoch: int | None = None,
    payload: str | None = None,
    reading: dict[str, str] | None = None,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> IngestReport:
    """Write what files have, or a table over JDBC, to a stream, each row once, however often this is begun again.

    - `uri`: address of the namespace. `stream` is made if it is not there.
    - `source`: a directory or pattern of files; for JDBC the name of a table. `format`: text, json, csv, parquet, orc
      or jdbc. `reading`: options for Spark's reader of it, such as `url` of a database.
    - `checkpoint`: of files, a directory that says what was read. `sink_id`, `epoch`: of JDBC in its place.
    - `payload`: SQL that makes a record of a row. None: the line of a text, of other formats the row as JSON.
    - `options`: those of a write to streams.

    Raises `OptionError`, and `JobError` for whatever went wrong in Spark.
    """
    require_packages()
    from .jobs import ingest as job

    writing = _as_text(options)
    plan = job.IngestPlan(uri, stream, source, format, checkpoint, sink_id, epoch, payload, reading or {}, writing)
    return job.ingest(spark, plan, on_progress)


def scrub(
    spark: SparkSession, uri: str, ledgers: str | int = "all", *, on_progress: OnProgress | None = None, **options: Any
) -> ScrubReport:
    """Check every replica of every entry. `options` are those of a read; passwords are taken from the metadata."""
    parsed = replace(_parse(uri, ledgers, options), as_admin=True)
    from .jobs import scrub as job

    return job.scrub(spark, parsed, on_progress=on_progress)


def usage(
    spark: SparkSession, uri: str, ledgers: str | int = "all", *, on_progress: OnProgress | None = None, **options: Any
) -> UsageReport:
    """Bytes by ledger and bookie. `options` are those of a read; passwords are taken from the metadata."""
    parsed = replace(_parse(uri, ledgers, options), as_admin=True)
    from .jobs import usage as job

    return job.usage(spark, parsed, on_progress=on_progress)


def _parse(uri: str, ledgers: str | int, options: dict[str, Any]) -> ReadOptions:
    require_packages()
    from .options import ReadOptions

    return ReadOptions.parse(_texts(uri, ledgers, options))


def _texts(uri: str, ledgers: str | int, options: dict[str, Any]) -> dict[str, str]:
    return {"uri": uri, "ledgers": str(ledgers), **_as_text(options)}


def _as_text(options: dict[str, Any]) -> dict[str, str]:
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()}
