"""`bookkeeper spark ...`: jobs over many ledgers, on a machine's cores or on a Spark cluster.

Nothing of Spark is imported before a command runs, so that the other commands work without it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..spark.launch import require_java, require_packages
from .jobs import DryRunOption, JobOptions, MasterOption, RowsOption, SparkOptions, cli_errors, show_amounts, write_rows
from .options import PasswordOption, grouped, pairs
from .output import console, counted, execute, fail, human_bytes, print_json, print_table
from .upkeep.mending import mend
from .upkeep.offload import offload
from .upkeep.rebuild import rebuild
from .upkeep.rereplicate import rereplicate
from .upkeep.scrub import scrub

if TYPE_CHECKING:
    from ..spark.jobs.export import ExportReport
    from ..spark.jobs.ingest import IngestPreview
    from ..spark.jobs.usage import UsageReport
    from ..spark.planning import Plan

app = typer.Typer(
    no_args_is_help=True, help="Export, scrub and measure ledgers, ingest files, offload streams, with Apache Spark."
)
app.command()(rereplicate)
app.command()(rebuild)
app.command()(offload)
app.command()(scrub)
app.command()(mend)

# --- export ---


@app.command()
@grouped
def export(
    output: Annotated[str, typer.Argument(help="A new directory, or an address such as s3://bucket/path.")],
    job: JobOptions,
    password: PasswordOption = "",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an export that stopped.")] = False,
    append: Annotated[
        bool, typer.Option("--append", help="Add what a finished export does not hold yet: nightly, for instance.")
    ] = False,
    compression: Annotated[str, typer.Option("--compression", help="zstd, snappy, gzip, lz4 or none.")] = "zstd",
) -> None:
    """Write ledgers to Parquet files, many small ledgers to a file, with a manifest; read them back and compare."""
    with cli_errors():
        options = job.reading(password)
        from ..spark.jobs import export as work

        if job.dry_run:
            plan = work.plan_export(options, output, append=append)
            _show_plan(plan, output, job.as_json)
            return
        with job.on_spark("export", "exporting") as (spark, on_progress):
            report = work.export(
                spark, options, output, resume=resume, append=append, compression=compression, on_progress=on_progress
            )
    if job.as_json:
        print_json(report.as_dict())
    else:
        _show_export(report)


def _show_export(report: ExportReport) -> None:
    print_table(
        None,
        ["what", "result"],
        [
            ("ledgers", f"{report.ledgers:,}"),
            ("entries", f"{report.rows:,}, {human_bytes(report.bytes)} of payload"),
            ("files", f"{report.files:,}, {human_bytes(report.file_bytes)}"),
            ("read back", "every file, equal to what the bookies gave"),
            ("damaged copies passed over", f"{report.damaged_copies:,}"),
            ("manifest", report.manifest or "as it was: there was nothing new"),
        ],
    )


# --- ingest ---


@dataclass(frozen=True)
class OnceOptions:
    """By what it is known which rows are there already."""

    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", help="Of files: a directory that says what was read. Keep it.")
    ] = None
    sink_id: Annotated[str | None, typer.Option("--sink-id", help="Of JDBC, with --epoch: who writes.")] = None
    epoch: Annotated[int | None, typer.Option("--epoch", min=0, help="Of JDBC: the same one again writes nothing.")] = (
        None
    )


@app.command()
@grouped
def ingest(
    source: Annotated[str, typer.Argument(help="A directory or pattern of files; with -f jdbc the name of a table.")],
    stream: Annotated[str, typer.Argument(help="The stream; it is made if it is not there.")],
    spark_options: SparkOptions,
    once: OnceOptions,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace", "-N", envvar="BOOKKEEPER_NAMESPACE", help="Its address: distributedlog://zk1:2181/orders"
        ),
    ],
    format: Annotated[
        str, typer.Option("--format", "-f", help="text (a line a record), json, csv, parquet, orc or jdbc.")
    ] = "text",
    payload: Annotated[
        str | None, typer.Option("--payload", help="SQL that makes a record of a row. Default: the row as JSON.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="KEY=VALUE", help="An option of Spark's reader. Repeatable."),
    ] = None,
    write_option: Annotated[
        list[str] | None,
        typer.Option("--write-option", metavar="KEY=VALUE", help="An option of writes, see docs/spark.md. Repeatable."),
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Write files, or a table over JDBC, to a stream, each row once.

    After a failure, or when there are more files, begin it again with the same checkpoint.
    """
    with cli_errors():
        require_packages()
        from ..spark.jobs import ingest as work

        reading, writing = dict(pairs("--option", option)), dict(pairs("--write-option", write_option))
        plan = work.IngestPlan(
            namespace, stream, source, format, once.checkpoint, once.sink_id, once.epoch, payload, reading, writing
        )
        with spark_options.on_spark("ingest", "looking" if dry_run else "ingesting") as (spark, on_progress):
            if dry_run:
                _show_preview(work.preview(spark, plan), stream, spark_options.as_json)
                return
            report = work.ingest(spark, plan, on_progress)
    if spark_options.as_json:
        print_json(report.as_dict())
    else:
        batches = counted(report.batches, "batch", "batches")
        console.print(f"{report.rows:,} rows in {batches}, {report.seconds:.1f} s")


