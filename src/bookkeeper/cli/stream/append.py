"""`bookkeeper stream append`: lines become records as they come.

What was read at a time is appended in one piece, so a file goes in as fast as it can be read, and a line that comes
alone goes at once. At the end of the input, or after Ctrl-C or SIGTERM, the command says how far the stream has got.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ...errors import BookKeeperError
from ...runtime import Runtime, Workers
from ...streams.dlsn import DLSN
from ...streams.formats.records import LARGEST_PAYLOAD
from ...streams.namespace import Namespace
from ...streams.writer import StreamWriter
from ..append import BadInput, Input, LineSource
from ..options import JsonOption, grouped
from ..output import complain, counted, fail, print_json, remark, text_of
from ..session import Stop, stoppable
from .common import NamespaceOptions, StreamName, position_text


@dataclass
class _Appended:
    """How far it has got."""

    records: int = 0
    last: DLSN | None = None


@grouped
def append(
    name: StreamName,
    at: NamespaceOptions,
    files: Annotated[list[Path] | None, typer.Argument(help="Files to append; none: standard input.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Each file is one record.")] = False,
    create: Annotated[bool, typer.Option("--create", help="Make the stream if it is not there.")] = False,
    wait: Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait for another writer to go.")] = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Append lines, one record each. There is one writer at a time: what a former one left is ended first."""
    for path in files or []:
        if not path.is_file():
            fail(f"{path} is not a file")
    sources = [LineSource(path) for path in files] if files else [LineSource()]
    done = _Appended()

    async def work(namespace: Namespace, runtime: Runtime) -> int:
        with stoppable(signal.SIGHUP) as stop:
            failure: Exception | None = None
            try:
                async with namespace.open_writer(name, create=create, lock_timeout=wait) as writer:
                    await _append_all(runtime, writer, sources, raw, stop, done)
            except (BookKeeperError, OSError) as error:
                failure = error
            return _report(name, done, failure, stop, as_json)

    if code := at.run(work, create=create):
        raise typer.Exit(code)


async def _append_all(
    runtime: Runtime, writer: StreamWriter, sources: Sequence[LineSource], raw: bool, stop: Stop, done: _Appended
) -> None:
    """Append everything, until the end or until `stop`. Raises `BadInput`, `OSError`, what appending raises."""
    lane = runtime.workers("input")
    for source in sources:
        lines = Input(source, raw=raw, limit=LARGEST_PAYLOAD + 1)
        while records := await _read(lane, lines, stop):
            positions = await writer.append_batch(records)
            done.records += len(records)
            done.last = positions.last
        if stop.asked.is_set():
            return  # the lane may sit in a read without an end, and does not keep the process
    await lane.close()


async def _read(lane: Workers, lines: Input, stop: Stop) -> list[bytes]:
    """What is read next; nothing at the end, or if `stop` comes first."""
    reading: asyncio.Future[list[bytes]] = lane.submit(lines.read)
    asked = asyncio.ensure_future(stop.asked.wait())
    try:
        waited: set[asyncio.Future[Any]] = {reading, asked}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        return reading.result() if reading.done() else []
    finally:
        asked.cancel()
        reading.cancel()


def _report(name: str, done: _Appended, error: Exception | None, stop: Stop, as_json: bool) -> int:
    """Say what is stored. Returns the exit code."""
    if as_json:
        print_json({"stream": name, "records": done.records, "last": position_text(done.last) if done.last else None})
    where = f", the last at {position_text(done.last)}" if done.last else ""
    stored = f"{counted(done.records, 'record')} in {name}{where}"
    if error is not None:
        complain(f"{text_of(error)}; stored{' before it' if isinstance(error, BadInput) else ''}: {stored}")
        return 1
    if stop.signal is not None:
        remark(f"interrupted; stored: {stored}")
    elif not as_json:
        remark(stored)
    return stop.exit_code
