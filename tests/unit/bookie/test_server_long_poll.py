"""Long polls over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bookkeeper.bookie.bookie import Bookie
from bookkeeper.bookie.ledgers import BookieLedger
from bookkeeper.bookie.requests.long_poll import ALWAYS_ALLOWED, ENDED_AT_ONCE, SPARE_HEAP, LongPolls
from bookkeeper.config import ServerConfiguration
from bookkeeper.protocol import messages as m
from bookkeeper.protocol import v3
from bookkeeper.protocol.messages import Flags, Status
from bookkeeper.runtime.real import RealRuntime
from tests.support.bookie import DIGEST, KEY, RawClient, add, entry, fence, read, running_bookie

LONG = 30_000


def poll(previous_lac: int, timeout_ms: int | None = LONG, **changes: Any) -> m.ReadRequest:
    values: dict[str, Any] = {"flags": Flags.ENTRY_PIGGYBACK, **changes}
    return m.ReadRequest(1, values.pop("entry_id", -1), previous_lac=previous_lac, timeout_ms=timeout_ms, **values)


async def waiting(bookie: Bookie, count: int) -> None:
    """Until so many polls wait."""
    async with asyncio.timeout(20):
        while bookie.waiting_polls != count:
            await asyncio.sleep(0.001)


async def test_a_poll_behind_the_lac_is_answered_at_once(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        for i in range(3):
            await client.v2(add(1, i))
        answer = await client.v3(poll(0, txn_id=4))
        assert (answer.status, answer.entry_id, answer.entry) == (Status.EOK, 1, entry(1, 1))
        assert (answer.max_lac, answer.lac_update_timestamp, answer.txn_id) == (1, None, 4)


async def test_the_lac_is_loaded_before_deciding_to_wait(tmp_path: Path) -> None:
    """RI-8, gap G8."""
    runtime = RealRuntime()
    async with running_bookie(tmp_path, runtime) as bookie, RawClient.to(bookie) as client:
        for i in range(3):
            await client.v2(add(1, i))
    async with running_bookie(tmp_path, runtime) as bookie, RawClient.to(bookie) as client:
        assert (await client.v3(poll(0))).entry == entry(1, 1)


async def test_a_poll_is_woken_by_the_add_that_passes_it_and_not_before(tmp_path: Path) -> None:
    """RI-8, gap G8."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client, RawClient.to(bookie) as writer:
        await writer.v2(add(1, 0))
        answer = asyncio.ensure_future(client.v3(poll(1)))
        await waiting(bookie, 1)
        await writer.v2(add(1, 1))
        await writer.v2(add(1, 2))
        assert bookie.waiting_polls == 1, "the LAC moved, but not past the poll"
        await writer.v2(add(1, 3))
        got = await answer
        assert (got.entry_id, got.entry, got.max_lac) == (2, entry(1, 2), 2)
        assert got.lac_update_timestamp is not None


