"""What a bookie does when there is more than it can take, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.bookie.bookie import Bookie, ExitCode
from bookkeeper.protocol import messages as m
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.limits import MAX_LAC_BODY, MAX_MASTER_KEY
from bookkeeper.protocol.messages import Status
from tests.support.bookie import DIGEST, KEY, GatedRuntime, RawClient, add, entry, fence, read, running_bookie


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
    """I2."""
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
    """I1, PI-11, gap G21."""
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
    """BI-26."""
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
    """BI-26, FX-61."""
    runtime = GatedRuntime()
    settings = {"journalMaxMemorySizeMb": 1, "journalBufferedWritesThreshold": 1024, "nettyMaxFrameSizeBytes": 1 << 20}
    async with running_bookie(tmp_path, runtime, **settings) as bookie, RawClient.to(bookie) as client:
        runtime.hold_syncs()
        count, payload = 200, b"x" * 100_000
        sending = asyncio.ensure_future(send_all(client, count, payload))
        await blocked(bookie)
        (journal,) = bookie.journals
        assert journal.room.bytes < 4 << 20
        runtime.sync_gate.set()
        for _ in range(count):
            assert v2.decode_response(await client.body()).status == Status.EOK  # type: ignore[union-attr]
        await sending


async def send_all(client: RawClient, count: int, payload: bytes) -> None:
    for i in range(count):
        client.send(v2.encode_add_request(KEY, entry(1, i, payload)))
        await client.writer.drain()


async def test_adds_in_progress_are_bounded(tmp_path: Path) -> None:
    """BI-26."""
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
    """MU-37, BI-26, SEC-22."""
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
    """SEC-22."""
    settings = {"waitTimeoutOnResponseBackpressureMs": 50, "closeChannelOnResponseTimeout": True}
    async with running_bookie(tmp_path, **settings) as bookie, RawClient.to(bookie) as greedy:
        await flood(bookie, greedy, 1000)
        async with asyncio.timeout(20):
            while bookie.connections():
                await asyncio.sleep(0.001)


async def test_large_answers_to_small_requests_are_made_as_they_are_taken(tmp_path: Path) -> None:
    """SEC-21."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as greedy, RawClient.to(bookie) as other:
        await flood(bookie, greedy, 0)
        greedy.send(v2.encode_request(m.BatchReadRequest(1, 0, 1, 0, 5 << 20)) * 10_000)  # 2 MB each
        await until(lambda: any(c.output_full for c in bookie.connections()))
        assert (await other.v2(add(2, 0))).status == Status.EOK
        assert (await other.v2(read(1, 3))).status == Status.EOK
        assert bookie.stats.READ_BYTES < 100 << 20
        assert bookie.service.memory.used <= bookie.service.memory.limit


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


# --- hostile and stuck peers ---


def permits_used(bookie: Bookie) -> int:
    return bookie.service.reads.permits.used


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def stuck_readers(bookie: Bookie, stack: AsyncExitStack, count: int, reads: int) -> None:
    """Connections with many reads that need the disk, whose answers nobody takes."""
    async with RawClient.to(bookie) as writer:
        for i in range(20):
            await writer.v2(add(1, i, b"x" * 100_000))
    await bookie.storage.flush()
    for _ in range(count):
        client = await stack.enter_async_context(RawClient.to(bookie))
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        client.send(b"".join(v2.encode_request(read(1, -1)) for _ in range(reads)))
        await client.writer.drain()


async def test_readers_that_take_no_answers_hold_up_neither_reads_nor_fences_of_others(tmp_path: Path) -> None:
    """SEC-22, BI-26."""
    settings = {"maxPendingReadRequestsPerThread": 100, "numReadWorkerThreads": 1}
    async with running_bookie(tmp_path, **settings) as bookie, AsyncExitStack() as stack:
        await stuck_readers(bookie, stack, 8, 200)
        await until(lambda: sum(c.output_full for c in bookie.connections()) == 8)
        assert permits_used(bookie) > 100, "more than one connection may have"
        async with RawClient.to(bookie) as other:
            assert (await other.v2(fence(1))).status == Status.EOK
            assert (await other.v3(fence(2, txn_id=1, priority=100))).status == Status.ENOENTRY
            assert (await other.v2(read(1, -1))).status == Status.EOK
            assert (await other.v3(m.ReadLacRequest(1, txn_id=2))).status == Status.EOK
    assert permits_used(bookie) == 0
    assert bookie.service.memory.used == 0


