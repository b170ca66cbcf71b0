"""Does it work? A ledger is written, read, compared, and deleted again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from ...admin.sanity import try_bookie, try_ledger
from ...bookie.node.identity import identify
from ...client.client import BookKeeper
from ...errors import ConfigurationError
from ...metadata.api import MetadataDriver
from ...runtime import Runtime
from ...types import BookieId
from ..options import JsonOption, grouped
from ..output import console, fail, print_json
from .common import ClusterOptions, with_client
from .places import configured

ENTRY = bytes(range(100))


@dataclass(frozen=True)
class ShapeOptions:
    """What the ledger is like."""

    ensemble: Annotated[int, typer.Option("--ensemble", "-ensemble", "-e", min=1, help="Bookies.")] = 3
    write_quorum: Annotated[
        int, typer.Option("--writeQuorum", "-writeQuorum", "-w", min=1, help="Copies of each entry.")
    ] = 2
    ack_quorum: Annotated[
        int, typer.Option("--ackQuorum", "-ackQuorum", "-a", min=1, help="Copies that are waited for.")
    ] = 2


@grouped
def simpletest(
    cluster: ClusterOptions,
    shape: ShapeOptions,
    count: Annotated[int, typer.Option("--numEntries", "-numEntries", "-n", min=1, help="Entries.")] = 1000,
    as_json: JsonOption = False,
) -> None:
    """Write a ledger, read it, compare, and delete it."""

    async def work(_runtime: Runtime, _driver: MetadataDriver, client: BookKeeper) -> int:
        writer = await client.create_ledger(
            ensemble_size=shape.ensemble,
            write_quorum=shape.write_quorum,
            ack_quorum=shape.ack_quorum,
            custom_metadata={"Bookie": b"simpletest"},
        )
        await try_ledger(client, writer, [ENTRY] * count)
        return writer.id

    ledger_id = with_client(cluster, work)
    if as_json:
        print_json({"ledger": ledger_id, "entries": count})
        return
    console.print(f"Ledger ID: {ledger_id}")
    console.print(f"{count} entries written to ledger {ledger_id}. Last entry Id {count - 1}")


@grouped
def bookiesanity(
    cluster: ClusterOptions,
    count: Annotated[int, typer.Option("--entries", "-entries", "-e", min=1, help="Entries.")] = 10,
    timeout: Annotated[int, typer.Option("--timeout", "-timeout", "-t", min=1, help="Seconds, for all of it.")] = 60,
    as_json: JsonOption = False,
) -> None:
    """Write a ledger to this machine's bookie, which must run, read it, compare, and delete it. --conf names it."""
    config = configured(cluster.conf)

    async def work(runtime: Runtime, driver: MetadataDriver, client: BookKeeper) -> BookieId:
        own = (await identify(runtime, config)).bookie_id
        await try_bookie(driver, client, own, entries=count, timeout=timeout)
        return own

    try:
        own = with_client(cluster, work)
    except ConfigurationError as error:
        fail(str(error))
    if as_json:
        print_json({"bookie": own, "passed": True})
    else:
        console.print("Bookie sanity test succeeded")
