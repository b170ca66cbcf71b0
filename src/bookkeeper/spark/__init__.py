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
archive/  segments that were offloaded to files
tables/   metadata as tables
planning  from a selection of ledgers to pieces of work of about equal size
reading   what a task does; pieces is what it gives
rows      types of the columns, and batches of them; what makes columns of packed entries is client/reads/columns
session   one client per process and cluster
replicas  every copy of a range of entries, as arrays
files     where jobs write files
jobs/     export, ingest, mend, offload, rereplicate, scrub, usage
errors    what goes wrong, in words for the person at the driver
launch    starting Spark from a command
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..types import parse_bookie_id
from .launch import require_packages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .jobs.export import ExportReport
    from .jobs.ingest import IngestReport
    from .jobs.mending import MendReport
    from .jobs.offloading import OffloadReport
    from .jobs.rebuild import RebuildReport
    from .jobs.rereplicate import RereplicateReport
    from .jobs.running import OnProgress
    from .jobs.scrub import ScrubReport
    from .jobs.usage import UsageReport
    from .options import ReadOptions

__all__ = [
    "enable", "export", "ingest", "lag", "mend", "offload", "read_ledgers", "rebuild", "rereplicate", "scrub", "usage",
]  # fmt: skip


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


def lag(namespace: str, progress: Mapping[str, Any], **options: Any) -> dict[str, int]:
    """For each stream that a query reads, how many records it has not read yet.

    - `namespace`: its address, as the option `uri` of the query.
    - `progress`: `query.lastProgress`, or `event.progress` in `onQueryProgress` of a `StreamingQueryListener`.
    - `options`: settings of the client (`bk.*`), `metadataTimeout`.

    Streams that are gone are left out. Raises what the metadata service raises.
    """
    from .options import ReadOptions
    from .session import namespace_session
    from .streaming.lag import records_behind

    parsed = ReadOptions.parse({"uri": namespace, "ledgers": "all", **_as_text(options)})
    with namespace_session(parsed.uri, parsed.configuration(), parsed.metadata_timeout) as connected:
        return connected.run(records_behind(connected.client, progress))


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


