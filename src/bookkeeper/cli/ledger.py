"""`bookkeeper ledger ...`: create, append to, read, follow, inspect, list and delete ledgers.

A ledger has one writer in its life. `create` therefore only reserves a ledger; the first `append` to it claims it,
writes, and closes it. A second `append` is refused. Looking at a ledger (`read`, `tail`, `metadata`, `list`) changes
nothing: only `read --recover` fences a writer and closes the ledger.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ..client.client import BookKeeper
from ..client.reader import LedgerReader
from ..client.writer import LedgerWriter
from ..config import ClientConfiguration
from ..errors import BookKeeperError, IllegalOpError, NoSuchLedgerOnMetadataError, NotEnoughBookiesError
from ..metadata.ledger_metadata import LedgerMetadata
from ..runtime import Runtime
from ..types import DigestType
from .append import BadInput, LineSource, append_all
from .options import JsonOption, PasswordOptions, UriOption, grouped, pairs
from .output import (
    EXIT_USAGE,
    complain,
    console,
    entries_text,
    execute,
    fail,
    human_bytes,
    print_json,
    print_table,
    remark,
    text_of,
)
from .session import Stop, connect, is_reserved, open_reader, stoppable

app = typer.Typer(no_args_is_help=True, help="Create, append to, read, follow, inspect, list and delete ledgers.")

LedgerId = Annotated[int, typer.Argument(min=0, help="Ledger id.")]
RawOption = Annotated[bool, typer.Option("--raw", help="Payloads as they are: no newline is added or removed.")]
JsonLinesOption = Annotated[
    bool,
    typer.Option("--json", help="A JSON object a line: entry, length, and data, or data_base64 where it is not text."),
]
CountOption = Annotated[int | None, typer.Option("--count", "-n", min=1, help="Only so many entries.")]


# --- create ---


def quorums(ensemble: int, write_quorum: int | None, ack_quorum: int | None) -> tuple[int, int, int]:
    """Ensemble size, write quorum and ack quorum; what is not given follows from what is.

    Three copies at most, of which more than a half are waited for.
    """
    write = min(3, ensemble) if write_quorum is None else write_quorum
    return ensemble, write, write // 2 + 1 if ack_quorum is None else ack_quorum


@app.command()
@grouped
def create(
    uri: UriOption,
    password: PasswordOptions,
    ensemble: Annotated[int, typer.Option("--ensemble", "-e", min=1, help="Bookies that share the ledger.")] = 3,
    write_quorum: Annotated[
        int | None,
        typer.Option("--write-quorum", "-w", min=1, help="Copies of each entry. Default: 3, or fewer bookies."),
    ] = None,
    ack_quorum: Annotated[
        int | None,
        typer.Option(
            "--ack-quorum", "-a", min=1, help="Copies before an append is done. Default: more than half of them."
        ),
    ] = None,
    digest: Annotated[DigestType, typer.Option("--digest", help="How entries are protected.")] = DigestType.CRC32C,
    metadata: Annotated[
        list[str] | None,
        typer.Option("--metadata", "-m", metavar="KEY=VALUE", help="Custom metadata of the ledger. Repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Reserve a ledger and print its id; `ledger append ID` writes it."""
    size, write, ack = quorums(ensemble, write_quorum, ack_quorum)
    key = password.secret()
    custom = {name: value.encode() for name, value in pairs("--metadata", metadata)}

    async def main(runtime: Runtime) -> None:
        async with connect(uri, runtime) as bk:
            try:
                ledger_id = await bk.reserve_ledger(
                    ensemble_size=size,
                    write_quorum=write,
                    ack_quorum=ack,
                    password=key,
                    digest=digest,
                    custom_metadata=custom,
                )
            except NotEnoughBookiesError as error:
                fail(f"{error}; `bookkeeper bookies list` shows them, -e and -w ask for fewer")
        if as_json:
            print_json({"ledger": ledger_id})
        else:
            console.print(str(ledger_id))

    execute(main)


