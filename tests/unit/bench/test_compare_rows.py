"""Which rows a comparison takes, and with which versions of Java's."""

from __future__ import annotations

import pytest

from bench.compare.clients import Clients
from bench.compare.pairs import best, turn
from bench.compare.report import HIGHER, LOWER
from bench.compare.rows import Row, choose, rows, versions_for
from tests.interop.support.cluster import JAVA, OURS

ALL = rows(Clients.__new__(Clients))  # rows only hold its methods


def names(chosen: list[Row]) -> list[str]:
    return [row.name for row in chosen]


def row(name: str, *, quick: bool = False, many: bool = False, needs: str = "") -> Row:
    figures = {"rate": HIGHER, "p99_ms": LOWER}
    return Row(name, lambda system, who: {}, figures, quick=quick, many=many, needs=needs)


def test_names_are_unique_and_what_a_row_needs_comes_before_it() -> None:
    order = names(ALL)
    assert len(set(order)) == len(order)
    for each in ALL:
        assert not each.needs or order.index(each.needs) < order.index(each.name)
        assert set(each.goals) <= set(each.figures)


def test_without_a_wish_all_rows_are_taken() -> None:
    assert choose(ALL) == ALL


def test_a_quick_run_takes_what_is_marked_and_what_that_needs() -> None:
    found = choose([row("a"), row("b"), row("c", quick=True, needs="b")], quick=True)
    assert names(found) == ["b", "c"]
    real = choose(ALL, quick=True)
    assert {each.name for each in ALL if each.quick} == set(names(real))


@pytest.mark.parametrize("quick", [True, False])
def test_a_row_is_chosen_by_its_name_or_a_part_of_it_quick_or_not(quick: bool) -> None:
    some = [row("add 1"), row("add 10"), row("read", needs="add 1")]
    assert names(choose(some, quick=quick, names=["add 1"])) == ["add 1"]
    assert names(choose(some, quick=quick, names=["read"])) == ["add 1", "read"]
    assert names(choose(some, quick=quick, only="add")) == ["add 1", "add 10"]


def test_an_unknown_name_is_told() -> None:
    with pytest.raises(ValueError, match="'add'"):
        choose([row("add 1")], names=["add"])
    with pytest.raises(ValueError, match="'read'"):
        choose([row("add 1")], only="read")


def test_a_quick_run_asks_one_version_of_javas() -> None:
    both = ["old", "new"]
    assert versions_for(row("a"), both, quick=False) == both
    assert versions_for(row("a"), both, quick=True) == ["old"]
    assert versions_for(row("a", many=True), both, quick=True) == ["new"]
    assert versions_for(row("a", many=True), ["old"], quick=True) == ["old"]


def test_the_better_version_counts_figure_by_figure() -> None:
    found = [{"rate": 5.0, "p99_ms": 2.0, "other": 1.0}, {"rate": 7.0, "p99_ms": 3.0, "other": 1.0}]
    assert best(row("a"), found) == {"rate": 7.0, "p99_ms": 2.0}


def test_they_take_turns() -> None:
    assert [turn(number) for number in range(3)] == [(JAVA, OURS), (OURS, JAVA), (JAVA, OURS)]