async def test_when_answers_use_up_the_memory_those_who_take_none_are_disconnected(tmp_path: Path) -> None:
    """SEC-22, BI-26, FX-61."""
    settings = {"nettyMaxFrameSizeBytes": 1 << 20, "maxBatchReadSize": 1 << 20, "requestMemoryMaxSizeMb": 16}
    async with running_bookie(tmp_path, **settings) as bookie, AsyncExitStack() as stack:
        memory = bookie.service.memory
        assert memory.total == 16 << 20
        async with RawClient.to(bookie) as good:
            await stuck_readers(bookie, stack, 30, 300)
            await until(lambda: memory.closed_connections > 0)
            assert (await good.v2(add(3, 0))).status == Status.EOK
            assert (await good.v2(read(1, 3))).status == Status.EOK
            assert memory.used <= memory.limit + (2 << 20)


async def test_a_peer_that_reads_slowly_is_kept_and_one_that_does_not_is_cut_off(tmp_path: Path) -> None:
    """SEC-22."""
    settings = {
        "waitTimeoutOnResponseBackpressureMs": 1000,
        "serverWriteBufferLowWaterMark": 1000,
        "serverWriteBufferHighWaterMark": 16 << 20,
    }
    async with running_bookie(tmp_path, **settings) as bookie, RawClient.to(bookie) as writer:
        for i in range(20):
            await writer.v2(add(1, i, b"x" * 100_000))
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", bookie.port)) as slow:
            slow.setblocking(False)
            await loop.sock_sendall(slow, b"".join(v2.encode_request(read(1, i % 20)) for i in range(1000)))
            await until(lambda: any(c.output_full for c in bookie.connections()))
            (connection,) = [c for c in bookie.connections() if c.output_full]
            for _ in range(40):
                for _ in range(4):
                    await loop.sock_recv(slow, 1 << 16)
                await asyncio.sleep(0.06)
            assert connection.output_full
            assert not connection.gone
            await until(lambda: connection.gone)


async def test_a_fence_needs_no_permit(tmp_path: Path) -> None:
    """I10."""
    async with running_bookie(tmp_path, maxReadsInProgressLimit=1) as bookie, RawClient.to(bookie) as client:
        await client.v2(add(1, 0))
        async with RawClient.to(bookie) as poller:
            poller.send(
                v3.encode_request(m.ReadRequest(1, -1, m.Flags.ENTRY_PIGGYBACK, previous_lac=7, timeout_ms=30_000))
            )
            await until(lambda: bookie.waiting_polls == 1)
            assert (await client.v2(fence(2))).status == Status.ENOENTRY
            assert bookie.waiting_polls == 1


@pytest.mark.parametrize("limit", [0, -1])
async def test_no_bound_on_waiting_reads_means_no_bound(tmp_path: Path, limit: int) -> None:
    async with (
        running_bookie(tmp_path, maxPendingReadRequestsPerThread=limit) as bookie,
        RawClient.to(bookie) as client,
    ):
        await client.v2(add(1, 0))
        assert (await client.v2(fence(1))).status == Status.EOK
        assert (await client.v3(m.ReadLacRequest(1, txn_id=1))).status == Status.EOK
        client.send(b"".join(v2.encode_request(read(1, -1)) for _ in range(300)))
        statuses = {v2.decode_response(await client.body()).status for _ in range(300)}  # type: ignore[union-attr]
        assert statuses == {Status.EOK}


