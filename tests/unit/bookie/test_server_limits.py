"""What a bookie does when there is more than it can take, over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.bookie.bookie import Bookie, ExitCode
from bookkeeper.protocol import messages as m
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.messages import Status
from tests.support.bookie import KEY, GatedRuntime, RawClient, add, entry, fence, read, running_bookie


class FullStorage:
    """Makes a bookie's storage refuse everything until it is released."""

    def __init__(self, bookie: Bookie, monkeypatch: pytest.MonkeyPatch) -> None:
        self.released = asyncio.Event()
        storage = bookie.storage
        has_room = storage.has_room

        def full_or_not(ledger_id: int, size: int, count: int) -> bool:
            return self.released.is_set() and has_room(ledger_id, size, count)

        async def wait(ledger_id: int, size: int, count: int, timeout: float) -> bool:
            try:
                await asyncio.wait_for(self.released.wait(), timeout)
            except TimeoutError:
                return False
            return True

        monkeypatch.setattr(storage, "has_room", full_or_not)
        monkeypatch.setattr(storage, "wait_for_room", wait)


async def blocked(bookie: Bookie) -> None:
    async with asyncio.timeout(20):
        while not (bookie.stats.ADD_ENTRY_BLOCKED or bookie.stats.READ_ENTRY_BLOCKED):
            await asyncio.sleep(0.001)


async def test_adds_wait_for_the_storage_and_go_on_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client, RawClient.to(bookie) as other:
        full = FullStorage(bookie, monkeypatch)
        client.send(b"".join(v2.encode_add_request(KEY, entry(1, i)) for i in range(50)))
        await blocked(bookie)
        client.send(b"".join(v2.encode_add_request(KEY, entry(1, i)) for i in range(50, 100)))
        assert (await other.v2(read(1, 0))).status == Status.ENOENTRY
        full.released.set()
        answers: list[Any] = [v2.decode_response(await client.body()) for _ in range(100)]
        assert [answer.entry_id for answer in answers] == list(range(100))
        assert bookie.stats.ADD_ENTRY_BLOCKED == 0


async def test_a_fence_does_not_wait_behind_adds_and_the_adds_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        await client.v2(add(1, 0))
        full = FullStorage(bookie, monkeypatch)
        client.send(v2.encode_request(add(1, 1)) + v2.encode_request(fence(1)))
        answer: Any = v2.decode_response(await client.body())
        assert isinstance(answer, m.ReadResponse)
        assert answer.entry == entry(1, 0)
        full.released.set()
        assert v2.decode_response(await client.body()).status == Status.EFENCED  # type: ignore[union-attr]


async def test_adds_that_wait_too_long_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        running_bookie(tmp_path, dbStorage_maxThrottleTimeMs=50) as bookie,
        RawClient.to(bookie) as client,
    ):
        full = FullStorage(bookie, monkeypatch)
        client.send(v2.encode_request(add(1, 0)) + v3.encode_request(add(2, 0)) + v2.encode_request(add(3, 0)))
        statuses = []
        for _ in range(3):
            body = await client.body()
            codec: Any = v2 if body[0] < 8 else v3
            statuses.append(codec.decode_response(body).status)
        assert statuses == [Status.ETOOMANYREQUESTS] * 3
        assert bookie.stats.ADD_ENTRY_REJECTED == 3
        full.released.set()
        assert (await client.v2(add(1, 0))).status == Status.EOK, "the connection goes on"


async def test_a_small_write_cache_is_flushed_while_adds_wait(tmp_path: Path) -> None:
    count, payload = 400, b"x" * 10_000
    async with running_bookie(tmp_path, dbStorage_writeCacheMaxSizeMb=1) as bookie, RawClient.to(bookie) as client:
        for i in range(count):
            client.send(v2.encode_add_request(KEY, entry(1, i, payload)))
        for _ in range(count):
            assert v2.decode_response(await client.body()).status == Status.EOK  # type: ignore[union-attr]
        for i in range(0, count, 37):
            assert (await client.v2(read(1, i))).entry == entry(1, i, payload)


async def test_the_journals_memory_bounds_what_is_in_flight(tmp_path: Path) -> None:
    runtime = GatedRuntime()
    settings = {"journalMaxMemorySizeMb": 1, "journalBufferedWritesThreshold": 1024, "nettyMaxFrameSizeBytes": 1 << 20}
    async with running_bookie(tmp_path, runtime, **settings) as bookie, RawClient.to(bookie) as client:
        runtime.hold_syncs()
        count, payload = 200, b"x" * 100_000
        sending = asyncio.ensure_future(send_all(client, count, payload))
        await blocked(bookie)
        (journal,) = bookie.journals
        assert journal.queued_bytes < 4 << 20
        runtime.sync_gate.set()
        for _ in range(count):
            assert v2.decode_response(await client.body()).status == Status.EOK  # type: ignore[union-attr]
        await sending


async def send_all(client: RawClient, count: int, payload: bytes) -> None:
    for i in range(count):
        client.send(v2.encode_add_request(KEY, entry(1, i, payload)))
        await client.writer.drain()


