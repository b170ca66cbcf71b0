"""Which ledgers there are, and what is known of them."""

from __future__ import annotations

import base64
from typing import Annotated

import typer

from ...errors import NoSuchLedger
from ...metadata.api import MetadataDriver
from ...metadata.ledger_metadata import LedgerMetadata
from ..ledger import describe
from ..options import JsonOption, grouped
from ..output import console, print_json
from .common import ClusterOptions, in_cluster


@grouped
def listledgers(
    cluster: ClusterOptions,
    meta: Annotated[bool, typer.Option("--meta", "-meta", "-m", help="Their metadata, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List all ledgers."""

    async def look(driver: MetadataDriver) -> list[tuple[int, LedgerMetadata | None]]:
        ids = [ledger_id async for bucket in driver.ledgers.ranges() for ledger_id in bucket.ids]
        return [(ledger_id, await _record(driver, ledger_id) if meta else None) for ledger_id in ids]

    rows = in_cluster(cluster, look)
    if as_json:
        print_json([describe(record) if record else {"ledger": ledger_id} for ledger_id, record in rows])
        return
    for ledger_id, record in rows:
        console.print(f"ledgerID: {ledger_id}")
        if record is not None:
            console.print(metadata_line(record), markup=False, soft_wrap=True)


@grouped
def ledgermetadata(
    ledger_id: Annotated[int, typer.Option("--ledgerid", "-ledgerid", "-l", min=0, help="Ledger id.")],
    cluster: ClusterOptions,
    as_json: JsonOption = False,
) -> None:
    """Print a ledger's metadata."""

    async def look(driver: MetadataDriver) -> LedgerMetadata:
        return (await driver.ledgers.read(ledger_id)).value

    record = in_cluster(cluster, look)
    if as_json:
        print_json(describe(record))
        return
    console.print(f"ledgerID: {ledger_id}")
    console.print(metadata_line(record), markup=False, soft_wrap=True)


async def _record(driver: MetadataDriver, ledger_id: int) -> LedgerMetadata | None:
    try:
        return (await driver.ledgers.read(ledger_id)).value
    except NoSuchLedger:  # deleted meanwhile
        return None


def metadata_line(record: LedgerMetadata) -> str:
    """A ledger's metadata as BookKeeper writes it, without the password."""
    fields = [
        f"formatVersion={record.format_version}",
        f"ensembleSize={record.ensemble_size}",
        f"writeQuorumSize={record.write_quorum}",
        f"ackQuorumSize={record.ack_quorum}",
        f"state={record.state.name}",
    ]
    if record.closed:
        fields += [f"length={record.length}", f"lastEntryId={record.last_entry_id}"]
    if record.digest_type is not None:
        fields.append(f"digestType={record.digest_type.name}")
    if record.password is not None:
        fields.append("password=OMITTED")
    ensembles = ", ".join(f"{first}=[{', '.join(members)}]" for first, members in record.ensembles.items())
    custom = ", ".join(
        f"{key}=base64:{base64.b64encode(value).decode()}" for key, value in record.custom_metadata.items()
    )
    return f"LedgerMetadata{{{', '.join(fields)}, ensembles={{{ensembles}}}, customMetadata={{{custom}}}}}"
