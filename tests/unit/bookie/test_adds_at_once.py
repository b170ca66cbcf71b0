"""How many adds a bookie takes together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.requests.connection import ADDS_AT_ONCE, MOST_ADDS_AT_ONCE, adds_at_once
from bookkeeper.bookie.sharing.turns import SLICE_BESIDE_OTHERS, SLICE_SECONDS


def test_a_peer_that_is_alone_has_more_taken_than_one_beside_others() -> None:
    cheap = 1e-6
    assert adds_at_once(SLICE_SECONDS, cheap) == MOST_ADDS_AT_ONCE
    assert adds_at_once(SLICE_BESIDE_OTHERS, cheap) == ADDS_AT_ONCE


@given(seconds=st.floats(0, 0.01), add_seconds=st.floats(0, 0.01))
def test_they_fit_into_the_time_there_is_or_are_as_few_as_ever(seconds: float, add_seconds: float) -> None:
    count = adds_at_once(seconds, add_seconds)
    assert ADDS_AT_ONCE <= count <= MOST_ADDS_AT_ONCE
    assert count == ADDS_AT_ONCE or count * add_seconds <= seconds * (1 + 1e-9)
    assert count == MOST_ADDS_AT_ONCE or (count + 1) * add_seconds > seconds * (1 - 1e-9)
