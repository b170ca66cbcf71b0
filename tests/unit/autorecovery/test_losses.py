"""When an audit is due (spec autorecovery-admin §3.3, §3.4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.autorecovery.losses import Due, Losses, outlook
from bookkeeper.types import BookieId


def bookies(names: str) -> list[BookieId]:
    return [BookieId(name) for name in names]


def test_without_a_delay_a_lost_bookie_asks_for_an_audit_once() -> None:
    losses = Losses(bookies("abc"), 0)
    assert losses.changed(bookies("abc")) is Due.NOTHING
    assert losses.changed(bookies("ab")) is Due.NOW
    assert losses.changed(bookies("ab")) is Due.NOTHING
    assert losses.changed(bookies("abc")) is Due.NOTHING
    assert losses.changed(bookies("ab")) is Due.NOW


def test_a_bookie_that_returns_within_the_delay_was_not_lost() -> None:
    losses = Losses(bookies("abc"), 60)
    assert losses.changed(bookies("ab")) is Due.LATER
    assert losses.changed(bookies("ab")) is Due.NOTHING
    assert losses.changed(bookies("abc")) is Due.NEVER
    assert not losses.planned
    assert losses.changed(bookies("ac")) is Due.LATER


def test_a_second_loss_does_not_wait() -> None:
    losses = Losses(bookies("abcd"), 60)
    assert losses.changed(bookies("abc")) is Due.LATER
    assert losses.changed(bookies("ab")) is Due.NOW
    assert not losses.planned


def test_one_returns_while_another_leaves() -> None:
    losses = Losses(bookies("abc"), 60)
    assert losses.changed(bookies("ab")) is Due.LATER
    assert losses.changed(bookies("ac")) is Due.LATER
    assert losses.missed == {"b"}


def test_who_was_gone_before_the_auditor_began_is_missed() -> None:
    assert Losses(bookies("abc"), 0).changed(bookies("ab")) is Due.NOW


@pytest.mark.parametrize(("new", "due"), [(0, Due.NOW), (60, Due.NOW), (30, Due.LATER)])
def test_a_new_delay_while_an_audit_is_planned(new: int, due: Due) -> None:
    losses = Losses(bookies("abc"), 60)
    losses.changed(bookies("ab"))
    assert losses.delay_set(new) is due
    assert losses.planned == (due is Due.LATER)


def test_a_new_delay_while_nothing_is_planned() -> None:
    losses = Losses(bookies("abc"), 60)
    assert losses.delay_set(30) is Due.NOTHING
    assert losses.delay_set(30) is Due.NOW


@pytest.mark.parametrize(("here", "due"), [("abcd", Due.NOTHING), ("abc", Due.LATER), ("ab", Due.NOW), ("", Due.NOW)])
def test_a_declined_audit_still_owes_its_losses(here: str, due: Due) -> None:
    losses = Losses(bookies("abcd"), 60)
    assert losses.changed(bookies("a")) is Due.NOW
    losses.declined(bookies("abcd"))
    assert losses.changed(bookies(here)) is due


@given(st.lists(st.frozensets(st.sampled_from("abcd")), max_size=12), st.sampled_from([0, 60]))
def test_no_loss_is_forgotten(steps: list[frozenset[str]], delay: int) -> None:
    """Whoever is not there was audited since it was last seen, or is waited for."""
    losses = Losses(bookies("abcd"), delay)
    owed: set[str] = set()
    before: set[str] = set("abcd")
    for here in steps:
        owed = (owed | (before - here)) - here
        due = losses.changed(bookies("".join(sorted(here))))
        if due is Due.NOW and outlook(bookies("abcd"), bookies("".join(here))).plausible:
            owed.clear()
        elif due is Due.NOW:
            losses.declined(bookies("abcd"))
            before = set(here)
            continue
        assert not owed or (losses.planned and owed <= losses.missed)
        before = set(here)


@pytest.mark.parametrize(("here", "plausible"), [("abcd", True), ("ab", True), ("a", False), ("", False)])
def test_when_most_of_a_cluster_is_gone_it_is_not_believed(here: str, plausible: bool) -> None:
    assert outlook(bookies("abcd"), bookies(here)).plausible is plausible
