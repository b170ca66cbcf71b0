"""When a bookie is late, and who hears of it (spec client §12.4). The clock is turned by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bookkeeper.client.wire.calls import Answer, ReadCall, ReadSink
from bookkeeper.client.wire.connection import Connection
from bookkeeper.client.wire.pool import ConnectionPool
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import BKError, BookieUnavailableError, ClientClosedError, RequestTimeoutError
from bookkeeper.protocol.messages import (
    V2,
    V3,
    AddRequest,
    BatchReadRequest,
    GetBookieInfoRequest,
    ReadLacRequest,
    ReadRequest,
)
from bookkeeper.types import BookieId
from tests.support.fake_bookie import HOLD, SILENT, FakeBookie, FakeCluster

from .support import eventually, package
from .test_connections import VERSIONS, Sink, send

PATIENCE = 5
"""Ticks that every request waits."""

TICK = 1000.0
"""Seconds: no tick comes by itself."""


@asynccontextmanager
async def pool(cluster: FakeCluster) -> AsyncIterator[ConnectionPool]:
    config = ClientConfiguration.from_mapping(
        {
            "timeoutMonitorIntervalSec": TICK,
            "addEntryTimeoutSec": PATIENCE * TICK,
            "readEntryTimeoutSec": PATIENCE * TICK,
            "getBookieInfoTimeoutSecs": PATIENCE * TICK,
            "clientConnectTimeoutMillis": PATIENCE * TICK * 1000,
        }
    )
    client = ConnectionPool(cluster.runtime, config, cluster.driver.discovery)
    try:
        yield client
    finally:
        await client.close()


def tick(client: ConnectionPool, times: int = 1) -> None:
    for _ in range(times):
        client._clock._tick()


def answer_next(bookie: FakeBookie) -> None:
    """Answer the oldest of the requests that were held."""
    bookie._held.pop(0)()


# --- adds ---


@VERSIONS
async def test_a_bookie_that_goes_on_acknowledging_is_not_late(cluster: FakeCluster, version: int) -> None:
    bookie = cluster.bookies[0]
    bookie.on_request = lambda request: HOLD
    async with pool(cluster) as client:
        sink = Sink()
        channel = client.open_add_channel(bookie.id, 7, sink, version=version)
        send(channel, sink, *range(20))
        await eventually(lambda: len(bookie._held) == 20)
        for acked in range(1, 16):
            tick(client, PATIENCE)
            answer_next(bookie)
            await eventually(lambda acked=acked: len(sink.acked) == acked)  # type: ignore[misc]
        assert not sink.lost
        tick(client, PATIENCE)
        assert not sink.lost
        tick(client, 2)
        assert [type(error) for error in sink.lost] == [RequestTimeoutError]


@VERSIONS
async def test_an_add_has_its_time_from_when_it_has_left_our_buffers(cluster: FakeCluster, version: int) -> None:
    bookie = cluster.bookies[0]
    bookie.on_request = lambda request: SILENT
    async with pool(cluster) as client:
        sink = Sink()
        channel = client.open_add_channel(bookie.id, 7, sink, version=version)
        send(channel, sink, 0, size=10_000)
        (connection,) = client.connections
        await eventually(lambda: bookie.requests)
        unsent = 10_000
        connection._unsent = lambda: unsent  # type: ignore[method-assign]
        while unsent > 0:
            tick(client, PATIENCE)
            unsent -= 1000
        assert not sink.lost
        tick(client, PATIENCE)
        assert not sink.lost
        tick(client)
        assert sink.lost


async def test_a_bookie_that_takes_no_bytes_is_late(cluster: FakeCluster) -> None:
    """FX-20."""
    bookie = cluster.bookies[0]
    bookie.on_request = lambda request: SILENT
    async with pool(cluster) as client:
        sink = Sink()
        channel = client.open_add_channel(bookie.id, 7, sink, version=V2)
        send(channel, sink, 0, size=10_000)
        (connection,) = client.connections
        connection._unsent = lambda: connection.written  # type: ignore[method-assign]
        for number in range(1, PATIENCE + 2):
            assert not sink.lost
            tick(client)
            send(channel, sink, number)  # that we go on is nothing that moves
        assert sink.lost


@VERSIONS
async def test_one_ledger_that_is_stuck_is_late_although_others_are_acknowledged(
    cluster: FakeCluster, version: int
) -> None:
    bookie = cluster.bookies[0]
    bookie.on_request = lambda request: SILENT if isinstance(request, AddRequest) and request.ledger_id == 7 else None
    async with pool(cluster) as client:
        stuck, other = Sink(), Sink()
        channel = client.open_add_channel(bookie.id, 7, stuck, version=version)
        send(channel, stuck, 0)
        tick(client)
        second = client.open_add_channel(bookie.id, 8, other, version=version)
        for number in range(PATIENCE + 1):
            assert not stuck.lost
            send(second, other, number)
            await eventually(lambda number=number: len(other.acked) == number + 1)  # type: ignore[misc]
            tick(client)
        assert stuck.lost
        assert not other.lost


async def test_a_bookie_that_hangs_costs_two_connections_and_not_one_per_timeout(cluster: FakeCluster) -> None:
    """FX-20."""
    bookie = cluster.bookies[0]
    bookie.on_request = lambda request: SILENT
    async with pool(cluster) as client:
        sink = Sink()
        channel = client.open_add_channel(bookie.id, 7, sink, version=V2)
        for number in range(6):
            send(channel, sink, number)
            tick(client, PATIENCE + 2)
            assert len(sink.lost) == number + 1
        assert len(client.connections) <= 2


async def test_time_in_which_the_process_stood_still_is_not_held_against_the_bookies(cluster: FakeCluster) -> None:
    for bookie in cluster.bookies:
        bookie.on_request = lambda request: HOLD if isinstance(request, AddRequest) else None
    client = await cluster.connect(addEntryTimeoutSec=1)
    writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
    future = writer.append_nowait(b"x")
    await eventually(lambda: all(bookie._held for bookie in cluster.bookies))
    clock = client._bookies._clock
    begun = clock.tick
    await eventually(lambda: clock.tick > begun)
    time.sleep(2.5)  # noqa: ASYNC251 - nothing runs, neither the writer nor the bookies
    await asyncio.sleep(0)
    for bookie in cluster.bookies:
        bookie.on_request = None
        bookie.release()
    assert await future == 0
    assert writer.failure is None
    assert len(writer.metadata.ensembles) == 1
    await writer.close()


# --- everything else ---


class Reads(ReadSink):
    def __init__(self) -> None:
        self.answers: list[Answer] = []

    def on_answers(self, _call: ReadCall, answers: list[Answer]) -> None:
        self.answers += answers


def ask(client: ConnectionPool, bookie: BookieId, request: Any) -> asyncio.Future[Any]:
    return asyncio.ensure_future(client.request(bookie, request))


REQUESTS: list[Callable[[int], Any]] = [
    lambda n: ReadRequest(7, n),
    lambda n: BatchReadRequest(7, n, 0, 5, 100),
    lambda n: ReadLacRequest(7),
    lambda n: GetBookieInfoRequest(3),
]


@pytest.mark.parametrize("request_", REQUESTS)
async def test_requests_behind_others_that_are_answered_are_not_late(
    cluster: FakeCluster, request_: Callable[[int], Any]
) -> None:
    bookie = cluster.bookies[0]
    for number in range(10):
        bookie.put(package(7, number))
    bookie.on_request = lambda request: HOLD
    async with pool(cluster) as client:
        asked = [ask(client, bookie.id, request_(number)) for number in range(10)]
        await eventually(lambda: len(bookie._held) == 10)
        for request in asked[:9]:
            tick(client, PATIENCE)
            answer_next(bookie)
            await request
        tick(client, PATIENCE)
        await asyncio.sleep(0)
        assert not asked[9].done()
        tick(client, 2)
        with pytest.raises(RequestTimeoutError):
            await asked[9]


@pytest.mark.parametrize("request_", REQUESTS)
async def test_a_request_that_is_stuck_is_late_although_later_ones_are_answered(
    cluster: FakeCluster, request_: Callable[[int], Any]
) -> None:
    bookie = cluster.bookies[0]
    for number in range(10):
        bookie.put(package(7, number))
    bookie.on_request = lambda request: HOLD
    async with pool(cluster) as client:
        stuck = ask(client, bookie.id, request_(0))
        await eventually(lambda: bookie._held)
        bookie.on_request = None
        for number in range(1, PATIENCE + 2):
            tick(client)
            assert not stuck.done()
            await client.request(bookie.id, request_(number))
        tick(client)
        with pytest.raises(RequestTimeoutError):
            await stuck


@pytest.mark.parametrize("protocol", ["v2", "v3"])
async def test_reads_of_many_entries_are_not_late_while_their_answers_come(cluster: FakeCluster, protocol: str) -> None:
    bookie = cluster.bookies[0]
    for number in range(10):
        bookie.put(package(7, number))
    bookie.on_request = lambda request: HOLD
    async with pool(cluster) as client:
        client._protocol = protocol
        reads = Reads()
        for first in (0, 5):
            call = ReadCall(bookie.id, 0, reads, client.read_deadline())
            client.read_entries(7, range(first, first + 5), call)
        await eventually(lambda: len(bookie._held) == 10)
        for number in range(9):
            tick(client, PATIENCE)
            answer_next(bookie)
            await eventually(lambda number=number: len(reads.answers) == number + 1)  # type: ignore[misc]
        assert all(code == 0 for _, code, _, _ in reads.answers)
        tick(client, PATIENCE + 2)
        assert [code for _, code, _, _ in reads.answers[9:]] == [RequestTimeoutError.code]


async def test_a_long_answer_on_its_way_keeps_requests_from_being_late(cluster: FakeCluster) -> None:
    bookie = cluster.bookies[0]
    bookie.on_request = lambda request: SILENT
    async with pool(cluster) as client:
        asked = ask(client, bookie.id, ReadRequest(7, 0))
        await eventually(lambda: bookie.requests)
        (connection,) = client.connections
        transport = bookie.connections[0].transport
        transport.write((1000).to_bytes(4, "big"))
        for _ in range(5):
            transport.write(bytes(10))
            await eventually(lambda: connection._progress.heard)
            tick(client, PATIENCE)
        assert not asked.done()
        tick(client, 2)
        with pytest.raises(RequestTimeoutError):
            await asked


# --- errors in what the loop calls ---


async def test_an_error_in_one_callback_keeps_no_timeout_from_the_others(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with pool(cluster) as client:
        codes: list[int] = []

        def raises(_code: int, _response: object) -> None:
            raise KeyError("nobody expects this")

        for bookie in cluster.bookies:
            bookie.on_request = lambda request: SILENT
            client.call(bookie.id, ReadLacRequest(7), None, raises)
            client.call(bookie.id, ReadLacRequest(7), None, lambda code, _: codes.append(code))
            client.read_entries(7, [0], ReadCall(bookie.id, 0, Raising(), client.read_deadline()))
        await eventually(lambda: all(len(bookie.requests) == 3 for bookie in cluster.bookies))
        tick(client, PATIENCE + 2)
        assert codes == [RequestTimeoutError.code] * len(cluster.bookies)
        assert client._clock.running
        assert "nobody expects this" in caplog.text


class Raising(Reads):
    def on_answers(self, _call: ReadCall, answers: list[Answer]) -> None:
        raise KeyError("nobody expects this")


async def test_an_error_in_one_connection_keeps_no_timeout_from_the_others(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Connection.sweep

    def fails_for_one(self: Connection, add_timeout: float) -> None:
        if self.bookie == cluster.bookies[0].id:
            raise KeyError("nobody expects this")
        sweep(self, add_timeout)

    monkeypatch.setattr(Connection, "sweep", fails_for_one)
    async with pool(cluster) as client:
        codes: list[int] = []
        for bookie in cluster.bookies:
            bookie.on_request = lambda request: SILENT
            client.call(bookie.id, ReadLacRequest(7), None, lambda code, _: codes.append(code))
        await eventually(lambda: all(bookie.requests for bookie in cluster.bookies))
        tick(client, PATIENCE + 2)
        assert codes == [RequestTimeoutError.code] * (len(cluster.bookies) - 1)
        assert client._clock.running


class RaisingSink(Sink):
    def on_add_responses(self, bookie: BookieId, acked: list[int], failed: list[tuple[int, int]]) -> None:
        raise KeyError("nobody expects this")

    def on_add_stored(self, bookie: BookieId, entry_id: int) -> None:
        self.on_add_responses(bookie, [entry_id], [])

    def on_channel_lost(self, bookie: BookieId, error: BKError) -> None:
        raise KeyError("nobody expects this")


@VERSIONS
async def test_a_writer_that_cannot_take_an_answer_ends_the_connection_and_all_are_told(
    cluster: FakeCluster, version: int
) -> None:
    bookie = cluster.bookies[0]
    bookie.on_request = lambda request: HOLD
    async with pool(cluster) as client:
        bad, good = RaisingSink(), Sink()
        one = client.open_add_channel(bookie.id, 7, bad, version=version)
        two = client.open_add_channel(bookie.id, 8, good, version=version)
        send(one, bad, 0)
        send(two, good, 0)
        await eventually(lambda: len(bookie._held) == 2)
        answer_next(bookie)
        await eventually(lambda: good.lost)
        assert isinstance(good.lost[0], BookieUnavailableError)


@pytest.mark.parametrize("error", [UnicodeError("label too long"), KeyError("resolver"), OSError("refused")])
async def test_whatever_dialling_meets_fails_what_waited_and_the_next_use_dials_anew(
    cluster: FakeCluster, error: Exception
) -> None:
    bookie = cluster.bookies[0]
    async with pool(cluster) as client:
        dial = client._dialer.dial

        async def fails(_bookie: BookieId, _protocol: asyncio.Protocol) -> None:
            raise error

        client._dialer.dial = fails  # type: ignore[method-assign]
        with pytest.raises(BookieUnavailableError):
            await client.request(bookie.id, GetBookieInfoRequest(3))
        assert not client.connections
        client._dialer.dial = dial  # type: ignore[method-assign]
        await client.request(bookie.id, GetBookieInfoRequest(3))


async def test_a_host_name_that_cannot_be_one_is_an_unavailable_bookie(cluster: FakeCluster) -> None:
    async with pool(cluster) as client:
        with pytest.raises(BookieUnavailableError):
            await client.request(BookieId("x" * 70 + ".example:3181"), GetBookieInfoRequest(3))
        assert not client.connections


async def test_dialling_has_its_timeout_from_the_same_clock(cluster: FakeCluster) -> None:
    async with pool(cluster) as client:

        async def hangs(_bookie: BookieId, _protocol: asyncio.Protocol) -> None:
            await asyncio.Event().wait()

        client._dialer.dial = hangs  # type: ignore[method-assign]
        asked = asyncio.ensure_future(client.request(BookieId("b:1"), GetBookieInfoRequest(3), timeout=0))
        await eventually(lambda: client.connections)
        tick(client, PATIENCE)
        await asyncio.sleep(0)
        assert not asked.done()
        tick(client)
        with pytest.raises(BookieUnavailableError):
            await asked


# --- the end ---


@pytest.mark.parametrize("version", [V2, V3])
async def test_a_closed_client_tells_every_open_channel_once(cluster: FakeCluster, version: int) -> None:
    """Also one without unanswered adds: its writer may wait for something else."""
    bookie = cluster.bookies[0]
    async with pool(cluster) as client:
        sinks = [Sink() for _ in range(4)]
        unused, idle, busy, closed = (
            client.open_add_channel(bookie.id, number, sink, version=version) for number, sink in enumerate(sinks)
        )
        send(idle, sinks[1], 0)
        send(closed, sinks[3], 0)
        await eventually(lambda: sinks[1].acked and sinks[3].acked)
        closed.close()
        bookie.on_request = lambda request: SILENT
        send(busy, sinks[2], 0)
        await client.close()
        assert [[type(error) for error in sink.lost] for sink in sinks] == [[ClientClosedError]] * 3 + [[]]
        assert unused.writable