async def test_a_poll_that_times_out_succeeds_without_an_entry(tmp_path: Path) -> None:
    """RI-8."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        for i in range(2):
            await client.v2(add(1, i))
        for timeout in (20, 0, -5, None):
            answer = await client.v3(poll(3, timeout))
            assert (answer.status, answer.entry_id, answer.entry, answer.max_lac) == (Status.EOK, -1, None, 0)
        assert bookie.waiting_polls == 0


async def test_an_entry_that_another_bookie_has_is_left_out(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        await client.v2(add(1, 5))
        answer = await client.v3(poll(1))
        assert (answer.status, answer.entry_id, answer.entry, answer.max_lac) == (Status.EOK, -1, None, 4)


async def test_without_piggyback_it_is_a_plain_read_in_the_end(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        for i in range(3):
            await client.v2(add(1, i))
        answer = await client.v3(poll(0, flags=0, entry_id=2))
        assert (answer.entry_id, answer.entry, answer.max_lac) == (2, entry(1, 2), 1)
        answer = await client.v3(poll(0, None, flags=0))
        assert (answer.entry_id, answer.entry) == (-1, entry(1, 2))


async def test_wrong_polls(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        assert (await client.v3(poll(0))).status == Status.ENOLEDGER
        await client.v2(add(1, 0))
        assert (await client.v3(poll(-1, 1, entry_id=0))).status == Status.EBADREQ
        piggyback = await client.v3(read(1, -1, flags=Flags.ENTRY_PIGGYBACK))
        assert (piggyback.status, piggyback.entry) == (Status.EOK, entry(1, 0))


async def test_a_ledger_without_entries_ends_in_no_entry(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        await client.v2(fence(1))
        assert (await client.v3(poll(-1, 10))).status == Status.ENOENTRY


async def test_fencing_and_deletion_end_all_polls_without_a_timestamp(tmp_path: Path) -> None:
    """I9, FX-12."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client, RawClient.to(bookie) as other:
        await other.v2(add(1, 0))
        answer = asyncio.ensure_future(client.v3(poll(7)))
        await waiting(bookie, 1)
        await other.v2(fence(1))
        got = await answer
        assert (got.status, got.entry_id, got.lac_update_timestamp) == (Status.EOK, -1, None)
        answer = asyncio.ensure_future(client.v3(poll(7)))
        await waiting(bookie, 1)
        bookie.storage.delete_ledger(1)
        assert (await answer).status == Status.ENOLEDGER
        assert (await other.v2(add(1, 1))).status == Status.EFENCED, "fenced and deleted is remembered"
        assert (await other.v2(fence(1))).status == Status.ENOLEDGER
        assert (await other.v3(m.WriteLacRequest(1, 0, KEY, DIGEST.package_lac(1, 0)))).status == Status.ENOLEDGER


