"""An export is finished only when what was written is what was planned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.spark.errors import ExportError
from bookkeeper.spark.jobs.export_check import added_up
from bookkeeper.spark.jobs.export_manifest import Exported
from bookkeeper.spark.planning import EntryRange, Plan, Snapshot
from bookkeeper.types import BookieId, LedgerState

SIZE = 10


def snapshot(ledger_id: int, entries: int, closed: bool = True) -> Snapshot:
    record = LedgerMetadata(
        ledger_id,
        1,
        1,
        1,
        {0: (BookieId("b:1"),)},
        state=LedgerState.CLOSED if closed else LedgerState.OPEN,
        last_entry_id=entries - 1 if closed else -1,
        length=entries * SIZE if closed else 0,
    )
    return Snapshot(record, entries - 1, entries * SIZE)


def row(*counts: tuple[int, int]) -> Any:
    """A file with so many entries of these ledgers."""
    return SimpleNamespace(
        ledgers=[ledger_id for ledger_id, _ in counts],
        ledger_rows=[count for _, count in counts],
        ledger_bytes=[count * SIZE for _, count in counts],
    )


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    cuts=st.lists(st.integers(1, 4), min_size=5, max_size=5),
)
def test_whole_ledgers_in_any_number_of_files_add_up(sizes: list[int], cuts: list[int]) -> None:
    partitions, rows = [], []
    for ledger_id, (entries, cut) in enumerate(zip(sizes, cuts, strict=False)):
        for first in range(0, entries, cut):
            last = min(first + cut, entries) - 1
            partitions.append((EntryRange(ledger_id, first, last, 0),))
            rows.append(row((ledger_id, last - first + 1)))
    plan = Plan(tuple(snapshot(ledger_id, entries) for ledger_id, entries in enumerate(sizes)), tuple(partitions))
    listed = added_up(plan, rows, {}, True)
    assert [(each["entries"], each["payload_bytes"]) for each in listed] == [(n, n * SIZE) for n in sizes]
    assert [each["last_entry"] for each in listed] == [n - 1 for n in sizes]
    if rows:
        with pytest.raises(ExportError, match="entries came out of"):
            added_up(plan, rows[1:], {}, True)
        with pytest.raises(ExportError, match="entries came out of"):
            added_up(plan, [*rows, rows[0]], {}, False)


def test_entries_that_are_lost_are_allowed_only_when_asked_for() -> None:
    plan = Plan((snapshot(1, 4),), ((EntryRange(1, 0, 3, 0),),))
    assert added_up(plan, [row((1, 3))], {}, False)[0]["entries"] == 3
    with pytest.raises(ExportError, match="ledger 1: 3 entries came out of 4"):
        added_up(plan, [row((1, 3))], {}, True)


def test_entries_of_a_ledger_that_was_not_planned_are_an_error() -> None:
    with pytest.raises(ExportError, match="ledger 9: 2 entries came out of none"):
        added_up(Plan((), ()), [row((9, 2))], {}, True)


def test_bytes_count_together_with_those_of_earlier_exports() -> None:
    plan = Plan((snapshot(1, 4),), ((EntryRange(1, 3, 3, 0),),))
    assert added_up(plan, [row((1, 1))], {1: Exported(2, 3, 3 * SIZE, False)}, True)[0]["first_entry"] == 3
    with pytest.raises(ExportError, match="ledger 1: 41 payload bytes came out, and its metadata say 40"):
        added_up(plan, [row((1, 1))], {1: Exported(2, 3, 3 * SIZE + 1, False)}, True)


def test_a_ledger_without_news_is_left_out_until_it_is_closed() -> None:
    before = {1: Exported(3, 4, 4 * SIZE, False)}
    assert added_up(Plan((snapshot(1, 4, closed=False),), ()), [], before, True) == []
    assert added_up(Plan((snapshot(1, 4),), ()), [], before, True)[0]["closed"]