async def test_an_add_that_waits_for_a_permit_does_not_hold_up_those_behind_when_it_needs_none(tmp_path: Path) -> None:
    runtime = GatedRuntime()
    async with running_bookie(tmp_path, runtime, maxAddsInProgressLimit=1) as bookie, AsyncExitStack() as stack:
        first, fenced, last, recoverer = [await stack.enter_async_context(RawClient.to(bookie)) for _ in range(4)]
        for ledger_id, client in enumerate((first, fenced, last)):
            assert (await client.v2(add(ledger_id, 0))).status == Status.EOK
        runtime.hold_syncs()
        for ledger_id, client in enumerate((first, fenced, last)):
            client.send(v2.encode_request(add(ledger_id, 1)))
            await until(lambda blocked=ledger_id: blocked == bookie.stats.ADD_ENTRY_BLOCKED)  # type: ignore[misc]
            await until(lambda: bookie.service.adds.permits.used == 1)
        recoverer.send(v2.encode_request(fence(1)))
        await until(lambda: sum(c.in_journal for c in bookie.connections()) == 1)
        runtime.sync_gate.set()
        statuses = [v2.decode_response(await client.body()).status for client in (first, fenced, last)]  # type: ignore[union-attr]
        assert statuses == [Status.EOK, Status.EFENCED, Status.EOK]


async def test_a_recovery_add_needs_no_permit(tmp_path: Path) -> None:
    """I10."""
    runtime = GatedRuntime()
    async with (
        running_bookie(tmp_path, runtime, maxAddsInProgressLimit=1) as bookie,
        RawClient.to(bookie) as client,
        RawClient.to(bookie) as recoverer,
    ):
        runtime.hold_syncs()
        client.send(v2.encode_request(add(1, 0)))
        await until(lambda: bookie.service.adds.permits.used == 1)
        recoverer.send(v2.encode_request(add(2, 0, flags=m.Flags.RECOVERY_ADD)))
        await until(lambda: bookie.service.adds.permits.used == 2)
        runtime.sync_gate.set()
        assert v2.decode_response(await recoverer.body()).status == Status.EOK  # type: ignore[union-attr]


# --- what stays in memory as long as a ledger does ---


