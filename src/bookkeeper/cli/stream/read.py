"""`bookkeeper stream read` and `tail`."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from datetime import datetime
from typing import Annotated

import typer

from ...runtime import Runtime
from ...streams.dlsn import DLSN
from ...streams.namespace import Namespace, at_time
from ...streams.reading.reader import EARLIEST, LATEST, Latest, Record, TxId
from ..options import grouped
from ..output import EXIT_USAGE, fail
from ..session import stoppable
from .common import NamespaceOptions, StreamName, parse_position, position_text

FromOption = Annotated[
    str,
    typer.Option(
        "--from",
        help="earliest, latest, a position SEGMENT/ENTRY/SLOT as --json prints it, txid:NUMBER, or time:ISO-TIME.",
    ),
]
CountOption = Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many records.")]
RawOption = Annotated[bool, typer.Option("--raw", help="No newline after a record.")]
LinesOption = Annotated[bool, typer.Option("--json", help="A JSON object a line: position, txid, data.")]


@grouped
def read(
    name: StreamName,
    at: NamespaceOptions,
    start: FromOption = "earliest",
    count: CountOption = None,
    raw: RawOption = False,
    as_json: LinesOption = False,
) -> None:
    """Print what is in a stream, a line a record."""
    _print(name, at, _start(start), count, raw, as_json, tail=False)


@grouped
def tail(
    name: StreamName,
    at: NamespaceOptions,
    start: FromOption = "latest",
    count: CountOption = None,
    raw: RawOption = False,
    as_json: LinesOption = False,
) -> None:
    """Print records as they come, from now on or from a position, until Ctrl-C."""
    _print(name, at, _start(start), count, raw, as_json, tail=True)


def _start(text: str) -> DLSN | TxId | Latest:
    if text == "earliest":
        return EARLIEST
    if text == "latest":
        return LATEST
    kind, separator, number = text.partition(":")
    if separator and kind == "txid" and number.isdecimal():
        return TxId(int(number))
    if separator and kind == "time":
        try:
            return at_time(datetime.fromisoformat(number))
        except ValueError as error:
            fail(f"{number!r} is no time: give one as 2026-01-31T12:00:00+00:00 ({error})", EXIT_USAGE)
    return parse_position(text)


def _print(
    name: str,
    at: NamespaceOptions,
    start: DLSN | TxId | Latest,
    count: int | None,
    raw: bool,
    as_json: bool,
    *,
    tail: bool,
) -> None:
    if raw and as_json:
        fail("--raw and --json exclude each other", EXIT_USAGE)

    async def show(namespace: Namespace) -> None:
        out = sys.stdout.buffer
        left = count
        async with namespace.open_reader(name, start, tail=tail) as reader:
            async for record in reader:
                out.write(_line(record) if as_json else record.payload if raw else record.payload + b"\n")
                if tail:
                    out.flush()
                if left is not None and (left := left - 1) == 0:
                    break
        out.flush()

    async def work(namespace: Namespace, _: Runtime) -> int:
        with stoppable() as stop:
            showing = asyncio.ensure_future(show(namespace))
            asked = asyncio.ensure_future(stop.asked.wait())
            await asyncio.wait([showing, asked], return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            if not showing.done():
                showing.cancel()
                await asyncio.wait([showing])
                return 0 if tail else stop.exit_code
            try:
                showing.result()
            except BrokenPipeError:  # who reads our output has seen enough
                sys.stdout = None
            return 0

    if code := at.run(work):
        raise typer.Exit(code)


def _line(record: Record) -> bytes:
    row: dict[str, object] = {
        "position": position_text(record.position),
        "txid": record.txid,
        "sequence": record.sequence_id,
    }
    try:
        row["data"] = record.payload.decode()
    except UnicodeDecodeError:
        row["data_base64"] = base64.b64encode(record.payload).decode()
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"
