"""Drawing bookies by weight (spec client §11.6)."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.client.placement.draw import Draw, probabilities

from .support import ids


def shares(weights: list[int], multiple: float = 3.0) -> list[float]:
    p = probabilities(weights, multiple)
    return [round(x / sum(p), 6) for x in p]


def test_probabilities() -> None:
    assert shares([100, 100, 100, 1000]) == [round(x, 6) for x in (1 / 6, 1 / 6, 1 / 6, 1 / 2)]
    assert shares([0, 100, 200]) == [0.25, 0.25, 0.5]
    assert shares([0, 0]) == [0.5, 0.5]
    assert shares([1, 1, 98], 0) == [0.01, 0.01, 0.98]
    assert probabilities([7], 3) == [1]


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=9), st.booleans())
def test_every_bookie_is_drawn_once(weights: list[int], weighted: bool) -> None:
    bookies = ids(*(f"b{i}" for i in range(len(weights))))
    draw = Draw(Random(1), 3)
    if weighted:
        draw.free_space = dict(zip(bookies, weights, strict=True))
    assert sorted(draw.order(bookies)) == sorted(bookies)
    assert draw.order([]) == []


def test_those_with_more_room_come_first_more_often() -> None:
    draw = Draw(Random(7), 3)
    bookies = ids("a", "b", "c", "d")
    draw.free_space = dict(zip(bookies, (100, 100, 100, 1000), strict=True))
    first = Counter(draw.order(bookies)[0] for _ in range(6000))
    assert first["d"] / 6000 == pytest.approx(1 / 2, abs=0.03)
    assert first["a"] / 6000 == pytest.approx(1 / 6, abs=0.03)
    # the second is drawn from those that are left, by their weights
    second = Counter(order[1] for order in (draw.order(bookies) for _ in range(6000)) if order[0] != "d")
    assert second["d"] / second.total() == pytest.approx(3 / 5, abs=0.04)


def test_a_bookie_of_unknown_room_counts_as_the_fullest() -> None:
    draw = Draw(Random(7), 3)
    bookies = ids("a", "b", "new")
    draw.free_space = {bookies[0]: 100, bookies[1]: 200}
    first = Counter(draw.order(bookies)[0] for _ in range(4000))
    assert first["new"] / 4000 == pytest.approx(0.25, abs=0.03)
