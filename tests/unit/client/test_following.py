"""Readers that follow a ledger as it grows: when their metadata is behind, and when nobody closes them."""

from __future__ import annotations

import asyncio
import gc
import warnings
import weakref
from dataclasses import replace

import pytest

from bookkeeper.client.reader import LedgerReader
from bookkeeper.errors import (
    BookieUnavailableError,
    IncorrectParameterError,
    NoSuchEntryError,
    NoSuchLedgerOnMetadataError,
)
from bookkeeper.metadata.api import Versioned
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.protocol.messages import ReadRequest
from tests.support.fake_bookie import FakeCluster

from .support import Ledger, eventually, make_ledger, package

PROTOCOLS = pytest.mark.parametrize("protocol", ["auto", "v3"])


async def moved_on(cluster: FakeCluster, *, quorums: tuple[int, int, int], settings: dict[str, object]) -> LedgerReader:
    """A reader whose ledger got another fragment, from entry 5 on, of which its watch has not told it yet."""
    a, b, c, d = cluster.bookies
    ledger = await make_ledger(cluster, 5, closed=False, quorums=quorums, ensembles={0: [a, b, c][: quorums[0]]})
    reader = await ledger.open(await cluster.connect(speculativeReadTimeout=0, **settings))
    assert reader._watch is not None
    reader._watch.cancel()
    stored = await cluster.driver.ledgers.read(ledger.id)
    members = tuple(bookie.id for bookie in [d, b, c][: quorums[0]])
    changed = replace(stored.value, ensembles={**stored.value.ensembles, 5: members})
    await cluster.driver.ledgers.write(ledger.id, changed, stored.version)
    Ledger(cluster, changed).put(range(5, 12))
    assert await reader.read_last_add_confirmed() == 10  # a bookie of both fragments knows it
    return reader


@pytest.fixture
async def four() -> object:
    cluster = FakeCluster(4)
    await cluster.start()
    yield cluster
    await cluster.close()


@PROTOCOLS
@pytest.mark.parametrize("quorums", [(2, 1, 1), (3, 1, 1), (2, 2, 1)])
async def test_an_entry_confirmed_in_a_fragment_not_known_yet_is_found(
    four: FakeCluster, protocol: str, quorums: tuple[int, int, int]
) -> None:
    """FX-24."""
    for _ in range(2):
        reader = await moved_on(four, quorums=quorums, settings={"protocol": protocol})
        assert [entry.id for entry in await reader.read(0, 10)] == list(range(11))
        reader = await moved_on(four, quorums=quorums, settings={"protocol": protocol})
        assert [entry.id async for entry in reader] == list(range(11))
        reader = await moved_on(four, quorums=quorums, settings={"protocol": protocol})
        for first in (5, 6, 7):
            assert (await reader.batch_read(first, max_count=3))[0].id == first


async def test_without_other_bookies_for_it_the_error_of_the_entry_is_raised(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 9, quorums=(3, 2, 2))
    for bookie in ledger.replicas(4):
        del bookie.ledger(ledger.id).entries[4]
    reader = await ledger.open(await cluster.connect(speculativeReadTimeout=0))
    with pytest.raises(NoSuchEntryError):
        await reader.read(0, 8)
    with pytest.raises(NoSuchEntryError):
        [entry async for entry in reader]
    for bookie in cluster.bookies:
        await bookie.stop()
    with pytest.raises(BookieUnavailableError):
        await reader.batch_read(0, max_count=1)


# --- readers that nobody closes ---


async def test_readers_dropped_without_close_go_and_warn(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 3, closed=False)
    client = await cluster.connect()
    before = len(client.context.tasks._tasks)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        readers = [await ledger.open(client) for _ in range(10)]
        left = [weakref.ref(reader) for reader in readers]
        await readers[0].close()
        readers.clear()
        gc.collect()
        assert [reader() for reader in left] == [None] * 10
        await eventually(lambda: len(client.context.tasks._tasks) == before)
    dropped = [warning for warning in heard if issubclass(warning.category, ResourceWarning)]
    assert len([warning for warning in dropped if f"reader of ledger {ledger.id}" in str(warning.message)]) == 9


async def test_a_reader_dropped_in_another_thread_is_let_go_of(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 3, closed=False)
    client = await cluster.connect()
    before = len(client.context.tasks._tasks)
    box = [await ledger.open(client)]

    def drop() -> None:
        box.clear()
        gc.collect()

    with pytest.warns(ResourceWarning):
        await asyncio.to_thread(drop)
    await eventually(lambda: len(client.context.tasks._tasks) == before)


async def test_following_survives_a_watch_that_breaks(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """FX-82."""
    monkeypatch.setattr("bookkeeper.client.reader.WATCH_AGAIN", 0.0)
    ledger = await make_ledger(cluster, 3, closed=False)
    client = await cluster.connect()
    ledgers = client.context.driver.ledgers
    breaks = [RuntimeError("the watch breaks")]
    watch = type(ledgers).watch

    async def broken(self: object, ledger_id: int) -> object:
        if breaks:
            raise breaks.pop()
        async for versioned in watch(self, ledger_id):  # type: ignore[arg-type]
            yield versioned

    monkeypatch.setattr(type(ledgers), "watch", broken)
    reader = await ledger.open(client)
    await eventually(lambda: not breaks)
    stored: Versioned[LedgerMetadata] = await cluster.driver.ledgers.read(ledger.id)
    await cluster.driver.ledgers.write(ledger.id, stored.value.close(2, 21), stored.version)
    await eventually(lambda: reader.closed)
    assert reader.last_add_confirmed == 2
    await reader.close()


# --- tailing ---


async def test_polls_that_wait_for_nothing_do_not_make_tailing_spin(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 3, closed=False)
    reader = await ledger.open(await cluster.connect())
    for bookie in cluster.bookies:
        bookie.requests.clear()
    tail = reader.tail(2, poll_timeout=0)
    waiting = asyncio.ensure_future(anext(tail))
    polls = []
    await eventually(
        lambda: polls.extend(request for bookie in cluster.bookies for request in bookie.requests) or len(polls) >= 2
    )
    assert {request.timeout_ms for request in polls if isinstance(request, ReadRequest)} == {100}
    for bookie in ledger.replicas(3):
        bookie.put(package(ledger.id, 3))
    assert (await waiting).id == 2
    await tail.aclose()
    await reader.close()
    for timeout in (-1.0, float("nan")):
        with pytest.raises(IncorrectParameterError, match="poll_timeout"):
            await anext(reader.tail(poll_timeout=timeout))


async def test_a_tail_ends_when_the_ledger_is_deleted(four: FakeCluster) -> None:
    """Bookies say that they have no such ledger for one that is not written yet, too."""
    ledger = await make_ledger(four, 5, closed=False, quorums=(3, 3, 2))
    client = await four.connect()
    async with await ledger.open(client) as reader:
        tail = reader.tail(0, poll_timeout=0.1)
        known = reader.last_add_confirmed
        assert [(await anext(tail)).entry_id for _ in range(known + 1)] == list(range(known + 1))
        waiting = asyncio.create_task(anext(tail))  # type: ignore[arg-type]
        await client.delete_ledger(ledger.id)
        with pytest.raises(NoSuchLedgerOnMetadataError):
            await waiting
        await tail.aclose()
