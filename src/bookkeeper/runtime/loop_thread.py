"""Which thread runs here, and a thread with an event loop of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from ..errors import WrongLoopError
from .real import new_event_loop

T = TypeVar("T")


class LoopEnded(RuntimeError):
    """The loop of a `LoopThread` was stopped."""


class Follower(Protocol):
    """Something that depends on a `LoopThread`, and hears of its end."""

    def loop_ended(self) -> None:
        """Nothing runs on the loop any more. Called from its thread."""


_forks = 0
"""How often this process's line was forked: threads of before do not run here."""

NOWHERE = -1
"""The ident of no thread."""

thread_ident: Callable[[], int] = threading.get_ident
"""Of the caller's thread, to be compared with `ThisThread.ident`."""

_this_threads: weakref.WeakSet[ThisThread] = weakref.WeakSet()


def _forked() -> None:
    global _forks
    _forks += 1
    for thread in _this_threads:
        thread.ident = NOWHERE


os.register_at_fork(after_in_child=_forked)


class ThisThread:
    """The thread, and process, that it was made in. To ask is much cheaper than to ask for the running loop, which is a
    system call in some Pythons."""

    __slots__ = ("__weakref__", "ident")

    def __init__(self) -> None:
        self.ident = thread_ident()
        """`NOWHERE` after a fork: its threads do not run in the new process."""
        _this_threads.add(self)

    def runs_here(self) -> bool:
        """Whether the caller runs in it."""
        return thread_ident() == self.ident


class LoopThread:
    """An event loop on a thread of its own, for callers that have none. Its methods may be called from any thread.

    What was accepted before `stop` runs; what comes later is refused with `LoopEnded`. A forked process has the object
    but not the thread: there everything is refused with `WrongLoopError`, before a lock is touched that nobody would
    ever release.
    """

    def __init__(self, name: str) -> None:
        self._loop = new_event_loop()
        self._forks = _forks
        self._lock = threading.RLock()  # reentrant: a finalizer may call in the middle of a call
        self._ended = False
        self._followers: weakref.WeakSet[Follower] = weakref.WeakSet()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_end_all_tasks())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()
            with self._lock:
                followers = list(self._followers)
            for follower in followers:
                follower.loop_ended()

    def check_process(self) -> None:
        """Raises `WrongLoopError` in a process that was forked after this thread was made."""
        if self._forks != _forks:
            raise WrongLoopError("this client belongs to the process that this one was forked from: connect anew here")

    @property
    def inside(self) -> bool:
        """Whether the caller runs on this thread, where waiting for it would be for ever."""
        return threading.current_thread() is self._thread

    @property
    def ended(self) -> bool:
        """Whether `stop` was called."""
        return self._ended

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine on the loop. Raises `LoopEnded`, `WrongLoopError`."""
        try:
            self.check_process()
            with self._lock:
                self._check_running()
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException:
            work.close()
            raise

    def call_soon(self, call: Callable[..., object], *args: Any) -> None:
        """Run a function on the loop. Raises `LoopEnded`, `WrongLoopError`."""
        self.check_process()
        with self._lock:
            self._check_running()
            self._loop.call_soon_threadsafe(call, *args)

    def _check_running(self) -> None:
        if self._ended:
            raise LoopEnded("the event loop was stopped")

    def follow(self, follower: Follower) -> None:
        """Tell it when the loop has ended, if it is still there then."""
        self.check_process()
        with self._lock:
            self._check_running()
            self._followers.add(follower)

    def stop(self) -> None:
        """Cancel what still runs on the loop, wait for it, end loop and thread. Idempotent."""
        self.check_process()
        with self._lock:
            if not self._ended:
                self._ended = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def new_lock() -> threading.Lock:
    """A lock for what threads share with a loop. Held for a few steps only, never while waiting."""
    return threading.Lock()


async def _end_all_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
