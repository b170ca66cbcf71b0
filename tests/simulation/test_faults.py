"""Every kind of fault has exactly one method that carries it out."""

from __future__ import annotations

import pytest

from bookkeeper.simulation.harm.fault import ACTIONS, does
from bookkeeper.simulation.harm.hardships import ENDING, HARDSHIPS
from bookkeeper.simulation.harm.losses import GONE, LOSSES, ROT
from bookkeeper.simulation.harm.nemesis import FAULTS, Nemesis


def test_each_kind_that_is_drawn_can_be_carried_out() -> None:
    assert set(ACTIONS) == {*FAULTS, *HARDSHIPS, *LOSSES, GONE, ROT}
    assert set(ENDING) <= set(ACTIONS)
    assert all(action in (getattr(Nemesis, action.__name__),) for action in ACTIONS.values())


def test_a_kind_has_one_method() -> None:
    with pytest.raises(AssertionError, match="two methods for the fault 'kill bookie'"):
        does("kill bookie")(lambda *_: True)