async def test_keys_and_explicit_lacs_beyond_all_digests_are_refused(tmp_path: Path) -> None:
    """SEC-12; SEC-29: what is small enough is stored as it is."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        assert (await client.v3(add(1, 0, master_key=bytes(range(MAX_MASTER_KEY)), txn_id=1))).status == Status.EOK
        too_long = bytes(range(MAX_MASTER_KEY + 1))
        assert (await client.v3(add(2, 0, master_key=too_long, txn_id=2))).status == Status.EUA
        assert (await client.v3(fence(2, key=too_long, txn_id=3))).status == Status.EUA
        assert not bookie.storage.ledger_exists(2)
        for size, status in ((MAX_LAC_BODY, Status.EOK), (MAX_LAC_BODY + 1, Status.EBADREQ)):
            body = (3).to_bytes(8, "big") + bytes(size - 8)
            assert (await client.v3(m.WriteLacRequest(3, 0, KEY, body, txn_id=4))).status == status
        assert bookie.storage.explicit_lac(3) == (3).to_bytes(8, "big") + bytes(MAX_LAC_BODY - 8)


async def test_explicit_lacs_wait_for_room_in_the_journal_like_adds(tmp_path: Path) -> None:
    """BI-26, gap G10."""
    runtime = GatedRuntime()
    async with running_bookie(tmp_path, runtime, journalQueueSize=100) as bookie, RawClient.to(bookie) as client:
        runtime.hold_syncs()
        (journal,) = bookie.journals
        one = v3.encode_request(m.WriteLacRequest(1, 0, KEY, DIGEST.package_lac(1, 0), txn_id=1))
        client.send(one)
        await runtime.sync_is_held()
        client.send(one * 3000)
        await blocked(bookie)
        assert journal.room.records <= 110
        async with RawClient.to(bookie) as other:
            assert (await other.v3(m.ReadLacRequest(1, txn_id=1))).status == Status.EOK
        runtime.sync_gate.set()
        for _ in range(3001):
            assert v3.decode_response(await client.body()).status == Status.EOK  # type: ignore[union-attr]


# --- large frames ---


async def test_large_frames_begin_only_when_there_is_memory_and_slow_ones_lose_theirs(tmp_path: Path) -> None:
    """SEC-3, BI-26."""
    settings = {"nettyMaxFrameSizeBytes": 1 << 20, "maxBatchReadSize": 1 << 20, "requestMemoryMaxSizeMb": 16}
    async with running_bookie(tmp_path, **settings) as bookie, AsyncExitStack() as stack:
        started = v2.encode_request(add(1, 0, b"x" * 1_000_000))[:70_000]
        frames = bookie.service.frames
        while not frames.awaited:
            slow = await stack.enter_async_context(RawClient.to(bookie))
            slow.send(started)
            await slow.writer.drain()
            await asyncio.sleep(0.01)
        assert frames.used <= bookie.service.memory.limit // 2
        async with RawClient.to(bookie) as good:
            assert (await good.v2(add(2, 0))).status == Status.EOK, "a small frame needs no permission"
            assert (await good.v2(add(2, 1, b"y" * 1_000_000))).status == Status.EOK
        await until(lambda: not frames.awaited)
    assert bookie.service.memory.used == frames.used == 0


async def test_a_frame_is_not_late_while_the_bookie_does_not_read_on(tmp_path: Path) -> None:
    runtime = GatedRuntime()
    settings = {"frameCompletionTimeoutMs": 100, "journalMaxMemorySizeMb": 1}
    async with running_bookie(tmp_path, runtime, **settings) as bookie, RawClient.to(bookie) as client:
        runtime.hold_syncs()
        adds = b"".join(v2.encode_add_request(KEY, entry(1, i, b"x" * 300_000)) for i in range(20))
        sending = asyncio.ensure_future(send_in_pieces(client, adds))
        await blocked(bookie)
        (connection,) = bookie.connections()
        await asyncio.sleep(0.5)
        assert not connection.gone
        runtime.sync_gate.set()
        for _ in range(20):
            assert v2.decode_response(await client.body()).status == Status.EOK  # type: ignore[union-attr]
        await sending


async def send_in_pieces(client: RawClient, data: bytes) -> None:
    for at in range(0, len(data), 100_000):
        client.send(data[at : at + 100_000])
        await client.writer.drain()


async def test_a_connection_that_asks_for_nothing_is_closed_and_one_that_did_is_kept(tmp_path: Path) -> None:
    async with (
        running_bookie(tmp_path, firstRequestTimeoutMs=100) as bookie,
        RawClient.to(bookie) as asked,
        RawClient.to(bookie) as silent,
    ):
        assert (await asked.v2(add(1, 0))).status == Status.EOK
        assert await silent.closed()
        assert (await asked.v2(add(1, 1))).status == Status.EOK


async def test_one_failing_acknowledgement_does_not_keep_others_from_theirs_and_ends_the_bookie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = GatedRuntime()
    async with running_bookie(tmp_path, runtime) as bookie, AsyncExitStack() as stack:
        one, two, three = [await stack.enter_async_context(RawClient.to(bookie)) for _ in range(3)]
        runtime.hold_syncs()
        one.send(v2.encode_request(add(1, 0)))
        await runtime.sync_is_held()
        for ledger_id, client in ((2, two), (3, three)):
            client.send(v2.encode_request(add(ledger_id, 0)))
            await until(lambda n=ledger_id: bookie.service.adds.permits.used == n)  # type: ignore[misc]
        broken = bookie.connections()[1]

        def fail(data: bytes) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(broken, "send", fail)
        runtime.sync_gate.set()
        assert await bookie.wait_stopped() is ExitCode.BOOKIE_EXCEPTION
        assert bookie.service.adds.permits.used == 0


async def test_a_failed_callback_of_the_loop_ends_the_bookie_and_a_broken_connection_does_not(
    tmp_path: Path,
) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        loop = asyncio.get_running_loop()
        bookie.on_loop_error(loop, {"message": "x", "exception": RuntimeError("x"), "transport": None})
        bookie.on_loop_error(loop, {"message": "x", "exception": OSError("x"), "handle": None})
        bookie.on_loop_error(loop, {"message": "x"})
        assert (await client.v2(add(1, 0))).status == Status.EOK
        bookie.on_loop_error(loop, {"message": "x", "exception": RuntimeError("x"), "handle": None})
        assert await bookie.wait_stopped() is ExitCode.BOOKIE_EXCEPTION


async def test_requests_that_wait_for_their_turn_are_served_in_order_and_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bookkeeper.bookie.sharing.turns.Turns.slice_seconds", lambda *_: 1e-9)  # one request a turn
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client, RawClient.to(bookie) as other:
        requests = [add(1, 0), read(1, 0), fence(2), read(2, 0), add(1, 1), read(1, 1)]
        client.send(b"".join(map(v2.encode_request, requests)))
        other.send(v2.encode_request(add(3, 0)) + v2.encode_request(read(3, 0)))
        answers: list[Any] = [v2.decode_response(await client.body()) for _ in range(len(requests))]
        reads = [(answer.ledger_id, answer.entry_id) for answer in answers if isinstance(answer, m.ReadResponse)]
        assert sorted(reads) == [(1, 0), (1, 1), (2, -1), (2, 0)]
        assert all(answer.status == Status.EOK for answer in answers if isinstance(answer, m.AddResponse))
        client.send(v2.encode_request(read(1, 1)) * 3 + b"\0\0\0\1\0")
        for _ in range(3):
            assert v2.decode_response(await client.body()).status == Status.EOK  # type: ignore[union-attr]
        assert await client.closed(), "what is no message ends the connection when its turn has come"
        for _ in range(2):
            assert v2.decode_response(await other.body()).status == Status.EOK  # type: ignore[union-attr]
        await until(lambda: bookie.service.memory.used == 0)


async def test_a_request_that_cannot_be_handled_ends_its_connection_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G14."""
    monkeypatch.setattr("bookkeeper.bookie.sharing.turns.Turns.slice_seconds", lambda *_: 1e-9)
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client, RawClient.to(bookie) as other:

        def fail(*_: object) -> bool:
            raise RuntimeError("a bug")

        with monkeypatch.context() as patch:
            patch.setattr(bookie.service.reads, "read_lac", fail)
            client.send(v3.encode_request(m.ReadLacRequest(1)))
            assert await client.closed()
        assert (await other.v2(add(1, 0))).status == Status.EOK