def _show_preview(found: IngestPreview, stream: str, as_json: bool) -> None:
    if as_json:
        print_json(found.as_dict())
        return
    typer.echo(f"columns: {found.columns}")
    typer.echo(f"records of {stream}, the first ones:" if found.records else "there are no rows")
    for record in found.records:
        typer.echo(record.decode(errors="replace"))


# --- usage ---


@app.command()
@grouped
def usage(job: JobOptions, output: RowsOption = None) -> None:
    """Bytes by ledger and bookie."""
    with cli_errors():
        options = job.reading_as_admin()
        from ..spark.jobs import usage as work

        plan = work.plan_usage(options)
        if job.dry_run:
            _show_usage_plan(len(plan), job.as_json)
            return
        with job.on_spark("usage", "adding up") as (spark, on_progress):
            report = work.usage(spark, options, plan=plan, on_progress=on_progress)
            write_rows(report.rows, output)
    if job.as_json:
        print_json(report.as_dict())
    else:
        _show_usage(report)


def _show_usage(report: UsageReport) -> None:
    print_table(
        "by bookie",
        ["bookie", "ledgers", "entries", "payload", "stored", "disk free"],
        [
            (
                each["bookie"],
                each["ledgers"],
                each["entries"],
                human_bytes(each["bytes"]),
                human_bytes(each["stored_bytes"]),
                human_bytes(each["disk_free"]) if "disk_free" in each else "not running",
            )
            for each in report.bookies
        ],
    )
    print_table(
        "largest ledgers",
        ["ledger", "state", "entries", "payload", "stored", "bookies"],
        [
            (
                str(each["ledger_id"]),
                each["state"],
                each["entries"],
                human_bytes(each["bytes"]),
                human_bytes(each["stored_bytes"]),
                each["bookies"],
            )
            for each in report.largest
        ],
    )
    console.print(
        f"{report.ledgers:,} ledgers, {report.entries:,} entries, {human_bytes(report.bytes)} of payload,"
        f" {human_bytes(report.stored_bytes)} stored"
    )


# --- what would be done ---


def _show_plan(plan: Plan, output: str, as_json: bool) -> None:
    ledgers, tasks = len(plan.snapshots), len(plan.partitions)
    show_amounts(ledgers, plan.entries, plan.bytes, tasks, f"would be written to {output}", as_json)


def _show_usage_plan(ledgers: int, as_json: bool) -> None:
    if as_json:
        print_json({"ledgers": ledgers})
    else:
        console.print(f"{counted(ledgers, 'ledger')} would be looked at")


# --- demo ---


@app.command()
def demo(
    file: Annotated[
        Path | None, typer.Argument(help="Input, a line an entry. Default: the sources of Python's standard library.")
    ] = None,
    chart: Annotated[Path, typer.Option("--chart", help="Where the chart goes.")] = Path("demo-spark.png"),
    master: MasterOption = None,
) -> None:
    """Ingest real data, read it with Spark while a bookie is killed, export it, scrub it, and draw a chart."""
    if file is not None and not file.is_file():
        fail(f"{file} is not a file")
    if not chart.absolute().parent.is_dir():
        fail(f"{chart.absolute().parent} is not a directory")
    with cli_errors():
        require_packages("matplotlib")
        require_java()
        from .local import spark_demo

        with tempfile.TemporaryDirectory(prefix="bookkeeper-demo-") as temporary:
            execute(lambda runtime: spark_demo.demo(runtime, Path(temporary), file, chart, master))


@app.command(name="demo-pipeline")
def demo_pipeline(
    file: Annotated[
        Path | None, typer.Argument(help="Input, lines of text. Default: the sources of Python's standard library.")
    ] = None,
    chart: Annotated[Path, typer.Option("--chart", help="Where the chart goes.")] = Path("demo-pipeline.png"),
    drive: Annotated[str | None, typer.Option("--drive", hidden=True, help="Be the driver; FILE: its folder.")] = None,
) -> None:
    """Files to Parquet through two streams, with a worker, a bookie and the driver killed on the way."""
    if drive is not None:
        from .local import pipeline

        assert file is not None
        with cli_errors():
            pipeline.drive(drive, file)
        return
    if file is not None and not file.is_file():
        fail(f"{file} is not a file")
    if not chart.absolute().parent.is_dir():
        fail(f"{chart.absolute().parent} is not a directory")
    with cli_errors():
        require_packages("matplotlib")
        require_java()
        from .local import pipeline_demo

        with tempfile.TemporaryDirectory(prefix="bookkeeper-demo-") as temporary:
            execute(lambda runtime: pipeline_demo.demo(runtime, Path(temporary), file, chart))
