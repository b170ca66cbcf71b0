"""`bookkeeper spark ...`: jobs over many ledgers, on a machine's cores or on a Spark cluster.

Nothing of Spark is imported before a command runs, so that the other commands work without it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ..errors import BookKeeperError, ConfigurationError
from ..spark.launch import require_java, require_packages, spark_session
from .output import (
    EXIT_USAGE,
    JsonOption,
    PasswordOption,
    UriOption,
    console,
    execute,
    fail,
    human_bytes,
    notes,
    print_json,
    print_table,
    text_of,
)

if TYPE_CHECKING:
    from ..spark.jobs.running import JobProgress
    from ..spark.options import ReadOptions
    from ..spark.planning import Plan

app = typer.Typer(no_args_is_help=True, help="Export, scrub and measure ledgers with Apache Spark.")

EXIT_FOUND = 3
"""A scrub ran to its end and found something."""

TABLE_ROWS = 40

LedgersOption = Annotated[
    str, typer.Option("--ledgers", "-l", help="Ids and ranges: 5,10-20,100- ; or all.", show_default=True)
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option("--where", "-w", metavar="KEY=VALUE", help="Only ledgers with this custom metadata. Repeatable."),
]
OpenOption = Annotated[
    str,
    typer.Option(
        "--open-ledgers",
        help="Ledgers still being written: lac (read what is confirmed), skip, or recover (fence and close).",
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option("--master", "-m", envvar="MASTER", help="Spark master. Default: this machine's cores."),
]
ConfOption = Annotated[
    list[str] | None, typer.Option("--conf", "-c", metavar="KEY=VALUE", help="A Spark setting. Repeatable.")
]
OptionOption = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="KEY=VALUE", help="An option of reads, see docs/spark.md. Repeatable."),
]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Show what Spark logs.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", "-n", help="Say what would be done, and do not.")]


@app.command()
def export(
    output: Annotated[str, typer.Argument(help="A new directory, or an address such as s3://bucket/path.")],
    uri: UriOption,
    ledgers: LedgersOption = "all",
    where: WhereOption = None,
    password: PasswordOption = "",
    open_ledgers: OpenOption = "lac",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an export that stopped.")] = False,
    append: Annotated[
        bool, typer.Option("--append", help="Add what a finished export does not hold yet: nightly, for instance.")
    ] = False,
    compression: Annotated[str, typer.Option("--compression", help="zstd, snappy, gzip, lz4 or none.")] = "zstd",
    dry_run: DryRunOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    option: OptionOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write ledgers to Parquet files, many small ledgers to a file, with a manifest; read them back and compare."""
    with cli_errors():
        options = _options(uri, ledgers, where, password, open_ledgers, option)
        from ..spark.jobs import export as job

        if dry_run:
            plan = job.plan_export(options, output, append=append)
            _show_plan(plan, f"would be written to {output}", as_json)
            return
        with (
            spark_session("bookkeeper export", master, _settings(conf), verbose=verbose) as spark,
            _bar("exporting") as on_progress,
        ):
            report = job.export(
                spark, options, output, resume=resume, append=append, compression=compression, on_progress=on_progress
            )
    if as_json:
        print_json(report.as_dict())
        return
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


