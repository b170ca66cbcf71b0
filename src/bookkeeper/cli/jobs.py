"""What the jobs of `bookkeeper spark ...` have in common: their options, starting Spark, a bar of their progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ..errors import BookKeeperError, ConfigurationError
from ..spark.launch import require_packages, spark_session
from .options import JsonOption, UriOption, pairs
from .output import EXIT_USAGE, console, counted, entries_text, fail, human_bytes, notes, print_json, text_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..spark.jobs.running import JobProgress, OnProgress
    from ..spark.options import ReadOptions

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
DryRunOption = Annotated[bool, typer.Option("--dry-run", "-n", help="Say what would be done, and do not.")]
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
RowsOption = Annotated[str | None, typer.Option("--output", help="Also write all rows here, as Parquet.")]


@dataclass(frozen=True)
class SparkOptions:
    """Where Spark runs, and how to print."""

    master: MasterOption = None
    conf: ConfOption = None
    verbose: VerboseOption = False
    as_json: JsonOption = False

    @contextmanager
    def on_spark(self, name: str, doing: str) -> Iterator[tuple[SparkSession, OnProgress | None]]:
        """A Spark session for the job `name`, and who shows its progress. Raises as `spark_session`."""
        settings = dict(pairs("--conf", self.conf))
        with (
            spark_session(f"bookkeeper {name}", self.master, settings, verbose=self.verbose) as spark,
            _bar(doing) as on_progress,
        ):
            yield spark, on_progress


@dataclass(frozen=True)
class JobOptions:
    """What every job is told: which ledgers, what to do, where Spark runs, how to print."""

    uri: UriOption
    ledgers: LedgersOption = "all"
    where: WhereOption = None
    open_ledgers: OpenOption = "lac"
    dry_run: DryRunOption = False
    master: MasterOption = None
    conf: ConfOption = None
    option: OptionOption = None
    verbose: VerboseOption = False
    as_json: JsonOption = False

    def reading(self, password: str = "") -> ReadOptions:
        """The ledgers to be read, and how. Raises `BookKeeperError` for options that are wrong or do not fit."""
        require_packages()
        from ..spark.options import ReadOptions

        given = {"uri": self.uri, "ledgers": self.ledgers, "password": password, "openLedgers": self.open_ledgers}
        given |= {f"ledgerMetadata.{key}": value for key, value in pairs("--where", self.where)}
        given |= dict(pairs("--option", self.option))
        return ReadOptions.parse(given)

    def reading_as_admin(self) -> ReadOptions:
        """The same, with the passwords that are in the metadata."""
        return replace(self.reading(), as_admin=True)

    def on_spark(self, name: str, doing: str) -> AbstractContextManager[tuple[SparkSession, OnProgress | None]]:
        """As `SparkOptions.on_spark`."""
        return SparkOptions(self.master, self.conf, self.verbose, self.as_json).on_spark(name, doing)


def parsed_as_admin(uri: str, ledgers: str, option: list[str] | None) -> ReadOptions:
    """Options of a job that looks after a cluster: which ledgers, with the passwords that are in the metadata."""
    return JobOptions(uri, ledgers, option=option).reading_as_admin()


@contextmanager
def cli_errors() -> Iterator[None]:
    """Turns this package's errors into one line and an exit code."""
    try:
        yield
    except ConfigurationError as error:
        fail(text_of(error), EXIT_USAGE)
    except (BookKeeperError, OSError) as error:
        fail(text_of(error))


def write_rows(rows: DataFrame, output: str | None) -> None:
    """All rows of a report as Parquet, if that is wanted.

    Spark takes a path without a scheme for one of its default file system, which here is this machine's.
    """
    if output is None:
        return
    from ..spark.jobs.running import spark_errors

    with spark_errors():
        rows.write.parquet(output if "://" in output else Path(output).absolute().as_uri())


def show_amounts(ledgers: int, entries: int, size: int, tasks: int, what: str, as_json: bool) -> None:
    """What a dry run says would be done."""
    if as_json:
        print_json({"ledgers": ledgers, "entries": entries, "bytes": size, "tasks": tasks})
        return
    console.print(
        f"{counted(ledgers, 'ledger')} with {entries_text(entries)}, {human_bytes(size)} of payload, in"
        f" {counted(tasks, 'task')} {what}",
        markup=False,
        soft_wrap=True,
    )


@contextmanager
def _bar(doing: str) -> Iterator[Callable[[JobProgress], None] | None]:
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
        task = bar.add_task(doing, total=None, done="starting Spark")

        def update(progress: JobProgress) -> None:
            by_bytes = progress.total_bytes > 0
            bar.update(
                task,
                total=progress.total_bytes if by_bytes else progress.total_rows,
                completed=progress.bytes if by_bytes else progress.rows,
                done=f"{progress.rows:,} rows" + (f", {human_bytes(progress.bytes)}" if by_bytes else ""),
            )

        yield update
