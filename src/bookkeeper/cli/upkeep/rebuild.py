"""`bookkeeper spark rebuild`: records that the metadata store has lost (spec streams §18)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..jobs import OptionOption, RowsOption, SparkOptions, cli_errors, parsed_as_admin, write_rows
from ..options import UriOption, grouped
from ..output import EXIT_ERROR, EXIT_USAGE, complain, console, fail, print_json
from .rereplicate import ApplyOption

if TYPE_CHECKING:
    from ...spark.jobs.rebuild import RebuildReport


@grouped
def rebuild(
    ledgers: Annotated[str, typer.Argument(metavar="IDS", help="Ids to look for: 0-99999, or 5,10-20.")],
    uri: UriOption,
    spark_options: SparkOptions,
    bookies: Annotated[int, typer.Option("--bookies", min=1, help="So many must run; with fewer nothing is done.")],
    password_file: Annotated[
        Path | None,
        typer.Option("--passwords", help="A file with a password a line. Ledgers without one are tried, too."),
    ] = None,
    ensemble: Annotated[int | None, typer.Option("--ensemble-size", min=1, help="Of all of them, if known.")] = None,
    quorum: Annotated[int | None, typer.Option("--write-quorum", min=1, help="Of all of them, if known.")] = None,
    end_at_gaps: Annotated[
        bool,
        typer.Option(
            "--end-at-gaps", help="End ledgers before an entry that no bookie lists, unless it was confirmed."
        ),
    ] = False,
    apply: ApplyOption = False,
    output: RowsOption = None,
    option: OptionOption = None,
) -> None:
    """Write records again that the metadata store has lost, from the entries that the bookies list.

    Bookies must not collect garbage until nothing is undecided: set gcWaitTime so. With --apply ledgers are fenced, and
    closed at their last entry. Records that are there are left alone. Exit code 1 when a ledger is undecided.
    """
    with cli_errors():
        options = parsed_as_admin(uri, ledgers, option)
        from ...spark.jobs import rebuild as work

        known = work.Known(_passwords(password_file), ensemble, quorum, bookies, end_at_gaps)
        with spark_options.on_spark("rebuild", "looking") as (spark, on_progress):
            report = work.rebuild(spark, options, known, apply=apply, on_progress=on_progress)
            write_rows(report.rows, output)
    if spark_options.as_json:
        print_json(report.as_dict())
    else:
        _show(report)
    if not report.done:
        raise typer.Exit(EXIT_ERROR)


def _passwords(path: Path | None) -> tuple[bytes, ...]:
    """Those of a file, and none."""
    try:
        lines = path.read_bytes().splitlines() if path is not None else []
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}", EXIT_USAGE)
    return tuple(dict.fromkeys([*lines, b""]))


def _show(report: RebuildReport) -> None:
    for each in report.undecided:
        complain(f"ledger {each['ledger_id']} is undecided: {each['detail']}")
    found = ", ".join(f"{status}: {count:,}" for status, count in report.statuses.items()) or "nothing"
    console.print(f"ledgers found: {found}", markup=False)
    if report.inferred:
        console.print(f"{report.inferred:,} of them lack copies, or have surplus ones: scrub them", markup=False)
