"""`bookkeeper bench stream ...`: appends to a stream, reads, tailing.

Latency is from the call of an append, or from the append of a record, to its completion. Rates are of acknowledged
records.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Annotated

import typer

from ...errors import BookKeeperError, StreamExistsError
from ...runtime import Runtime
from ...streams.dlsn import DLSN
from ...streams.namespace import Namespace
from ...streams.reading.reader import StreamReader
from ...streams.writer import StreamWriter
from ..options import JsonOption, grouped
from ..session import Stop, stoppable
from ..stream.common import NamespaceOptions, StreamName
from .common import Result, SecondsOption, all_done, report

app = typer.Typer(no_args_is_help=True, help="Measure a stream: appends, reads and tailing.")

BATCHES_UNDER_WAY = 4
"""So many batches are not acknowledged at a time."""

SizeOption = Annotated[int, typer.Option("--size", min=0, help="Bytes of a record.")]
NewStream = Annotated[str, typer.Argument(metavar="STREAM", help="Its name; it is made, and stays.")]


@app.command()
@grouped
def write(
    name: NewStream,
    at: NamespaceOptions,
    size: SizeOption = 100,
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="Records handed in together. With 1: each by itself, pipelined.")
    ] = 1000,
    sets: Annotated[bool, typer.Option("--sets", help="In record sets: 4 bytes a record in place of 20.")] = False,
    window: Annotated[int, typer.Option("--window", min=1, help="Records under way, with --batch 1.")] = 5000,
    seconds: SecondsOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Append as fast as the window allows. With --batch 1 --window 1: one record at a time."""

    async def work(namespace: Namespace, runtime: Runtime) -> int:
        result = Result(f"write {size} B", size)
        with stoppable() as stop:
            async with await _fresh(namespace, name) as writer:
                deadline = runtime.now() + seconds
                if batch == 1:
                    feeding = _feed(runtime, writer, bytes(size), window, deadline, result, stop)
                else:
                    feeding = _feed_batches(runtime, writer, [bytes(size)] * batch, sets, deadline, result, stop)
                await all_done(runtime, [feeding], seconds, result)
        return report(result, as_json, stop, stream=name)

    if code := at.run(work, create=True):
        raise typer.Exit(code)


async def _fresh(namespace: Namespace, name: str) -> StreamWriter:
    """The writer of a stream of its own: others' records are no place for ours."""
    try:
        await namespace.create(name)
    except StreamExistsError:
        raise StreamExistsError(f"there is a stream {name} already: give another name, or delete it first") from None
    return await namespace.open_writer(name)


async def _feed(
    runtime: Runtime,
    writer: StreamWriter,
    payload: bytes,
    window: int,
    deadline: float,
    result: Result,
    stop: Stop,
) -> None:
    """Keep `window` records under way, each given by itself."""
    under_way: deque[tuple[asyncio.Future[DLSN], float]] = deque()
    while runtime.now() < deadline and stop.signal is None:
        while len(under_way) < window:
            under_way.append((writer.append_nowait(payload), runtime.now()))
        await _settle(runtime, under_way, result)
    while under_way:
        await _settle(runtime, under_way, result)


async def _settle(runtime: Runtime, under_way: deque[tuple[asyncio.Future[DLSN], float]], result: Result) -> None:
    """Wait for the oldest record; whatever ended with it is counted, too."""
    await under_way[0][0]
    now = runtime.now()
    while under_way and under_way[0][0].done():
        future, began = under_way.popleft()
        future.result()
        result.latency.record(now - began)
        result.entries += 1


async def _feed_batches(
    runtime: Runtime,
    writer: StreamWriter,
    payloads: list[bytes],
    sets: bool,
    deadline: float,
    result: Result,
    stop: Stop,
) -> None:
    async def worker() -> None:
        while (began := runtime.now()) < deadline and stop.signal is None:
            await writer.append_batch(payloads, as_sets=sets)
            result.latency.record(runtime.now() - began, len(payloads))
            result.entries += len(payloads)

    async with asyncio.TaskGroup() as group:
        for _ in range(BATCHES_UNDER_WAY):
            group.create_task(worker())


@app.command()
@grouped
def read(
    name: StreamName,
    at: NamespaceOptions,
    records: Annotated[
        bool, typer.Option("--records/--batches", help="An object for each record, or for each entry.")
    ] = True,
    seconds: SecondsOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Read a stream from its start to what is there now, for so many seconds at most."""

    async def work(namespace: Namespace, runtime: Runtime) -> int:
        result = Result("read", 0)
        with stoppable() as stop:
            async with namespace.open_reader(name, tail=False) as reader:
                reading = _read(runtime, reader, records, runtime.now() + seconds, result, stop)
                await all_done(runtime, [reading], seconds, result)
        if not result.entries:
            raise BookKeeperError(f"stream {name} has no records to read")
        return report(result, as_json, stop, stream=name)

    if code := at.run(work):
        raise typer.Exit(code)


async def _read(
    runtime: Runtime, reader: StreamReader, records: bool, deadline: float, result: Result, stop: Stop
) -> None:
    size = 0
    before = runtime.now()
    async for batch in reader.batches():
        payloads = [record.payload for record in batch.records()] if records else batch.payloads()
        size += sum(map(len, payloads))
        result.entries += len(payloads)
        result.latency.record((now := runtime.now()) - before)
        before = now
        if now >= deadline or stop.signal is not None:
            break
    result.size = size // max(result.entries, 1)


@app.command()
@grouped
def tail(
    name: NewStream,
    at: NamespaceOptions,
    rate: Annotated[int, typer.Option("--rate", "-r", min=1, help="Records a second.")] = 1000,
    size: SizeOption = 100,
    seconds: SecondsOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Append at a fixed rate while a reader follows; prints the delay from append to delivery."""

    async def work(namespace: Namespace, runtime: Runtime) -> int:
        result = Result(f"tail at {rate}/s", size)
        with stoppable() as stop:
            async with (
                await _fresh(namespace, name) as writer,
                namespace.open_reader(name) as reader,
            ):
                await _follow(runtime, writer, reader, rate, seconds, result, stop)
        return report(result, as_json, stop, stream=name)

    if code := at.run(work, create=True):
        raise typer.Exit(code)


async def _follow(
    runtime: Runtime,
    writer: StreamWriter,
    reader: StreamReader,
    rate: int,
    seconds: float,
    result: Result,
    stop: Stop,
) -> None:
    sent: deque[float] = deque()
    started = runtime.now()

    async def feed() -> None:
        count = 0
        while (elapsed := runtime.now() - started) < seconds and stop.signal is None:
            while count < int(elapsed * rate):
                sent.append(runtime.now())
                writer.append_nowait(bytes(result.size))
                count += 1
            await asyncio.sleep(1 / rate)
        await writer.flush()

    feeding = asyncio.ensure_future(feed())
    try:
        while not feeding.done() or sent:
            for _ in await reader.read(10_000, timeout=0.1):
                result.latency.record(runtime.now() - sent.popleft())
                result.entries += 1
        await feeding
    finally:
        feeding.cancel()
        await asyncio.wait([feeding])
    result.seconds = runtime.now() - started
