"""Appends to ledgers, reads and tailing.

Latency is from the call of an append, or from the request of a read, to its completion. Rates are of acknowledged
entries.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Annotated, Any, TypeVar

import typer

from ...client.client import BookKeeper
from ...client.reader import LedgerReader
from ...client.writer import LedgerWriter
from ...config import ClientConfiguration
from ...errors import BackpressureError, BookKeeperError
from ...runtime import Runtime
from ..ledger import quorums
from ..options import JsonOption, UriOption
from ..output import console
from ..session import Stop, connect, open_reader, stoppable
from .common import Result, SecondsOption, all_done, report, run

BATCH = 64
"""Appends handed in between two looks at the clock, at most."""

PASSWORD = b"bench"

PACE_SECONDS = 0.001
"""How often an append at a fixed rate looks what is due."""

SCATTER = 7919
"""A scattered read goes on so many entries further: a prime, so that it comes by all of a ledger."""

BATCHES_UNDER_WAY = 8
"""So many batches at least make up the window: of fewer, each end would leave much of the window empty."""

CALLS_AT_ONCE = 100
"""Ledgers that are created or closed at a time: the metadata store does many together for little more than one."""

T = TypeVar("T")

ProtocolOption = Annotated[str, typer.Option("--protocol", help="auto, v2 or v3.")]
SizeOption = Annotated[int, typer.Option("--size", min=0, help="Bytes of an entry.")]
EnsembleOption = Annotated[int, typer.Option("--ensemble", "-e", min=1)]
WriteQuorumOption = Annotated[int | None, typer.Option("--write-quorum", "-w", min=1)]
AckQuorumOption = Annotated[int | None, typer.Option("--ack-quorum", "-a", min=1)]


async def _create(bk: BookKeeper, ensemble: int, write_quorum: int | None, ack_quorum: int | None) -> LedgerWriter:
    size, write, ack = quorums(ensemble, write_quorum, ack_quorum)
    return await bk.create_ledger(ensemble_size=size, write_quorum=write, ack_quorum=ack, password=PASSWORD)


async def _at_once(count: int, call: Callable[[int], Awaitable[T]]) -> list[T]:
    """`call` for each number below `count`, `CALLS_AT_ONCE` at a time; the results in order."""
    results: dict[int, T] = {}
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            results[number] = await call(number)

    workers = [asyncio.ensure_future(worker()) for _ in range(min(count, CALLS_AT_ONCE))]
    try:
        await asyncio.gather(*workers)
    finally:
        for each in workers:
            each.cancel()
    return [results[number] for number in range(count)]


def _connect(runtime: Runtime, uri: str, protocol: str, **settings: object) -> BookKeeper:
    config = ClientConfiguration.from_mapping({"protocol": protocol, **settings}, source="--protocol")
    return connect(uri, runtime, config)


def write(
    uri: UriOption,
    size: SizeOption = 100,
    ledgers: Annotated[int, typer.Option("--ledgers", "-n", min=1, help="Ledgers written at the same time.")] = 1,
    window: Annotated[int, typer.Option("--window", min=1, help="Appends under way, over all ledgers.")] = 5000,
    seconds: SecondsOption = 10.0,
    warm: Annotated[float, typer.Option("--warm", min=0, help="Seconds before measuring.")] = 3.0,
    rate: Annotated[int | None, typer.Option("--rate", "-r", min=1, help="Appends a second, at most.")] = None,
    ensemble: EnsembleOption = 3,
    write_quorum: WriteQuorumOption = None,
    ack_quorum: AckQuorumOption = None,
    protocol: ProtocolOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Append as fast as the window allows; prints rate and latency. With --window 1: one append at a time."""

    async def main(runtime: Runtime) -> int:
        async with _connect(runtime, uri, protocol) as bk:
            writers = await _at_once(ledgers, lambda _: _create(bk, ensemble, write_quorum, ack_quorum))
            share = max(1, window // ledgers)
            result = Result(f"write {size} B", size)
            with stoppable() as stop:
                for took, found in ((warm, Result("warm-up", size)), (seconds, result)):
                    await _measure_writes(runtime, writers, size, share, took, found, stop, rate)
                await _at_once(ledgers, lambda number: writers[number].close(drain=True))
        if not as_json:
            console.print(f"ledgers: {', '.join(str(writer.id) for writer in writers)}", markup=False)
        total = sum(writer.last_add_confirmed + 1 for writer in writers)  # the warm-up's among them
        return report(result, as_json, stop, ledgers=[writer.id for writer in writers], total=total)

    run(main)


async def _measure_writes(
    runtime: Runtime,
    writers: list[LedgerWriter],
    size: int,
    window: int,
    seconds: float,
    result: Result,
    stop: Stop,
    rate: int | None = None,
) -> None:
    payload = bytes(i & 0xFF for i in range(size))
    deadline = runtime.now() + seconds
    if rate is None:
        feeders = [_feed(runtime, writer, payload, window, deadline, result, stop) for writer in writers]
    else:
        share = rate / len(writers)
        feeders = [_feed_slowly(runtime, writer, payload, window, deadline, result, stop, share) for writer in writers]
    await all_done(runtime, feeders, seconds, result)


async def _feed(
    runtime: Runtime,
    writer: LedgerWriter,
    payload: bytes,
    window: int,
    deadline: float,
    result: Result,
    stop: Stop | None = None,
) -> None:
    """Keep `window` appends under way on one ledger until the deadline or `stop`, then wait for the rest."""
    under_way: deque[tuple[asyncio.Future[int], float, int]] = deque()  # the last of a batch, its time, how many
    pending = 0
    batch = max(1, min(BATCH, window // BATCHES_UNDER_WAY))
    append = writer.append_nowait
    now = runtime.now()
    while now < deadline and (stop is None or stop.signal is None):
        while pending + batch > window:
            if not under_way[0][0].done():
                await under_way[0][0]
                now = runtime.now()
            pending -= _settled(*under_way.popleft(), now, result)
        for _ in range(batch):
            try:
                future = append(payload)
            except BackpressureError:
                future = await writer.append_soon(payload)
        under_way.append((future, now, batch))
        pending += batch
    for future, started, count in under_way:
        await future
        _settled(future, started, count, runtime.now(), result)


def _settled(future: asyncio.Future[int], started: float, count: int, now: float, result: Result) -> int:
    """A batch is done; raises its error. Its latency is that of its last entry, counted for all of them."""
    future.result()
    result.latency.record(now - started, count)
    result.entries += count
    return count


async def _feed_slowly(
    runtime: Runtime,
    writer: LedgerWriter,
    payload: bytes,
    window: int,
    deadline: float,
    result: Result,
    stop: Stop,
    rate: float,
) -> None:
    """Append what is due at this rate, with at most `window` under way, until the deadline or `stop`; wait for all.

    The latency of each append is from its call on.
    """
    under_way: set[asyncio.Future[int]] = set()
    failed: list[asyncio.Future[int]] = []

    def done(future: asyncio.Future[int], began: float) -> None:
        under_way.discard(future)
        if future.cancelled() or future.exception() is not None:
            failed.append(future)
        else:
            result.latency.record(runtime.now() - began)
            result.entries += 1

    started = runtime.now()
    count = 0
    while runtime.now() < deadline and stop.signal is None and not failed:
        due = int((runtime.now() - started) * rate)
        while count < due and len(under_way) < window:
            began = runtime.now()
            future = await writer.append_soon(payload)
            under_way.add(future)
            future.add_done_callback(partial(done, began=began))
            count += 1
        await asyncio.sleep(PACE_SECONDS)
    await asyncio.gather(*under_way, *failed)


def read(
    ledger_id: Annotated[int, typer.Argument(min=0, help="A closed ledger, for example one of `bench write`.")],
    uri: UriOption,
    seconds: SecondsOption = 10.0,
    step: Annotated[int, typer.Option("--step", min=1, help="Entries asked for by one read.")] = 1000,
    window: Annotated[int, typer.Option("--window", min=1, help="Reads under way.")] = 4,
    batch: Annotated[bool, typer.Option("--batch/--single", help="Batch reads, or a request for each entry.")] = True,
    ranges: Annotated[bool, typer.Option("--ranges", help="Ranges, however the client asks for them.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Stop at the end of the ledger, or after --seconds.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only so many entries from the start.")] = None,
    scatter: Annotated[bool, typer.Option("--scatter", help="Reads far from each other, not in a row.")] = False,
    password: Annotated[str, typer.Option("--password", "-p")] = "bench",
    protocol: ProtocolOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Read a ledger from its start to its end, again and again."""

    async def main(runtime: Runtime) -> int:
        async with (
            _connect(runtime, uri, protocol, batchReadEnabled=batch or ranges) as bk,
            await open_reader(bk, ledger_id, password.encode()) as reader,
        ):
            last = reader.last_add_confirmed
            if last < 0:
                raise BookKeeperError(f"ledger {ledger_id} has no entries to read")
            in_batches = batch and not ranges
            result = Result("batch read" if in_batches else "read", reader.length // (last + 1))
            if limit is not None:
                last = min(last, limit - 1)
            with stoppable() as stop:
                await _measure_reads(
                    runtime, reader, _spans(last, step, once, scatter), seconds, window, in_batches, result, stop
                )
        return report(result, as_json, stop)

    run(main)


def _spans(last: int, step: int, once: bool, scatter: bool = False) -> Iterator[tuple[int, int]]:
    """First and last entry of each read: once up to `last`, or again and again; in a row, or scattered."""
    while True:
        for place in range(0, last + 1, step):
            first = place * SCATTER % (last + 1) if scatter else place
            yield first, min(first + step - 1, last)
        if once:
            return


async def _measure_reads(
    runtime: Runtime,
    reader: Any,
    spans: Iterator[tuple[int, int]],
    seconds: float,
    window: int,
    batch: bool,
    result: Result,
    stop: Stop,
) -> None:
    started = runtime.now()
    deadline = started + seconds

    async def worker() -> None:
        while (now := runtime.now()) < deadline and stop.signal is None and (span := next(spans, None)) is not None:
            first, last = span
            if batch:
                got = await reader.batch_read(first, max_count=last - first + 1)
            else:
                got = await reader.read(first, last)
            result.entries += len(got)
            result.latency.record(runtime.now() - now)

    await all_done(runtime, (worker() for _ in range(window)), seconds, result)


def tail(
    uri: UriOption,
    rate: Annotated[int, typer.Option("--rate", "-r", min=1, help="Appends a second.")] = 1000,
    seconds: SecondsOption = 10.0,
    size: SizeOption = 100,
    ensemble: EnsembleOption = 3,
    write_quorum: WriteQuorumOption = None,
    ack_quorum: AckQuorumOption = None,
    protocol: ProtocolOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Append at a fixed rate while another client follows; prints the delay from append to delivery."""

    async def main(runtime: Runtime) -> int:
        result = Result(f"tail at {rate}/s", size)
        async with _connect(runtime, uri, protocol) as writing, _connect(runtime, uri, protocol) as reading:
            writer = await _create(writing, ensemble, write_quorum, ack_quorum)
            reader = await open_reader(reading, writer.id, PASSWORD)
            with stoppable() as stop:
                await _measure_tailing(runtime, writer, reader, size, rate, seconds, result, stop)
            await reader.close()
        return report(result, as_json, stop)

    run(main)


async def _measure_tailing(
    runtime: Runtime,
    writer: LedgerWriter,
    reader: LedgerReader,
    size: int,
    rate: int,
    seconds: float,
    result: Result,
    stop: Stop,
) -> None:
    sent: dict[int, float] = {}

    async def follow() -> None:
        async for entry in reader.tail(0):
            result.latency.record(runtime.now() - sent.pop(entry.entry_id))
            result.entries += 1

    follower = asyncio.ensure_future(follow())
    started = runtime.now()
    count = 0
    try:
        while (elapsed := runtime.now() - started) < seconds and stop.signal is None and not follower.done():
            due = int(elapsed * rate)
            while count < due:
                sent[count] = runtime.now()
                await writer.append_soon(bytes(size))
                count += 1
            await asyncio.sleep(1 / rate)
        await writer.close(drain=True)
        await follower
    finally:
        follower.cancel()
        await asyncio.wait([follower])
    result.seconds = runtime.now() - started
