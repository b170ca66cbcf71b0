"""When a batch leaves (`bookie.journal.group_commit`)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.journal.group_commit import (
    GROUPING_PER_RECORD,
    MAX_UNSYNCED_BATCHES,
    TIMER_GRAIN,
    Departure,
    GroupCommit,
)

LONGEST = 0.001


@given(st.booleans(), st.booleans(), st.integers(0, 2 * MAX_UNSYNCED_BATCHES))
def test_a_full_batch_waits_for_nothing_but_the_limit_of_batches(full: bool, answers: bool, unsynced: int) -> None:
    departure = GroupCommit(LONGEST).departure(full=full, answers_when_written=answers, unsynced=unsynced)
    if unsynced >= MAX_UNSYNCED_BATCHES:
        assert departure is Departure.LATER
    elif full:
        assert departure is Departure.NOW
    else:
        gathers = unsynced > 0 and not answers
        assert departure is (Departure.LATER if gathers else Departure.AT_TURN_END)


def test_a_lone_append_does_not_wait() -> None:
    rule = GroupCommit(LONGEST)
    assert rule.wait(0.0) == 0.0
    rule.left(1.0, records=1)
    assert rule.wait(1.0) == 0.0


@given(st.integers(0, 10_000), st.floats(0, 0.01))
def test_each_record_buys_some_waiting_up_to_the_longest(records: int, later: float) -> None:
    rule = GroupCommit(LONGEST)
    rule.left(5.0, records)
    wait = rule.wait(5.0 + later)
    assert wait == 0.0 or TIMER_GRAIN < wait <= LONGEST + 1e-9
    assert wait <= records * GROUPING_PER_RECORD + 1e-9
    if later == 0.0 and records * GROUPING_PER_RECORD >= LONGEST:
        assert abs(wait - LONGEST) < 1e-9


def test_who_closes_does_not_wait() -> None:
    rule = GroupCommit(LONGEST)
    rule.left(5.0, 10_000)
    rule.hurry()
    assert rule.wait(5.0) == 0.0
    rule.left(6.0, 10_000)
    assert rule.wait(6.0) == 0.0
