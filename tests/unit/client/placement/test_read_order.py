"""The order in which replicas are asked (spec client §9.5, scenario 58)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.client.placement.read_order import ReadOrder, ReplicaClass

L, LF, M, MF, RO, S, U = ReplicaClass


def order(classes: list[ReplicaClass], pending: list[int] | None = None, **rules: object) -> tuple[int, ...]:
    waiting = pending or [0] * len(classes)
    return ReadOrder(**rules).order(range(len(classes)), classes.__getitem__, waiting.__getitem__)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ([L, L, L, L], (0, 1, 2, 3)),
        ([U, L, L, L], (1, 2, 3, 0)),
        ([RO, L, L, L], (0, 1, 2, 3)),
        ([LF, L, L, L], (0, 1, 2, 3)),  # a denial alone changes nothing
        ([LF, L, S, L], (1, 3, 0, 2)),
        ([S, L, L, L], (1, 2, 3, 0)),
        ([U, RO, L, L], (2, 3, 1, 0)),
        ([U, S, RO, LF], (3, 2, 1, 0)),
    ],
)
def test_c_58_down_read_only_slow(classes: list[ReplicaClass], expected: tuple[int, ...]) -> None:
    assert order(classes) == expected


def test_c_58_pending_requests() -> None:
    assert order([L] * 4, [20, 7, 1, 5], pending_threshold=10) == (2, 0, 1, 3)
    assert order([L] * 4, [20, 7, 11, 15], pending_threshold=10) == (1, 0, 2, 3)
    assert order([L] * 4, [20, 11, 11, 15], pending_threshold=10) == (0, 1, 2, 3)
    assert order([L] * 4, [20, 7, 1, 5]) == (0, 1, 2, 3)
    assert order([L, L, U, L], [20, 7, 1, 5], pending_threshold=10) == (0, 1, 3, 2)


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ([L, L, L, M, M], (0, 1, 3, 2, 4)),
        ([M, L, L, L], (1, 2, 0, 3)),
        ([L, M, M], (0, 1, 2)),
        ([M, M, L], (2, 0, 1)),
        ([M, M], (0, 1)),
        ([L, LF, L, MF], (0, 2, 3, 1)),
        ([L, L, L], (0, 1, 2)),
        ([RO, L, L, L, U, M], (1, 2, 5, 3, 0, 4)),
    ],
)
def test_a_replica_of_another_region_is_tried_early(classes: list[ReplicaClass], expected: tuple[int, ...]) -> None:
    assert order(classes, regions=True) == expected


@given(st.lists(st.sampled_from(list(ReplicaClass)), min_size=1, max_size=20), st.booleans(), st.integers(0, 99))
def test_every_replica_is_asked_once_and_worse_classes_later(
    classes: list[ReplicaClass], regions: bool, seed: int
) -> None:
    """More than 16 replicas, too; shuffled or not (Java's quirk 15)."""
    for shuffle in (None, Random(seed)):
        found = order(classes, regions=regions, shuffle=shuffle)
        assert sorted(found) == list(range(len(classes)))
        if not regions and (shuffle is not None or max(classes) > RO):
            assert [classes[i] for i in found] == sorted(classes)


def test_shuffling_mixes_within_a_class() -> None:
    rules = ReadOrder(shuffle=Random(3))
    classes = [L, L, L, U]
    seen = {rules.order(range(4), classes.__getitem__, lambda _: 0) for _ in range(200)}
    assert len(seen) == 6
    assert all(found[3] == 3 for found in seen)
