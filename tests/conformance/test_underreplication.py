"""Marks, locks and switches of re-replication (spec metadata §13: 57 to 68)."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from bookkeeper.errors import AlreadyDisabled, AlreadyEnabled, LockHeld, NotInitialized
from bookkeeper.metadata.api import CheckKind
from tests.support.metadata_stores import StoreUnderTest
from tests.support.waiting import until

SHORT_MS = 1000

# --- marks ---


async def test_marks_merge_and_keep_their_order(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    assert await p.underreplication.info(5) is None
    await p.underreplication.mark(5, ["b:1"])
    first = await q.underreplication.info(5)
    assert first is not None
    assert (first.ledger_id, first.replicas) == (5, ("b:1",))
    assert first.ctime > 0
    await q.underreplication.mark(5, ["a:1", "b:1"])
    second = await p.underreplication.info(5)
    assert second is not None
    assert second.replicas == ("b:1", "a:1")
    assert second.ctime >= first.ctime
    await p.underreplication.mark(5, ["a:1"])
    assert await p.underreplication.info(5) == second


async def test_concurrent_marks_are_all_kept(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    names = [f"b{n}:1" for n in range(20)]
    await asyncio.gather(*((p, q)[n % 2].underreplication.mark(5, [name]) for n, name in enumerate(names)))
    found = await p.underreplication.info(5)
    assert found is not None
    assert sorted(found.replicas) == sorted(names)


async def test_marks_are_listed_by_predicate(store: StoreUnderTest) -> None:
    p = await store.open()
    ids = [1, 1234567, 5000000000, 81985529216486895]
    for ledger_id in ids:
        await p.underreplication.mark(ledger_id, ["a:1" if ledger_id % 2 else "b:1"])
    assert sorted([mark.ledger_id async for mark in p.underreplication.list()]) == ids
    odd = [mark.ledger_id async for mark in p.underreplication.list(lambda replicas: "a:1" in replicas)]
    assert sorted(odd) == [ledger_id for ledger_id in ids if ledger_id % 2]


# --- locks ---


async def test_each_marked_ledger_is_given_to_one_only(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    for ledger_id in range(6):
        await p.underreplication.mark(ledger_id, ["a:1"])
    locks = []
    for driver in (p, q) * 3:
        lock = await driver.underreplication.poll()
        assert lock is not None
        locks.append(lock)
    assert sorted(lock.ledger_id for lock in locks) == list(range(6))
    for driver in (p, q):
        assert await driver.underreplication.poll() is None
    await locks[2].release()
    await locks[2].release()
    again = await q.underreplication.poll()
    assert again is not None
    assert again.ledger_id == locks[2].ledger_id


async def test_get_waits_for_marks_and_released_locks(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    waiting = asyncio.create_task(p.underreplication.get())
    await asyncio.wait([waiting], timeout=0.1)
    assert not waiting.done()
    await q.underreplication.mark(5, ["a:1"])
    async with asyncio.timeout(30):
        lock = await waiting
    assert lock.ledger_id == 5
    waiting = asyncio.create_task(q.underreplication.get())
    await asyncio.wait([waiting], timeout=0.1)
    assert not waiting.done()
    await lock.release()
    async with asyncio.timeout(30):
        assert (await waiting).ledger_id == 5


async def test_get_waits_while_re_replication_is_disabled(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    await q.underreplication.disable()
    await q.underreplication.mark(5, ["a:1"])
    getting = asyncio.create_task(p.underreplication.get())
    waiting = asyncio.create_task(p.underreplication.wait_enabled())
    await asyncio.wait([getting, waiting], timeout=0.1)
    assert not getting.done()
    assert not waiting.done()
    await q.underreplication.enable()
    async with asyncio.timeout(30):
        assert (await getting).ledger_id == 5
        await waiting
    await p.underreplication.wait_enabled()
    await q.underreplication.disable()  # again, when p has seen that it was enabled
    async with asyncio.timeout(30):
        while (again := asyncio.create_task(p.underreplication.wait_enabled())) in (
            await asyncio.wait([again], timeout=0.1)
        )[0]:
            pass
        await q.underreplication.enable()
        await again


async def test_a_finished_ledger_loses_its_mark_and_lock(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    await p.underreplication.mark(5, ["a:1"])
    lock = await p.underreplication.get()
    assert await q.underreplication.is_locked(5)
    assert await lock.mark_replicated()
    assert await q.underreplication.info(5) is None
    assert not await q.underreplication.is_locked(5)


async def test_a_mark_that_changed_while_locked_stays(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    await p.underreplication.mark(5, ["a:1"])
    lock = await p.underreplication.get()
    await q.underreplication.mark(5, ["b:1"])
    assert not await lock.mark_replicated()
    found = await q.underreplication.info(5)
    assert found is not None
    assert found.replicas == ("a:1", "b:1")
    assert not await q.underreplication.is_locked(5)


async def test_a_lock_taken_directly_leaves_the_mark(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    await p.underreplication.mark(5, ["a:1"])
    lock = await p.underreplication.acquire(5)
    for driver in (p, q):
        with pytest.raises(LockHeld):
            await driver.underreplication.acquire(5)
        assert await driver.underreplication.poll() is None
    assert not await lock.mark_replicated()
    assert await q.underreplication.info(5) is not None
    assert not await q.underreplication.is_locked(5)
    unmarked = await q.underreplication.acquire(6)
    assert await p.underreplication.is_locked(6)
    await unmarked.release()


async def test_a_lock_taken_directly_may_take_the_mark_along(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    await p.underreplication.mark(5, ["a:1"])
    lock = await p.underreplication.acquire(5, with_mark=True)
    await q.underreplication.mark(5, ["b:1"])  # it is marked anew while it is repaired
    assert not await lock.mark_replicated()
    assert await q.underreplication.info(5) is not None
    assert not await q.underreplication.is_locked(5)
    lock = await p.underreplication.acquire(5, with_mark=True)
    assert await lock.mark_replicated()
    assert await q.underreplication.info(5) is None
    lock = await p.underreplication.acquire(6, with_mark=True)
    await q.underreplication.mark(6, ["a:1"])
    assert not await lock.mark_replicated()
    assert await q.underreplication.info(6) is not None


async def test_the_lock_of_a_killed_holder_becomes_free(store: StoreUnderTest) -> None:
    p, q = await store.open(session_timeout_ms=SHORT_MS), await store.open()
    await p.underreplication.mark(5, ["a:1"])
    await p.underreplication.get()
    await store.kill(p)
    async with asyncio.timeout(30):
        assert (await q.underreplication.get()).ledger_id == 5


async def test_the_holder_is_told_when_its_session_is_lost(store: StoreUnderTest) -> None:
    """MI-5."""
    p, q = await store.open(), await store.open()
    await p.underreplication.mark(5, ["a:1"])
    lock = await p.underreplication.get()
    await store.expire(p)
    async with asyncio.timeout(30):
        await lock.lost.wait()
    other = await q.underreplication.get()
    assert not await lock.mark_replicated()
    await lock.release()
    assert await p.underreplication.is_locked(5)
    assert await p.underreplication.info(5) is not None
    assert await other.mark_replicated()


async def test_the_owner_of_a_lock_can_be_read(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    assert await q.underreplication.lock_owner(5) is None
    lock = await p.underreplication.acquire(5)
    assert await q.underreplication.lock_owner(5)
    await lock.release()
    assert await q.underreplication.lock_owner(5) is None


# --- switches and values ---


async def test_switching_to_the_state_it_is_in_is_refused(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    assert await p.underreplication.is_enabled()
    await p.underreplication.wait_enabled()
    with pytest.raises(AlreadyEnabled):
        await p.underreplication.enable()
    await p.underreplication.disable()
    assert not await q.underreplication.is_enabled()
    with pytest.raises(AlreadyDisabled):
        await q.underreplication.disable()
    await q.underreplication.enable()
    assert await p.underreplication.is_enabled()


async def test_the_delay_is_initialised_once_and_every_set_is_told(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    with pytest.raises(NotInitialized):
        await p.underreplication.get_lost_bookie_recovery_delay()
    await p.underreplication.mark(1, ["a:1"])
    assert await p.underreplication.init_lost_bookie_recovery_delay(3)
    assert not await q.underreplication.init_lost_bookie_recovery_delay(4)
    assert await q.underreplication.get_lost_bookie_recovery_delay() == 3
    async with aclosing(q.underreplication.watch_lost_bookie_recovery_delay()) as watch, asyncio.timeout(30):
        assert await anext(watch) == 3
        await p.underreplication.set_lost_bookie_recovery_delay(3)
        assert await anext(watch) == 3
        await p.underreplication.set_lost_bookie_recovery_delay(0)
        assert await anext(watch) == 0


async def test_check_times_are_kept_apart(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    for n, kind in enumerate(CheckKind):
        assert await p.underreplication.get_check_time(kind) == -1
        await p.underreplication.set_check_time(kind, 1700000000123 + n)
    for n, kind in enumerate(CheckKind):
        assert await q.underreplication.get_check_time(kind) == 1700000000123 + n
    await q.underreplication.set_check_time(CheckKind.REPLICAS, 5)
    assert await p.underreplication.get_check_time(CheckKind.REPLICAS) == 5


async def test_a_poll_without_an_answer_leaves_no_lock_without_owner(store: StoreUnderTest) -> None:
    p, q = await store.open(), await store.open()
    for ledger_id in range(3):
        await p.underreplication.mark(ledger_id, ["a:1"])
    store.lose_answer(p, "underreplication.poll")
    locks = [await until(p.underreplication.poll) for _ in range(3)]
    assert sorted(lock.ledger_id for lock in locks if lock is not None) == [0, 1, 2]
    assert await q.underreplication.poll() is None


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8])
async def test_a_cancelled_poll_leaves_no_lock_behind(store: StoreUnderTest, turns: int) -> None:
    p, q = await store.open(), await store.open()
    await p.underreplication.mark(5, ["a:1"])
    polling = asyncio.create_task(p.underreplication.poll())
    for _ in range(turns):
        await asyncio.sleep(0)
    polling.cancel()
    (outcome,) = await asyncio.gather(polling, return_exceptions=True)
    if not isinstance(outcome, BaseException) and outcome is not None:
        await outcome.release()
    lock = await until(q.underreplication.poll)
    assert lock is not None
    assert lock.ledger_id == 5
