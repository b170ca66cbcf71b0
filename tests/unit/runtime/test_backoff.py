"""Pauses that grow."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.runtime.waiting.backoff import Backoff, Pauses

BACKOFFS = st.builds(
    Backoff,
    first=st.floats(0, 100),
    longest=st.floats(0, 10_000),
    factor=st.floats(1, 10),
    jitter=st.tuples(st.floats(0, 1), st.floats(1, 2)),
)


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(first=0.5, longest=3)
    assert [backoff.pause(failures) for failures in range(5)] == [0.5, 1, 2, 3, 3]


def test_the_factor_can_be_another() -> None:
    assert [Backoff(1, 50, factor=3).pause(failures) for failures in range(5)] == [1, 3, 9, 27, 50]


def test_the_pauses_of_a_caller_begin_anew_after_a_success() -> None:
    pauses = Pauses(Backoff(first=1, longest=8))
    assert [pauses.next() for _ in range(3)] == [1, 2, 4]
    assert pauses.failures == 3
    pauses.reset()
    assert pauses.next() == 1


@given(BACKOFFS, st.integers(0, 10_000))
def test_a_pause_is_never_longer_than_the_next_nor_than_the_longest(backoff: Backoff, failures: int) -> None:
    assert 0 <= backoff.pause(failures) <= backoff.pause(failures + 1) <= backoff.longest


@given(BACKOFFS, st.integers(0, 10_000), st.integers())
def test_jitter_keeps_within_its_bounds(backoff: Backoff, failures: int, seed: int) -> None:
    pause = backoff.pause(failures)
    least, most = backoff.jitter
    jittered = backoff.jittered(failures, random.Random(seed))
    assert pause * least <= jittered <= pause * most or abs(jittered - pause) <= pause * 1e-9


@given(BACKOFFS, st.integers(0, 100), st.integers())
def test_the_same_seed_gives_the_same_pause(backoff: Backoff, failures: int, seed: int) -> None:
    draws = {backoff.jittered(failures, random.Random(seed)) for _ in range(2)}
    assert len(draws) == 1
