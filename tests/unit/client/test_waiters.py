"""Callers that wait for all entries up to an id are told once, and those that were cancelled are passed over."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.client.adds.waiters import Flushes, fail
from bookkeeper.errors import BKError, LedgerFencedError


async def test_who_waits_is_told_when_all_up_to_its_id_are_confirmed() -> None:
    flushes = Flushes()
    flush = asyncio.ensure_future(flushes.until(1))
    later = asyncio.ensure_future(flushes.until(2))
    await asyncio.sleep(0)
    flushes.confirmed(1)
    await flush
    assert not later.done()
    flushes.confirmed(2)
    await later
    assert not flushes.waiting


async def test_a_failure_tells_everybody_with_an_error_each() -> None:
    flushes = Flushes()
    tasks = [asyncio.ensure_future(flushes.until(4)) for _ in range(2)]
    await asyncio.sleep(0)
    flushes.fail(lambda: LedgerFencedError(entry_id=3))
    errors = []
    for task in tasks:
        with pytest.raises(LedgerFencedError) as caught:
            await task
        errors.append(caught.value)
    assert [error.entry_id for error in errors] == [3, 3]
    assert errors[0] is not errors[1]
    assert not flushes.waiting


async def test_a_cancelled_flush_is_forgotten() -> None:
    flushes = Flushes()
    flush = asyncio.ensure_future(flushes.until(7))
    await asyncio.sleep(0)
    assert len(flushes.waiting) == 1
    flush.cancel()
    await asyncio.wait([flush])
    assert not flushes.waiting


async def test_a_caller_that_waits_no_more_is_passed_over() -> None:
    error: BKError = LedgerFencedError()
    waits, cancelled = (asyncio.get_running_loop().create_future() for _ in range(2))
    cancelled.cancel()
    for future in (waits, cancelled):
        fail(future, error)
    assert waits.exception() is error
    assert cancelled.cancelled()
