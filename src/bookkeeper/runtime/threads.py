"""Worker threads that tell the loop what they did (see `api.Workers`)."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from .api import (
    Workers,
)

T = TypeVar("T")


class Threads(Workers):
    """Threads fed by one queue. A result travels back with one `call_soon_threadsafe`."""

    def __init__(self, name: str, count: int, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self.count = count
        self._loop = loop
        self._queue: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...], Callable[..., None]] | None]
        self._queue = queue.SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{i}" if count > 1 else name, daemon=True)
            for i in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def post(
        self, call: Callable[..., T], args: tuple[Any, ...], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        if self._closed:
            raise RuntimeError(f"workers {self.name} are closed")
        self._queue.put((call, args, done))

    def _run(self) -> None:
        get = self._queue.get
        while (item := get()) is not None:
            call, args, done = item
            result: Any = None
            error: BaseException | None = None
            try:
                result = call(*args)
            except BaseException as failure:
                error = failure
            try:
                self._loop.call_soon_threadsafe(done, result, error)
            except RuntimeError:
                return  # the loop is closed: there is no caller any more
            del item, call, args, done, result, error

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            for _ in self._threads:
                self._queue.put(None)
        loop = asyncio.get_running_loop()
        for thread in self._threads:
            while thread.is_alive():
                await loop.run_in_executor(None, thread.join, 1.0)