async def test_adds_in_progress_are_bounded(tmp_path: Path) -> None:
    runtime = GatedRuntime()
    async with running_bookie(tmp_path, runtime, maxAddsInProgressLimit=2) as bookie:
        async with RawClient.to(bookie) as client, RawClient.to(bookie) as other:
            runtime.hold_syncs()
            for i in range(3):
                client.send(v3.encode_request(add(1, i, txn_id=i, write_flags=0, flags=0)))
                await client.writer.drain()
                client.send(v2.encode_request(add(10 + i, 0)))
            await blocked(bookie)
            assert (await other.v2(read(1, 0))).status == Status.EOK
            runtime.sync_gate.set()
            for _ in range(6):
                await client.body()
        assert bookie.stats.ADD_ENTRY.succeeded == 6


async def test_reads_in_progress_are_bounded_and_served_in_the_end(tmp_path: Path) -> None:
    async with running_bookie(tmp_path, maxReadsInProgressLimit=1) as bookie, RawClient.to(bookie) as client:
        for i in range(20):
            await client.v2(add(1, i))
        client.send(b"".join(v2.encode_request(read(1, -1)) for _ in range(20)))
        for _ in range(20):
            assert v2.decode_response(await client.body()).status == Status.EOK  # type: ignore[union-attr]
        assert bookie.stats.READ_ENTRY_BLOCKED == 0


async def test_waiting_reads_of_a_connection_are_bounded(tmp_path: Path) -> None:
    settings = {"maxPendingReadRequestsPerThread": 5, "numReadWorkerThreads": 1}
    async with running_bookie(tmp_path, **settings) as bookie, RawClient.to(bookie) as client:
        await client.v2(add(1, 0))
        client.send(b"".join(v2.encode_request(read(1, -1)) for _ in range(20)))
        statuses = [v2.decode_response(await client.body()).status for _ in range(20)]  # type: ignore[union-attr]
        assert set(statuses) == {Status.EOK, Status.ETOOMANYREQUESTS}
        assert bookie.stats.READ_ENTRY_REJECTED == statuses.count(Status.ETOOMANYREQUESTS) > 0
        assert (await client.v2(read(1, 0))).status == Status.EOK


async def flood(bookie: Bookie, client: RawClient, reads: int) -> None:
    """Ask for much and take nothing."""
    payload = b"x" * 100_000
    async with RawClient.to(bookie) as writer:
        for i in range(20):
            await writer.v2(add(1, i, payload))
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    client.send(b"".join(v2.encode_request(read(1, i % 20)) for i in range(reads)))


async def test_a_peer_that_does_not_read_stops_only_itself(tmp_path: Path) -> None:
    reads = 1000
    async with (
        running_bookie(tmp_path) as bookie,
        RawClient.to(bookie) as greedy,
        RawClient.to(bookie) as other,
    ):
        await flood(bookie, greedy, reads)
        async with asyncio.timeout(20):
            while not any(c.output_full for c in bookie.connections()):
                await asyncio.sleep(0.001)
        (full,) = [c for c in bookie.connections() if c.output_full]
        assert reads * 100_000 / 2 > bookie.stats.READ_BYTES
        assert (await other.v2(add(2, 0))).status == Status.EOK
        assert (await other.v2(read(1, 3))).status == Status.EOK
        assert full.output_full
        greedy.reader._transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(reads):
            assert v2.decode_response(await greedy.body()).status == Status.EOK  # type: ignore[union-attr]


async def test_a_peer_that_does_not_read_can_be_cut_off(tmp_path: Path) -> None:
    settings = {"waitTimeoutOnResponseBackpressureMs": 50, "closeChannelOnResponseTimeout": True}
    async with running_bookie(tmp_path, **settings) as bookie, RawClient.to(bookie) as greedy:
        await flood(bookie, greedy, 1000)
        async with asyncio.timeout(20):
            while bookie.connections():
                await asyncio.sleep(0.001)


async def test_a_stop_waits_for_adds_in_flight(tmp_path: Path) -> None:
    runtime = GatedRuntime()
    async with running_bookie(tmp_path, runtime) as bookie, RawClient.to(bookie) as client:
        runtime.hold_syncs()
        answer = asyncio.ensure_future(client.v2(add(1, 0)))
        await runtime.sync_is_held()
        stop = asyncio.ensure_future(bookie.stop())
        await asyncio.sleep(0)
        runtime.sync_gate.set()
        assert (await answer).status == Status.EOK
        await stop
        assert await bookie.wait_stopped() is ExitCode.OK


async def test_a_stop_does_not_wait_for_ever(tmp_path: Path) -> None:
    runtime = GatedRuntime()
    async with running_bookie(tmp_path, runtime, shutdownDrainTimeoutMs=20) as bookie, RawClient.to(bookie) as client:
        runtime.hold_syncs()
        client.send(v2.encode_request(add(1, 0)))
        await runtime.sync_is_held()
        stop = asyncio.ensure_future(bookie.stop())
        assert await client.closed(), "no answer, as nothing is durable"
        runtime.sync_gate.set()
        await stop
