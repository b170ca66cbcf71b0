"""The clock of timeouts: it counts time in which the loop ran (runtime.awake)."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest

from bookkeeper.runtime.api import Runtime
from bookkeeper.runtime.awake import AwakeClock, SharedClock


class Timer:
    def __init__(self, at: float, call: Any) -> None:
        self.at = at
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Time:
    """A runtime with nothing but a clock."""

    def __init__(self) -> None:
        self.time = 100.0
        self.timers: list[Timer] = []

    def now(self) -> float:
        return self.time

    def call_later(self, delay: float, call: Any) -> Timer:
        self.timers.append(Timer(self.time + delay, call))
        return self.timers[-1]

    def run(self, seconds: float) -> None:
        """The loop runs."""
        end = self.time + seconds
        while True:
            due = [timer for timer in self.timers if not timer.cancelled and timer.at <= end]
            if not due:
                break
            timer = min(due, key=lambda timer: timer.at)
            self.timers.remove(timer)
            self.time = max(self.time, timer.at)
            timer.call()
        self.time = end

    def stand_still(self, seconds: float) -> None:
        """The process is stopped: no timer runs."""
        self.time += seconds


def clock(time: Time, interval: float = 1.0) -> AwakeClock:
    return AwakeClock(cast(Runtime, time), interval, "test")


def test_it_ticks_while_it_runs() -> None:
    time = Time()
    watch = clock(time)
    time.run(5)
    assert watch.tick == 0
    watch.start()
    watch.start()
    time.run(5.5)
    assert watch.tick == 5
    watch.stop()
    time.run(5)
    assert watch.tick == 5
    assert not watch.running


@pytest.mark.parametrize("begun_after", [0.0, 0.01, 0.5, 0.99])
def test_what_expires_is_never_early_and_at_most_one_interval_late(begun_after: float) -> None:
    time = Time()
    watch = clock(time)
    watch.start()
    time.run(3 + begun_after)
    begun, deadline = time.now(), watch.deadline(5)
    while watch.tick < deadline:
        time.run(0.001)
    assert 5 <= time.now() - begun <= 6.002


def test_no_timeout_is_for_ever() -> None:
    watch = clock(Time())
    assert watch.deadline(None) == watch.deadline(0) == watch.deadline(-1) == math.inf


@pytest.mark.parametrize("stopped", [2.5, 7.0, 86400.0])
def test_time_in_which_the_process_stood_still_does_not_count(stopped: float) -> None:
    time = Time()
    watch = clock(time)
    watch.start()
    time.run(2.5)
    time.stand_still(stopped)
    time.run(0)  # timers first: sockets have not been looked at yet
    assert watch.tick == 2
    time.run(1)
    assert watch.tick == 3


def test_a_loop_that_is_always_late_still_comes_to_its_timeouts() -> None:
    time = Time()
    watch = clock(time)
    watch.start()
    for _ in range(10):
        time.stand_still(3)
        time.run(0)
    assert watch.tick == 5


def test_an_error_in_a_tick_does_not_stop_the_clock() -> None:
    time = Time()
    watch = clock(time)
    ticks = []

    def on_tick() -> None:
        ticks.append(watch.tick)
        raise KeyError("nobody expects this")

    watch.on_tick = on_tick
    watch.start()
    time.run(3.5)
    assert ticks == [1, 2, 3]


def test_a_tick_may_stop_the_clock() -> None:
    time = Time()
    watch = clock(time)
    watch.on_tick = watch.stop
    watch.start()
    time.run(10)
    assert watch.tick == 1
    assert not watch.running


def test_a_shared_clock_ticks_for_each_while_it_listens_and_stands_still_when_none_does() -> None:
    time = Time()
    watch = SharedClock(cast(Runtime, time), 1.0, "test")
    heard: list[tuple[str, int]] = []

    def one() -> None:
        heard.append(("one", watch.tick))
        watch.leave(other)

    def other() -> None:
        heard.append(("other", watch.tick))
        raise KeyError("nobody expects this")

    assert not watch.running
    watch.listen(other)
    time.run(1.5)
    watch.listen(one)
    watch.listen(one)
    time.run(2)
    assert heard == [("other", 1), ("other", 2), ("one", 2), ("one", 3)]
    watch.leave(one)
    assert not watch.running
    time.run(5)
    assert watch.tick == 3
