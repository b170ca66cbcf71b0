"""How late the loop is (runtime.stalls)."""

from __future__ import annotations

from typing import Any, cast

from bookkeeper.runtime import Runtime
from bookkeeper.runtime.stalls import StallMeter


class Timer:
    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Time:
    """A runtime with nothing but a clock and one timer."""

    def __init__(self) -> None:
        self.time = 100.0
        self.timer = Timer()
        self.due: tuple[float, Any] = (0.0, None)

    def now(self) -> float:
        return self.time

    def call_later(self, delay: float, call: Any) -> Timer:
        self.timer = Timer()
        self.due = (self.time + delay, call)
        return self.timer

    def tick(self, late: float = 0.0) -> None:
        """The timer runs, so much later than it should."""
        assert not self.timer.cancelled
        self.time = self.due[0] + late
        self.due[1]()


def test_it_tells_how_late_each_tick_is() -> None:
    time, heard = Time(), list[float]()
    meter = StallMeter(cast(Runtime, time), heard.append, 0.01)
    meter.start()
    meter.start()
    time.tick()
    time.tick(late=0.25)
    time.tick(late=0.002)
    time.tick(late=-0.0005)  # a loop that counts in milliseconds
    assert [round(late, 6) for late in heard] == [0.0, 0.25, 0.002, 0.0]


def test_a_tick_is_due_an_interval_after_the_last_one_ran() -> None:
    time = Time()
    StallMeter(cast(Runtime, time), lambda _: None, 0.01).start()
    time.tick(late=5.0)
    assert round(time.due[0] - time.time, 6) == 0.01, "one standstill is one late tick"


def test_after_stop_nothing_is_told() -> None:
    time, heard = Time(), list[float]()
    meter = StallMeter(cast(Runtime, time), heard.append)
    meter.stop()
    meter.start()
    meter.stop()
    meter.stop()
    assert time.timer.cancelled
    assert not heard
    meter.start()
    time.tick(late=1.0)
    assert [round(late, 6) for late in heard] == [1.0]
