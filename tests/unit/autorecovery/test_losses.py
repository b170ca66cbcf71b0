"""When an audit is due (spec autorecovery-admin §3.3, §3.4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.autorecovery.losses import Due, Losses, outlook
from bookkeeper.types import BookieId


def bookies(names: str) -> list[BookieId]:
    return [BookieId(name) for name in names]


def audited(names: str, delay: int) -> Losses:
    """After the first audit, which saw all of them."""
    losses = Losses(bookies(names), delay)
    losses.audited(bookies(names))
    return losses


def test_without_a_delay_a_lost_bookie_asks_for_an_audit_once() -> None:
    losses = audited("abc", 0)
    assert losses.changed(bookies("abc")) is Due.NOTHING
    assert losses.changed(bookies("ab")) is Due.NOW
    assert losses.changed(bookies("ab")) is Due.NOTHING
    losses.audited(bookies("ab"))
    assert losses.changed(bookies("ab")) is Due.NOTHING
    assert losses.changed(bookies("abc")) is Due.NOTHING
    assert losses.changed(bookies("ab")) is Due.NOW


def test_a_bookie_that_returns_within_the_delay_was_not_lost() -> None:
    losses = audited("abc", 60)
    assert losses.changed(bookies("ab")) is Due.LATER
    assert losses.changed(bookies("ab")) is Due.NOTHING
    assert losses.changed(bookies("abc")) is Due.NEVER
    assert not losses.planned
    assert losses.changed(bookies("ac")) is Due.LATER


def test_a_second_loss_does_not_wait() -> None:
    losses = audited("abcd", 60)
    assert losses.changed(bookies("abc")) is Due.LATER
    assert losses.changed(bookies("ab")) is Due.NOW
    assert not losses.planned


def test_one_returns_while_another_leaves() -> None:
    losses = audited("abc", 60)
    assert losses.changed(bookies("ab")) is Due.LATER
    assert losses.changed(bookies("ac")) is Due.LATER
    assert losses.missed == {"b"}


@pytest.mark.parametrize("delay", [0, 60])
def test_the_first_audit_does_not_wait_for_the_delay(delay: int) -> None:
    """It is due at the start, and nothing that comes or goes before its end puts it off or drops it."""
    losses = Losses(bookies("abc"), delay)
    assert losses.changed(bookies("ab")) is Due.NOTHING
    assert losses.changed(bookies("abc")) is Due.NOTHING
    assert not losses.planned


def test_a_failed_audit_is_not_put_off_by_who_comes_and_goes() -> None:
    losses = audited("abcde", 60)
    assert losses.changed(bookies("abc")) is Due.NOW
    losses.begun()  # and failed
    assert losses.changed(bookies("ab")) is Due.NOTHING
    assert losses.changed(bookies("abc")) is Due.NOTHING
    assert not losses.planned


def test_who_returned_just_before_the_audit_is_missed_when_it_leaves_again() -> None:
    losses = audited("abc", 0)
    assert losses.changed(bookies("ab")) is Due.NOW
    losses.begun()
    losses.audited(bookies("abc"))
    assert losses.changed(bookies("ab")) is Due.NOW


@pytest.mark.parametrize(("new", "due"), [(0, Due.NOW), (60, Due.NOW), (30, Due.LATER)])
def test_a_new_delay_while_an_audit_is_planned(new: int, due: Due) -> None:
    losses = audited("abc", 60)
    losses.changed(bookies("ab"))
    assert losses.delay_set(new) is due
    assert losses.planned == (due is Due.LATER)


def test_a_new_delay_while_nothing_is_planned() -> None:
    losses = audited("abc", 60)
    assert losses.delay_set(30) is Due.NOTHING
    assert losses.delay_set(30) is Due.NOW


@pytest.mark.parametrize(("here", "due"), [("abcd", Due.NOTHING), ("abc", Due.LATER), ("ab", Due.NOW), ("", Due.NOW)])
def test_a_declined_audit_still_owes_its_losses(here: str, due: Due) -> None:
    losses = audited("abcd", 60)
    assert losses.changed(bookies("a")) is Due.NOW
    losses.declined()
    assert losses.changed(bookies(here)) is due


ENDS = st.sampled_from(["audited", "declined", "failed"])
SIGHTS = st.frozensets(st.sampled_from("abcd"))


@given(st.lists(st.tuples(SIGHTS, SIGHTS, ENDS), max_size=12), st.sampled_from([0, 60]))
def test_no_loss_is_forgotten(steps: list[tuple[frozenset[str], frozenset[str], str]], delay: int) -> None:
    """After each change: whoever an audit that ended did not find lost is there, or audited soon, or waited for.

    `soon` is the auditor's plan: it tries again what was declined or failed, until that is put off or dropped.
    """
    losses = Losses(bookies("abcd"), delay)
    soon = True
    unmarked = set("abcd")
    for here, found, end in steps:
        due = losses.changed(bookies("".join(sorted(here))))
        unmarked |= here
        soon = due is Due.NOW or (soon and due is Due.NOTHING)
        assert soon or unmarked <= here or (losses.planned and unmarked - here == losses.missed)
        if not soon:
            continue
        losses.begun()
        if end == "audited":
            losses.audited(bookies("".join(sorted(found))))
            unmarked, soon = set(found), False
        elif end == "declined":
            losses.declined()


@pytest.mark.parametrize(("here", "plausible"), [("abcd", True), ("ab", True), ("a", False), ("", False)])
def test_when_most_of_a_cluster_is_gone_it_is_not_believed(here: str, plausible: bool) -> None:
    assert outlook(bookies("abcd"), bookies(here)).plausible is plausible