# --- append ---


@app.command()
@grouped
def append(
    ledger_id: LedgerId,
    uri: UriOption,
    password: PasswordOptions,
    files: Annotated[list[Path] | None, typer.Argument(help="Files to append; none: standard input.")] = None,
    raw: RawOption = False,
    as_json: JsonOption = False,
) -> None:
    """Append lines, one entry each (with --raw: each file is one entry), then close the ledger.

    Each line is sent as it comes. At the end of the input, or after Ctrl-C or SIGTERM, the ledger is closed with all
    that was taken so far, and the command says how many entries are stored.
    """
    for path in files or []:
        if not path.is_file():
            fail(f"{path} is not a file")
    sources = [LineSource(path) for path in files] if files else [LineSource()]
    key = password.secret()
    config = ClientConfiguration()

    async def main(runtime: Runtime) -> int:
        async with connect(uri, runtime, config) as bk:
            try:
                writer = await bk.claim_ledger(ledger_id, password=key)
            except IllegalOpError as error:
                fail(f"{error}; a ledger is written once: `bookkeeper ledger create` makes another one")
            with stoppable(signal.SIGHUP) as stop:
                failure = await _write(runtime, writer, sources, raw, config.nettyMaxFrameSizeBytes, stop)
                return _report(writer, failure, stop, as_json)

    code = execute(main)
    if code:
        raise typer.Exit(code)


async def _write(
    runtime: Runtime, writer: LedgerWriter, sources: list[LineSource], raw: bool, limit: int, stop: Stop
) -> Exception | None:
    """Append everything and close the ledger. Returns what went wrong."""
    try:
        async with writer:
            await append_all(runtime, writer, sources, raw=raw, limit=limit, stop=stop)
    except (BookKeeperError, OSError) as error:
        return error
    except asyncio.CancelledError:
        if stop.signal is None:
            raise
        task = (
            asyncio.current_task()
        )  # asked to stop once more: the ledger is closed, and what it has is still reported
        assert task is not None
        task.uncancel()
    return None


def _report(writer: LedgerWriter, error: Exception | None, stop: Stop, as_json: bool) -> int:
    """Say what is stored. Returns the exit code."""
    count = writer.last_add_confirmed + 1
    sealed = writer.metadata.closed
    if as_json:
        print_json({"ledger": writer.id, "entries": count, "bytes": writer.length})
    ids = f" (ids 0 to {count - 1})" if count > 1 else " (id 0)" if count else ""
    stored = f"{entries_text(count)}{ids} in ledger {writer.id}, which is {'closed' if sealed else 'not closed'}"
    if error is not None:
        complain(f"{text_of(error)}; stored{' before it' if isinstance(error, BadInput) else ''}: {stored}")
        return 1
    if stop.signal is not None:
        remark(f"interrupted; stored: {stored}")
    elif not as_json:
        remark(f"{entries_text(count)}, {writer.length:,} bytes in ledger {writer.id}")
    return stop.exit_code


# --- read and tail ---


@app.command()
@grouped
def read(
    ledger_id: LedgerId,
    uri: UriOption,
    password: PasswordOptions,
    first: Annotated[int, typer.Option("--from", min=0, help="First entry id.")] = 0,
    last: Annotated[int | None, typer.Option("--to", min=0, help="Last entry id; default: the last one.")] = None,
    count: CountOption = None,
    recover: Annotated[
        bool,
        typer.Option(
            "--recover", "-r", help="Recover and close the ledger first, as after its writer died. Fences the writer."
        ),
    ] = False,
    raw: RawOption = False,
    as_json: JsonLinesOption = False,
) -> None:
    """Write payloads to standard output, one a line.

    The writer is not disturbed: of a ledger that is being written, what is confirmed so far is read.
    """
    key = password.secret()
    printer = _Printer(raw, as_json)

    async def main(runtime: Runtime) -> None:
        async with connect(uri, runtime) as bk:
            record = await bk.get_ledger_metadata(ledger_id)
            if recover and is_reserved(record):
                fail(f"ledger {ledger_id} waits for its first `bookkeeper ledger append`: there is nothing to recover")
            async with await open_reader(bk, ledger_id, key, recover=recover) as reader:
                await _print_range(reader, first, last, count, printer)
                if last is None and count is None:
                    _say_if_open(reader, is_reserved(record))

    execute(main)