async def test_what_is_large_and_no_entry_ends_its_connection_before_it_is_there(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client, RawClient.to(bookie) as other:
        frame = v3.encode_request(m.WriteLacRequest(1, 0, KEY, bytes(3 << 20), txn_id=1))
        client.send(frame[:100_000])
        assert await client.closed()
        frame = v3.encode_request(add(1, 0, bytes(3 << 20), txn_id=1))
        for part in (frame[:3], frame[3:50], frame[50 : 2 << 20], frame[2 << 20 :]):
            other.send(part)
            await asyncio.sleep(0)
        answer = v3.decode_response(await other.body())
        assert answer.status == Status.EOK  # type: ignore[union-attr]
        await until(lambda: bookie.service.memory.used == 0)


async def test_a_slow_frame_is_one_that_was_looked_at_not_one_that_a_frozen_bookie_did_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        client.writer.write(v2.encode_add_request(KEY, entry(1, 0, bytes(4 << 20)))[:1000])
        (connection,) = bookie.connections()
        await until(lambda: connection.incoming.begun)
        monkeypatch.setattr(type(bookie.service.frames), "awaited", property(lambda self: True))
        now = bookie.service.runtime.now
        monkeypatch.setattr(connection, "_now", lambda: now() + 10.0)
        assert bookie.service._look_at(connection, 1.0, 30, 30) == ""
        verdicts = [bookie.service._look_at(connection, 1.0, 30, 30) for _ in range(3)]
        assert "too slow" in verdicts[-1]
