"""Connections, the pool and add channels (spec client §12.4, wire-protocol §8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bookkeeper.client.wire.add_channel import AddChannel
from bookkeeper.client.wire.pool import ConnectionPool
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import (
    BKError,
    BookieUnavailableError,
    ClientClosedError,
    IllegalOpError,
    RequestTimeoutError,
    TooManyRequestsError,
    UnauthorizedError,
)
from bookkeeper.metadata.api import Mode
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.messages import (
    V2,
    V3,
    AddRequest,
    BatchReadRequest,
    Flags,
    ForceLedgerRequest,
    GetBookieInfoRequest,
    GetListOfEntriesRequest,
    HeaderOnlyResponse,
    Operation,
    ReadLacRequest,
    ReadRequest,
    ReadResponse,
    Status,
    WriteLacRequest,
)
from bookkeeper.types import BookieId, WriteFlag
from tests.support.fake_bookie import CLOSE, HOLD, SILENT, FakeBookie, FakeCluster

from .support import DIGEST, eventually, make_ledger, package

KEY = bytes(20)


class Sink:
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.acked: list[int] = []
        self.failed: list[tuple[int, int]] = []
        self.calls = 0
        self.lost: list[BKError] = []
        self.writable = 0
        self.sending = False

    def on_add_responses(self, bookie: BookieId, acked: list[int], failed: list[tuple[int, int]]) -> None:
        assert not self.sending
        self.calls += 1
        self.acked += acked
        self.failed += failed

    def on_add_stored(self, bookie: BookieId, entry_id: int) -> None:
        self.on_add_responses(bookie, [entry_id], [])

    def on_channel_lost(self, bookie: BookieId, error: BKError) -> None:
        assert not self.sending
        self.lost.append(error)

    def on_writable(self, bookie: BookieId) -> None:
        assert not self.sending
        self.writable += 1


@asynccontextmanager
async def pool(cluster: FakeCluster, **settings: Any) -> AsyncIterator[ConnectionPool]:
    config = ClientConfiguration.from_mapping(settings)
    client = ConnectionPool(cluster.runtime, config, cluster.driver.discovery)
    try:
        yield client
    finally:
        await client.close()


def frame(version: int, ledger_id: int, entry_id: int, size: int = 10) -> bytes:
    entry = DIGEST.package(ledger_id, entry_id, -1, 0, bytes(size))
    if version == V2:
        return v2.encode_add_request(KEY, entry)
    return v3.encode_request(AddRequest(ledger_id, entry_id, entry, KEY, txn_id=(1 << 62) + entry_id, version=V3))


def send(channel: AddChannel, sink: Sink, *entry_ids: int, size: int = 10) -> None:
    sink.sending = True
    for entry_id in entry_ids:
        channel.send(frame(channel.version, channel.ledger_id, entry_id, size))
    sink.sending = False


VERSIONS = pytest.mark.parametrize("version", [V2, V3])


@VERSIONS
async def test_adds_are_acknowledged_together(cluster: FakeCluster, version: int) -> None:
    bookie = cluster.bookies[0]
    async with pool(cluster) as client:
        sink = Sink()
        channel = client.open_add_channel(bookie.id, 7, sink, version=version)
        assert channel.writable
        send(channel, sink, *range(100))
        await eventually(lambda: len(sink.acked) == 100)
        assert sink.acked == list(range(100))
        assert sink.calls < 100
        assert bookie.accepted == 1


@VERSIONS
async def test_refused_adds_carry_their_codes(cluster: FakeCluster, version: int) -> None:
    bookie = cluster.bookies[0]
    statuses = {0: Status.EFENCED, 1: Status.EREADONLY, 2: Status.EUA, 3: Status.EBADREQ, 4: None}
    bookie.on_request = lambda request: statuses[request.entry_id] if isinstance(request, AddRequest) else None
    async with pool(cluster) as client:
        sink = Sink()
        channel = client.open_add_channel(bookie.id, 7, sink, version=version)
        send(channel, sink, 0, 1, 2, 3, 4)
        await eventually(lambda: len(sink.acked) + len(sink.failed) == 5)
        assert sink.acked == [4]
        assert sink.failed == [(0, -101), (1, -104), (2, -102), (3, -12)]


@VERSIONS
async def test_ledgers_on_one_connection_hear_their_own_acks(cluster: FakeCluster, version: int) -> None:
    async with pool(cluster) as client:
        sinks = [Sink() for _ in range(5)]
        channels = [
            client.open_add_channel(cluster.bookies[0].id, number, sink, version=version)
            for number, sink in enumerate(sinks)
        ]
        for entry_id in range(20):
            for channel, sink in zip(channels, sinks, strict=True):
                send(channel, sink, entry_id)
        await eventually(lambda: all(len(sink.acked) == 20 for sink in sinks))
        assert cluster.bookies[0].accepted == 1


@VERSIONS
async def test_a_lost_connection_fails_what_is_unanswered_and_the_next_send_connects_anew(
    cluster: FakeCluster, version: int
) -> None:
    bookie = cluster.bookies[0]
    bookie.on_request = lambda request: CLOSE if isinstance(request, AddRequest) and request.entry_id == 1 else None
    async with pool(cluster) as client:
        sink = Sink()
        channel = client.open_add_channel(bookie.id, 7, sink, version=version)
        send(channel, sink, 0)
        await eventually(lambda: sink.acked == [0])
        send(channel, sink, 1, 2)
        await eventually(lambda: sink.lost)
        assert isinstance(sink.lost[0], BookieUnavailableError)
        send(channel, sink, 3)
        await eventually(lambda: 3 in sink.acked)
        assert len(sink.lost) == 1
        assert bookie.accepted == 2


async def test_an_idle_connection_is_lost_without_a_word(cluster: FakeCluster) -> None:
    bookie = cluster.bookies[0]
    async with pool(cluster) as client:
        sink = Sink()
        channel = client.open_add_channel(bookie.id, 7, sink, version=V2)
        send(channel, sink, 0)
        await eventually(lambda: sink.acked)
        bookie.connections[0].transport.abort()
        await eventually(lambda: not client.connections)
        assert not sink.lost
        send(channel, sink, 1)
        await eventually(lambda: sink.acked == [0, 1])


@VERSIONS
async def test_an_overdue_add_fails_the_channel_and_its_late_answer_is_dropped(
    cluster: FakeCluster, version: int
) -> None:
    """SEC-24, FX-23."""
    bookie = cluster.bookies[0]
    bookie.on_request = lambda request: HOLD if isinstance(request, AddRequest) and request.entry_id == 1 else None
    async with pool(cluster, addEntryTimeoutSec=0.2) as client:
        sink = Sink()
        channel = client.open_add_channel(bookie.id, 7, sink, version=version)
        send(channel, sink, 0, 1)
        await eventually(lambda: sink.lost)
        assert isinstance(sink.lost[0], RequestTimeoutError)
        send(channel, sink, 2)  # over a connection of its own: answers to come cannot be mistaken
        await eventually(lambda: 2 in sink.acked)
        bookie.release()
        other = await client.request(bookie.id, ReadRequest(7, 0, version=version))
        assert other.status == Status.EOK
        assert sink.acked == [0, 2]
        assert bookie.accepted >= 2


async def test_a_second_writer_of_a_ledger_has_its_own_connection(cluster: FakeCluster) -> None:
    bookie = cluster.bookies[0]
    async with pool(cluster) as client:
        first, second = Sink(), Sink()
        one = client.open_add_channel(bookie.id, 7, first, version=V2)
        two = client.open_add_channel(bookie.id, 7, second, version=V2)
        send(one, first, 1)
        send(two, second, 2)
        await eventually(lambda: first.acked and second.acked)
        assert (first.acked, second.acked) == ([1], [2])
        assert bookie.accepted == 2
        two.close()
        two.close()
        await eventually(lambda: len(client.connections) == 1)


async def test_a_closed_channel_hears_nothing(cluster: FakeCluster) -> None:
    bookie = cluster.bookies[0]
    bookie.on_request = lambda request: HOLD
    async with pool(cluster) as client:
        sink, other = Sink(), Sink()
        channel = client.open_add_channel(bookie.id, 7, sink, version=V2)
        send(channel, sink, 1)
        await eventually(lambda: bookie.requests)
        channel.close()
        bookie.release()
        bookie.on_request = None
        channel = client.open_add_channel(bookie.id, 7, other, version=V2)
        send(channel, other, 2)
        await eventually(lambda: other.acked == [2])
        assert not sink.calls


async def test_an_unreachable_bookie_fails_everything_that_waited(cluster: FakeCluster) -> None:
    bookie = cluster.bookies[0]
    await bookie.stop()
    async with pool(cluster) as client:
        sink = Sink()
        channel = client.open_add_channel(bookie.id, 7, sink, version=V2)
        send(channel, sink, 0, 1)
        reading = asyncio.ensure_future(client.request(bookie.id, ReadRequest(7, 0)))
        with pytest.raises(BookieUnavailableError):
            await reading
        await eventually(lambda: len(sink.lost) == 1)
        with pytest.raises(BookieUnavailableError):
            await client.request(BookieId("nobody:1"), GetBookieInfoRequest(3))
        await bookie.start(cluster.runtime)
        send(channel, sink, 2)
        await eventually(lambda: sink.acked == [2])


@VERSIONS
async def test_the_channel_is_not_writable_above_the_high_water_mark(cluster: FakeCluster, version: int) -> None:
    bookie = cluster.bookies[0]
    async with pool(cluster, clientWriteBufferHighWaterMark=20000, clientWriteBufferLowWaterMark=10000) as client:
        sink = Sink()
        channel = client.open_add_channel(bookie.id, 7, sink, version=version)
        send(channel, sink, *range(30), size=1000)  # while connecting
        await eventually(lambda: not channel.writable or sink.acked)
        assert sink.writable or not channel.writable
        await eventually(lambda: len(sink.acked) == 30)
        assert channel.writable
        bookie.connections[0].transport.pause_reading()
        sent = 30
        while channel.writable:
            send(channel, sink, *range(sent, sent + 100), size=10000)
            sent += 100
            await asyncio.sleep(0)
        bookie.connections[0].transport.resume_reading()
        await eventually(lambda: len(sink.acked) == sent)
        assert channel.writable
        assert sink.writable >= 1


async def test_closing_the_client_fails_everything(cluster: FakeCluster) -> None:
    bookie = cluster.bookies[0]
    bookie.on_request = lambda request: SILENT
    async with pool(cluster) as client:
        sink = Sink()
        channel = client.open_add_channel(bookie.id, 7, sink, version=V2)
        send(channel, sink, 0)
        requests = [
            asyncio.ensure_future(client.request(bookie.id, request))
            for request in [ReadRequest(7, 0), ReadRequest(7, 0), ReadLacRequest(7), BatchReadRequest(7, 0, 0, 5, 100)]
        ]
        await eventually(lambda: len(bookie.requests) == 5)
        await client.close()
        for request in requests:
            with pytest.raises(ClientClosedError):
                await request
        assert isinstance(sink.lost[0], ClientClosedError)
        with pytest.raises(ClientClosedError):
            await client.request(bookie.id, ReadRequest(7, 0))
        send(channel, sink, 1)
        await eventually(lambda: len(sink.lost) == 2)


# --- requests ---


@pytest.mark.parametrize("protocol", ["auto", "v2", "v3"])
async def test_every_request_goes_out_in_its_version(cluster: FakeCluster, protocol: str) -> None:
    bookie = cluster.bookies[0]
    ledger = await make_ledger(cluster, 5)
    reads = V3 if protocol == "v3" else V2
    async with pool(cluster, protocol=protocol) as client:
        requests = [
            (ReadRequest(ledger.id, 3), reads),
            (ReadRequest(ledger.id, -1), reads),
            (ReadRequest(ledger.id, 3, Flags.DO_FENCING, KEY), V3),
            (ReadRequest(ledger.id, -1, Flags.ENTRY_PIGGYBACK, previous_lac=1, timeout_ms=1), V3),
            (ReadLacRequest(ledger.id), V3),
            (WriteLacRequest(ledger.id, 1, KEY, DIGEST.package_lac(ledger.id, 1)), V3),
            (GetBookieInfoRequest(3), V3),
            (GetListOfEntriesRequest(ledger.id), V3),
        ]
        for request, version in requests:
            response = await client.request(bookie.id, request)
            assert response.status == Status.EOK
            assert bookie.requests[-1].version == version


async def test_what_v2_cannot_do_is_illegal_there(cluster: FakeCluster) -> None:
    bookie = cluster.bookies[0]
    async with pool(cluster, protocol="v2") as client:
        with pytest.raises(IllegalOpError):
            await client.request(bookie.id, ForceLedgerRequest(7))
        with pytest.raises(IllegalOpError):
            client.add_version(WriteFlag.DEFERRED_SYNC)
        assert client.add_version(WriteFlag.NONE) == V2
    async with pool(cluster, useV2WireProtocol=True) as client:
        assert client.v2_only
    async with pool(cluster) as client:
        assert client.add_version(WriteFlag.NONE) == V2
        assert client.add_version(WriteFlag.DEFERRED_SYNC) == V3
        assert (await client.request(bookie.id, ForceLedgerRequest(7))).status == Status.EOK
    async with pool(cluster, protocol="v3") as client:
        assert client.add_version(WriteFlag.NONE) == V3


@pytest.mark.parametrize(
    "request_", [ReadRequest(7, 0), ReadLacRequest(7), BatchReadRequest(7, 0, 0, 5, 100), GetBookieInfoRequest(3)]
)
async def test_a_request_expires_and_its_late_answer_is_dropped(cluster: FakeCluster, request_: Any) -> None:
    """SEC-24."""
    bookie = cluster.bookies[0]
    bookie.put(package(7, 0))
    bookie.on_request = lambda request: HOLD
    async with pool(cluster, readEntryTimeoutSec=0.2, getBookieInfoTimeoutSecs=0.2) as client:
        with pytest.raises(RequestTimeoutError):
            await client.request(bookie.id, request_)
        bookie.release()
        bookie.on_request = None
        assert (await client.request(bookie.id, request_)).status == Status.EOK


@pytest.mark.parametrize("protocol", ["v2", "v3"])
async def test_refusals_are_answers(cluster: FakeCluster, protocol: str) -> None:
    bookie = cluster.bookies[0]
    async with pool(cluster, protocol=protocol) as client:
        for status in [Status.ENOLEDGER, Status.ENOENTRY, Status.EUA, Status.EIO, Status.EUNKNOWNLEDGERSTATE]:
            bookie.on_request = lambda request, status=status: status  # type: ignore[misc]
            response = await client.request(bookie.id, ReadRequest(7, 0))
            assert isinstance(response, ReadResponse)
            assert response.status == status
            assert response.entry is None


async def test_requests_beyond_the_limit_are_refused(cluster: FakeCluster) -> None:
    bookie = cluster.bookies[0]
    bookie.on_request = lambda request: HOLD
    async with pool(cluster, maxOutstandingRequestsPerChannel=2) as client:
        waiting = [asyncio.ensure_future(client.request(bookie.id, ReadRequest(7, i))) for i in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequestsError):
            await client.request(bookie.id, ReadRequest(7, 2))
        await eventually(lambda: len(bookie.requests) == 2)
        bookie.release()
        await asyncio.gather(*waiting)


async def test_a_ledger_keeps_to_its_connection(cluster: FakeCluster) -> None:
    bookie = cluster.bookies[0]
    async with pool(cluster, numChannelsPerBookie=3) as client:
        for ledger_id in [0, 3, 6]:
            await client.request(bookie.id, ReadRequest(ledger_id, 0))
        assert bookie.accepted == 1
        await client.request(bookie.id, ReadRequest(4, 0))
        assert bookie.accepted == 2


@pytest.mark.parametrize(
    "garbage",
    [
        bytes.fromhex("00000003020100"),
        bytes.fromhex("7fffffff"),
        bytes.fromhex("0000001802090000") + bytes(20),
        bytes.fromhex("00000018020200000000ffff") + bytes(7) + b"\7" + bytes(8),
    ],
)
async def test_an_illegal_answer_ends_the_connection(cluster: FakeCluster, garbage: bytes) -> None:
    """SEC-31."""
    bookie = cluster.bookies[0]
    bookie.put(package(7, 0))
    async with pool(cluster) as client:
        assert (await client.request(bookie.id, ReadRequest(7, 0))).status == Status.EOK
        bookie.on_request = lambda request: HOLD
        reading = asyncio.ensure_future(client.request(bookie.id, ReadRequest(7, 0)))
        await eventually(lambda: len(bookie.requests) == 2)
        bookie.connections[0].transport.write(garbage)
        with pytest.raises(BookieUnavailableError):
            await reading
        bookie.on_request = None
        assert (await client.request(bookie.id, ReadRequest(7, 0))).status == Status.EOK


async def test_an_unauthenticated_v3_connection_fails_its_adds(cluster: FakeCluster) -> None:
    bookie = cluster.bookies[0]
    bookie.on_request = lambda request: SILENT
    async with pool(cluster, protocol="v3") as client:
        sink = Sink()
        channel = client.open_add_channel(bookie.id, 7, sink, version=V3)
        send(channel, sink, 0, 1)
        await eventually(lambda: len(bookie.requests) == 2)
        answer = HeaderOnlyResponse(Status.EUA, Operation.ADD_ENTRY, txn_id=1 << 62)
        bookie.connections[0].transport.write(v3.encode_response(answer))
        await eventually(lambda: sink.lost)
        assert isinstance(sink.lost[0], UnauthorizedError)


async def test_a_bookie_that_moves_is_found_again(cluster: FakeCluster) -> None:
    """FX-21."""
    bookie = cluster.bookies[0]
    async with pool(cluster) as client:
        await client.request(bookie.id, GetBookieInfoRequest(3))
        await bookie.stop()
        await eventually(lambda: not client.connections)
        moved = FakeBookie()
        await moved.start(cluster.runtime)
        old, bookie.port = bookie.port, moved.port
        await cluster.unregister(bookie)
        await cluster.register(bookie, Mode.WRITABLE)
        bookie.port = old
        await client.request(bookie.id, GetBookieInfoRequest(3))
        assert moved.accepted == 1
        await moved.stop()
