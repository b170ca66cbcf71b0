"""A client belongs to one event loop, whichever thread that runs in."""

from __future__ import annotations

import asyncio
import threading

import pytest

from bookkeeper.client.store import Home
from bookkeeper.errors import WrongLoopError


def test_a_loop_may_go_on_in_another_thread() -> None:
    """Programs connect before they hand their loop to a thread of its own."""
    loop, home = asyncio.new_event_loop(), Home()

    async def settle() -> None:
        home.settle()
        home.check()

    async def check() -> None:
        home.check()

    loop.run_until_complete(settle())
    with pytest.raises(WrongLoopError):
        home.check()  # it does not run
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(check(), loop).result(10)
        with pytest.raises(WrongLoopError):
            home.check()  # it runs, but not here
        with pytest.raises(WrongLoopError):
            asyncio.run(check())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
    loop.run_until_complete(check())  # and back
    loop.close()
