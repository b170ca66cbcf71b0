"""What waits for a connection that is being made."""

from __future__ import annotations

import asyncio

from bookkeeper.client.wire.attempt import Attempt


async def forever() -> None:
    await asyncio.Event().wait()


async def test_what_waits_is_taken_once_and_in_order() -> None:
    task = asyncio.ensure_future(forever())
    attempt = Attempt(task, 5)
    for frames in (b"a", b"bc", b"d"):
        attempt.hold(frames)
    assert attempt.waiting == 4
    assert attempt.take() == b"abcd"
    assert attempt.waiting == 0
    assert attempt.take() == b""
    attempt.give_up()


async def test_an_attempt_is_overdue_from_its_deadline_on() -> None:
    task = asyncio.ensure_future(forever())
    attempt = Attempt(task, 5)
    assert [attempt.overdue(tick) for tick in (4, 5, 6)] == [False, True, True]
    attempt.give_up()


async def test_giving_up_ends_the_task_and_forgets_what_waits() -> None:
    task = asyncio.ensure_future(forever())
    attempt = Attempt(task, 5)
    attempt.hold(b"a")
    attempt.give_up()
    await asyncio.wait([task])
    assert task.cancelled()
    assert (attempt.waiting, attempt.take()) == (0, b"")
