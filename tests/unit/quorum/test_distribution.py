"""Write sets (spec client §4.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.quorum.distribution import Distribution, quorum_coverage

QUORUMS = [(e, w, a) for e in range(1, 7) for w in range(1, e + 1) for a in range(1, w + 1)]


@pytest.mark.parametrize(
    ("size", "write_quorum", "expected"),
    [
        (3, 3, ["012", "120", "201", "012"]),
        (5, 3, ["012", "123", "234", "340", "401", "012"]),
        (3, 2, ["01", "12", "20", "01"]),
        (4, 3, ["012", "123", "230", "301", "012"]),
    ],
)
def test_write_sets_are_those_of_the_specification(size: int, write_quorum: int, expected: list[str]) -> None:
    schedule = Distribution(size, write_quorum, 1)
    assert ["".join(map(str, schedule.write_set(entry))) for entry in range(len(expected))] == expected


@given(st.sampled_from(QUORUMS), st.integers(0, 2**63 - 1))
def test_a_write_set_is_consecutive_and_starts_at_the_entry_id(quorum: tuple[int, int, int], entry_id: int) -> None:
    size, write_quorum, ack_quorum = quorum
    schedule = Distribution(size, write_quorum, ack_quorum)
    indexes = schedule.write_set(entry_id)
    assert indexes == tuple((entry_id + i) % size for i in range(write_quorum))
    assert schedule.ensemble_set(entry_id)[:write_quorum] == indexes
    assert sorted(schedule.ensemble_set(entry_id)) == list(range(size))
    assert [i for i in range(size) if schedule.has_entry(entry_id, i)] == sorted(indexes)
    assert schedule.masks[entry_id % size] == sum(1 << i for i in indexes)


def test_ids_beyond_32_bits_are_not_narrowed() -> None:
    assert Distribution(3, 2, 2).write_set(2**31) == (2**31 % 3, (2**31 + 1) % 3)


@pytest.mark.parametrize("quorum", [(2, 3, 1), (3, 2, 3), (3, 2, 0)])
def test_quorums_must_descend_to_one(quorum: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="do not descend"):
        Distribution(*quorum)


@pytest.mark.parametrize(("write_quorum", "ack_quorum", "expected"), [(3, 2, 2), (2, 2, 1), (3, 1, 3), (3, 3, 1)])
def test_quorum_coverage(write_quorum: int, ack_quorum: int, expected: int) -> None:
    assert quorum_coverage(write_quorum, ack_quorum) == expected
