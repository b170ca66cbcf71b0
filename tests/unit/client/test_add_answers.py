"""Answers on their way from a connection to their writers."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.client.wire.add_channel import by_ledger, rows

ACKS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)))


@given(ACKS.filter(bool))
def test_rows_are_the_acks_in_their_order_and_each_is_as_long_as_can_be(acks: list[tuple[int, int]]) -> None:
    found = list(rows(acks))
    assert [(ledger_id, entry_id) for ledger_id, entries in found for entry_id in entries] == acks
    ledgers = [ledger_id for ledger_id, _ in found]
    assert all(one != other for one, other in itertools.pairwise(ledgers))


@given(ACKS)
def test_by_ledger_each_has_its_own_in_order(acks: list[tuple[int, int]]) -> None:
    answers = by_ledger(acks)
    assert answers == {one: ([e for ledger, e in acks if ledger == one], []) for one, _ in acks}
