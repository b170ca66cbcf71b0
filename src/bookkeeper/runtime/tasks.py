"""Tasks with an owner, and work that goes on for ever.

Every background task belongs to a `TaskScope`, is named, and ends with its scope. A task that fails unexpectedly
reports to the scope's error sink instead of vanishing. Tasks are kept in order of creation, so that a simulated
run does not depend on addresses.

What goes on for ever (a sweep, a watch, a timer that starts itself again) must survive whatever one of its steps meets:
an error in a callback is one step lost, never the end of all steps. Such a step is `guarded`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from .api import Runtime

T = TypeVar("T")

log = logging.getLogger(__name__)


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """One step of something that goes on for ever: an unexpected error of the body is logged, and the step is over.

    For plain and for async bodies. Cancellation passes, also if an error took its place: one that a clean-up met on
    the way out (`finally: await lock.release()`), which is logged or was caught. A loop pauses between steps, so that
    an error that comes every time is not logged as fast as the machine can.
    """
    before = _cancellations()
    try:
        yield
    except Exception:
        log.exception("%s: unexpected error; going on", what)
    if _cancellations() > before:
        raise asyncio.CancelledError


def call_guarded(what: str, call: Callable[[], object]) -> None:
    """`guarded` for a plain call from a callback of the loop, where there is no task to be cancelled: at a fraction of
    the cost, as there may be ten thousand in a turn."""
    try:
        call()
    except Exception:
        log.exception("%s: unexpected error; going on", what)


def _cancellations() -> int:
    """How often the current task, if there is one, was asked to end."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        return 0
    return task.cancelling() if task is not None else 0


class TaskScope:
    """Owns background tasks. `on_error(task_name, error)` is called for a task that raised."""

    def __init__(
        self, runtime: Runtime, name: str, on_error: Callable[[str, BaseException], None] | None = None
    ) -> None:
        self._runtime = runtime
        self._name = name
        self._on_error = on_error
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in order of creation; a task leaves when it ends
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether no task can be started any more."""
        return self._closed

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start a task that ends with this scope."""
        if self._closed:
            work.close()
            raise RuntimeError(f"{self._name} is closed")
        task = self._runtime.spawn(work, name=f"{self._name}:{name}")
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if self._on_error is not None:
            self._on_error(task.get_name(), error)
        else:
            log.error("task %s failed", task.get_name(), exc_info=error)

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended. Idempotent."""
        self._closed = True
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        for task in tasks:
            await asyncio.wait([task])
