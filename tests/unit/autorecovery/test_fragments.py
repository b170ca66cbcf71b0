"""The parts of a ledger (spec autorecovery-admin §5.1)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.autorecovery.fragments import Fragment, fragments_of, open_end_at_risk
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.quorum.distribution import Distribution
from bookkeeper.types import BookieId, Quorums

QUORUMS = [Quorums(e, w, w) for e in range(1, 6) for w in range(1, e + 1)]


def bookies(names: str) -> tuple[BookieId, ...]:
    return tuple(BookieId(f"{name}:3181") for name in names)


def ledger(ensembles: dict[int, str], write_quorum: int = 2) -> LedgerMetadata:
    members = {first: bookies(names) for first, names in ensembles.items()}
    return LedgerMetadata(7, len(members[0]), write_quorum, 1, members)


def fragment(first: int, last: int, quorums: Quorums) -> Fragment:
    return Fragment(7, first, last, bookies("abcdefgh"[: quorums.ensemble_size]), quorums, settled=True)


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (100, 119, [(100, 116 + 3), (100, 116), (101, 117), (102, 118), (103, 119)]),
        (100, 101, [(100, 100), (100, 101), (101, 101), None, None]),
    ],
)
def test_the_vectors_of_the_specification(first: int, last: int, expected: list[tuple[int, int] | None]) -> None:
    part = fragment(first, last, Quorums(5, 2, 2))
    assert [part.ends(index) for index in range(5)] == expected


@given(st.sampled_from(QUORUMS), st.integers(0, 2**62), st.integers(0, 40))
def test_an_index_holds_what_the_schedule_says(quorums: Quorums, first: int, count: int) -> None:
    part = fragment(first, first + count - 1, quorums)
    schedule = Distribution(*quorums)
    for index in range(quorums.ensemble_size):
        held = [entry for entry in range(first, first + count) if schedule.has_entry(entry, index)]
        assert list(part.holds(index)) == held
        assert part.ends(index) == ((held[0], held[-1]) if held else None)


@given(st.sampled_from(QUORUMS), st.integers(0, 200), st.integers(0, 100), st.integers(0, 2**32))
def test_a_sample_has_both_ends_and_only_what_is_held(quorums: Quorums, count: int, percentage: int, seed: int) -> None:
    part = fragment(5, 5 + count - 1, quorums)
    for index in range(quorums.ensemble_size):
        held = list(part.holds(index))
        chosen = list(part.sample(index, percentage, random.Random(seed)))
        assert chosen == sorted(set(chosen) & set(held))
        assert held[:1] == chosen[:1]
        assert held[-1:] == chosen[-1:]
        if percentage == 100:
            assert chosen == held


def test_a_closed_ledger_is_settled_throughout() -> None:
    parts = fragments_of(ledger({0: "ab", 4: "ab", 9: "ac"}).close(8, 100), 8)
    assert [(part.first, part.last, part.settled) for part in parts] == [(0, 3, True), (4, 8, True), (9, 8, True)]


def test_of_an_empty_closed_ledger_there_is_a_fragment_without_entries() -> None:
    (part,) = fragments_of(ledger({0: "ab"}).close(-1, 0), -1)
    assert (part.first, part.last, part.ends(0), part.settled) == (0, -1, None, True)


@pytest.mark.parametrize(("last_confirmed", "settled"), [(7, False), (8, True), (20, True)])
def test_below_the_current_ensemble_an_open_ledger_is_settled_once_it_is_confirmed(
    last_confirmed: int, settled: bool
) -> None:
    """The same bookies are in both ensembles: the keys tell them apart."""
    parts = fragments_of(ledger({0: "ab", 9: "ab"}), last_confirmed)
    assert [part.settled for part in parts] == [settled, False]


def test_nothing_is_settled_while_a_ledger_is_recovered() -> None:
    assert not any(part.settled for part in fragments_of(ledger({0: "ab", 9: "ac"}).in_recovery(), 30))


@pytest.mark.parametrize(
    ("last_confirmed", "writable", "at_risk"),
    [(8, "ac", False), (7, "ac", True), (7, "abc", False), (20, "ab", True)],
)
def test_the_end_of_an_open_ledger_is_at_risk(last_confirmed: int, writable: str, at_risk: bool) -> None:
    record = ledger({0: "ab", 9: "ac"})
    assert open_end_at_risk(record, last_confirmed, bookies(writable)) is at_risk
    assert not open_end_at_risk(record.close(10, 5), 10, bookies(""))
