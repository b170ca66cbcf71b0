"""How late this process's loop is, and how often that was a standstill. Ours: Java has threads instead."""

from __future__ import annotations

from ...bookie.stats import OpStats
from ...runtime import Runtime
from ...runtime.stalls import STALL_SECONDS, StallMeter
from .exposition import Exposition


class LoopStalls:
    """What the meter heard since `start`."""

    def __init__(self, runtime: Runtime) -> None:
        self._meter = StallMeter(runtime, self._heard)
        self._late = OpStats()
        self._stalls = 0

    def start(self) -> None:
        self._meter.start()

    def stop(self) -> None:
        """Idempotent."""
        self._meter.stop()

    def tell(self, out: Exposition) -> None:
        """Onto the page: the greatest quantile is the longest standstill of the last roll-over."""
        out.latency("event_loop_late", self._late)
        out.counter("event_loop_stalls", self._stalls)

    def _heard(self, late: float) -> None:
        self._late.ok(late)
        if late >= STALL_SECONDS:
            self._stalls += 1