async def _print_range(
    reader: LedgerReader, first: int, last: int | None, count: int | None, printer: _Printer
) -> None:
    """Print entries `first` to `last`, as far as they are there. A missing one is an error, after the others."""
    end = reader.last_add_confirmed
    wanted = end if last is None else last
    if count is not None:
        wanted = min(wanted, first + count - 1)
    if first <= min(wanted, end):
        await printer.print(reader.entries(first, min(wanted, end)))
    missing = max(first, end + 1)
    if (first > end and first > 0) or wanted > end:
        has = f"its entries are 0 to {end}" if end >= 0 else "it has no entries"
        fail(f"there is no entry {missing} in ledger {reader.id}{'' if reader.closed else ' yet'}: {has}")


def _say_if_open(reader: LedgerReader, reserved: bool) -> None:
    if reserved:
        remark(f"ledger {reader.id} is empty: it waits for its first `bookkeeper ledger append`")
    elif not reader.closed:
        remark(
            f"ledger {reader.id} is not closed: {entries_text(reader.last_add_confirmed + 1)} confirmed so far; "
            "`tail` follows its writer, `read --recover` closes it after its writer died"
        )


@app.command()
@grouped
def tail(
    ledger_id: LedgerId,
    uri: UriOption,
    password: PasswordOptions,
    first: Annotated[
        int | None, typer.Option("--from", min=0, help="First entry id; default: what comes next.")
    ] = None,
    count: CountOption = None,
    raw: RawOption = False,
    as_json: JsonLinesOption = False,
) -> None:
    """Follow a ledger that is being written, without disturbing its writer; ends when the ledger is closed."""
    key = password.secret()
    printer = _Printer(raw, as_json)

    async def main(runtime: Runtime) -> None:
        async with connect(uri, runtime) as bk, await open_reader(bk, ledger_id, key) as reader:
            start = first if first is not None else reader.last_add_confirmed + 1
            await printer.print(reader.tail(start), count, flush=True)

    execute(main)


class _Printer:
    """Entries on standard output."""

    def __init__(self, raw: bool, as_json: bool) -> None:
        if raw and as_json:
            fail("--raw and --json exclude each other", EXIT_USAGE)
        self._newline = b"" if raw else b"\n"
        self._as_json = as_json

    async def print(self, entries: AsyncIterator[Any], count: int | None = None, *, flush: bool = False) -> None:
        """Print all, or the first `count`."""
        out = sys.stdout.buffer
        try:
            async for entry in entries:
                out.write(self._line(entry))
                if flush:
                    out.flush()
                if count is not None:
                    count -= 1
                    if not count:
                        break
            out.flush()
        except BrokenPipeError:
            # The reader of our output has seen enough; do not complain at exit either.
            sys.stdout = None

    def _line(self, entry: Any) -> bytes:
        if not self._as_json:
            return bytes(entry.data) + self._newline
        row: dict[str, object] = {"entry": entry.entry_id, "length": len(entry.data)}
        try:
            row["data"] = bytes(entry.data).decode()
        except UnicodeDecodeError:
            row["data_base64"] = base64.b64encode(entry.data).decode()
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"


# --- metadata ---


