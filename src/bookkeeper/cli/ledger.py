"""`bookkeeper ledger ...`: create, append to, read, follow, inspect, list and delete ledgers.

A ledger has one writer in its life. `create` therefore only reserves a ledger; the first `append` to it claims it,
writes, and closes it. A second `append` is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

import bookkeeper

from ..client.client import BookKeeper
from ..client.writer import LedgerWriter
from ..config import ClientConfiguration
from ..metadata.ledger_metadata import LedgerMetadata
from ..runtime import Runtime
from ..types import DigestType
from .output import (
    JsonOption,
    PasswordOption,
    UriOption,
    console,
    execute,
    fail,
    notes,
    print_json,
    print_table,
)

app = typer.Typer(no_args_is_help=True, help="Create, append to, read, follow, inspect, list and delete ledgers.")

LedgerId = Annotated[int, typer.Argument(min=0, help="Ledger id.")]
RawOption = Annotated[bool, typer.Option("--raw", help="Payloads as they are: no newline is added or removed.")]

APPEND_WINDOW = 10_000
"""Appends under way at a time: enough to keep the connections full, little enough to bound memory."""


def _client(runtime: Runtime, uri: str) -> BookKeeper:
    return bookkeeper.connect(uri, config=ClientConfiguration(), runtime=runtime)


@app.command()
def create(
    uri: UriOption,
    ensemble: Annotated[int, typer.Option("--ensemble", "-e", min=1, help="Bookies that share the ledger.")] = 3,
    write_quorum: Annotated[int, typer.Option("--write-quorum", "-w", min=1, help="Copies of each entry.")] = 3,
    ack_quorum: Annotated[int, typer.Option("--ack-quorum", "-a", min=1, help="Copies before an append is done.")] = 2,
    password: PasswordOption = "",
    digest: Annotated[DigestType, typer.Option("--digest", help="How entries are protected.")] = DigestType.CRC32C,
    as_json: JsonOption = False,
) -> None:
    """Reserve a ledger and print its id; `ledger append ID` writes it."""

    async def main(runtime: Runtime) -> None:
        async with _client(runtime, uri) as bk:
            ledger_id = await bk.reserve_ledger(
                ensemble_size=ensemble,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                password=password.encode(),
                digest=digest,
            )
        if as_json:
            print_json({"ledger": ledger_id})
        else:
            console.print(str(ledger_id))

    execute(main)


@app.command()
def append(
    ledger_id: LedgerId,
    uri: UriOption,
    files: Annotated[list[Path] | None, typer.Argument(help="Files to append; none: standard input.")] = None,
    password: PasswordOption = "",
    raw: RawOption = False,
    as_json: JsonOption = False,
) -> None:
    """Append lines, one entry each (with --raw: each file is one entry), then close the ledger.

    Prints how many entries are stored once all of them are acknowledged.
    """
    for path in files or []:
        if not path.is_file():
            fail(f"{path} is not a file")

    async def main(runtime: Runtime) -> None:
        async with _client(runtime, uri) as bk:
            writer = await bk.claim_ledger(ledger_id, password=password.encode())
            async with writer:
                total = sum(path.stat().st_size for path in files) if files else None
                await append_all(writer, _entries(files, raw), total)
            report = {"ledger": ledger_id, "entries": writer.last_add_confirmed + 1, "bytes": writer.length}
        if as_json:
            print_json(report)
        else:
            notes.print(f"{report['entries']:,} entries, {report['bytes']:,} bytes in ledger {ledger_id}")

    execute(main)


def _entries(files: list[Path] | None, raw: bool) -> Iterator[bytes]:
    """Entries from files or stdin: a line each without its newline, or each file whole."""
    sources: list[Path | None] = [*files] if files else [None]
    for path in sources:
        stream: BinaryIO = sys.stdin.buffer if path is None else path.open("rb")
        with contextlib.nullcontext(stream) if path is None else stream:
            if raw:
                yield stream.read()
            else:
                for line in stream:
                    yield line.removesuffix(b"\n")


async def append_all(writer: LedgerWriter, entries: Iterator[bytes], total: int | None) -> None:
    """Append everything, at most `APPEND_WINDOW` at a time; raises the first error."""
    window: deque[asyncio.Future[int]] = deque()
    with progress_bar() as progress:
        task = progress.add_task("appending", total=total)
        for entry in entries:
            if len(window) >= APPEND_WINDOW:
                await window[APPEND_WINDOW // 2]
                progress.update(task, completed=writer.length)
                while window and window[0].done():
                    window.popleft().result()
            window.append(await writer.append_soon(entry))
        while window:
            await window.popleft()


def progress_bar() -> Progress:
    """A bar on stderr; nothing when stderr is no terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=notes,
        transient=True,
        disable=not notes.is_terminal,
    )


