"""`bookkeeper spark offload`: segments of streams as Parquet files (spec streams §18)."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..jobs import OptionOption, SparkOptions, cli_errors
from ..options import grouped, pairs
from ..output import EXIT_USAGE, console, counted, fail, human_bytes, print_json, print_table
from .rereplicate import ApplyOption

if TYPE_CHECKING:
    from ...spark.jobs.offloading import OffloadReport

SHOWN = 20
"""Segments in the table."""


@dataclass(frozen=True)
class Segments:
    """Which segments, and what becomes of their ledgers."""

    older_than: Annotated[
        float, typer.Option("--older-than", min=0, help="Only segments that were completed so many seconds ago.")
    ] = 0.0
    keep: Annotated[int, typer.Option("--keep", min=0, help="Newest completed segments that are left alone.")] = 0
    delete: Annotated[
        bool,
        typer.Option("--delete", help="Then delete the ledgers of what is in the archive, from the old end on."),
    ] = False
    at_once: Annotated[int | None, typer.Option("--at-once", min=1, help="Tasks at most.")] = None


@grouped
def offload(
    archive: Annotated[str, typer.Argument(help="A directory, or an address such as s3://bucket/path.")],
    spark_options: SparkOptions,
    segments: Segments,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace", "-N", envvar="BOOKKEEPER_NAMESPACE", help="Its address: distributedlog://zk1:2181/orders"
        ),
    ],
    stream: Annotated[str | None, typer.Argument(help="The stream; or give --pattern.")] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", help="All streams whose whole name fits this regular expression.")
    ] = None,
    apply: ApplyOption = False,
    option: OptionOption = None,
) -> None:
    """Make Parquet files of completed segments of streams; Spark reads them in place of ledgers that are gone.

    Each file is read back and compared before it counts. With --delete a stream begins later for other readers than
    Spark's; what a subscriber has not read stays. Begin it again after a failure.
    """
    if (stream is None) == (pattern is None):
        fail("name a stream, or give --pattern", EXIT_USAGE)
    with cli_errors():
        from ...spark import offload as work

        reading: dict[str, Any] = dict(pairs("--option", option))
        on_spark = spark_options.on_spark("offload", "offloading") if apply else nullcontext((None, None))
        with on_spark as (spark, on_progress):
            report = work(
                spark,
                namespace,
                archive,
                stream=stream,
                pattern=pattern,
                apply=apply,
                on_progress=on_progress,
                **asdict(segments),
                **reading,
            )
    if spark_options.as_json:
        print_json(report.as_dict())
    else:
        _show(report)


def _show(report: OffloadReport) -> None:
    segments = counted(len(report.planned), "segment", "segments")
    if not report.applied:
        rows = [
            (each["stream"], str(each["segment"]), f"{each['records']:,}", human_bytes(each["bytes"]))
            for each in report.planned[:SHOWN]
        ]
        if rows:
            print_table(None, ("stream", "segment", "records", "size"), rows)
        console.print(f"{segments} ({human_bytes(report.bytes)}) would be offloaded to {report.archive}", markup=False)
        if report.deleted:
            console.print(f"{len(report.deleted):,} ledgers are in the archive and would be deleted", markup=False)
        console.print("nothing was changed: say --apply to do it")
        return
    files = human_bytes(report.file_bytes)
    console.print(f"{report.rows:,} records of {segments} offloaded to {report.archive}: {files}", markup=False)
    if report.deleted:
        console.print(f"{len(report.deleted):,} ledgers deleted", markup=False)
