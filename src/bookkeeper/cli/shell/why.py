"""`why`: what each bookie says of an entry, and why it can or cannot be read. Java's shell has no such verb."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...autorecovery.diagnosis import Findings, Verdict, judge, look_into
from ...client.client import BookKeeper
from ...errors import NoSuchLedgerOnMetadataError
from ...metadata.api import MetadataDriver
from ...runtime import Runtime
from ..options import JsonOption, grouped
from ..output import EXIT_ERROR, console, fail, print_json, print_table
from .common import ClusterOptions, with_client


@grouped
def why(
    ledger_id: Annotated[int, typer.Argument(metavar="LEDGER", min=0)],
    cluster: ClusterOptions,
    entry_id: Annotated[int | None, typer.Argument(metavar="[ENTRY]", min=0, help="None: the last one.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Say why an entry can or cannot be read: what each of its bookies has, and what to do. Changes nothing.

    Exits with 1 if it cannot be read.
    """

    async def look(_runtime: Runtime, driver: MetadataDriver, client: BookKeeper) -> Findings:
        try:
            return await look_into(driver, client, ledger_id, entry_id)
        except NoSuchLedgerOnMetadataError:
            fail(f"there is no ledger {ledger_id}: it was never made, or is deleted")

    findings = with_client(cluster, look)
    verdict = judge(findings)
    if as_json:
        print_json(_as_json(findings, verdict))
    else:
        _show(findings, verdict)
    if not verdict.readable:
        raise typer.Exit(EXIT_ERROR)


def _as_json(findings: Findings, verdict: Verdict) -> dict[str, Any]:
    metadata = findings.metadata
    return {
        "ledger": metadata.ledger_id,
        "state": metadata.state.name,
        "last_entry": metadata.last_entry_id if metadata.closed else None,
        "last_confirmed": findings.last_confirmed,
        "marked": list(findings.marked),
        "entry": findings.entry_id,
        "copies": [
            {
                "bookie": each.bookie,
                "registration": each.registration.value,
                "status": each.status.value if each.status is not None else "good",
                "detail": each.text,
            }
            for each in findings.witnesses
        ],
        "readable": verdict.readable,
        "summary": verdict.summary,
        "advice": verdict.advice,
    }


def _show(findings: Findings, verdict: Verdict) -> None:
    metadata = findings.metadata
    confirmed = "unknown" if findings.last_confirmed is None else findings.last_confirmed
    end = f"last entry {metadata.last_entry_id}" if metadata.closed else f"last confirmed {confirmed}"
    console.print(
        f"ledger {metadata.ledger_id}: {metadata.state.name}, {end}, {metadata.ensemble_size} bookies, "
        f"{metadata.write_quorum} copies, {metadata.ack_quorum} of them waited for",
        markup=False,
        soft_wrap=True,
    )
    if findings.marked:
        console.print(f"marked for repair: copies of {', '.join(findings.marked)}", markup=False, soft_wrap=True)
    if findings.witnesses:
        print_table(
            None,
            ["bookie", "is", f"entry {findings.entry_id}"],
            [(each.bookie, each.registration.value, each.text) for each in findings.witnesses],
        )
    console.print(verdict.summary, markup=False, soft_wrap=True)
    if verdict.advice:
        console.print(verdict.advice, markup=False, soft_wrap=True)
