"""`bookkeeper stream read` and `tail`."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Annotated

import typer

from ...client.opening import Opening
from ...runtime import Runtime
from ...streams.dlsn import DLSN
from ...streams.namespace import Namespace, at_time
from ...streams.reading.reader import EARLIEST, LATEST, Latest, Record, StreamReader, TxId
from ..options import grouped
from ..output import EXIT_USAGE, fail
from ..session import stoppable
from .common import NamespaceOptions, StreamName, parse_position, position_text

AT_ONCE = 500
"""Records printed at a time."""

FromOption = Annotated[
    str,
    typer.Option(
        "--from",
        help="earliest, latest, a position SEGMENT/ENTRY/SLOT as --json prints it, txid:NUMBER, or time:ISO-TIME.",
    ),
]
CountOption = Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many records.")]
SubscriberOption = Annotated[
    str | None,
    typer.Option(
        "--subscriber", help="Go on where this subscriber stopped, and keep with the stream how far it has come now."
    ),
]
RawOption = Annotated[bool, typer.Option("--raw", help="No newline after a record.")]
LinesOption = Annotated[bool, typer.Option("--json", help="A JSON object a line: position, txid, data.")]


@grouped
def read(
    name: StreamName,
    at: NamespaceOptions,
    start: FromOption = "",
    count: CountOption = None,
    subscriber: SubscriberOption = None,
    raw: RawOption = False,
    as_json: LinesOption = False,
) -> None:
    """Print what is in a stream, a line a record; from its beginning, or where the subscriber stopped."""
    _print(name, at, _start(start or ("" if subscriber else "earliest")), count, subscriber, raw, as_json, tail=False)


@grouped
def tail(
    name: StreamName,
    at: NamespaceOptions,
    start: FromOption = "",
    count: CountOption = None,
    subscriber: SubscriberOption = None,
    raw: RawOption = False,
    as_json: LinesOption = False,
) -> None:
    """Print records as they come until Ctrl-C; from now on, from a position, or where the subscriber stopped."""
    _print(name, at, _start(start or ("" if subscriber else "latest")), count, subscriber, raw, as_json, tail=True)


def _start(text: str) -> DLSN | TxId | Latest | None:
    """None: where the subscriber stopped."""
    if not text:
        return None
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
    start: DLSN | TxId | Latest | None,
    count: int | None,
    subscriber: str | None,
    raw: bool,
    as_json: bool,
    *,
    tail: bool,
) -> None:
    if raw and as_json:
        fail("--raw and --json exclude each other", EXIT_USAGE)
    spell = _json_line if as_json else _payload if raw else _line

    async def work(namespace: Namespace, _: Runtime) -> int:
        with stoppable() as stop:
            reader = namespace.open_reader(name, start, tail=tail, subscriber=subscriber)
            showing = asyncio.ensure_future(_show(reader, count, spell, acknowledged=subscriber is not None))
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


async def _show(
    opening: Opening[StreamReader], count: int | None, spell: Callable[[Record], bytes], *, acknowledged: bool
) -> None:
    """Print records, `count` at most. `acknowledged`: what was printed is not given to the subscriber again."""
    out = sys.stdout.buffer
    left = sys.maxsize if count is None else count
    async with opening as reader:
        while left and (records := await reader.read(min(left, AT_ONCE))):
            out.writelines(map(spell, records))
            out.flush()
            left -= len(records)
            if acknowledged:
                await reader.ack()


def _payload(record: Record) -> bytes:
    return record.payload


def _line(record: Record) -> bytes:
    return record.payload + b"\n"


def _json_line(record: Record) -> bytes:
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