@app.command()
def read(
    ledger_id: LedgerId,
    uri: UriOption,
    first: Annotated[int, typer.Option("--from", min=0, help="First entry id.")] = 0,
    last: Annotated[int | None, typer.Option("--to", min=0, help="Last entry id; default: the last one.")] = None,
    password: PasswordOption = "",
    recover: Annotated[
        bool, typer.Option("--recover", help="First fence the ledger's writer and close the ledger, for good.")
    ] = False,
    raw: RawOption = False,
) -> None:
    """Write payloads to standard output, one a line.

    Of a ledger that is still open only what is confirmed so far is read, and its writer is left alone. If the writer is
    gone, --recover finds everything that was acknowledged and closes the ledger.
    """

    async def main(runtime: Runtime) -> None:
        async with (
            _client(runtime, uri) as bk,
            await bk.open_ledger(ledger_id, password=password.encode(), recover=recover) as reader,
        ):
            await _print_entries(reader.entries(first, last), raw)

    execute(main)


@app.command()
def tail(
    ledger_id: LedgerId,
    uri: UriOption,
    first: Annotated[
        int | None, typer.Option("--from", min=0, help="First entry id; default: what comes next.")
    ] = None,
    password: PasswordOption = "",
    raw: RawOption = False,
) -> None:
    """Follow a ledger that is being written, without disturbing its writer; ends when the ledger is closed."""

    async def main(runtime: Runtime) -> None:
        async with (
            _client(runtime, uri) as bk,
            await bk.open_ledger(ledger_id, password=password.encode()) as reader,
        ):
            start = first if first is not None else reader.last_add_confirmed + 1
            await _print_entries(reader.tail(start), raw, flush=True)

    execute(main)


async def _print_entries(entries: AsyncIterator[Any], raw: bool, *, flush: bool = False) -> None:
    out = sys.stdout.buffer
    newline = b"" if raw else b"\n"
    try:
        async for entry in entries:
            out.write(entry.data + newline)
            if flush:
                out.flush()
        out.flush()
    except BrokenPipeError:
        # The reader of our output has seen enough; do not complain at exit either.
        sys.stdout = None


@app.command()
def metadata(ledger_id: LedgerId, uri: UriOption, as_json: JsonOption = False) -> None:
    """Show what the metadata store knows of a ledger."""

    async def main(runtime: Runtime) -> None:
        async with _client(runtime, uri) as bk:
            record = await bk.get_ledger_metadata(ledger_id)
        description = describe(record)
        if as_json:
            print_json(description)
            return
        rows = [(key, value) for key, value in description.items() if key != "ensembles"]
        print_table(f"ledger {ledger_id}", ["field", "value"], rows)
        print_table(
            "fragments",
            ["first entry", "bookies"],
            [(first, ", ".join(members)) for first, members in record.ensembles.items()],
        )

    execute(main)


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
def list_(uri: UriOption, as_json: JsonOption = False) -> None:
    """Print the ids of all ledgers, one a line; with --json their metadata."""

    async def main(runtime: Runtime) -> None:
        async with _client(runtime, uri) as bk:
            ids = [ledger_id async for ledger_id in bk.list_ledgers()]
            if as_json:
                print_json([describe(await bk.get_ledger_metadata(ledger_id)) for ledger_id in ids])
            else:
                for ledger_id in ids:
                    console.print(str(ledger_id))

    execute(main)


@app.command()
def delete(
    ledger_ids: Annotated[list[int], typer.Argument(min=0, help="Ledger ids.")],
    uri: UriOption,
    force: Annotated[bool, typer.Option("--force", "-f", help="Do not ask.")] = False,
) -> None:
    """Delete ledgers. Their space on the bookies comes back through garbage collection."""
    if not force and not typer.confirm(f"Delete {len(ledger_ids)} ledger(s) for good?", err=True):
        raise typer.Exit(1)

    async def main(runtime: Runtime) -> None:
        async with _client(runtime, uri) as bk:
            for ledger_id in ledger_ids:
                await bk.get_ledger_metadata(ledger_id)  # an unknown ledger is a mistake worth reporting
                await bk.delete_ledger(ledger_id)

    execute(main)
