"""Learning the last add confirmed, long polls, following a ledger (spec client §9.8 to §9.11, §17.3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bookkeeper.client.entry import LedgerEntry
from bookkeeper.client.reader import LedgerReader
from bookkeeper.errors import (
    BookieUnavailableError,
    ClientClosedError,
    LedgerRecoveryError,
    NoSuchLedgerOnMetadataError,
    ReadError,
    RequestTimeoutError,
    UnauthorizedError,
)
from bookkeeper.protocol.messages import ReadLacRequest, ReadRequest, Request, Status
from tests.support.fake_bookie import CLOSE, HOLD, SILENT, FakeCluster, fake_cluster

from .support import DIGEST, PROTOCOLS, eventually, make_ledger, package, payload


def is_long_poll(request: Request) -> bool:
    return isinstance(request, ReadRequest) and request.previous_lac is not None


@PROTOCOLS
async def test_the_lac_lags_one_entry_behind_until_the_writer_says_more(cluster: FakeCluster, protocol: str) -> None:
    ledger = await make_ledger(cluster, 10, closed=False)
    reader = await ledger.open(await cluster.connect(protocol=protocol))
    assert reader.last_add_confirmed == 8
    assert await reader.read_last_add_confirmed() == 8
    assert await reader.try_read_last_add_confirmed() == 8
    for bookie in cluster.bookies:
        bookie.ledger(ledger.id).explicit_lac = DIGEST.package_lac(ledger.id, 9)
    assert await reader.try_read_last_add_confirmed() == 8
    assert await reader.read_explicit_last_add_confirmed() == 9
    assert await reader.read_last_add_confirmed() == 9


async def test_a_closed_ledger_knows_its_lac_without_asking(cluster: FakeCluster) -> None:
    """SEC-33: nobody can move it."""
    ledger = await make_ledger(cluster, 10)
    reader = await ledger.open(await cluster.connect())
    assert await reader.read_last_add_confirmed() == 9
    assert await reader.try_read_last_add_confirmed() == 9
    assert await reader.read_explicit_last_add_confirmed() == 9
    assert not any(bookie.requests for bookie in cluster.bookies)


async def test_one_denial_can_cover_an_ensemble(cluster: FakeCluster) -> None:
    a, b, _ = cluster.bookies
    ledger = await make_ledger(cluster, 0, closed=False, quorums=(2, 2, 2), ensembles={0: [a, b]})
    await b.stop()
    reader = await ledger.open(await cluster.connect())
    assert reader.last_add_confirmed == -1
    assert await reader.read_last_add_confirmed() == -1


@PROTOCOLS
async def test_too_few_answers_say_nothing(cluster: FakeCluster, protocol: str) -> None:
    ledger = await make_ledger(cluster, 10, closed=False)
    reader = await ledger.open(await cluster.connect(protocol=protocol))
    await ledger.bookies[0].stop()
    assert await reader.read_last_add_confirmed() == 8
    await ledger.bookies[2].stop()
    with pytest.raises(BookieUnavailableError):
        await reader.read_last_add_confirmed()
    assert await reader.try_read_last_add_confirmed() == 8
    await ledger.bookies[1].stop()
    with pytest.raises(LedgerRecoveryError):
        await reader.try_read_last_add_confirmed()


async def test_damaged_answers_do_not_count(cluster: FakeCluster) -> None:
    """JH-13, SEC-33."""
    ledger = await make_ledger(cluster, 10, closed=False)
    reader = await ledger.open(await cluster.connect())
    for bookie in ledger.bookies[:2]:
        ledger.corrupt(bookie, 9)
    with pytest.raises(Exception, match="digest"):
        await reader.read_last_add_confirmed()


async def test_a_lac_that_nobody_signed_moves_nothing(cluster: FakeCluster) -> None:
    """SEC-29, SEC-33."""
    ledger = await make_ledger(cluster, 10, closed=False)
    reader = await ledger.open(await cluster.connect())
    for body in (b"garbage", bytes(16), DIGEST.package_lac(ledger.id, 1 << 40)[:-1] + b"\0"):
        ledger.bookies[0].ledger(ledger.id).explicit_lac = body
        assert await reader.read_explicit_last_add_confirmed() == 8
    assert reader.last_add_confirmed == 8


async def test_unauthorized_ends_at_once(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 10, closed=False)
    reader = await ledger.open(await cluster.connect())
    ledger.bookies[0].on_request = lambda request: Status.EUA
    for bookie in ledger.bookies[1:]:
        bookie.on_request = lambda request: SILENT
    with pytest.raises(UnauthorizedError):
        await reader.read_last_add_confirmed()
    with pytest.raises(UnauthorizedError):
        await reader.try_read_last_add_confirmed()
    with pytest.raises(UnauthorizedError):
        await reader.read_last_add_confirmed_and_entry(9, poll_timeout=1)


async def test_late_answers_raise_the_lac(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 10, closed=False)
    reader = await ledger.open(await cluster.connect())
    late = ledger.bookies[2]
    late.put(package(ledger.id, 10))
    late.on_request = lambda request: HOLD
    assert await reader.read_last_add_confirmed() == 8
    late.release()
    await eventually(lambda: reader.last_add_confirmed == 9)


async def test_try_read_takes_the_first_news_and_later_answers_still_count(cluster: FakeCluster) -> None:
    """Scenario 44."""
    ledger = await make_ledger(cluster, 10, closed=False)
    reader = await ledger.open(await cluster.connect())
    ledger.bookies[0].put(package(ledger.id, 10))
    late = ledger.bookies[2]
    late.put(package(ledger.id, 11))
    late.on_request = lambda request: HOLD
    await ledger.bookies[1].stop()
    assert await reader.try_read_last_add_confirmed() == 9
    late.release()
    await eventually(lambda: reader.last_add_confirmed == 10)


async def test_v3_reads_carry_the_lac(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 5, closed=False)
    reader = await ledger.open(await cluster.connect(protocol="v3"))
    assert reader.last_add_confirmed == 3
    ledger.put([5, 6])
    with pytest.raises(ReadError):
        await reader.read_entry(4)
    await reader.read(0, 3)
    assert reader.last_add_confirmed == 5


async def test_opening_without_an_answer_is_an_error(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 5, closed=False)
    client = await cluster.connect(readEntryTimeoutSec=0.2)
    for bookie in cluster.bookies:
        bookie.on_request = lambda request: SILENT
    with pytest.raises(RequestTimeoutError):
        await ledger.open(client)
    for bookie in cluster.bookies:
        bookie.on_request = lambda request: CLOSE
    with pytest.raises(ReadError):
        await ledger.open(client)


# --- long polls ---


async def open_at_8(cluster: FakeCluster, **settings: object) -> tuple[LedgerReader, int]:
    ledger = await make_ledger(cluster, 10, closed=False)
    return await ledger.open(await cluster.connect(**settings)), ledger.id


@pytest.mark.parametrize("parallel", [False, True])
@PROTOCOLS
async def test_a_long_poll_ends_with_the_entry(cluster: FakeCluster, protocol: str, parallel: bool) -> None:
    reader, ledger_id = await open_at_8(cluster, protocol=protocol)
    polling = asyncio.create_task(reader.read_last_add_confirmed_and_entry(9, poll_timeout=60, parallel=parallel))
    await eventually(lambda: any(is_long_poll(r) for bookie in cluster.bookies for r in bookie.requests))
    for bookie in cluster.bookies:
        bookie.put(package(ledger_id, 10))
        bookie.ledger(ledger_id).wake()
    answer = await polling
    assert answer.last_add_confirmed == 9
    assert answer.entry is not None
    assert answer.entry.data == payload(9)
    assert reader.last_add_confirmed == 9


@PROTOCOLS
async def test_long_polls_of_a_striped_ledger_end_with_each_entry(cluster: FakeCluster, protocol: str) -> None:
    """FX-18."""
    ledger = await make_ledger(cluster, 10, closed=False, quorums=(3, 2, 2))
    reader = await ledger.open(await cluster.connect(protocol=protocol))
    for entry_id in range(9, 15):
        polling = asyncio.create_task(reader.read_last_add_confirmed_and_entry(entry_id, poll_timeout=60))
        await eventually(lambda: any(is_long_poll(r) for bookie in cluster.bookies for r in bookie.requests))
        for bookie in ledger.replicas(entry_id + 1):
            bookie.put(package(ledger.id, entry_id + 1))
        for bookie in cluster.bookies:
            bookie.ledger(ledger.id).wake()
        assert (await polling).last_add_confirmed == entry_id
        assert (await reader.read_entry(entry_id)).data == payload(entry_id)
        for bookie in cluster.bookies:
            bookie.requests.clear()


async def test_a_long_poll_for_what_is_confirmed_is_a_read(cluster: FakeCluster) -> None:
    reader, _ = await open_at_8(cluster)
    answer = await reader.read_last_add_confirmed_and_entry(5, poll_timeout=60)
    assert answer.last_add_confirmed == 8
    assert answer.entry is not None
    assert answer.entry.id == 5
    closed = await make_ledger(cluster, 3)
    reader = await closed.open(await cluster.connect())
    assert await reader.read_last_add_confirmed_and_entry(3, poll_timeout=60) == (2, None)


@pytest.mark.parametrize("parallel", [False, True])
async def test_a_long_poll_without_news_ends_empty(cluster: FakeCluster, parallel: bool) -> None:
    reader, _ = await open_at_8(cluster)
    answer = await reader.read_last_add_confirmed_and_entry(9, poll_timeout=0.01, parallel=parallel)
    assert answer == (8, None)


async def test_news_of_the_lac_end_a_long_poll_even_without_the_entry(cluster: FakeCluster) -> None:
    reader, ledger_id = await open_at_8(cluster)
    for bookie in cluster.bookies:
        bookie.put(package(ledger_id, 10))
        del bookie.ledger(ledger_id).entries[9]
        bookie.requests.clear()
    assert await reader.read_last_add_confirmed_and_entry(9, poll_timeout=60) == (9, None)
    assert sum(len(bookie.requests) for bookie in cluster.bookies) == 1


async def test_news_that_came_before_the_long_poll_ends_it_and_the_lac_never_falls(cluster: FakeCluster) -> None:
    """Scenario 46: the LAC has moved between the last look at it and the poll."""
    reader, ledger_id = await open_at_8(cluster)
    for bookie in cluster.bookies:
        bookie.put(package(ledger_id, 10))
    answer = await reader.read_last_add_confirmed_and_entry(9, poll_timeout=60)
    assert answer.entry is not None
    assert (answer.last_add_confirmed, answer.entry.id) == (9, 9)
    for bookie in cluster.bookies:  # they forget: what a reader knows it knows
        del bookie.ledger(ledger_id).entries[10]
    assert await reader.read_last_add_confirmed_and_entry(10, poll_timeout=0.01) == (9, None)
    assert await reader.read_last_add_confirmed() == 9
    assert reader.last_add_confirmed == 9


async def test_a_failing_bookie_passes_a_long_poll_on(cluster: FakeCluster) -> None:
    reader, ledger_id = await open_at_8(cluster)
    first = next(b for b in cluster.bookies if b.id == reader.metadata.ensemble_at(9)[9 % 3])
    first.on_request = lambda request: CLOSE
    for bookie in cluster.bookies:
        bookie.put(package(ledger_id, 10))
    answer = await reader.read_last_add_confirmed_and_entry(9, poll_timeout=60)
    assert answer.entry is not None


@pytest.mark.parametrize("parallel", [False, True])
async def test_a_long_poll_that_everybody_refuses_fails(cluster: FakeCluster, parallel: bool) -> None:
    reader, _ = await open_at_8(cluster)
    for bookie in cluster.bookies:
        bookie.on_request = lambda request: CLOSE
    with pytest.raises(BookieUnavailableError):
        await reader.read_last_add_confirmed_and_entry(9, poll_timeout=60, parallel=parallel)


@pytest.mark.parametrize("late", ["answer", "error"])
async def test_a_silent_bookie_is_passed_over_by_speculation(cluster: FakeCluster, late: str) -> None:
    reader, ledger_id = await open_at_8(cluster, firstSpeculativeReadLACTimeout=20)
    first = next(b for b in cluster.bookies if b.id == reader.metadata.ensemble_at(9)[9 % 3])
    first.on_request = lambda request: HOLD
    for bookie in cluster.bookies:
        bookie.put(package(ledger_id, 10))
    answer = await reader.read_last_add_confirmed_and_entry(9, poll_timeout=60)
    assert answer.entry is not None
    first.on_request = None
    if late == "answer":
        first.release()  # comes too late, and is ignored
    else:
        await first.stop()
    assert (await reader.read_entry(9)).data == payload(9)


async def test_a_long_poll_ends_when_the_ledger_is_closed(cluster: FakeCluster) -> None:
    """RI-8."""
    reader, ledger_id = await open_at_8(cluster)
    polling = asyncio.create_task(reader.read_last_add_confirmed_and_entry(9, poll_timeout=60))
    await eventually(lambda: any(is_long_poll(r) for bookie in cluster.bookies for r in bookie.requests))
    stored = await cluster.driver.ledgers.read(ledger_id)
    await cluster.driver.ledgers.write(ledger_id, stored.value.close(9, 77), stored.version)
    assert await polling == (9, None)


async def test_a_long_poll_may_take_longer_than_a_read(cluster: FakeCluster) -> None:
    reader, _ = await open_at_8(cluster, readEntryTimeoutSec=0.2, firstSpeculativeReadLACTimeout=0)
    assert await reader.read_last_add_confirmed_and_entry(9, poll_timeout=0.6) == (8, None)


# --- following ---


@PROTOCOLS
async def test_following_a_ledger_to_its_end(cluster: FakeCluster, protocol: str) -> None:
    client = await cluster.connect(protocol=protocol)
    writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3)
    reader = await client.open_ledger(writer.id)
    seen: list[int] = []

    async def follow() -> None:
        async for entry in reader.tail():
            assert entry.data == payload(entry.id)
            seen.append(entry.id)

    following = asyncio.create_task(follow())
    for i in range(20):
        await writer.append(payload(i))
        if i:
            await eventually(lambda i=i: len(seen) == i)  # type: ignore[misc]
    await writer.close()
    await following
    assert seen == list(range(20))
    assert reader.closed
    assert reader.length == sum(len(payload(i)) for i in range(20))


async def test_following_from_behind_the_end_waits(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3)
    reader = await client.open_ledger(writer.id)

    async def follow() -> list[int]:
        return [entry.id async for entry in reader.tail(5)]

    following = asyncio.create_task(follow())
    for i in range(8):
        await writer.append(payload(i))
    await writer.close()
    assert await following == [5, 6, 7]


async def test_following_a_ledger_that_no_bookie_has_heard_of_yet(cluster: FakeCluster) -> None:
    client = await cluster.connect(tailRetryLimit=1)
    writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3)
    reader = await client.open_ledger(writer.id)
    following = asyncio.create_task(_ids(reader.tail(poll_timeout=0.05)))
    await eventually(lambda: sum(is_long_poll(r) for bookie in cluster.bookies for r in bookie.requests) > 9)
    assert not following.done()
    await writer.append(payload(0))
    await writer.close()
    assert await following == [0]


async def _ids(entries: AsyncIterator[LedgerEntry]) -> list[int]:
    return [entry.id async for entry in entries]


async def test_following_gives_up_after_too_many_failures(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 10, closed=False)
    reader = await ledger.open(await cluster.connect(tailRetryLimit=2))
    for bookie in cluster.bookies:
        await bookie.stop()
    with pytest.raises(BookieUnavailableError):
        async for _ in reader.tail(9):
            pass


async def test_following_ends_with_the_client(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 10, closed=False)
    client = await cluster.connect()
    reader = await ledger.open(client)
    tail = reader.tail(9)
    waiting = asyncio.ensure_future(anext(tail))
    await eventually(lambda: any(is_long_poll(r) for bookie in cluster.bookies for r in bookie.requests))
    await client.close()
    with pytest.raises(ClientClosedError):
        await waiting


# --- metadata ---


async def test_a_reader_of_an_open_ledger_follows_its_metadata(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 10, closed=False)
    reader = await ledger.open(await cluster.connect())
    stored = await cluster.driver.ledgers.read(ledger.id)
    await cluster.driver.ledgers.write(ledger.id, stored.value.close(9, 77), stored.version)
    await eventually(lambda: reader.closed)
    assert (reader.last_add_confirmed, reader.length) == (9, 77)
    await reader.close()
    await reader.close()


async def test_a_reader_of_a_closed_ledger_follows_if_asked(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 10)
    client = await cluster.connect()
    follower = await ledger.open(client, recover=True, keep_update_metadata=True)
    other = await ledger.open(client, recover=True)
    a, b, c = (bookie.id for bookie in cluster.bookies)
    stored = await cluster.driver.ledgers.read(ledger.id)
    await cluster.driver.ledgers.write(ledger.id, stored.value.with_ensemble(0, (b, c, a)), stored.version)
    await eventually(lambda: follower.metadata.ensembles[0] == (b, c, a))
    assert other.metadata.ensembles[0] == (a, b, c)
    assert (await other.refresh_metadata()).ensembles[0] == (b, c, a)
    await cluster.driver.ledgers.remove(ledger.id)
    with pytest.raises(NoSuchLedgerOnMetadataError):
        await other.refresh_metadata()
    assert len(await follower.read(0, 9)) == 10  # what is open stays readable


async def test_a_reader_of_a_deleted_ledger_keeps_what_it_knows(cluster: FakeCluster) -> None:
    """RI-15, scenario 83."""
    ledger = await make_ledger(cluster, 10, closed=False)
    reader = await ledger.open(await cluster.connect())
    known, watch = reader.metadata, reader._watch
    assert watch is not None
    await cluster.driver.ledgers.remove(ledger.id)
    await eventually(watch.done)
    assert watch.exception() is None
    assert reader.metadata is known
    assert len(await reader.read(0, 8)) == 9
    await reader.close()


async def test_where_every_bookie_was_replaced_readers_that_follow_go_on() -> None:
    """Scenario 82, #4613: re-replication has moved a closed ledger, and its old bookies are gone. FX-24."""
    async with fake_cluster(6) as cluster:
        old, new = cluster.bookies[:3], cluster.bookies[3:]
        ledger = await make_ledger(cluster, 10)
        client = await cluster.connect(speculativeReadTimeout=0, readEntryTimeoutSec=1)
        follower = await ledger.open(client, recover=True, keep_update_metadata=True)
        other = await ledger.open(client, recover=True)
        for source, target in zip(old, new, strict=True):
            for entry in source.ledger(ledger.id).entries.values():
                target.put(entry)
        stored = await cluster.driver.ledgers.read(ledger.id)
        members = tuple(bookie.id for bookie in new)
        await cluster.driver.ledgers.write(ledger.id, stored.value.with_ensemble(0, members), stored.version)
        await eventually(lambda: follower.metadata.ensembles[0] == members)
        for bookie in old:
            await bookie.stop()
        assert [entry.data for entry in await follower.read(0, 9)] == [payload(i) for i in range(10)]
        with pytest.raises(BookieUnavailableError):
            await other.read(0, 9)
        reopened = await ledger.open(client, recover=True)
        assert len(await reopened.read(0, 9)) == 10


async def test_lac_requests_go_over_v3_connections(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 10, closed=False)
    await ledger.open(await cluster.connect(protocol="v2"))
    assert not any(bookie.count(ReadLacRequest) for bookie in cluster.bookies)
    await ledger.open(await cluster.connect())
    assert all(bookie.count(ReadLacRequest) == 1 for bookie in cluster.bookies)
