"""Coverage and ack sets (spec client §4.2, §4.3; safety §1.1)."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from bookkeeper.quorum.coverage import NO_ANSWER, AckSet, CoverageSet
from bookkeeper.quorum.distribution import Distribution, quorum_coverage

OK, NE, NL, NA, TO = 0, -13, -7, -8, -23
LIMBO = -108


def covered_after(quorum: tuple[int, int, int], answers: list[tuple[int, int]]) -> list[bool]:
    coverage = CoverageSet(Distribution(*quorum))
    trace = []
    for index, code in answers:
        coverage.add(index, code)
        trace.append(coverage.covered)
    return trace


@pytest.mark.parametrize(
    ("quorum", "answers", "expected"),
    [
        ((3, 3, 2), [(0, NL)], "F"),
        ((3, 3, 2), [(0, NL), (1, NA)], "FF"),
        ((3, 3, 2), [(0, NA), (1, OK), (2, NL)], "FFT"),
        ((3, 3, 2), [(0, NA), (1, OK), (2, NA)], "FFF"),
        ((3, 3, 2), [(0, TO), (1, NE), (2, OK)], "FFT"),
        ((5, 3, 2), [(0, OK), (1, OK), (2, OK), (3, NE)], "FFFT"),
        ((5, 3, 2), [(0, OK), (2, OK), (4, OK)], "FFF"),
        ((5, 3, 2), [(0, NA), (1, OK), (2, OK), (3, OK), (4, NA)], "FFFFF"),
        ((5, 3, 2), [(0, NA), (1, OK), (2, OK), (3, OK), (4, NL)], "FFFFT"),
        ((3, 2, 2), [(0, OK), (1, NL)], "FT"),
        ((3, 2, 2), [(0, OK), (1, NA), (2, NA)], "FFF"),
        ((3, 2, 2), [(0, NA), (1, NE), (2, NE)], "FFT"),
        ((4, 3, 1), [(0, OK), (1, OK), (2, OK)], "FFF"),
        ((4, 3, 1), [(0, OK), (1, OK), (2, NA), (3, OK)], "FFFF"),
        ((4, 3, 1), [(0, NL), (1, OK), (2, NE), (3, OK)], "FFFT"),
        ((2, 2, 2), [(0, NL)], "T"),
        ((2, 2, 2), [(0, NA), (1, OK)], "FT"),
    ],
)
def test_worked_traces(quorum: tuple[int, int, int], answers: list[tuple[int, int]], expected: str) -> None:
    assert "".join("T" if c else "F" for c in covered_after(quorum, answers)) == expected


@pytest.mark.parametrize(
    ("quorum", "smallest"),
    [((3, 3, 2), 2), ((5, 3, 2), 4), ((3, 2, 2), 2), ((4, 3, 1), 4), ((2, 2, 2), 1), ((6, 3, 2), 4), ((4, 2, 2), 2)],
)
def test_smallest_covering_set(quorum: tuple[int, int, int], smallest: int) -> None:
    sizes = [
        size
        for size in range(quorum[0] + 1)
        for known in combinations(range(quorum[0]), size)
        if (covered_after(quorum, [(i, OK) for i in known]) or [False])[-1]
    ]
    assert min(sizes) == smallest


def test_a_widely_striped_ensemble_is_covered_by_fewer_than_the_count_says() -> None:
    for known in [(0, 1, 3, 4), (1, 2, 4, 5), (0, 2, 3, 5)]:
        assert covered_after((6, 3, 2), [(i, OK) for i in known])[-1]
    assert not covered_after((6, 3, 2), [(i, OK) for i in (0, 1, 2, 3)])[-1]
    assert covered_after((4, 2, 2), [(0, OK), (2, OK)])[-1]


@pytest.mark.parametrize("size", range(1, 6))
def test_covered_means_that_no_write_set_holds_an_unheard_ack_quorum(size: int) -> None:
    """Exhaustive: every quorum, every vector of answers."""
    for write_quorum in range(1, size + 1):
        for ack_quorum in range(1, write_quorum + 1):
            schedule = Distribution(size, write_quorum, ack_quorum)
            for codes in product([OK, NE, TO, NO_ANSWER], repeat=size):
                coverage = CoverageSet(schedule)
                for index, code in enumerate(codes):
                    coverage.add(index, code)
                unheard = {i for i, code in enumerate(codes) if code not in (OK, NE, NL)}
                possible = any(len(unheard & set(ws)) >= ack_quorum for ws in schedule.write_sets)
                assert coverage.covered == (not possible)
                if size == write_quorum:  # the definitions of quorum coverage agree
                    assert coverage.covered == (size - len(unheard) >= quorum_coverage(write_quorum, ack_quorum))
                assert coverage.complete == (NO_ANSWER not in codes)


def test_a_bookie_in_limbo_covers_nothing() -> None:
    assert covered_after((3, 3, 2), [(0, LIMBO), (1, LIMBO), (2, OK)]) == [False, False, False]


def test_a_later_answer_replaces_an_earlier_one() -> None:
    assert covered_after((2, 2, 2), [(0, OK), (0, TO)]) == [True, False]


@pytest.mark.parametrize(
    ("quorum", "entry", "members", "complete", "fail"),
    [
        ((3, 3, 2), 0, (0, 1, 2), "FTT", "FTT"),
        ((5, 3, 2), 3, (3, 4, 0), "FTT", "FTT"),
        ((3, 2, 2), 2, (2, 0), "FT", "TT"),
        ((4, 3, 1), 1, (1, 2, 3), "TTT", "FFT"),
    ],
)
def test_ack_sets(quorum: tuple[int, int, int], entry: int, members: tuple[int, ...], complete: str, fail: str) -> None:
    schedule = Distribution(*quorum)
    assert schedule.write_set(entry) == members

    def trace(results: list[bool]) -> str:
        return "".join("T" if result else "F" for result in results)

    acks = AckSet(members, quorum[2])
    assert trace([acks.complete(i) for i in members]) == complete
    acks = AckSet(members, quorum[2])
    assert trace([acks.fail(i, NA) for i in members]) == fail
    assert acks.failed == dict.fromkeys(members, NA)


def test_removing_an_index_forgets_its_ack_and_its_failure() -> None:
    acks = AckSet((0, 1, 2), 2)
    acks.complete(0)
    acks.complete(1)
    assert not acks.remove(0)
    assert acks.complete(2)
    acks.fail(0, NA)
    assert acks.remove(0)
    assert acks.failed == {}
