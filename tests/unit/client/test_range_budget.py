"""How much a range read asks for, and when it looks at what it asked for again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.client.reads.budget import FIRST_WAVE, ReadBudget
from bookkeeper.client.reads.speculation import Speculation
from bookkeeper.client.reads.waves import Waves
from bookkeeper.runtime import Runtime

SIZES = st.floats(1, 1e7)


def test_while_no_size_is_known_little_is_asked_for() -> None:
    budget = ReadBudget(1000, 1 << 20, 0)
    assert budget.outstanding(0) == FIRST_WAVE
    assert ReadBudget(5, 1 << 20, 0).outstanding(0) == 5


@given(st.integers(1, 10_000), st.integers(1, 1 << 26), SIZES)
def test_one_entry_at_least_and_no_more_than_either_window(window: int, window_bytes: int, size: float) -> None:
    count = ReadBudget(window, window_bytes, 0).outstanding(size)
    assert 1 <= count <= window
    assert count == 1 or count * size <= window_bytes


@given(SIZES, st.integers(0, 1000), st.integers(0, 1000))
def test_without_a_limit_of_bytes_everything_is_affordable(size: float, asked: int, outstanding: int) -> None:
    budget = ReadBudget(100, 1 << 20, 0)
    budget.received(1e9)
    assert budget.affordable(size, asked, outstanding) == 100


@given(st.integers(1, 1 << 20), SIZES)
def test_the_first_entry_is_always_affordable(max_bytes: int, size: float) -> None:
    assert ReadBudget(100, 1 << 20, max_bytes).affordable(size, 0, 0) >= 1


def test_what_is_received_or_under_way_is_not_affordable_again_and_a_small_rest_not_worth_while() -> None:
    budget = ReadBudget(100, 1 << 20, 1000)
    assert budget.affordable(10, 40, 40) == 60
    budget.received(400)
    assert budget.affordable(10, 40, 0) == 60
    assert budget.affordable(10, 90, 50) == 0  # for 10 the budget would be there: less than an eighth of 90
    assert budget.affordable(10, 90, 48) == 12


class Timer:
    def __init__(self, when: float, call: Callable[[], None]) -> None:
        self.when = when
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.time = 0.0
        self.timers: list[Timer] = []

    def now(self) -> float:
        return self.time

    def call_later(self, delay: float, call: Callable[..., None], *args: Any) -> Timer:
        self.timers.append(Timer(self.time + delay, call))
        return self.timers[-1]

    def advance(self, until: float) -> None:
        while due := sorted((t for t in self.timers if not t.cancelled and t.when <= until), key=lambda t: t.when):
            self.timers.remove(due[0])
            self.time = due[0].when
            due[0].call()
        self.time = until


def waves(clock: Clock, speculation: Speculation | None, answer: Sequence[int]) -> tuple[Waves[str], list[Any]]:
    seen: list[Any] = []

    def look(entry_ids: Sequence[int], sample: str) -> Sequence[int]:
        seen.append((clock.time, list(entry_ids), sample))
        return [entry_id for entry_id in entry_ids if entry_id in answer]

    return Waves(cast(Runtime, clock), speculation, look), seen


def test_what_is_asked_for_again_is_looked_at_after_a_longer_delay() -> None:
    clock = Clock()
    found, seen = waves(clock, Speculation(1.0, 2.0, 3.0), [2])
    found.sent([1, 2], "a")
    clock.advance(0.5)
    found.sent([3], "b")
    clock.advance(7)
    assert seen == [(1.0, [1, 2], "a"), (1.5, [3], "b"), (3.0, [2], "a"), (6.0, [2], "a")]


def test_a_look_that_fails_does_not_end_the_others() -> None:
    clock = Clock()
    seen: list[float] = []

    def look(entry_ids: Sequence[int], _: str) -> Sequence[int]:
        seen.append(clock.time)
        if entry_ids == [1]:
            raise ZeroDivisionError
        return []

    found = Waves(cast(Runtime, clock), Speculation(1.0, 2.0, 3.0), look)
    found.sent([1], "a")
    clock.advance(0.5)
    found.sent([2], "b")
    with pytest.raises(ZeroDivisionError):
        clock.advance(1)
    clock.advance(10)
    assert seen == [1.0, 1.5]


def test_after_a_stop_nothing_is_looked_at() -> None:
    clock = Clock()
    found, seen = waves(clock, Speculation(1.0, 2.0, 3.0), [])
    found.sent([1], "a")
    found.stop()
    found.stop()
    clock.advance(10)
    assert not seen


def test_without_speculation_there_is_no_timer() -> None:
    clock = Clock()
    found, seen = waves(clock, None, [])
    found.sent([1], "a")
    assert not clock.timers
    assert not seen