async def test_an_explicit_lac_wakes_polls_that_it_passes(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client, RawClient.to(bookie) as writer:
        for i in range(4):
            await writer.v2(add(1, i, lac=-1))
        answer = asyncio.ensure_future(client.v3(poll(1)))
        await waiting(bookie, 1)
        await writer.v3(m.WriteLacRequest(1, 1, KEY, DIGEST.package_lac(1, 1)))
        assert bookie.waiting_polls == 1
        await writer.v3(m.WriteLacRequest(1, 3, KEY, DIGEST.package_lac(1, 3)))
        got = await answer
        assert (got.entry_id, got.max_lac) == (2, 3)
        assert got.lac_update_timestamp is not None


async def test_a_poll_ends_with_its_connection(tmp_path: Path) -> None:
    """Gap G18."""
    async with running_bookie(tmp_path, maxReadsInProgressLimit=1) as bookie, RawClient.to(bookie) as other:
        await other.v2(add(1, 0))
        async with RawClient.to(bookie) as client:
            client.send(v3.encode_request(poll(7)))
            await waiting(bookie, 1)
        await waiting(bookie, 0)
        assert (await other.v2(read(1, -1))).status == Status.EOK, "its permit came back"


async def test_the_number_of_polls_of_a_connection_is_bounded(tmp_path: Path) -> None:
    """SEC-23."""
    async with running_bookie(tmp_path, maxLongPollsPerConnection=3) as bookie, RawClient.to(bookie) as client:
        await client.v2(add(1, 0))
        client.send(b"".join(v3.encode_request(poll(7, txn_id=i)) for i in range(4)))
        answer: Any = v3.decode_response(await client.body())
        assert (answer.status, answer.txn_id) == (Status.ETOOMANYREQUESTS, 3)
        assert bookie.waiting_polls == 3


# --- many polls: the logic alone ---


def long_polls(**limits: int) -> tuple[LongPolls, Callable[[], BookieLedger]]:
    def handle() -> BookieLedger:
        return BookieLedger(1, fenced=False, lac_known=True)

    return LongPolls(RealRuntime(), ServerConfiguration(**limits)), handle  # type: ignore[arg-type]


async def test_a_move_of_the_lac_looks_at_no_poll_that_it_does_not_pass() -> None:
    polls, new_handle = long_polls()
    handle = new_handle()
    compared = 0

    class Watched(int):
        def __lt__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return int(self) < other  # type: ignore[operator]

    ended: list[int] = []
    for previous in range(1000):
        polls.wait(handle, Watched(1000 + previous), 30, lambda _, previous=previous: ended.append(previous))  # type: ignore[misc]
    compared = 0
    for lac in range(1000):
        polls.due(handle, lac)
    assert compared == 1000
    polls.due(handle, 1003)
    assert ended == [0, 1, 2]
    polls.due(handle, None)
    while len(ended) < 1000:
        await asyncio.sleep(0)
    assert (polls.waiting, handle.polls) == (0, None)
    polls.close()


async def test_polls_that_end_together_are_answered_over_several_turns() -> None:
    polls, new_handle = long_polls()
    handle = new_handle()
    ended: list[int | None] = []
    for _ in range(3 * ENDED_AT_ONCE):
        polls.wait(handle, 0, 30, ended.append)
    polls.due(handle, 1)
    assert len(ended) == ENDED_AT_ONCE
    assert polls.waiting == 0
    await asyncio.sleep(0)
    assert len(ended) == 2 * ENDED_AT_ONCE
    polls.wait(handle, 1, 30, ended.append)
    polls.due(handle, 2)
    assert len(ended) == 2 * ENDED_AT_ONCE, "not before those that were first"
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(ended) == 3 * ENDED_AT_ONCE + 1
    polls.close()


async def test_polls_that_were_cancelled_leave_the_heaps() -> None:
    polls, new_handle = long_polls(maxLongPolls=100_000)
    handle = new_handle()
    waiting = [polls.wait(handle, 0, 30, lambda _: None) for _ in range(10 * SPARE_HEAP)]
    for poll in waiting[:-1]:
        polls.cancel(poll)
    polls.cancel(waiting[0])
    assert polls.waiting == 1
    assert handle.polls is not None
    assert max(len(polls._deadlines._items), len(handle.polls._items)) <= SPARE_HEAP + 2
    polls.cancel(waiting[-1])
    assert handle.polls is None
    polls.close()


async def test_who_has_few_polls_may_have_one_more_when_others_have_all_there_are() -> None:
    """SEC-23."""
    polls, new_handle = long_polls(maxLongPolls=1000, maxLongPollsPerLedger=400, maxLongPollsPerConnection=300)
    handle, other = new_handle(), new_handle()
    flood = 0
    while polls.may_wait(handle, flood):
        polls.wait(handle, 0, 30, lambda _: None)
        flood += 1
    assert flood == 80, "a quarter of what it leaves on this ledger"
    assert polls.may_wait(handle, 15)
    assert polls.may_wait(other, 0)
    for _ in range(1000):
        polls.wait(other, 0, 30, lambda _: None)
    assert polls.may_wait(other, ALWAYS_ALLOWED - 1)
    assert not polls.may_wait(other, ALWAYS_ALLOWED)
    assert not polls.may_wait(new_handle(), 300)
    polls.close()


async def test_polls_end_at_their_deadlines_and_in_order() -> None:
    polls, new_handle = long_polls()
    handle = new_handle()
    ended: list[int] = []
    for number, timeout in enumerate((0.03, 0.01, 0.02)):
        polls.wait(handle, 0, timeout, lambda _, number=number: ended.append(number))  # type: ignore[misc]
    async with asyncio.timeout(20):
        while len(ended) < 3:
            await asyncio.sleep(0.001)
    assert ended == [1, 2, 0]
    assert handle.polls is None
    polls.close()


async def test_polls_that_are_answered_later_are_forgotten_with_their_connection(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as writer:
        await writer.v2(add(1, 0))
        async with RawClient.to(bookie) as client:
            client.send(b"".join(v3.encode_request(poll(0, txn_id=n)) for n in range(600)))
            await waiting(bookie, 600)
            (connection,) = [c for c in bookie.connections() if c.polls]
            await writer.v2(add(1, 1))
            await writer.v2(add(1, 2))
            connection.abort()
        async with asyncio.timeout(20):
            while bookie.service.reads.permits.used:
                await asyncio.sleep(0.001)
        assert (await writer.v2(add(1, 3))).status == Status.EOK
