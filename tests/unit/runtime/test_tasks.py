"""Steps of work that goes on for ever (runtime.tasks)."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.runtime import guarded


async def test_an_error_ends_one_step_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    done = []
    for step in range(3):
        with guarded("the sweep"):
            await asyncio.sleep(0)
            if step == 1:
                raise KeyError("nobody expects this")
            done.append(step)
    assert done == [0, 2]
    (record,) = caplog.records
    assert "the sweep" in record.message
    assert record.exc_info is not None


async def test_cancellation_is_no_error_and_passes() -> None:
    async def for_ever() -> None:
        while True:
            with guarded("the watch"):
                await asyncio.sleep(1000)

    task = asyncio.ensure_future(for_ever())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
