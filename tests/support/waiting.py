"""Waiting for a condition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TypeVar

T = TypeVar("T")

LONG_SECONDS = 90.0
"""No condition of the tests takes longer, on any machine."""

PAUSE_SECONDS = 0.05
TURN_SECONDS = 0.001


def wait_until(condition: Callable[[], object], what: str, seconds: float = LONG_SECONDS) -> None:
    """Poll until `condition()` is true, in a thread that may block. Raises `TimeoutError`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds:g} s still not: {what}")
        time.sleep(PAUSE_SECONDS)


async def until(
    condition: Callable[[], T | Awaitable[T]],
    what: str = "the condition",
    seconds: float = LONG_SECONDS,
    *,
    pause: float = TURN_SECONDS,
) -> T:
    """Let the loop turn (and virtual time pass) until `condition()`, plain or a coroutine function, is true; its value.

    `pause`: longer where to ask costs those that are waited for. Raises `TimeoutError`.
    """
    try:
        async with asyncio.timeout(seconds):
            while True:
                value = condition()
                if isawaitable(value):
                    value = await value
                if value:
                    return value  # type: ignore[return-value]
                await asyncio.sleep(pause)
    except TimeoutError:
        raise TimeoutError(f"after {seconds:g} s still not: {what}") from None


async def loop_turns(count: int = 10) -> None:
    """Let the loop turn so many times: for what needs no time, only its turn."""
    for _ in range(count):
        await asyncio.sleep(0)
