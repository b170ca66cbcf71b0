"""A clock for timeouts that counts only time in which the event loop was running.

Theory of operation

- Time is counted in ticks. A tick is a timer of `interval` seconds that starts the next one; whatever is measured
  begins in one tick and expires in a later one.
- A process can stand still: stopped by a signal, with its virtual machine, in a swap storm, or in a call that blocks.
  It then finds *one* tick late, however long it was away, so nothing expires for it. That late tick does not count at
  all: some loops run timers before they look at sockets, and the answers of the meantime lie there still. The next
  tick comes an interval later, when they have been read. Of two late ticks in a row one counts, so that a loop that is
  always late still comes to its timeouts.
- What expires is never early, and up to one interval late.
- While it is not needed the clock stands still.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .api import Runtime, TimerHandle
from .tasks import call_guarded, guarded


class AwakeClock:
    """See the module. `on_tick` is called with every tick; its errors are logged, and do not stop the clock."""

    __slots__ = ("_due", "_late", "_runtime", "_timer", "interval", "name", "on_tick", "running", "tick")

    def __init__(
        self, runtime: Runtime, interval: float, name: str, on_tick: Callable[[], object] = lambda: None
    ) -> None:
        assert interval > 0
        self.interval = interval
        """Seconds between two ticks."""
        self.name = name
        self.on_tick = on_tick
        self.tick = 0
        """Ticks so far: the time now."""
        self.running = False
        """Whether it ticks. Read only."""
        self._runtime = runtime
        self._timer: TimerHandle | None = None
        self._due = 0.0  # when the next tick should be
        self._late = False  # the last tick was late and did not count

    def ticks(self, timeout: float | None) -> float:
        """How many ticks a timeout of so many seconds is; none, or none above zero: for ever."""
        return math.ceil(timeout / self.interval) if timeout is not None and timeout > 0 else math.inf

    def deadline(self, timeout: float | None) -> float:
        """The tick at which something that begins now has taken longer than `timeout` seconds."""
        return self.tick + 1 + self.ticks(timeout)

    def start(self) -> None:
        """Tick from now on. Idempotent."""
        if not self.running:
            self.running = True
            self._due = self._runtime.now() + self.interval
            self._timer = self._runtime.call_later(self.interval, self._tick)

    def stop(self) -> None:
        """Stand still. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.running = False

    def _tick(self) -> None:
        late = self._runtime.now() - self._due > self.interval
        self._timer, self.running = None, False
        self.start()  # first: nothing that happens in a tick may be the end of all ticks
        self._late = late and not self._late
        if self._late:
            return
        self.tick += 1
        with guarded(self.name):
            self.on_tick()


class SharedClock(AwakeClock):
    """One timer for many that need ticks now and then; it stands still while none of them does."""

    __slots__ = ("_listeners",)

    def __init__(self, runtime: Runtime, interval: float, name: str) -> None:
        super().__init__(runtime, interval, name, self._tell)
        self._listeners: dict[Callable[[], object], None] = {}

    def listen(self, on_tick: Callable[[], object]) -> None:
        """Call this with every tick from now on. Its errors are logged, and keep no tick from the others."""
        self._listeners[on_tick] = None
        self.start()

    def leave(self, on_tick: Callable[[], object]) -> None:
        """Call it no more. Idempotent."""
        self._listeners.pop(on_tick, None)
        if not self._listeners:
            self.stop()

    def _tell(self) -> None:
        for on_tick in list(self._listeners):
            if on_tick in self._listeners:
                call_guarded(self.name, on_tick)
