"""Which ledgers there are, what is known of them, what is in them; saving, restoring and deleting."""

from __future__ import annotations

import base64
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any

import typer

from ...autorecovery.checker import digest_of
from ...autorecovery.manual import stores_entries
from ...client.client import BookKeeper
from ...client.reads.replicas import Copy, Replicas
from ...errors import CorruptMetadata, NoSuchLedger
from ...metadata.api import MetadataDriver
from ...metadata.formats.ledger import parse, serialize
from ...metadata.ledger_metadata import LedgerMetadata
from ...metadata.walking import records
from ...runtime import Runtime
from ...types import BookieId
from ..ledger import describe
from ..options import JsonOption, grouped
from ..output import EXIT_ERROR, EXIT_USAGE, complain, console, fail, print_json
from .common import ClusterOptions, agreed, in_cluster, with_client
from .records import JsonLinesOption, json_line

LedgerOption = Annotated[int, typer.Option("--ledgerid", "-ledgerid", "-l", min=0, help="Ledger id.")]


@grouped
def listledgers(
    cluster: ClusterOptions,
    meta: Annotated[bool, typer.Option("--meta", "-meta", "-m", help="Their metadata, too.")] = False,
    bookie: Annotated[
        str | None,
        typer.Option("--bookieid", "-bookieid", help="Only those of which this bookie has entries, or may get some."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List all ledgers."""

    async def look(driver: MetadataDriver) -> list[tuple[int, LedgerMetadata | None]]:
        if bookie is None and not meta:
            return [(ledger_id, None) async for bucket in driver.ledgers.ranges() for ledger_id in bucket.ids]
        found = [
            (ledger_id, record)
            async for ledger_id, record in records(driver.ledgers)
            if bookie is None or (isinstance(record, LedgerMetadata) and stores_entries(record, BookieId(bookie)))
        ]
        for _, record in found:
            if isinstance(record, CorruptMetadata):
                complain(str(record))
        return [
            (ledger_id, record if meta and isinstance(record, LedgerMetadata) else None) for ledger_id, record in found
        ]

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
    ledger_id: LedgerOption,
    cluster: ClusterOptions,
    dump: Annotated[
        Path | None, typer.Option("--dumptofile", "-dumptofile", help="Save the record there, byte by byte.")
    ] = None,
    restore: Annotated[
        Path | None, typer.Option("--restorefromfile", "-restorefromfile", help="Put this saved record there.")
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", "-update", help="With --restorefromfile: also over a record that is there.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a ledger's metadata, save it to a file, or restore it from one."""
    if dump is not None and restore is not None:
        fail("--dumptofile and --restorefromfile exclude each other", EXIT_USAGE)
    saved = _saved(restore, ledger_id) if restore is not None else None

    async def work(driver: MetadataDriver) -> LedgerMetadata:
        if saved is not None:
            return await _restored(driver, saved, update)
        found = (await driver.ledgers.read(ledger_id)).value
        if dump is not None:
            _write(dump, serialize(found))
        return found

    record = in_cluster(cluster, work)
    if as_json:
        print_json(describe(record))
        return
    console.print(f"ledgerID: {ledger_id}")
    console.print(metadata_line(record), markup=False, soft_wrap=True)


async def _restored(driver: MetadataDriver, record: LedgerMetadata, update: bool) -> LedgerMetadata:
    """Raises `LedgerExists` unless a record that is there may be replaced."""
    if update:
        try:
            stored = await driver.ledgers.read(record.ledger_id)
            return (await driver.ledgers.write(record.ledger_id, record, stored.version)).value
        except NoSuchLedger:
            pass
    return (await driver.ledgers.create(record.ledger_id, record)).value


def _saved(file: Path, ledger_id: int) -> LedgerMetadata:
    try:
        return parse(file.read_bytes(), ledger_id)
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}", EXIT_USAGE)
    except CorruptMetadata as error:
        fail(f"{file} holds no record of a ledger: {error}", EXIT_USAGE)


def _write(file: Path, data: bytes) -> None:
    try:
        file.write_bytes(data)
    except OSError as error:
        fail(f"cannot write {file}: {error.strerror}")


@grouped
def readledger(
    ledger_id: LedgerOption,
    cluster: ClusterOptions,
    first: Annotated[int, typer.Option("--firstentryid", "-firstentryid", "-fe", min=0, help="First entry.")] = 0,
    last: Annotated[
        int, typer.Option("--lastentryid", "-lastentryid", "-le", min=-1, help="Last entry. -1: the last confirmed.")
    ] = -1,
    message: Annotated[bool, typer.Option("--msg", "-msg", "-m", help="What is in them, too.")] = False,
    recover: Annotated[
        bool,
        typer.Option(
            "--force-recovery", "-force-recovery", "-r", help="End the ledger first: its writer is fenced off."
        ),
    ] = False,
    bookie: Annotated[str | None, typer.Option("--bookie", "-bookie", "-b", help="Only this bookie's copies.")] = None,
    as_json: JsonLinesOption = False,
) -> None:
    """Print the entries of a ledger, whatever its password is. Its writer is not disturbed, unless --force-recovery."""

    async def work(_runtime: Runtime, _driver: MetadataDriver, client: BookKeeper) -> int:
        async with client.open_ledger_as_admin(ledger_id, recover=recover) as reader:
            end = reader.last_add_confirmed if last < 0 else last
            if bookie is not None:
                replicas = Replicas(client.context, reader.metadata, digest_of(reader.metadata))
                return await _print_copies(replicas, BookieId(bookie), first, end, message, as_json)
            if end > reader.last_add_confirmed:
                complain(f"there is no entry {end}: {reader.last_add_confirmed} is the last confirmed")
            async with aclosing(reader.entries(first, min(end, reader.last_add_confirmed))) as entries:
                async for entry in entries:
                    about = {"ledger": ledger_id, "entry": entry.entry_id, "size": entry.ledger_length}
                    _print_entry(about, bytes(entry.data), message, as_json)
            return EXIT_ERROR if end > reader.last_add_confirmed else 0

    if code := with_client(cluster, work):
        raise typer.Exit(code)


async def _print_copies(
    replicas: Replicas, bookie: BookieId, first: int, last: int, message: bool, as_json: bool
) -> int:
    """What one bookie has of these entries; EXIT_ERROR if a copy that it should have is not good."""
    code = 0
    for entry_id in range(first, last + 1):
        if bookie not in replicas.bookies(entry_id):
            continue
        copy = replicas.examine(entry_id, await replicas.one(bookie, entry_id))
        if isinstance(copy, Copy):
            _print_entry(
                {"ledger": replicas.metadata.ledger_id, "entry": entry_id}, bytes(copy.payload), message, as_json
            )
        else:
            complain(f"Failed to read entry {entry_id} -- {copy.status.value}: {copy.detail}")
            code = EXIT_ERROR
    return code


def _print_entry(about: dict[str, Any], data: bytes, message: bool, as_json: bool) -> None:
    if as_json:
        json_line(about | ({"data": data.hex()} if message else {}))
        return
    size = f", EntrySize={about['size']}" if "size" in about else ""
    typer.echo(f"--------- Lid={about['ledger']}, Eid={about['entry']}{size} ---------")
    if message:
        try:
            typer.echo(data.decode())
        except UnicodeDecodeError:
            typer.echo(data.hex())


@grouped
def deleteledger(
    ledger_id: LedgerOption,
    cluster: ClusterOptions,
    force: Annotated[bool, typer.Option("--force", "-force", "-f", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete a ledger. Bookies give its space back later."""
    if not force and not agreed(f"Are your sure to delete Ledger : {ledger_id}?"):
        fail("nothing was changed", EXIT_ERROR)

    async def delete(driver: MetadataDriver) -> None:
        await driver.ledgers.remove(ledger_id)

    in_cluster(cluster, delete)
    if as_json:
        print_json({"ledger": ledger_id, "deleted": True})


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
