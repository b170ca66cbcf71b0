"""Whether a session may be gone although no server could say so: one session timeout after the server last heard us."""

from __future__ import annotations

from collections.abc import Callable

from ....runtime.api import Runtime, TimerHandle


class Doubt:
    """See the module. `begun()` is called when it begins."""

    __slots__ = ("_begun", "_runtime", "_timer", "present")

    def __init__(self, runtime: Runtime, begun: Callable[[], None]) -> None:
        self._runtime = runtime
        self._begun = begun
        self._timer: TimerHandle | None = None
        self.present = False
        """The session may be gone."""

    def begin_at(self, time: float) -> None:
        """The connection is down: it is in doubt from then on, at once if that time is over."""
        self._timer = self._runtime.call_later(max(0.0, time - self._runtime.now()), self._begin)

    def _begin(self) -> None:
        self._timer = None
        self.present = True
        self._begun()

    def end(self) -> None:
        """The session lives, or is known to be gone. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.present = False