@app.command()
def metadata(ledger_id: LedgerId, uri: UriOption, as_json: JsonOption = False) -> None:
    """Show what the metadata store knows of a ledger."""

    async def main(runtime: Runtime) -> None:
        async with connect(uri, runtime) as bk:
            record = await bk.get_ledger_metadata(ledger_id)
        description = describe(record)
        if as_json:
            print_json(description)
            return
        rows = [(key, _shown(key, value)) for key, value in description.items() if key != "ensembles"]
        print_table(f"ledger {ledger_id}", ["field", "value"], rows)
        print_table(
            "fragments",
            ["first entry", "bookies"],
            [(str(first), ", ".join(members)) for first, members in record.ensembles.items()],
        )

    execute(main)


def _shown(key: str, value: Any) -> str:
    """A value as people read it."""
    if key == "ctime":
        return date_text(value)
    if key == "length":
        return f"{value:,}"
    if key == "custom_metadata":
        return ", ".join(f"{name}={text}" for name, text in value.items()) or "-"
    return "-" if value is None else str(value)


def date_text(ms: int) -> str:
    """Milliseconds since 1970 as date and time of day, UTC; a dash where none is stored."""
    if ms < 0:
        return "-"
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def describe(record: LedgerMetadata) -> dict[str, Any]:
    """A ledger's metadata as plain values; the password is left out."""
    return {
        "ledger": record.ledger_id,
        "state": record.state.name,
        "ensemble_size": record.ensemble_size,
        "write_quorum": record.write_quorum,
        "ack_quorum": record.ack_quorum,
        "last_entry_id": record.last_entry_id,
        "length": record.length,
        "digest": record.digest_type.value if record.digest_type else None,
        "ctime": record.ctime,
        "format_version": record.format_version,
        "custom_metadata": {key: value.decode(errors="replace") for key, value in record.custom_metadata.items()},
        "ensembles": {str(first): list(members) for first, members in record.ensembles.items()},
    }


@app.command("list")
def list_(
    uri: UriOption,
    long: Annotated[bool, typer.Option("--long", "-l", help="State, entries, size and copies too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the ids of all ledgers, one a line; with --long a table, with --json their metadata."""

    async def main(runtime: Runtime) -> None:
        async with connect(uri, runtime) as bk:
            ids = [ledger_id async for ledger_id in bk.list_ledgers()]
            records = [record async for record in _records(bk, ids)] if long or as_json else []
        if as_json:
            print_json([describe(record) for record in records])
        elif long:
            print_table(None, ["ledger", "state", "entries", "size", "bookies/copies/acks"], map(_row, records))
        else:
            for ledger_id in ids:
                console.print(str(ledger_id))

    execute(main)


async def _records(bk: BookKeeper, ids: list[int]) -> AsyncIterator[LedgerMetadata]:
    """Metadata of those ledgers that are not deleted meanwhile."""
    for ledger_id in ids:
        with contextlib.suppress(NoSuchLedgerOnMetadataError):
            yield await bk.get_ledger_metadata(ledger_id)


def _row(record: LedgerMetadata) -> tuple[str, ...]:
    """What is known of a ledger's size is in its metadata once it is closed."""
    return (
        str(record.ledger_id),
        "RESERVED" if is_reserved(record) else record.state.name,
        str(record.last_entry_id + 1) if record.closed else "-",
        human_bytes(record.length) if record.closed else "-",
        f"{record.ensemble_size}/{record.write_quorum}/{record.ack_quorum}",
    )


@app.command()
def delete(
    ledger_ids: Annotated[list[int], typer.Argument(min=0, help="Ledger ids.")],
    uri: UriOption,
    force: Annotated[bool, typer.Option("--force", "-f", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete ledgers. Their space on the bookies comes back through garbage collection."""
    if not force and not typer.confirm(f"Delete {len(ledger_ids)} ledger(s) for good?", err=True):
        raise typer.Exit(1)

    async def main(runtime: Runtime) -> None:
        async with connect(uri, runtime) as bk:
            for ledger_id in ledger_ids:
                await bk.get_ledger_metadata(ledger_id)  # an unknown ledger is a mistake worth reporting
                await bk.delete_ledger(ledger_id)

    execute(main)
    if as_json:
        print_json({"deleted": ledger_ids})
