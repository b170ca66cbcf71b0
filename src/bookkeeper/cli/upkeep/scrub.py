"""`bookkeeper spark scrub`: is every copy of every entry there, and good (spec streams §18)?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..jobs import JobOptions, RowsOption, cli_errors, show_amounts, write_rows
from ..options import grouped
from ..output import console, human_bytes, print_json, print_table
from .mending import EXIT_FOUND, show_mended
from .rereplicate import RateOption

if TYPE_CHECKING:
    from ...spark.jobs.scrub import ScrubReport, Work

TABLE_ROWS = 40


@dataclass(frozen=True)
class PartOptions:
    """Which part of the ledgers is looked at, and where it is kept how far that is."""

    sample: Annotated[
        str | None, typer.Option("--sample", metavar="PART", help="Of the ledgers: a share (5%) or a number (500).")
    ] = None
    sample_entries: Annotated[
        str | None,
        typer.Option(
            "--sample-entries",
            metavar="PART",
            help="Of each ledger's entries: a share or a number. Entries that a bookie does not list are found anyway.",
        ),
    ] = None
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Which sample. Default: another one each time.")] = (
        None
    )
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Ledgers made since then (24h, 7d, 2026-05-01) or not closed; last: not seen whole yet, with --state.",
        ),
    ] = None
    state: Annotated[
        str | None,
        typer.Option("--state", help="A directory: a scrub that died is gone on with, and --since last knows more."),
    ] = None

    def planned(self, job: JobOptions) -> Work:
        """What is to be done. Raises `OptionError`, and what planning raises."""
        options = job.reading_as_admin()
        from ...spark.jobs.scrub import plan_scrub
        from ...spark.jobs.scrubbing.choice import Choice

        choice = Choice.parse(self.sample, self.sample_entries, self.since, self.seed)
        return plan_scrub(options, choice, self.state, dry_run=job.dry_run)


@grouped
def scrub(
    job: JobOptions,
    part: PartOptions,
    output: RowsOption = None,
    repair: Annotated[bool, typer.Option("--repair", help="Write copies again that are bad, from good ones.")] = False,
    rate: RateOption = -1,
) -> None:
    """Read every copy of every entry: is it there, is its digest right, are there as many as the metadata say?

    Nothing is changed without --repair; `bookkeeper spark mend` repairs later. With --state the same command goes on
    after a failure. Exit code 3 when something is not as it should be, and was not repaired.
    """
    mended = None
    with cli_errors():
        work = part.planned(job)
        plan = work.plan
        if job.dry_run:
            amounts = (len(plan.ledgers), plan.entries, plan.bytes, len(plan.units))
            show_amounts(*amounts, "would be checked, every copy", job.as_json)
            return
        _show_before(work, job.as_json)
        from ...spark.jobs.mending import mend
        from ...spark.jobs.scrub import scrub as run

        with job.on_spark("scrub", "scrubbing") as (spark, on_progress):
            report = run(spark, work.options, work=work, on_progress=on_progress)
            write_rows(report.rows, output)
            if repair and not report.clean:
                mended = mend(spark, work.options, report.rows, rate=rate, on_progress=on_progress)
    if job.as_json:
        print_json(report.as_dict() | ({"repair": mended.as_dict()} if mended else {}))
    else:
        _show(report)
        show_mended(mended)
    if not report.clean and not (mended and mended.done):
        raise typer.Exit(EXIT_FOUND)


def _show_before(work: Work, as_json: bool) -> None:
    if work.done and not as_json:
        done, units = len(work.done), len(work.plan.units)
        console.print(f"going on: {done:,} of {units:,} tasks were done", markup=False, soft_wrap=True)


def _show(report: ScrubReport) -> None:
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


def _show_problems(problems: list[dict[str, Any]]) -> None:
    print_table(
        "not as it should be" + (f" (the first {TABLE_ROWS})" if len(problems) > TABLE_ROWS else ""),
        ["ledger", "entries", "bookie", "status", "detail"],
        [
            (
                str(each["ledger_id"]),
                _range_text(each["first_entry"], each["last_entry"]),
                each["bookie"] or "",
                each["status"],
                each["detail"] or "",
            )
            for each in problems[:TABLE_ROWS]
        ],
    )


def _range_text(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
