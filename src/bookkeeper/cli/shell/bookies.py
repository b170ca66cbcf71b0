"""Which bookies there are."""

from __future__ import annotations

from typing import Annotated

import typer

from ...errors import MetadataError
from ...metadata.api import Endpoint, MetadataDriver, Mode
from ...types import BookieId
from ..options import JsonOption, grouped
from ..output import EXIT_USAGE, console, fail, print_json
from .common import ClusterOptions, in_cluster


@grouped
def listbookies(
    cluster: ClusterOptions,
    readwrite: Annotated[
        bool, typer.Option("--readwrite", "-readwrite", "-rw", help="Those that take writes.")
    ] = False,
    readonly: Annotated[
        bool, typer.Option("--readonly", "-readonly", "-ro", help="Those that only serve reads.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", "-all", "-a", help="All that have a cookie, running or not.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List bookies and their addresses: say one of -rw, -ro and -a."""
    if readwrite + readonly + every != 1:
        fail("say one of -rw, -ro and -a", EXIT_USAGE)

    async def look(driver: MetadataDriver) -> list[tuple[BookieId, Endpoint | None]]:
        discovery = driver.discovery
        if every:
            found = await discovery.list_all()
        else:
            found = await discovery.list(Mode.WRITABLE if readwrite else Mode.READ_ONLY)
        return [(bookie, await _endpoint(driver, bookie)) for bookie in sorted(found.value)]

    rows = in_cluster(cluster, look)
    if as_json:
        print_json(
            [
                {"bookie": bookie, "host": at.host if at else None, "port": at.port if at else None}
                for bookie, at in rows
            ]
        )
        return
    if not rows:
        console.print("No bookie exists!")
        return
    console.print("ReadWrite Bookies :" if readwrite else "Readonly Bookies :" if readonly else "All Bookies :")
    for bookie, at in rows:
        host, port = (at.host, at.port) if at else ("UNKNOWN", 0)
        console.print(f"BookieID:{bookie}, IP:{host}, Port:{port}, Hostname:{host}", markup=False, soft_wrap=True)


async def _endpoint(driver: MetadataDriver, bookie: BookieId) -> Endpoint | None:
    """Where the bookie serves; None if it does not run."""
    try:
        return (await driver.discovery.info(bookie)).bookie_rpc()
    except MetadataError:
        return None
