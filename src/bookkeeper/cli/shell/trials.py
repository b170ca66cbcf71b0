"""Does it work? A ledger is written, read, compared, and deleted again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

import typer

from ...bookie.node.identity import identify
from ...client.client import RESERVED, BookKeeper
from ...client.writer import LedgerWriter
from ...errors import BKError, BookKeeperError, ConfigurationError
from ...metadata.api import MetadataDriver
from ...metadata.ledger_metadata import LedgerMetadata
from ...runtime import Runtime
from ...types import BookieId, DigestType
from ..options import JsonOption, grouped
from ..output import console, fail, print_json
from .common import ClusterOptions, with_client
from .places import configured

AT_ONCE = 100
"""Appends that are under way."""

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
        await _try(client, writer, [ENTRY] * count)
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
        ledger_id = await driver.ids.allocate()
        # one that waits for its writer: so the bookie is ours to choose
        record = LedgerMetadata(
            ledger_id,
            1,
            1,
            1,
            {0: (own,)},
            digest_type=DigestType.MAC,
            password=b"",
            custom_metadata={RESERVED: b"1"},
        )
        await driver.ledgers.create(ledger_id, record)
        try:
            async with asyncio.timeout(timeout):
                await _try(client, await client.claim_ledger(ledger_id), [b"entry-%d" % n for n in range(count)])
        except TimeoutError:
            raise BookKeeperError(f"bookie {own} was not done after {timeout} s") from None
        finally:
            with suppress(BKError):
                await client.delete_ledger(ledger_id)
        return own

    try:
        own = with_client(cluster, work)
    except ConfigurationError as error:
        fail(str(error))
    if as_json:
        print_json({"bookie": own, "passed": True})
    else:
        console.print("Bookie sanity test succeeded")


async def _try(client: BookKeeper, writer: LedgerWriter, entries: list[bytes]) -> None:
    """Append these, close, read, compare; the ledger is gone afterwards. Raises `BookKeeperError`."""
    try:
        async with writer:
            for start in range(0, len(entries), AT_ONCE):
                await asyncio.gather(*map(writer.append, entries[start : start + AT_ONCE]))
        async with client.open_ledger(writer.id) as reader:
            if reader.last_add_confirmed != len(entries) - 1:
                raise BookKeeperError(
                    f"ledger {writer.id} ends with entry {reader.last_add_confirmed}, not {len(entries) - 1}"
                )
            async for entry in reader.entries():
                if bytes(entry.data) != entries[entry.entry_id]:
                    raise BookKeeperError(f"entry {entry.entry_id} of ledger {writer.id} is not what was written")
    finally:
        await client.delete_ledger(writer.id)
