"""The command `doctor`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...autorecovery.daemon import connected
from ...config import ServerConfiguration
from ...doctor.findings import Finding, Severity, examine
from ...doctor.look import look
from ...doctor.picture import Picture, Worth
from ...errors import BookKeeperError, NotInitialized
from ...runtime import Runtime
from ..options import JsonOption, grouped
from ..output import EXIT_ERROR, EXIT_USAGE, console, counted, execute, fail, print_json, progress_bar, text_of
from ..settings import bookie_settings
from ..shell.common import ClusterOptions

EXIT_UNSEEN = EXIT_USAGE
"""The cluster could not be looked at."""

MARKS = {Severity.DANGER: "danger", Severity.WARNING: "warning", Severity.NOTE: "note"}

DiskFullOption = Annotated[
    float,
    typer.Option(
        "--disk-full",
        envvar="BOOKKEEPER_DOCTOR_DISK_FULL",
        min=0,
        max=1,
        help="Warn of bookies of whose disks this share is used.",
    ),
]

SlowOption = Annotated[
    float,
    typer.Option(
        "--slow",
        envvar="BOOKKEEPER_DOCTOR_SLOW",
        min=0,
        help="Warn of bookies that take longer to answer a small question, seconds.",
    ),
]


@grouped
def doctor(
    cluster: ClusterOptions,
    disk_full: DiskFullOption = Worth().full,
    slow: SlowOption = Worth().slow_seconds,
    as_json: JsonOption = False,
) -> None:
    """Say what is wrong with a cluster, and what to do about it. Changes nothing.

    Looks at the metadata store, asks every bookie, and reads the record of every ledger. Exits with 0 if nothing needs
    to be done, 1 if something does, 2 if the cluster could not be looked at.
    """
    uri = cluster.address()
    config = bookie_settings(cluster.conf, EXIT_USAGE) if cluster.conf else ServerConfiguration.from_mapping({})

    async def main(runtime: Runtime) -> Picture:
        try:
            async with connected(runtime, config, uri) as (driver, client):
                with progress_bar() as progress:
                    bar = progress.add_task("ledgers", total=None)
                    return await look(runtime, driver, client, lambda count: progress.update(bar, completed=count))
        except NotInitialized:
            return Picture(initialised=False)
        except (BookKeeperError, OSError) as error:
            fail(f"the cluster could not be looked at: {text_of(error)}", EXIT_UNSEEN)

    picture = execute(main)
    picture.worth = Worth(disk_full, slow)
    findings = examine(picture)
    if as_json:
        print_json(_as_json(picture, findings))
    else:
        _show(picture, findings)
    if any(finding.severity > Severity.NOTE for finding in findings):
        raise typer.Exit(EXIT_ERROR)


def _show(picture: Picture, findings: list[Finding]) -> None:
    for finding in findings:
        console.print(f"{MARKS[finding.severity]}: {finding.what}", markup=False, soft_wrap=True)
        if finding.advice:
            console.print(f"  {finding.advice}", markup=False, soft_wrap=True)
    if picture.initialised:
        summary = (
            f"{counted(len(picture.writable), 'writable bookie')}, {len(picture.read_only)} read-only, "
            f"{len(picture.gone)} gone; {counted(picture.ledgers.count, 'ledger')}, {picture.ledgers.open.count} open"
        )
        sound = all(finding.severity is Severity.NOTE for finding in findings)
        console.print(summary + ("; nothing needs to be done" if sound else ""), markup=False, soft_wrap=True)


def _as_json(picture: Picture, findings: list[Finding]) -> dict[str, Any]:
    return {
        "findings": [
            {"name": each.name, "severity": MARKS[each.severity], "what": each.what, "advice": each.advice}
            for each in findings
        ],
        "bookies": {
            "writable": sorted(picture.writable),
            "read_only": sorted(picture.read_only),
            "gone": sorted(picture.gone),
        },
        "ledgers": {"count": picture.ledgers.count, "open": picture.ledgers.open.count},
        "marked": picture.marked.count,
        "auditor": picture.auditor,
    }
