"""Entries that were asked for together, looked at again when their speculation delay is over (spec client §9.4).

One timer serves all waves of a read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ...runtime import Runtime, TimerHandle
from .speculation import Speculation

Sample = TypeVar("Sample")


class Wave(Generic[Sample]):
    """Entries asked for together; `sample` says how."""

    __slots__ = ("delay", "due", "entry_ids", "sample")

    def __init__(self, entry_ids: Sequence[int], sample: Sample, due: float, delay: float) -> None:
        self.entry_ids = entry_ids
        self.sample = sample
        self.due = due
        self.delay = delay


class Waves(Generic[Sample]):
    """The waves of one read, until `stop`."""

    __slots__ = ("_look", "_runtime", "_speculation", "_timer", "_waves")

    def __init__(
        self,
        runtime: Runtime,
        speculation: Speculation | None,
        look: Callable[[Sequence[int], Sample], Sequence[int]],
    ) -> None:
        """`look(entry_ids, sample)` is called when a wave is due, asks again for what is missing, and returns which
        entries it asked for: they are a wave of their own, with a longer delay. Without `speculation` nothing is."""
        self._runtime = runtime
        self._speculation = speculation
        self._look = look
        self._waves: list[Wave[Sample]] = []  # by `due`
        self._timer: TimerHandle | None = None  # at _waves[0].due, if there is one

    def sent(self, entry_ids: Sequence[int], sample: Sample, *, late: bool = False) -> None:
        """These entries were asked for, for the first time. `late`: so long ago that they are due."""
        if self._speculation is not None:
            delay = self._speculation.first
            self._waves.append(Wave(entry_ids, sample, self._runtime.now() + (0.0 if late else delay), delay))
            self._arm()

    def stop(self) -> None:
        """No wave is looked at any more. Idempotent."""
        self._waves.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is None and self._waves:
            self._timer = self._runtime.call_later(max(0.0, self._waves[0].due - self._runtime.now()), self._look_again)

    def _look_again(self) -> None:
        assert self._speculation is not None
        self._timer = None
        wave = self._waves.pop(0)
        try:
            asked = self._look(wave.entry_ids, wave.sample)
            if asked:
                delay = self._speculation.after(wave.delay)
                self._waves.append(Wave(asked, wave.sample, self._runtime.now() + delay, delay))
                self._waves.sort(key=lambda wave: wave.due)
        finally:
            self._arm()  # whatever went wrong with this one
