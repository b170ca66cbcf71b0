"""Calls from another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable


def error_elsewhere(call: Callable[[], object]) -> Exception | None:
    """What a call raises in a thread of its own; None if nothing. Waits for it, and the loop meanwhile stands still."""
    raised: list[Exception] = []

    def run() -> None:
        try:
            call()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None
