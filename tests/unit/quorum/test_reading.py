"""Outcome of reading one entry (spec client §9.3, §10.3)."""

from __future__ import annotations

from itertools import permutations

import pytest

from bookkeeper.quorum.distribution import quorum_coverage
from bookkeeper.quorum.reading import EntryRead, first_error

OK, NE, NL, NA, TO, BAD, BUSY = 0, -13, -7, -8, -23, -5, -105


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([NE, NE, NE], NE),
        ([NE, TO, NE], TO),
        ([TO, NE, NE], TO),
        ([NA, NE, NE], NA),
        ([NA, BAD, NE], BAD),
        ([NA, NA, BAD], BAD),
        ([TO, TO, BAD], TO),
        ([BAD, TO, TO], BAD),
        ([NE, NA, BAD], BAD),
        ([NL, NE, NL], NL),
        ([BUSY, NA, NE], BUSY),
    ],
)
def test_the_error_of_an_entry(answers: list[int], expected: int) -> None:
    error = OK
    for code in answers:
        error = first_error(error, code)
    assert error == expected
    read = EntryRead((0, 1, 2))
    assert run(read, answers) == expected


def run(read: EntryRead, answers: list[int]) -> int | None:
    for code in answers:
        if read.outcome is not None:
            break
        index = read.send_next()
        assert index is not None
        if code == OK:
            read.succeed(index)
        else:
            read.fail(code)
    return read.outcome


@pytest.mark.parametrize(
    ("write_quorum", "ack_quorum", "answers", "expected", "used"),
    [
        (3, 2, [NE, TO, NE], NE, 3),
        (3, 2, [TO, NE, TO], TO, 3),
        (3, 2, [NE, NE], NE, 2),
        (3, 2, [NA, NE, OK], OK, 3),
        (2, 2, [NE], NE, 1),
        (3, 3, [NE], NE, 1),
        (3, 1, [NE, TO, NE], TO, 3),
        (3, 1, [NL, NE, NE], NE, 3),
    ],
)
def test_recovery_reads_end_the_ledger_at_a_quorum_coverage_of_denials(
    write_quorum: int, ack_quorum: int, answers: list[int], expected: int, used: int
) -> None:
    """SEC-32."""
    read = EntryRead(range(write_quorum), negatives_to_end=quorum_coverage(write_quorum, ack_quorum))
    assert run(read, answers) == expected
    assert len(read.asked) == used


def test_replicas_are_asked_in_order_and_the_first_good_copy_wins() -> None:
    read = EntryRead((2, 0, 1))
    assert read.send_next() == 2
    assert not read.idle
    read.fail(NA)
    assert read.idle
    assert read.send_next() == 0
    assert read.succeed(0)
    assert (read.outcome, read.winner, read.asked) == (OK, 0, (2, 0))
    assert read.send_next() is None


def test_a_speculative_request_is_one_more_and_its_answer_may_come_first() -> None:
    read = EntryRead((0, 1, 2))
    read.send_next()
    assert read.send_next() == 1
    read.fail(NE)
    assert not read.idle
    assert read.succeed(0)
    assert not read.succeed(1)
    read.fail(TO)
    assert read.outcome == OK


@pytest.mark.parametrize("order", list(permutations([0, 1, 2])))
def test_asked_all_at_once_one_good_copy_is_enough(order: tuple[int, ...]) -> None:
    """Reading in parallel is asking everybody before anybody has answered."""
    for codes, expected in [((TO, NE, OK), OK), ((BAD, NA, OK), OK), ((OK, NE, NE), OK), ((NE, NL, NE), None)]:
        read = EntryRead((0, 1, 2))
        assert [read.send_next() for _ in range(4)] == [0, 1, 2, None]
        for place in order:
            if codes[place] == OK:
                read.succeed(place)
            else:
                read.fail(codes[place])
        assert read.outcome == (codes[order[-1]] if expected is None else expected)


def test_asked_all_at_once_the_error_is_the_first_telling_one() -> None:
    for codes, expected in [((NE, TO, BAD), TO), ((NA, BAD, NE), BAD), ((BAD, TO, NA), BAD), ((NE, NE, NE), NE)]:
        read = EntryRead((0, 1, 2))
        while read.send_next() is not None:
            pass
        for code in codes:
            assert read.outcome is None
            read.fail(code)
        assert read.outcome == expected


def test_an_error_is_final_only_when_every_replica_answered() -> None:
    """RI-13."""
    read = EntryRead((0, 1))
    read.send_next()
    read.fail(TO)
    assert read.outcome is None
    read.send_next()
    read.fail(TO)
    assert read.outcome == TO
