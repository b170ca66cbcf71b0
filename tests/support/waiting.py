"""Waiting for a condition in tests without an event loop."""

from __future__ import annotations

import time
from collections.abc import Callable

PAUSE_SECONDS = 0.05


def wait_until(condition: Callable[[], object], what: str, seconds: float = 90.0) -> None:
    """Poll until `condition()` is true. Raises `TimeoutError`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds:g} s still not: {what}")
        time.sleep(PAUSE_SECONDS)
