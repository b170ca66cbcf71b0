"""How late the loop is: what a callback waits that is due now.

Theory of operation

- A timer that is due every `INTERVAL_SECONDS` asks how late it is. It is late when the loop was busy with something
  else, when another thread had the interpreter, or when the process had no processor: whatever the cause, everything
  that the loop serves was as late.
- A stall is seen from the moment on at which the timer was due, so up to an interval less than it was. That is what
  makes it a sample: the share of late ticks is the share of the time in which a callback would have been late.
- The next tick is due an interval after the last one *ran*. A loop that was away for long finds one late tick.
"""

from __future__ import annotations

from collections.abc import Callable

from .api import Runtime, TimerHandle

INTERVAL_SECONDS = 0.01
"""Short enough to meet stalls of a few milliseconds, long enough to cost an idle process next to nothing."""

STALL_SECONDS = 0.005
"""A tick that is so late counts as a stall."""


class StallMeter:
    """Tells `heard` how late each tick was, in seconds, between `start` and `stop`."""

    __slots__ = ("_due", "_heard", "_interval", "_runtime", "_timer")

    def __init__(self, runtime: Runtime, heard: Callable[[float], object], interval: float = INTERVAL_SECONDS) -> None:
        assert interval > 0
        self._runtime = runtime
        self._heard = heard
        self._interval = interval
        self._due = 0.0
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        """Idempotent."""
        if self._timer is None:
            self._next()

    def stop(self) -> None:
        """Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next(self) -> None:
        self._due = self._runtime.now() + self._interval
        self._timer = self._runtime.call_later(self._interval, self._tick)

    def _tick(self) -> None:
        late = max(0.0, self._runtime.now() - self._due)  # some loops count in whole milliseconds, and may be early
        self._next()
        self._heard(late)
