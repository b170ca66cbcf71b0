"""When writers are looked at, to see whether they are quiet."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bookkeeper.client.lac_rounds import LEAST_A_SECOND, MOST_A_SECOND, ROUND_SECONDS, ROUNDS, LacRounds
from bookkeeper.runtime.api import Runtime, TimerHandle

INTERVAL = 0.3


class Clock:
    """Timers, run in order."""

    def __init__(self) -> None:
        self.time = 0.0
        self.ran = 0
        self.timers: list[tuple[float, object]] = []

    def now(self) -> float:
        return self.time

    def call_later(self, seconds: float, call: object, *_args: object) -> TimerHandle:
        self.timers.append((self.time + seconds, call))
        return object()  # type: ignore[return-value]  # nobody cancels it

    def run(self, until: float) -> None:
        while self.timers and min(self.timers, key=lambda each: each[0])[0] <= until:
            self.timers.sort(key=lambda each: each[0])
            self.time, call = self.timers.pop(0)
            self.ran += 1
            call()  # type: ignore[operator]
        self.time = until


class Writer:
    """Appends when it is told to."""

    def __init__(self, clock: Clock, rounds: LacRounds) -> None:
        self.clock = clock
        self.rounds = rounds
        self.new = 0
        self.last = 0.0
        self.told: list[float] = []
        self.failing = False

    def append(self) -> None:
        self.new += 1
        self.last = self.clock.time

    def appended(self) -> int:
        new, self.new = self.new, 0
        return new

    def quiet(self) -> None:
        if self.failing:
            raise ZeroDivisionError
        self.told.append(self.clock.time)


def world(interval: float = INTERVAL) -> tuple[Clock, LacRounds]:
    clock = Clock()
    return clock, LacRounds(clock, interval)  # type: ignore[arg-type]


def writers(clock: Clock, rounds: LacRounds, count: int) -> list[Writer]:
    found = [Writer(clock, rounds) for _ in range(count)]
    for writer in found:
        rounds.look_at(writer)
    return found


@given(
    interval=st.sampled_from([0.001, 0.02, 0.1, 0.3, 1.0]),
    start=st.floats(0, 1),
    gaps=st.lists(st.floats(0, 0.9), max_size=8),
)
@example(interval=0.001, start=0.8999750988648044, gaps=[])  # just before a round
@example(interval=0.001, start=0.8999750988648044, gaps=[0.0])
def test_one_is_told_between_one_interval_and_two_after_its_last_entry(
    interval: float, start: float, gaps: list[float]
) -> None:
    clock, rounds = world(interval)
    rounds.look_at(other := Writer(clock, rounds))  # the rounds began before
    clock.run(start * interval)
    (writer,) = writers(clock, rounds, 1)
    writer.last = clock.time
    a_round = min(ROUND_SECONDS, interval / ROUNDS)  # at most
    for gap in gaps:
        clock.run(clock.time + gap * (interval - a_round))
        writer.append()
    clock.run(clock.time + 3 * interval)
    assert len(other.told) == 1
    (told,) = writer.told
    assert interval - a_round - 1e-9 <= told - writer.last <= 2 * interval + 1e-9
    assert not clock.timers, "nobody is left to be looked at"


def test_one_that_stopped_is_not_told_and_one_that_fails_harms_no_other() -> None:
    clock, rounds = world()
    stopped, failing, good = writers(clock, rounds, 3)
    rounds.forget(stopped)
    failing.failing = True
    clock.run(1)
    assert not stopped.told
    assert len(good.told) == 1
    assert not clock.timers


def test_a_long_interval_costs_nothing_until_it_is_over_and_who_stops_is_forgotten_at_once() -> None:
    clock, rounds = world(3600.0)
    stopped, quiet = writers(clock, rounds, 2)
    rounds.forget(stopped)
    assert len(clock.timers) == 1
    clock.run(3500)
    assert len(clock.timers) == 1
    assert clock.ran == 0
    clock.run(3600)
    assert len(quiet.told) == 1
    assert not stopped.told
    assert not clock.timers


def test_the_more_that_is_due_the_more_is_looked_at_in_a_round_not_in_more_rounds() -> None:
    clock, rounds = world()
    for _ in range(1000):
        rounds.look_at(Writer(clock, rounds))
        clock.run(clock.time + INTERVAL / 1000)
    clock.run(10)
    assert clock.ran <= 2 * INTERVAL / ROUND_SECONDS


def told_by(found: list[Writer], time: float) -> int:
    return sum(bool(writer.told) and writer.told[0] <= time for writer in found)


def test_thousands_that_become_quiet_at_once_are_told_in_order_and_not_all_at_once() -> None:
    clock, rounds = world()
    found = writers(clock, rounds, 12_000)
    clock.run(10)
    first = found[0].told[0]
    assert told_by(found, first + 1) == pytest.approx(MOST_A_SECOND, rel=0.05)
    assert [writer.told[0] for writer in found] == sorted(writer.told[0] for writer in found)
    assert all(len(writer.told) == 1 for writer in found)


def test_beside_busy_ones_fewer_are_told_and_who_appends_meanwhile_is_not() -> None:
    clock, rounds = world()
    busy = writers(clock, rounds, 100)
    found = writers(clock, rounds, 5_000)
    for _ in range(200):
        for writer in busy:
            writer.new += 100  # a million a second
        clock.run(clock.time + 0.01)
    first = found[0].told[0]
    assert told_by(found, first + 1) == pytest.approx(LEAST_A_SECOND, rel=0.1)
    waiting = [writer for writer in found if not writer.told]
    for writer in waiting:
        writer.append()
    clock.run(clock.time + INTERVAL / 2)
    assert not any(writer.told for writer in waiting)
    assert not any(writer.told for writer in busy)


def test_the_real_runtime_is_one() -> None:
    """The doubles above have what the module asks of it."""
    assert {"call_later", "now"} <= set(dir(Runtime))
