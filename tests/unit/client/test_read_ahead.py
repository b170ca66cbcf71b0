"""Reading long ranges: what is asked for ahead is bounded in bytes, whatever the shape of the ledger."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from bookkeeper.client.reads.read_ahead import CHUNKS_AHEAD, Chunk, ReadAhead
from bookkeeper.client.reads.scan import LedgerScan
from bookkeeper.errors import DigestMismatchError, ReadError
from bookkeeper.protocol.messages import BatchReadRequest, ReadRequest
from bookkeeper.runtime.real import RealRuntime
from tests.support.fake_bookie import HOLD, FakeCluster

from .support import DIGEST, eventually, make_ledger, package

LARGE = 50_000
WINDOW = 200_000
SHAPES = pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2), (3, 1, 1)])
PROTOCOLS = pytest.mark.parametrize("protocol", ["auto", "v3"])


async def most_ahead(cluster: FakeCluster, reader: object, **options: int) -> tuple[int, int]:
    """Take all entries, and every time give the bookies a chance to send what they were asked for: the most bytes they
    had sent beyond what was taken, and how many entries there were."""
    before = sum(bookie.bytes_sent for bookie in cluster.bookies)
    most = taken = count = 0
    async for entry in reader.entries(**options):  # type: ignore[attr-defined]
        taken += len(entry)
        count += 1
        for _ in range(10):
            await asyncio.sleep(0)
        most = max(most, sum(bookie.bytes_sent for bookie in cluster.bookies) - before - taken)
    return most, count


@SHAPES
@PROTOCOLS
async def test_what_is_read_ahead_of_the_caller_is_bounded_in_bytes(
    cluster: FakeCluster, quorums: tuple[int, int, int], protocol: str
) -> None:
    ledger = await make_ledger(cluster, quorums=quorums, sizes=[LARGE] * 60)
    reader = await ledger.open(await cluster.connect(protocol=protocol))
    most, count = await most_ahead(cluster, reader, window_bytes=WINDOW)
    assert count == 60
    assert most <= WINDOW + 4 * LARGE


@SHAPES
@PROTOCOLS
async def test_the_start_is_small_where_nothing_is_known_of_sizes(
    cluster: FakeCluster, quorums: tuple[int, int, int], protocol: str
) -> None:
    """An open ledger tells no length."""
    ledger = await make_ledger(cluster, quorums=quorums, sizes=[LARGE] * 60, closed=False)
    reader = await ledger.open(await cluster.connect(protocol=protocol))
    most, count = await most_ahead(cluster, reader, window_bytes=WINDOW)
    assert count == 59
    assert most <= 16 * LARGE + WINDOW


@SHAPES
@PROTOCOLS
async def test_large_entries_behind_many_small_ones_are_no_surprise(
    cluster: FakeCluster, quorums: tuple[int, int, int], protocol: str
) -> None:
    ledger = await make_ledger(cluster, quorums=quorums, sizes=[10] * 500 + [LARGE] * 50)
    reader = await ledger.open(await cluster.connect(protocol=protocol))
    most, count = await most_ahead(cluster, reader, window_bytes=WINDOW)
    assert count == 550
    assert most <= WINDOW + 8 * LARGE


@PROTOCOLS
async def test_reading_ahead_grows_with_what_is_learnt(cluster: FakeCluster, protocol: str) -> None:
    """Of small entries, the window in entries is what bounds, and it is used."""
    ledger = await make_ledger(cluster, quorums=(3, 2, 2), sizes=[10] * 1000, closed=False)
    reader = await ledger.open(await cluster.connect(protocol=protocol, speculativeReadTimeout=0))
    entries = reader.entries(window=400)
    assert (await anext(entries)).id == 0
    for bookie in cluster.bookies:
        bookie.on_request = lambda request: HOLD if isinstance(request, ReadRequest | BatchReadRequest) else None
        bookie.requests.clear()
    taking = asyncio.ensure_future(anext_until(entries, 998))

    def asked() -> int:
        requests = [request for bookie in cluster.bookies for request in bookie.requests]
        return len({getattr(request, "entry_id", -1) for request in requests})

    await eventually(lambda: asked() >= 150)
    for bookie in cluster.bookies:
        bookie.on_request = None
        bookie.release()
    assert await taking == 998
    await entries.aclose()


async def anext_until(entries: object, last: int) -> int:
    async for entry in entries:  # type: ignore[attr-defined]
        if entry.id == last:
            return last
    return -1


async def test_a_plain_read_keeps_so_many_bytes_outstanding(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, sizes=[LARGE] * 40)
    for bookie in cluster.bookies:
        bookie.on_request = lambda request: HOLD if isinstance(request, ReadRequest) else None
    client = await cluster.connect(readEntriesWindowBytes=5 * LARGE, speculativeReadTimeout=0)
    reader = await ledger.open(client)
    reading = asyncio.create_task(reader.read(0, 39))
    asked = 0
    while not reading.done():
        held = sum(len(bookie._held) for bookie in cluster.bookies)
        assert held <= 5
        asked = max(asked, held)
        for bookie in cluster.bookies:
            bookie.release()
        await asyncio.sleep(0.001)
    assert len(await reading) == 40
    assert asked > 1


async def test_a_batch_read_entry_by_entry_ends_at_its_size(cluster: FakeCluster) -> None:
    """FX-17."""
    ledger = await make_ledger(cluster, quorums=(3, 2, 2), sizes=[LARGE] * 100)
    client = await cluster.connect()
    reader = await ledger.open(client)
    assert len(await reader.batch_read(0, max_count=100, max_size=5 * LARGE)) == 4  # with what goes around them
    assert sum(bookie.count(ReadRequest) for bookie in cluster.bookies) <= 6
    assert len(await reader.batch_read(0, max_count=3, max_size=5 * LARGE)) == 3


@pytest.mark.parametrize("closed", [True, False])
async def test_a_scan_entry_by_entry_ends_at_its_size(cluster: FakeCluster, closed: bool) -> None:
    ledger = await make_ledger(cluster, quorums=(3, 2, 2), sizes=[LARGE] * 100, closed=closed)
    client = await cluster.connect()
    scan = LedgerScan(client.context, ledger.metadata, DIGEST, lambda *_: None)

    def take(first: int, body: bytes) -> tuple[tuple[int, int] | None, int | None]:
        return (first, len(body)), None

    _, size = await scan.some(0, 100, 3 * LARGE, take)
    assert LARGE <= size <= (4 if closed else 17) * LARGE
    _, size = await scan.some(20, 100, 3 * LARGE, take)
    assert LARGE <= size <= 4 * LARGE


async def test_small_answers_of_a_bookie_do_not_end_the_reading(cluster: FakeCluster) -> None:
    """A bookie may give less than it is asked for (`maxBatchReadSize`)."""
    ledger = await make_ledger(cluster, 300)
    for bookie in cluster.bookies:
        respond = bookie._batch

        def limited(request: BatchReadRequest, status: object, respond: object = respond) -> object:
            request.max_count = min(request.max_count, 7)
            return respond(request, status)  # type: ignore[operator]

        bookie._batch = limited  # type: ignore[method-assign, assignment]
    reader = await ledger.open(await cluster.connect())
    assert [entry.id async for entry in reader.entries()] == list(range(300))


@SHAPES
async def test_an_error_far_ahead_is_raised_in_its_place(cluster: FakeCluster, quorums: tuple[int, int, int]) -> None:
    ledger = await make_ledger(cluster, quorums=quorums, sizes=[1000] * 300)
    for bookie in ledger.replicas(250):
        ledger.corrupt(bookie, 250)
    reader = await ledger.open(await cluster.connect())
    entries = reader.entries(window_bytes=40_000)
    assert [(await anext(entries)).id for _ in range(250)] == list(range(250))
    with pytest.raises(DigestMismatchError) as failure:
        await anext(entries)
    assert failure.value.entry_id == 250


# --- a reader without recovery ---


@PROTOCOLS
async def test_iteration_ends_at_the_lac_known_when_it_began(cluster: FakeCluster, protocol: str) -> None:
    """What is confirmed meanwhile is for the next iteration, or for `tail`."""
    ledger = await make_ledger(cluster, 10, closed=False)
    reader = await ledger.open(await cluster.connect(protocol=protocol))
    assert reader.last_add_confirmed == 8
    entries = reader.entries()
    for entry_id in range(10, 20):
        for bookie in ledger.replicas(entry_id):
            bookie.put(package(ledger.id, entry_id))
    assert await reader.read_last_add_confirmed() == 18
    assert [entry.id async for entry in entries] == list(range(9))
    assert [entry.id async for entry in reader] == list(range(19))


async def test_iteration_asks_nobody_for_a_newer_lac(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 1, closed=False)
    reader = await ledger.open(await cluster.connect(protocol="v2"))
    for bookie in cluster.bookies:
        bookie.requests.clear()
    assert [entry.id async for entry in reader] == []
    assert not any(bookie.requests for bookie in cluster.bookies)
    with pytest.raises(ReadError):
        reader.entries(0, 0)


async def test_bookies_work_on_what_follows_while_the_caller_works() -> None:
    """All chunks but the one in front have been asked for when the caller gets an entry, even if it never waits."""
    loop, asked = asyncio.get_running_loop(), set[int]()

    async def read_chunk(first: int, last: int, _room: int) -> Chunk[int]:
        loop.call_soon(asked.add, first)  # as connections write
        return list(range(first, last + 1)), None

    reads: Any = SimpleNamespace(ledger_id=1, entry_size=1000, can_batch=lambda _: True)
    ahead = ReadAhead(RealRuntime(), reads, read_chunk, lambda entry: entry, 100, CHUNKS_AHEAD * 10_000)
    size, taken = 9, 0
    async for entry in ahead.entries(0, 99):
        assert entry == taken
        behind = (entry // size + CHUNKS_AHEAD) * size
        assert asked >= set(range(0, min(behind, 100), size))
        taken += 1
    assert taken == 100