def offload(
    spark: SparkSession | None,
    uri: str,
    archive: str,
    *,
    stream: str | None = None,
    pattern: str | None = None,
    older_than: float = 0.0,
    keep: int = 0,
    delete: bool = False,
    apply: bool = False,
    at_once: int | None = None,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> OffloadReport:
    """Make Parquet files of completed segments of streams, which reads of the stream by Spark follow from then on.

    - `uri`: address of the namespace. `stream` or `pattern` (of whole names): which streams.
    - `archive`: a directory, or an address such as `s3://bucket/path`, that readers and executors can open.
    - `older_than`: seconds since a segment was completed. `keep`: so many newest ones are left alone.
    - `delete`: then truncate the streams as far as they are in the archive and subscribers have read them, and delete
      the ledgers. Other readers than Spark's find the streams shorter then.
    - `apply`: do it. Else it is only said what would be done, and `spark` may be None.
    - `at_once`: tasks at most. `options`: those of a read.

    Begin it again after a failure: what is in the archive is not written again. Raises `ArchiveError`,
    `StreamNotFoundError`, and what reading raises.
    """
    require_packages()
    from .jobs import offloading as work
    from .streaming.stream_options import StreamOptions

    named = {"stream": stream, "streamPattern": pattern}
    given = {"uri": uri, **{key: value for key, value in named.items() if value is not None}, **_as_text(options)}
    job = work.OffloadJob(StreamOptions.parse(given, streaming=False), archive, older_than, keep, delete, at_once)
    return work.offload(spark, job, apply=apply, on_progress=on_progress)


def rereplicate(
    spark: SparkSession,
    uri: str,
    lost: Sequence[str],
    ledgers: str | int = "all",
    *,
    recover_open: bool = False,
    rate: int = -1,
    at_once: int | None = None,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> RereplicateReport:
    """Copy what lost bookies held to others, and take them out of the ledgers' metadata. Bookies that run are drained.

    - `recover_open`: ledgers that are being written are fenced, closed and copied, too; else they are left alone.
    - `rate`: bytes that each task reads in a second at most; -1: no bound. `at_once`: tasks at most.
    - `options`: those of a read. Raises `ConfigurationError` for a name that no bookie can have.

    Safe beside autorecovery. Run it again after a failure: what is done is not done again.
    """
    parsed = replace(_parse(uri, ledgers, options), as_admin=True)
    from .jobs import rereplicate as job

    bookies = [parse_bookie_id(name) for name in lost]
    return job.rereplicate(
        spark, parsed, bookies, recover_open=recover_open, rate=rate, at_once=at_once, on_progress=on_progress
    )


def rebuild(
    spark: SparkSession,
    uri: str,
    ledgers: str,
    *,
    bookies: int,
    passwords: Sequence[bytes] = (),
    ensemble_size: int | None = None,
    write_quorum: int | None = None,
    end_at_gaps: bool = False,
    apply: bool = False,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> RebuildReport:
    """Write records again that the metadata store has lost, from the entries that the bookies list.

    - `ledgers`: the ids to look for, as `0-99999`. `bookies`: so many must run, or nothing is done.
    - `passwords`: one of them, or none, is each ledger's.
    - `ensemble_size`, `write_quorum`: of all of these ledgers, if known.
    - `end_at_gaps`: a ledger of which nobody lists an entry, but later ones, ends before it unless it was confirmed.
    - `apply`: fence them and write the records, closed at the last entry. Else it is only said what would be written.
    - `options`: those of a read.

    Bookies must not collect garbage (`gcWaitTime`) until nothing is undecided. Raises `OptionError`, `JobError`.
    """
    parsed = replace(_parse(uri, ledgers, options), as_admin=True)
    from .jobs import rebuild as job

    known = job.Known(tuple(dict.fromkeys([*passwords, b""])), ensemble_size, write_quorum, bookies, end_at_gaps)
    return job.rebuild(spark, parsed, known, apply=apply, on_progress=on_progress)


def scrub(
    spark: SparkSession,
    uri: str,
    ledgers: str | int = "all",
    *,
    sample: str | None = None,
    sample_entries: str | None = None,
    since: str | None = None,
    seed: int | None = None,
    state: str | None = None,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> ScrubReport:
    """Check every replica of every entry. `options` are those of a read; passwords are taken from the metadata.

    - `sample`: a share (`5%`, `0.05`) or a number of the ledgers. `sample_entries`: of the entries of each ledger;
      entries that a bookie does not list are found all the same. `seed`: which ones; None: others each time.
    - `since`: only ledgers made since then (`7d` ago, or `2026-05-01`), or not closed yet; `last`: those that the last
      scrubs of the same state did not find whole as they are now.
    - `state`: a directory that executors can write to. A scrub that died is gone on with there.

    Raises `OptionError`, and `JobError` when the one to be gone on with was asked for something else.
    """
    parsed = replace(_parse(uri, ledgers, options), as_admin=True)
    from .jobs import scrub as job
    from .jobs.scrubbing.choice import Choice

    choice = Choice.parse(sample, sample_entries, since, seed)
    return job.scrub(spark, parsed, choice, state=state, on_progress=on_progress)


def mend(
    spark: SparkSession,
    uri: str,
    found: ScrubReport | DataFrame,
    *,
    rate: int = -1,
    at_once: int | None = None,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> MendReport:
    """Write the copies again that a scrub found missing, damaged or divergent, from good ones.

    - `found`: a report, or its rows, as they were kept.
    - `rate`: bytes that each task reads in a second at most; -1: no bound. `at_once`: tasks at most.
    - `options`: those of a read.

    Safe beside autorecovery. Ledgers of bookies that could not be asked are marked for it.
    """
    parsed = replace(_parse(uri, "all", options), as_admin=True)
    from .jobs import mending as job
    from .jobs.scrub import ScrubReport

    rows = found.rows if isinstance(found, ScrubReport) else found
    return job.mend(spark, parsed, rows, rate=rate, at_once=at_once, on_progress=on_progress)


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