@app.command()
def scrub(
    uri: UriOption,
    ledgers: LedgersOption = "all",
    where: WhereOption = None,
    open_ledgers: OpenOption = "lac",
    output: Annotated[str | None, typer.Option("--output", help="Also write all rows here, as Parquet.")] = None,
    dry_run: DryRunOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    option: OptionOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Read every copy of every entry: is it there, is its digest right, are there as many as the metadata say?

    Nothing is changed. Exit code 3 when something is not as it should be.
    """
    with cli_errors():
        options = replace(_options(uri, ledgers, where, "", open_ledgers, option), as_admin=True)
        from ..spark.jobs import scrub as job

        plan = job.plan_scrub(options)
        if dry_run:
            _show_plan(plan, "would be checked, every copy", as_json)
            return
        with spark_session("bookkeeper scrub", master, _settings(conf), verbose=verbose) as spark:
            with _bar("scrubbing") as on_progress:
                report = job.scrub(spark, options, plan=plan, on_progress=on_progress)
            if output is not None:
                _write(report.rows, output)
    if as_json:
        print_json(report.as_dict())
    else:
        statuses = sorted({status for counts in report.bookies.values() for status in counts} - {"ok"})
        print_table(
            "good and other copies by bookie",
            ["bookie", "ok", *statuses],
            [
                (bookie, counts.get("ok", 0), *(counts.get(status, 0) for status in statuses))
                for bookie, counts in report.bookies.items()
            ],
        )
        if report.problems:
            _show_problems(report.problems)
        console.print(
            f"{report.ledgers:,} ledgers, {report.entries:,} entries, {report.copies:,} good copies,"
            f" {human_bytes(report.bytes)}"
        )
        console.print(
            "clean" if report.clean else ", ".join(f"{status}: {count:,}" for status, count in report.statuses.items())
        )
    if not report.clean:
        raise typer.Exit(EXIT_FOUND)


@app.command()
def usage(
    uri: UriOption,
    ledgers: LedgersOption = "all",
    where: WhereOption = None,
    open_ledgers: OpenOption = "lac",
    output: Annotated[str | None, typer.Option("--output", help="Also write all rows here, as Parquet.")] = None,
    dry_run: DryRunOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    option: OptionOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Bytes by ledger and bookie."""
    with cli_errors():
        options = replace(_options(uri, ledgers, where, "", open_ledgers, option), as_admin=True)
        from ..spark.jobs import usage as job

        plan = job.plan_usage(options)
        if dry_run:
            if as_json:
                print_json({"ledgers": len(plan)})
            else:
                console.print(f"{len(plan):,} ledgers would be looked at")
            return
        with spark_session("bookkeeper usage", master, _settings(conf), verbose=verbose) as spark:
            with _bar("adding up") as on_progress:
                report = job.usage(spark, options, plan=plan, on_progress=on_progress)
            if output is not None:
                _write(report.rows, output)
    if as_json:
        print_json(report.as_dict())
        return
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


# --- parts ---------------------------------------------------------------------------------------


@contextmanager
def cli_errors() -> Iterator[None]:
    """Turns this package's errors into one line."""
    try:
        yield
    except ConfigurationError as error:
        fail(text_of(error), EXIT_USAGE)
    except (BookKeeperError, OSError) as error:
        fail(text_of(error))


def _options(
    uri: str, ledgers: str, where: list[str] | None, password: str, open_ledgers: str, more: list[str] | None
) -> ReadOptions:
    require_packages()
    from ..spark.options import ReadOptions

    given = {"uri": uri, "ledgers": ledgers, "password": password, "openLedgers": open_ledgers}
    given |= {f"ledgerMetadata.{key}": value for key, value in _pairs("--where", where)}
    given |= dict(_pairs("--option", more))
    return ReadOptions.parse(given)


def _settings(conf: list[str] | None) -> dict[str, str]:
    return dict(_pairs("--conf", conf))


def _pairs(flag: str, texts: list[str] | None) -> Iterator[tuple[str, str]]:
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigurationError(f"{flag} {text}: say KEY=VALUE")
        yield key, value


def _show_plan(plan: Plan, what: str, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "ledgers": len(plan.snapshots),
                "entries": plan.entries,
                "bytes": plan.bytes,
                "tasks": len(plan.partitions),
            }
        )
        return
    console.print(
        f"{len(plan.snapshots):,} ledgers with {plan.entries:,} entries, {human_bytes(plan.bytes)} of payload, in"
        f" {len(plan.partitions):,} tasks {what}",
        markup=False,
        soft_wrap=True,
    )


def _show_problems(problems: list[dict[str, Any]]) -> None:
    shown = problems[:TABLE_ROWS]
    print_table(
        "not as it should be" + (f" (the first {TABLE_ROWS})" if len(problems) > TABLE_ROWS else ""),
        ["ledger", "entries", "bookie", "status", "detail"],
        [
            (
                str(each["ledger_id"]),
                str(each["first_entry"])
                if each["first_entry"] == each["last_entry"]
                else f"{each['first_entry']}-{each['last_entry']}",
                each["bookie"] or "",
                each["status"],
                each["detail"] or "",
            )
            for each in shown
        ],
    )


def _write(rows: Any, output: str) -> None:
    """All rows as Parquet. Spark takes a path without a scheme for one of its default file system."""
    from ..spark.jobs.running import spark_errors

    with spark_errors():
        rows.write.parquet(output if "://" in output else Path(output).absolute().as_uri())


@contextmanager
def _bar(what: str) -> Iterator[Callable[[JobProgress], None] | None]:
    """A progress bar with rows, bytes and the time left; none where stderr is no terminal."""
    if not notes.is_terminal:
        yield None
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[done]}"),
        TimeRemainingColumn(),
        console=notes,
        transient=True,
    ) as bar:
        task = bar.add_task(what, total=None, done="starting Spark")

        def update(progress: JobProgress) -> None:
            by_bytes = progress.total_bytes > 0
            bar.update(
                task,
                total=progress.total_bytes if by_bytes else progress.total_rows,
                completed=progress.bytes if by_bytes else progress.rows,
                done=f"{progress.rows:,} rows" + (f", {human_bytes(progress.bytes)}" if by_bytes else ""),
            )

        yield update
