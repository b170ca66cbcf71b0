"""How many adds a bookie takes together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.requests.connection import ADDS_AT_ONCE, FEWEST_ADDS_AT_ONCE, MOST_ADDS_AT_ONCE, adds_at_once
from bookkeeper.bookie.sharing.turns import SLICE_BESIDE_OTHERS, SLICE_SECONDS


def test_a_peer_that_is_alone_has_more_taken_than_one_beside_others() -> None:
    cheap = 1e-6
    assert adds_at_once(SLICE_SECONDS, cheap) == MOST_ADDS_AT_ONCE
    assert adds_at_once(SLICE_BESIDE_OTHERS, cheap) == ADDS_AT_ONCE


def test_fewer_are_taken_where_so_many_took_too_long() -> None:
    dear = 3e-5  # a flush has the interpreter every other moment
    assert adds_at_once(SLICE_SECONDS, dear) == adds_at_once(0, dear) == 50
    assert adds_at_once(SLICE_SECONDS, 1.0) == FEWEST_ADDS_AT_ONCE


@given(seconds=st.floats(0, SLICE_SECONDS), add_seconds=st.floats(0, 0.01))
def test_they_fit_into_the_time_there_is_or_are_as_few_as_ever(seconds: float, add_seconds: float) -> None:
    count = adds_at_once(seconds, add_seconds)
    assert FEWEST_ADDS_AT_ONCE <= count <= MOST_ADDS_AT_ONCE
    assert count == FEWEST_ADDS_AT_ONCE or count * add_seconds <= SLICE_SECONDS * (1 + 1e-9)
    assert count == MOST_ADDS_AT_ONCE or (count + 1) * add_seconds > seconds * (1 - 1e-9)
