"""`bookkeeper spark rereplicate`: what lost bookies held, to others (spec streams §18)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...types import parse_bookie_id
from ..jobs import LedgersOption, OptionOption, RowsOption, SparkOptions, cli_errors, parsed_as_admin, write_rows
from ..options import UriOption, grouped
from ..output import EXIT_ERROR, complain, console, counted, human_bytes, print_json

if TYPE_CHECKING:
    from ...spark.jobs.rereplicate import RereplicatePlan, RereplicateReport

ApplyOption = Annotated[bool, typer.Option("--apply", help="Do it. Without, only say what would be done.")]
RateOption = Annotated[
    int, typer.Option("--rate", help="Bytes that each task reads in a second at most; -1: no bound.")
]
AtOnceOption = Annotated[int | None, typer.Option("--max-tasks", min=1, help="Tasks at once at most.")]


@grouped
def rereplicate(
    bookies: Annotated[str, typer.Argument(metavar="BOOKIE[,BOOKIE...]", help="Those that are lost.")],
    uri: UriOption,
    spark_options: SparkOptions,
    ledgers: LedgersOption = "all",
    recover_open: Annotated[
        bool, typer.Option("--recover-open", help="Also ledgers that are being written: they are fenced and closed.")
    ] = False,
    apply: ApplyOption = False,
    rate: RateOption = -1,
    at_once: AtOnceOption = None,
    output: RowsOption = None,
    option: OptionOption = None,
) -> None:
    """Copy what lost bookies held to others, and take them out of the ledgers' metadata.

    Bookies that run are drained. Safe beside autorecovery: both lock the ledger they work on. After a failure run it
    again: it goes on with what is left. Exit code 1 when something is left.
    """
    with cli_errors():
        options = parsed_as_admin(uri, ledgers, option)
        from ...spark.jobs import rereplicate as work

        lost = [parse_bookie_id(name.strip()) for name in bookies.split(",")]
        plan = work.plan_rereplicate(options, lost, recover_open=recover_open)
        if not apply:
            _show_plan(plan, spark_options.as_json)
            return
        with spark_options.on_spark("rereplicate", "copying") as (spark, on_progress):
            report = work.rereplicate(
                *(spark, options, lost),
                plan=plan,
                recover_open=recover_open,
                rate=rate,
                at_once=at_once,
                on_progress=on_progress,
            )
            write_rows(report.rows, output)
    if spark_options.as_json:
        print_json(report.as_dict())
    else:
        _show(report)
    if not report.done:
        raise typer.Exit(EXIT_ERROR)


def _show_plan(plan: RereplicatePlan, as_json: bool) -> None:
    if as_json:
        print_json(plan.as_dict())
        return
    what = f"{counted(len(plan.ledgers), 'ledger')}, {counted(plan.fragments, 'fragment')}"
    size = f"{counted(plan.total_copies, 'copy', 'copies')} of entries, {human_bytes(plan.total_bytes)} of payload"
    console.print(f"{what}, {size} would be made again: say --apply", markup=False, soft_wrap=True)
    _show_left(plan)


def _show_left(plan: RereplicatePlan) -> None:
    if plan.open:
        console.print(f"{counted(plan.open, 'open ledger')} left to their writers", markup=False)
    if plan.more:
        console.print("there are more ledgers than one run takes on: run it again afterwards", markup=False)


def _show(report: RereplicateReport) -> None:
    for each in report.problems:
        complain(f"ledger {each['ledger_id']}: {each['status']}: {each['detail']}")
    done = ", ".join(f"{status}: {count:,}" for status, count in report.statuses.items()) or "nothing to do"
    console.print(
        f"{done}; {counted(report.copies, 'copy', 'copies')} written, {human_bytes(report.bytes)}",
        markup=False,
        soft_wrap=True,
    )
    _show_left(report.plan)
