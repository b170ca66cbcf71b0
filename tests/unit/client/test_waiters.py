"""Callers that wait for entries are told once, and those that were cancelled are passed over."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.client.adds.waiters import AddWaiters
from bookkeeper.errors import BKError, LedgerFencedError


def fenced(entry_id: int) -> BKError:
    return LedgerFencedError(entry_id=entry_id)


def future_of(waiters: AddWaiters, entry_id: int) -> asyncio.Future[int]:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    waiters.futures[entry_id] = future
    return future


async def test_confirmed_entries_tell_their_callers_and_nobody_else() -> None:
    waiters = AddWaiters()
    first, second, cancelled = (future_of(waiters, entry_id) for entry_id in (0, 2, 1))
    cancelled.cancel()
    flush = asyncio.ensure_future(waiters.until(1))
    later = asyncio.ensure_future(waiters.until(2))
    await asyncio.sleep(0)
    waiters.confirmed(range(2))
    await flush
    assert first.result() == 0
    assert not second.done()
    assert not later.done()
    waiters.confirmed(range(2, 3))
    await later
    assert second.result() == 2
    assert not len(waiters)


async def test_a_failure_tells_everybody_with_an_error_each() -> None:
    waiters = AddWaiters()
    futures = [future_of(waiters, entry_id) for entry_id in (3, 4)]
    flushes = [asyncio.ensure_future(waiters.until(4)) for _ in range(2)]
    await asyncio.sleep(0)
    waiters.fail([3, 4, 5], 3, fenced)
    errors = [future.exception() for future in futures]
    for flush in flushes:
        with pytest.raises(LedgerFencedError) as caught:
            await flush
        errors.append(caught.value)
    assert [error.entry_id for error in errors if isinstance(error, BKError)] == [3, 4, 3, 3]
    assert len({id(error) for error in errors}) == 4
    assert not len(waiters)


async def test_a_cancelled_flush_is_forgotten() -> None:
    waiters = AddWaiters()
    flush = asyncio.ensure_future(waiters.until(7))
    await asyncio.sleep(0)
    assert len(waiters) == 1
    flush.cancel()
    await asyncio.wait([flush])
    assert not len(waiters)
