"""What `bookkeeper spark scrub --repair` says of what it mended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..output import complain, console, counted, human_bytes

if TYPE_CHECKING:
    from ...spark.jobs.mending import MendReport


def show_mended(report: MendReport | None) -> None:
    """What became of the findings; nothing if there were none, or nothing was to be mended."""
    if report is None:
        return
    for each in report.problems:
        complain(f"ledger {each['ledger_id']}, {each['bookie']}: {each['status']}: {each['detail'] or each['found']}")
    became = ", ".join(f"{status}: {count:,}" for status, count in report.statuses.items())
    written = f"{counted(report.copies, 'copy', 'copies')} written, {human_bytes(report.bytes)}"
    console.print(f"repair: {became}; {written}", markup=False, soft_wrap=True)
