"""Calls from any thread to the event loop's, and waiting for them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from ..errors import ClientClosedError, WrongLoopError
from ..runtime.loop_thread import LoopEnded, LoopThread

T = TypeVar("T")


class Deadline:
    """The end of a `timeout` that covers several waits. None: no end."""

    __slots__ = ("_end", "_seconds")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Seconds; None: for ever."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def passed(self, what: str) -> TimeoutError:
        """The error when it is over."""
        return TimeoutError(f"not done within {self._seconds:g} s: {what}")


@contextlib.contextmanager
def until_closed() -> Iterator[None]:
    """A loop that has ended is a client that was closed."""
    try:
        yield
    except LoopEnded:
        raise ClientClosedError from None


class ClosedAtExit(ABC):
    """A context manager that closes itself at the end."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Blocking:
    """Something that lives on the loop's thread."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread

    def _may_wait(self) -> None:
        """Raises `WrongLoopError` where waiting for the loop would be for ever."""
        self._thread.check_process()
        if self._thread.inside:
            raise WrongLoopError("a blocking call from the event loop's own thread would wait for itself")

    def _submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine over there."""
        try:
            self._may_wait()
        except BaseException:
            work.close()
            raise
        with until_closed():
            return self._thread.submit(work)

    def _call(self, work: Coroutine[Any, Any, T], timeout: float | None) -> T:
        """Run a coroutine over there and wait for it; after `timeout` seconds, or Ctrl-C, it is cancelled."""
        future = self._submit(work)
        try:
            return self._wait(future, Deadline(timeout), "it was cancelled")
        except BaseException:
            future.cancel()
            raise

    def _wait(self, future: concurrent.futures.Future[T], deadline: Deadline, what: str) -> T:
        """The outcome. Raises `TimeoutError` saying `what` becomes of it."""
        try:
            return future.result(deadline.left())
        except TimeoutError:
            if future.done():
                return future.result()  # or an error of its own, that is a TimeoutError too
            raise deadline.passed(what) from None
        except concurrent.futures.CancelledError:
            if self._thread.ended:
                raise ClientClosedError from None
            raise
