"""The explorer itself, on searches of a second or less."""

from __future__ import annotations

import pytest

from tests.support.planted import ProtocolRules

from .configuration import Configuration
from .table import CHANGE_DELAYED, CHANGE_TWO, ONE, TABLE, Row, describe

QUICK = [row for row in TABLE if row.breaks in ("PI-2", "PI-6", "PI-11", "PI-13", "PI-14", "PI-15")]


@pytest.mark.parametrize("row", QUICK, ids=lambda row: f"{row.name} | {row.breaks}")
def test_a_planted_bug_is_found_where_it_first_shows(row: Row) -> None:
    row.run()


def test_a_ledger_with_delayed_changes_is_safe() -> None:
    result = CHANGE_DELAYED.explorer().run()
    assert result.exhausted
    assert result.violation is None


def test_searches_are_repeatable() -> None:
    rules = ProtocolRules(revoke_replaced_acks=False)
    first, second = (CHANGE_TWO.explorer(rules, check=("PI-6",)).run() for _ in range(2))
    assert (first.states, first.transitions, first.violation) == (second.states, second.transitions, second.violation)


def test_a_trace_tells_each_step_and_what_it_changed() -> None:
    result = ONE.explorer(ProtocolRules(close_at_lac=False), check=("PI-7",)).run()
    assert describe(result).splitlines() == [
        "PI-7: e0 is on 0 of b1 b2 b3",
        "   1 w appends an entry",
        "   2 w closes   [writer sealed]",
        "   3 w has its turn at the store   [store v1 CLOSED last 0 length 0 0:[b1 b2 b3]]",
    ]


def test_a_search_can_be_bounded() -> None:
    result = ONE.explorer(max_states=1000).run()
    assert not result.exhausted
    assert result.violation is None
    assert 1000 < result.states < 2000


def test_without_recoverers_all_that_happens_is_appending_and_closing() -> None:
    """Few enough to count: one bookie; appended or not, closed or not, each message sent, arrived or heard."""
    result = Configuration((1, 1, 1), 1, appends=1, recoverers=0).explorer().run()
    assert result.exhausted
    assert result.notes == {
        "w: e0 acknowledged",
        "w: e0 failed: LedgerClosedError",
        "w: close succeeded: last -1 length 0",
        "w: close succeeded: last 0 length 1",
    }


def test_every_switch_of_the_rules_is_used_by_some_row() -> None:
    off = {name for row in TABLE for name in ProtocolRules.__slots__ if not getattr(row.rules, name)}
    assert off == set(ProtocolRules.__slots__)


def test_most_invariants_break_in_some_row() -> None:
    broken = {row.breaks for row in TABLE if row.breaks}
    assert broken >= {"PI-2", "PI-3", "PI-6", "PI-7", "PI-11", "PI-13", "PI-14", "PI-15", "PI-17"}
