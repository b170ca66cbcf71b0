"""What the client's data path costs, in microseconds an entry: best of several runs, no sockets.

python bench/client.py [payload bytes]
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from bookkeeper.client.context import ClientContext
from bookkeeper.client.reads.batch import BatchRead
from bookkeeper.client.reads.ledger_reads import LedgerReads
from bookkeeper.client.reads.range import RangeRead
from bookkeeper.client.wire.add_channel import AddChannel, AddRoute
from bookkeeper.client.wire.calls import OnReply, ReadCall
from bookkeeper.client.wire.connection import Connection
from bookkeeper.client.wire.connection_v2 import V2Connection
from bookkeeper.client.wire.connection_v3 import V3Connection
from bookkeeper.client.wire.dialer import Dialer
from bookkeeper.config import ClientConfiguration
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.digest import digest_for
from bookkeeper.protocol.messages import V3, BatchReadResponse, ReadResponse, ReadRun, Request, Status
from bookkeeper.quorum.distribution import Distribution
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId, DigestType

COUNT = 20_000
CHUNK = 256 * 1024
"""Bytes that one socket read brings, as uvloop reads them."""
RUNS = 5

PAYLOAD = int(sys.argv[1]) if __name__ == "__main__" and len(sys.argv) > 1 else 100
BOOKIE = BookieId("bookie:3181")
DIGEST = digest_for(DigestType.CRC32C, b"")
ENTRIES = [DIGEST.package(7, i, i - 1, (i + 1) * PAYLOAD, bytes(PAYLOAD)) for i in range(COUNT)]


class NoTransport(asyncio.Transport):
    """Takes what is written and forgets it."""

    def write(self, data: Any) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def abort(self) -> None:
        pass


class NobodyDialer(Dialer):
    async def dial(self, bookie: BookieId, protocol: asyncio.Protocol) -> None:
        protocol.connection_made(NoTransport())


class Sink:
    def on_add_responses(self, bookie: BookieId, acked: list[int], failed: list[tuple[int, int]]) -> None:
        pass

    def on_add_stored(self, bookie: BookieId, entry_id: int) -> None:
        self.on_add_responses(bookie, [entry_id], [])

    def on_channel_lost(self, bookie: BookieId, error: Exception) -> None:
        raise error

    def on_writable(self, bookie: BookieId) -> None:
        pass


class OneBookie:
    """The connection pool of one connection."""

    read_version = 2
    read_timeout = 5.0
    v2_only = False

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read_entries(self, ledger_id: int, entry_ids: Sequence[int], call: ReadCall) -> None:
        self._connection.read_entries(ledger_id, entry_ids, call)

    def call(
        self, bookie: BookieId, message: Request, timeout: float | None, done: OnReply, *, apart: bool = False
    ) -> None:
        self._connection.request(message, 1e18, done)

    def read_deadline(self) -> float:
        return 1e18


class AnyOrder:
    version = 0

    def reorder_read(self, ensemble: Sequence[BookieId], write_set: Sequence[int]) -> tuple[int, ...]:
        return tuple(write_set)


def chunks(data: bytes) -> list[bytes]:
    return [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]


async def main() -> None:
    runtime = RealRuntime()
    config = ClientConfiguration.from_mapping(
        {"readEntriesWindow": COUNT, "readEntriesWindowBytes": 1 << 40, "speculativeReadTimeout": 0}
    )
    dialer = NobodyDialer(runtime, config, cast(Any, None))
    connection = V2Connection(dialer, BOOKIE, lambda _: None)
    v3_connection = V3Connection(dialer, BOOKIE, lambda _: None)
    await asyncio.sleep(0)
    metadata = LedgerMetadata(7, 1, 1, 1, {0: (BOOKIE,)})

    def reads_of(connection: Connection) -> LedgerReads:
        bookies = cast(Any, OneBookie(connection))
        context = ClientContext(runtime, config, cast(Any, None), bookies, cast(Any, AnyOrder()), dialer.tasks)
        reads = LedgerReads(context, Distribution(1, 1, 1), DIGEST, lambda: metadata, lambda lac, length: None)
        reads.saw(COUNT, PAYLOAD, COUNT - 1, COUNT * PAYLOAD)
        return reads

    reads = reads_of(connection)
    v3_reads = reads_of(v3_connection)

    channel = AddChannel(BOOKIE, 7, Sink(), 2, lambda channel: _bind(connection, channel))
    frames = [v2.encode_add_request(bytes(20), entry) for entry in ENTRIES]
    acks = chunks(b"".join(v2.encode_response(_ack(i)) for i in range(COUNT)))

    async def send() -> float:
        send = channel.send
        started = time.process_time()
        for frame in frames:
            send(frame)
        await asyncio.sleep(0)
        return time.process_time() - started

    async def ack() -> float:
        return _feed(connection, acks)

    answers = chunks(b"".join(v2.encode_response(ReadResponse(Status.EOK, 7, i, ENTRIES[i])) for i in range(COUNT)))

    async def single_reads() -> float:
        return await _read(reads, connection, lambda: answers)

    async def v3_single_reads() -> float:
        def v3_answers() -> list[bytes]:
            run = ReadRun(7, V3, list(range(COUNT)), list(v3_connection._reads))
            return chunks(v3.encode_read_responses(run, ENTRIES, COUNT))

        return await _read(v3_reads, v3_connection, v3_answers)

    per_batch = 1000
    bodies = [
        b"".join(len(entry).to_bytes(4, "big") + entry for entry in ENTRIES[at : at + per_batch])
        for at in range(0, COUNT, per_batch)
    ]

    async def batch_reads() -> float:
        took = 0.0
        for number, body in enumerate(bodies):
            read = BatchRead(reads, number * per_batch, per_batch, 5 << 20)
            task = asyncio.ensure_future(read.run())
            await asyncio.sleep(0)
            request_id = next(iter(connection._requests))
            answer = chunks(v2.encode_response(BatchReadResponse(Status.EOK, 7, number * per_batch, request_id, body)))
            started = time.process_time()
            for chunk in answer:
                connection.data_received(chunk)
            entries = await task
            took += time.process_time() - started
            assert len(entries) == per_batch
        return took

    print(f"microseconds an entry of {PAYLOAD} bytes, best of {RUNS}")
    for name, measure in [
        ("send an add (frame encoded)", send),
        ("hear an ack", ack),
        ("read an entry by itself: request, answer, check", single_reads),
        ("the same with v3", v3_single_reads),
        ("read an entry in a batch of 1000: answer, check", batch_reads),
    ]:
        best = min([await measure() for _ in range(RUNS)])
        print(f"  {best / COUNT * 1e6:6.3f}  {name}")


def _bind(connection: V2Connection, channel: AddChannel) -> AddRoute:
    route = AddRoute(connection, channel, 7)
    connection.add_route(route)
    return route


def _ack(entry_id: int) -> Any:
    from bookkeeper.protocol.messages import AddResponse

    return AddResponse(Status.EOK, 7, entry_id)


async def _read(reads: LedgerReads, connection: Connection, answers: Callable[[], list[bytes]]) -> float:
    """Read all entries. The answers are asked for when the requests are out."""
    read = RangeRead(reads, 0, COUNT - 1)
    task = asyncio.ensure_future(read.run())
    started = time.process_time()
    await asyncio.sleep(0)
    took = time.process_time() - started
    data = answers()
    took += _feed(connection, data)
    started = time.process_time()
    entries, error = await task
    took += time.process_time() - started
    assert len(entries) == COUNT
    assert error is None
    return took


def _feed(connection: Connection, data: list[bytes]) -> float:
    started = time.process_time()
    for chunk in data:
        connection.data_received(chunk)
    return time.process_time() - started


if __name__ == "__main__":
    asyncio.run(main())
