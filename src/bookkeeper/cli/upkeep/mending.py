"""`bookkeeper spark mend`: what a scrub found, written again; so does `scrub --repair` (spec streams §18)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..jobs import OptionOption, SparkOptions, cli_errors, parsed_as_admin
from ..options import UriOption, grouped
from ..output import complain, console, counted, human_bytes, print_json, print_table
from .rereplicate import ApplyOption, AtOnceOption, RateOption

if TYPE_CHECKING:
    from ...spark.jobs.mending import MendPlan, MendReport

EXIT_FOUND = 3
"""A job ran to its end, and not everything is as it should be."""


@grouped
def mend(
    found: Annotated[str, typer.Argument(help="The --state of a scrub (its last one that finished), or its --output.")],
    uri: UriOption,
    spark_options: SparkOptions,
    apply: ApplyOption = False,
    rate: RateOption = -1,
    at_once: AtOnceOption = None,
    option: OptionOption = None,
) -> None:
    """Write the copies again that a scrub found missing, damaged or divergent, from good ones.

    Safe beside autorecovery: both lock the ledger they work on. Copies of bookies that could not be asked are left to
    it: their ledgers are marked. Exit code 3 when something is left.
    """
    with cli_errors():
        options = parsed_as_admin(uri, "all", option)
        from ...spark.jobs import mending as work

        place = work.rows_of(found)
        with spark_options.on_spark("mend", "mending") as (spark, on_progress):
            rows = work.load_rows(spark, place)
            if not apply:
                _show_plan(work.plan_mend(rows), spark_options.as_json)
                return
            report = work.mend(spark, options, rows, rate=rate, at_once=at_once, on_progress=on_progress)
    if spark_options.as_json:
        print_json(report.as_dict())
    else:
        show_mended(report)
    if not report.done:
        raise typer.Exit(EXIT_FOUND)


def _show_plan(plan: MendPlan, as_json: bool) -> None:
    if as_json:
        print_json(plan.as_dict())
        return
    statuses = sorted({status for counts in plan.bookies.values() for status in counts})
    if plan.bookies:
        rows = [(name, *(counts.get(each, 0) for each in statuses)) for name, counts in plan.bookies.items()]
        print_table("copies by bookie", ["bookie", *statuses], rows)
    what = f"{counted(plan.copies, 'copy', 'copies')} of {counted(plan.ledgers, 'ledger')}"
    console.print(f"{what} would be looked after: say --apply", markup=False, soft_wrap=True)


def show_mended(report: MendReport | None) -> None:
    """What became of the findings; nothing if there were none, or nothing was to be mended."""
    if report is None:
        return
    for each in report.problems:
        complain(f"ledger {each['ledger_id']}, {each['bookie']}: {each['status']}: {each['detail'] or each['found']}")
    became = ", ".join(f"{status}: {count:,}" for status, count in report.statuses.items()) or "nothing to do"
    written = f"{counted(report.copies, 'copy', 'copies')} written, {human_bytes(report.bytes)}"
    console.print(f"repair: {became}; {written}", markup=False, soft_wrap=True)
