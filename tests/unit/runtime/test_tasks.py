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


@pytest.mark.parametrize("caught", [False, True])
async def test_cancellation_passes_though_a_clean_up_fails(caught: bool) -> None:
    """What it raises takes the place of the cancellation; with it the loop went on for ever, and its owner waited."""

    async def step() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            raise ConnectionError("the lock cannot be released")

    async def for_ever() -> None:
        while True:
            with guarded("the watch"):
                try:
                    await step()
                except ConnectionError:
                    if not caught:
                        raise

    task = asyncio.ensure_future(for_ever())
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=10)
    assert done
    assert task.cancelled()


async def test_a_time_out_in_a_step_is_no_cancellation() -> None:
    with guarded("the watch"):
        async with asyncio.timeout(0):
            await asyncio.sleep(1000)


def test_steps_without_a_loop() -> None:
    with guarded("a callback"):
        raise KeyError("nobody expects this")
