"""The writer's window (spec client §5, §6.3; safety PI-14, PI-15), against a naive model of the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bookkeeper.quorum.distribution import Distribution
from bookkeeper.quorum.window import PendingWindow
from tests.support.planted import SAFE, ProtocolRules, planted

QUORUMS = [(1, 1, 1), (2, 2, 1), (2, 2, 2), (3, 3, 2), (3, 2, 2), (3, 2, 1), (4, 3, 2), (5, 3, 2)]


def window(
    size: int = 3, write_quorum: int = 3, ack_quorum: int = 2, *, rules: ProtocolRules | None = None
) -> PendingWindow:
    return planted(PendingWindow, rules or SAFE)(Distribution(size, write_quorum, ack_quorum))


def push(w: PendingWindow, count: int = 1, size: int = 10) -> list[int]:
    ids = []
    for _ in range(count):
        entry_id = w.lap + 1
        w.push(entry_id, size, b"f" * (size + 60))
        ids.append(entry_id)
    return ids


# --- acknowledging ---


def test_an_entry_is_confirmed_at_its_ack_quorum_and_settled_when_all_answered() -> None:
    w = window()
    push(w)
    w.ack(0, [0])
    assert not w.confirm()
    w.ack(1, [0])
    assert list(w.confirm()) == [0]
    assert (w.head, w.lac, list(w.open)) == (0, 0, [0])
    w.ack(2, [0])
    assert (list(w.open), w.unsettled_bytes) == ([], 0)


class Caller:
    """Waits for an entry."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.gone = False

    def done(self) -> bool:
        return self.gone

    def set_result(self, entry_id: int, /) -> None:
        self.told.append(entry_id)


@pytest.mark.parametrize("quorum", [(3, 3, 2), (3, 2, 2), (3, 3, 3)])
@pytest.mark.parametrize("entries", [[0, 1, 2], [1, 0, 2]])
def test_who_waits_is_told_once_when_the_entry_is_confirmed(quorum: tuple[int, int, int], entries: list[int]) -> None:
    w = window(*quorum)
    callers = [Caller() for _ in range(4)]
    for entry_id, caller in enumerate(callers):
        w.push(entry_id, 1, b"frame", caller)
    callers[1].gone = True
    schedule = Distribution(*quorum)
    for entry_id in entries:
        for index in schedule.write_set(entry_id):
            before = w.head
            if w.ack(index, [entry_id]):
                w.confirm()
            for confirmed in range(before + 1, w.head + 1):
                assert callers[confirmed].told == [confirmed] * (confirmed != 1)
            w.check()
    assert [caller.told for caller in callers] == [[0], [], [2], []]
    assert w.drain() == {3: callers[3]}


def test_an_error_of_the_condition_on_acks_leaves_every_entry_pending() -> None:
    w = window()
    callers = [Caller() for _ in range(2)]
    for entry_id, caller in enumerate(callers):
        w.push(entry_id, 1, b"frame", caller)
        for index in range(3):
            w.ack(index, [entry_id])
    asked: list[int] = []

    def fails_at_the_second(acked: int) -> bool:
        asked.append(acked)
        if len(asked) == 2:
            raise ValueError(acked)
        return True

    w.accept = fails_at_the_second
    with pytest.raises(ValueError, match="7"):
        w.confirm()
    assert (w.head, w.pending) == (-1, [0, 1])
    assert w.drain() == dict(enumerate(callers))
    assert [caller.told for caller in callers] == [[], []]


def test_confirmation_is_in_order_whatever_the_order_of_acks() -> None:
    for order in permutations(range(3)):
        w = window()
        push(w, 3)
        confirmed: list[int] = []
        for entry_id in order:
            w.ack(0, [entry_id])
            w.ack(1, [entry_id])
            confirmed += w.confirm()
            assert confirmed == list(range(len(confirmed)))
        assert confirmed == [0, 1, 2]


def test_acks_for_other_entries_and_repeated_acks_count_for_nothing() -> None:
    w = window(3, 2, 2)
    push(w)
    w.ack(0, [0, 0, 7])
    w.ack(2, [0])  # not in the write set
    assert not w.confirm()
    w.ack(1, [0])
    w.confirm()
    w.ack(1, [0])
    assert w.head == 0


def test_the_length_counts_pushed_payloads_and_loses_the_drained_ones() -> None:
    w = window()
    push(w, 3, size=5)
    w.ack(0, [0])
    w.ack(1, [0])
    w.confirm()
    assert w.length == 15
    assert list(w.drain()) == [1, 2]
    assert (w.length, w.lap, w.lac, w.pending) == (5, 0, 0, [])


def test_deferred_sync_moves_the_lac_by_force_only() -> None:
    w = PendingWindow(Distribution(3, 3, 2), deferred_sync=True)
    push(w, 2)
    for index in (0, 1):
        w.ack(index, [0, 1])
    w.confirm()
    assert (w.head, w.lac) == (1, -1)
    w.synced(0)
    assert w.lac == 0
    w.synced(-1)
    assert w.lac == 0


def test_more_than_an_ack_quorum_may_be_asked_for() -> None:
    w = window()
    w.accept = lambda acked: bool(acked & 0b100)
    push(w)
    w.ack(0, [0])
    w.ack(1, [0])
    assert not w.confirm()
    w.ack(2, [0])
    assert list(w.confirm()) == [0]
    assert not w.open


# --- advanced writers ---


def test_ids_of_the_caller_are_confirmed_when_gaps_are_filled() -> None:
    w = window()
    for entry_id in (2, 0):
        assert w.check_id(entry_id) == 0
        w.push(entry_id, 1, b"f")
        w.ack(0, [entry_id])
        w.ack(1, [entry_id])
    assert list(w.confirm()) == [0]
    assert w.check_id(0) == -22  # confirmed
    assert w.check_id(2) == -22  # pending
    assert w.check_id(-1) == -14
    w.push(1, 1, b"f")
    w.ack(0, [1])
    w.ack(1, [1])
    assert list(w.confirm()) == [1, 2]


def test_duplicates_are_seen_with_deferred_sync_too() -> None:
    w = PendingWindow(Distribution(1, 1, 1), deferred_sync=True)
    w.push(0, 1, b"f")
    w.ack(0, [0])
    w.confirm()
    assert w.lac == -1
    assert w.check_id(0) == -22


# --- failures ---


def test_failures_tell_which_entries_still_need_the_bookie() -> None:
    w = window()
    push(w, 3)
    w.ack(0, [0])
    w.ack(1, [0])
    w.confirm()
    marked, incomplete = w.fail(2, [0, 1, 2, 9])
    assert (marked, incomplete) == (3, [1, 2])
    assert 0 not in w.open  # all have answered
    assert w.fail(2, [1]) == (0, [])
    assert w.failed_indexes(1) == [2]
    assert not w.hopeless(1)
    w.fail(1, [1])
    assert w.hopeless(1)


def test_an_ack_after_a_failure_counts() -> None:
    w = window(2, 2, 2)
    push(w)
    w.fail(0, [0])
    w.ack(0, [0])
    assert w.failed_indexes(0) == []
    w.ack(1, [0])
    assert list(w.confirm()) == [0]


def test_what_is_unanswered_at_an_index_is_known() -> None:
    w = window(3, 2, 1)
    push(w, 4)  # write sets 01 12 20 01
    w.ack(0, [0])
    w.fail(0, [2])
    assert w.unanswered(0) == [3]
    assert w.unanswered(1) == [0, 1, 3]


def test_an_entry_without_its_ack_quorum_is_overdue_by_the_time_it_was_pushed() -> None:
    w = window()
    push(w)
    w.now = 10.0
    push(w)
    assert w.overdue(5.0) == 0
    w.ack(0, [0])
    w.ack(1, [0])
    assert w.overdue(5.0) is None
    assert w.overdue(10.0) == 1


# --- ensemble changes ---


def test_a_replaced_bookies_acks_are_revoked_even_from_complete_entries() -> None:
    """S-8: e1 is complete, not confirmed; the change takes that back."""
    w = window()
    push(w, 2)
    w.ack(0, [0, 1])
    w.ack(1, [1])
    w.revoke([1])
    assert w.resend(1) == [0, 1]
    assert w.acked(1) == [0]
    w.ack(1, [0])
    assert list(w.confirm()) == [0]
    w.ack(2, [1])
    assert list(w.confirm()) == [1]


def test_with_mu_9_planted_the_revoked_ack_still_counts() -> None:
    w = window(rules=ProtocolRules(revoke_replaced_acks=False))
    push(w, 1)
    w.ack(0, [0])
    w.ack(1, [0])
    w.revoke([1])
    assert list(w.confirm()) == [0]


def test_with_mu_16_planted_entries_are_confirmed_out_of_order() -> None:
    w = window(rules=ProtocolRules(confirm_in_order=False))
    push(w, 2)
    w.ack(0, [1])
    w.ack(1, [1])
    assert list(w.confirm()) == [0, 1]


def test_a_confirmed_entry_stays_and_waits_no_more_for_a_replaced_bookie() -> None:
    w = window()
    push(w)
    w.ack(0, [0])
    w.ack(1, [0])
    w.confirm()
    w.revoke([2])
    assert not w.open
    assert w.resend(2) == []


def test_an_entry_outside_the_write_set_is_not_resent() -> None:
    w = window(3, 2, 2)
    push(w, 3)  # 01 12 20
    w.revoke([0])
    assert w.resend(0) == [0, 2]


def test_sending_again_to_the_same_bookie_keeps_its_acks() -> None:
    w = window()
    push(w, 2)
    w.ack(0, [0])
    w.fail(0, [1])
    assert w.resend(0) == [1]
    assert w.failed_indexes(1) == []
    assert w.acked(0) == [0]


# --- the model ---


@dataclass
class Naive:
    """What the window must be, written down without any thought of speed."""

    schedule: Distribution
    acked: dict[int, set[int]] = field(default_factory=dict)
    failed: dict[int, set[int]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    pushed: dict[int, float] = field(default_factory=dict)
    latest: dict[int, float] = field(default_factory=dict)
    """By index: when the latest entry was pushed that it acked since it was sent entries again."""
    head: int = -1

    def members(self, entry_id: int) -> set[int]:
        return set(self.schedule.write_set(entry_id))

    def complete(self, entry_id: int) -> bool:
        return len(self.acked[entry_id]) >= self.schedule.ack_quorum

    def confirm(self) -> list[int]:
        confirmed = []
        while self.head + 1 in self.acked and self.complete(self.head + 1):
            self.head += 1
            confirmed.append(self.head)
        return confirmed

    def ack(self, index: int, ids: list[int]) -> None:
        if ids and ids[-1] in self.unsettled():
            self.latest[index] = max(self.latest.get(index, -1), self.pushed[ids[-1]])
        for e in ids:
            if e in self.unsettled() and index in self.members(e):
                self.failed[e].discard(index)
                self.acked[e].add(index)

    def unsettled(self) -> set[int]:
        return {e for e in self.acked if e > self.head or self.acked[e] | self.failed[e] != self.members(e)} - self.gone

    def settle(self) -> None:
        for e in self.acked:
            if e <= self.head and self.acked[e] | self.failed[e] == self.members(e):
                self.gone.add(e)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "ack", "take", "take", "take", "fail", "revoke", "resend", "confirm", "tick"]),
        st.integers(0, 4),
        st.lists(st.integers(0, 12), max_size=6),
    ),
    max_size=60,
)


@settings(max_examples=500)
@given(st.sampled_from(QUORUMS), STEPS, st.booleans())
def test_the_window_agrees_with_the_naive_model(
    quorum: tuple[int, int, int], steps: list[tuple[str, int, list[int]]], advanced: bool
) -> None:
    schedule = Distribution(*quorum)
    w = PendingWindow(schedule)
    naive = Naive(schedule)
    for action, number, ids in steps:
        index = number % schedule.ensemble_size
        if action == "push":
            entry_id = w.lap + 1
            if advanced and ids and w.check_id(ids[0]) == 0:
                entry_id = ids[0]
            w.push(entry_id, number, bytes(number))
            naive.acked[entry_id] = set()
            naive.failed[entry_id] = set()
            naive.sizes[entry_id] = number
            naive.pushed[entry_id] = w.now
        elif action == "tick":
            w.now += 1
        elif action in {"ack", "take"}:
            if action == "take":  # as bookies do: in order
                ids = w.unanswered(index)[:number]
            naive.ack(index, ids)
            if len(ids) == 1:
                w.ack_one(index, ids[0])
            else:
                w.ack(index, ids)
        elif action == "fail":
            expected = [
                e
                for e in dict.fromkeys(ids)
                if e in naive.unsettled()
                and index in naive.members(e)
                and index not in naive.acked[e] | naive.failed[e]
            ]
            incomplete = [e for e in expected if e > naive.head and not naive.complete(e)]
            for e in expected:
                naive.failed[e].add(index)
            assert w.fail(index, ids) == (len(expected), incomplete)
        elif action == "revoke":
            w.revoke([index])
            for e in naive.unsettled():
                if index not in naive.members(e):
                    continue
                if e > naive.head:
                    naive.acked[e].discard(index)
                    naive.failed[e].discard(index)
                elif index not in naive.acked[e]:
                    naive.failed[e].add(index)
        elif action == "resend":
            naive.latest.pop(index, None)
            again = set(w.resend(index))
            assert again == {
                e
                for e in naive.unsettled()
                if index in naive.members(e)
                and index not in naive.acked[e]
                and (e > naive.head or index not in naive.failed[e])
            }
            for e in again:
                naive.failed[e].discard(index)
        elif action == "confirm":
            assert list(w.confirm()) == naive.confirm()
        naive.settle()
        w.check()
        assert w.head == w.lac == naive.head
        assert set(w.open) == naive.unsettled()
        assert w.unsettled_bytes == sum(naive.sizes[e] for e in w.open)
        assert w.length == sum(naive.sizes.values())
        assert w.pending == sorted(e for e in naive.acked if e > naive.head)
        for e in w.open:
            assert set(w.acked(e)) == naive.acked[e]
            assert set(w.failed_indexes(e)) == naive.failed[e]
            assert w.hopeless(e) == (len(naive.failed[e]) > schedule.write_quorum - schedule.ack_quorum)
        for i in range(schedule.ensemble_size):
            unanswered = {e for e in w.open if i in naive.members(e) and i not in naive.acked[e] | naive.failed[e]}
            assert set(w.unanswered(i)) == unanswered
            overtaken = {e for e in unanswered if naive.pushed[e] < naive.latest.get(i, -1)}
            assert set(w.unanswered_before(i, w.acked_times[i])) == overtaken
    drained = list(w.drain())
    w.check()
    assert drained == sorted(e for e in naive.acked if e > naive.head)
    assert w.length == sum(size for e, size in naive.sizes.items() if e <= naive.head)


@pytest.mark.parametrize("quorum", [(2, 2, 1), (2, 2, 2), (3, 3, 2), (3, 2, 2)])
def test_every_order_of_answers_confirms_the_same(quorum: tuple[int, int, int]) -> None:
    """Exhaustive over two entries: all acks in every order; confirmed as soon as possible, never sooner."""
    schedule = Distribution(*quorum)
    answers = [(e, i) for e in range(2) for i in schedule.write_set(e)]
    for order in permutations(answers):
        w = PendingWindow(schedule)
        push(w, 2)
        seen: set[tuple[int, int]] = set()
        for entry_id, index in order:
            w.ack(index, [entry_id])
            w.confirm()
            seen.add((entry_id, index))
            acks = [sum((e, i) in seen for i in schedule.write_set(e)) for e in range(2)]
            expected = -1 + (acks[0] >= quorum[2]) + (acks[0] >= quorum[2] and acks[1] >= quorum[2])
            assert w.lac == expected
        assert not w.open


RUNS = st.builds(lambda first, count: [*range(first, first + count)], st.integers(-1, 8), st.integers(1, 4))


@given(
    st.lists(
        st.one_of(
            st.just(("push",)),
            st.tuples(st.just("ack"), st.integers(0, 2), st.integers(-1, 8)),
            st.tuples(st.just("fail"), st.integers(0, 2), st.integers(0, 8)),
            st.tuples(st.just("all"), RUNS | st.lists(st.integers(-1, 8), min_size=1, max_size=3), st.booleans()),
            st.tuples(st.just("next"), st.integers(-1, 8)),
            st.just(("confirm",)),
        ),
        max_size=40,
    ),
    st.sampled_from([(3, 3, 2), (3, 3, 3), (3, 2, 2)]),
)
@example([("push",), ("push",), ("all", [0, 0], True)], (3, 3, 2))
@example([("push",), ("push",), ("all", [0, -1], True)], (3, 3, 2))
@example(
    [("push",), ("push",), ("ack", 0, 0), ("ack", 0, 1), ("all", [0], True), ("ack", 1, 1), ("ack", 2, 1)], (3, 3, 2)
)
def test_acks_of_all_are_those_of_each(steps: list[tuple[Any, ...]], quorum: tuple[int, int, int]) -> None:
    together, one_by_one = window(*quorum), window(*quorum)
    for step in steps:
        if step[0] == "all":
            before = together.head
            confirmed = step[2] and together.confirm_row(step[1])
            each = [one_by_one.ack(index, step[1]) for index in range(3)]
            if confirmed:
                assert any(each)
                assert [*one_by_one.confirm()] == [*range(before + 1, together.head + 1)] == step[1]
            else:
                assert together.ack_by(range(3), step[1]) == any(each)
                if any(each):
                    assert together.confirm() == one_by_one.confirm()
        elif step[0] == "next" and together.confirm_next(step[1]):
            ready = [one_by_one.ack(index, [step[1]]) for index in range(3)]
            assert any(ready)
            assert [*one_by_one.confirm()] == [step[1]]
        for w in (together, one_by_one):
            if step[0] == "push":
                push(w)
            elif step[0] == "ack":
                w.ack(step[1], [step[2]])
            elif step[0] == "fail":
                w.fail(step[1], [step[2]])
            elif step[0] == "confirm":
                w.confirm()
        together.check()
        assert str(together) == str(one_by_one)
        assert (together.unsettled_bytes, together.acked_times) == (one_by_one.unsettled_bytes, one_by_one.acked_times)


@given(
    st.lists(
        st.one_of(
            st.just(("push",)),
            st.tuples(st.just("tick")),
            st.tuples(st.just("ack"), st.integers(0, 2), st.lists(st.integers(-1, 8), min_size=1, max_size=4)),
            st.tuples(st.just("fail"), st.integers(0, 2), st.integers(0, 8)),
        ),
        max_size=40,
    )
)
def test_acks_one_by_one_are_the_same_as_together(steps: list[tuple[Any, ...]]) -> None:
    together, one_by_one = window(), window()
    for step in steps:
        for w in (together, one_by_one):
            if step[0] == "push":
                push(w)
            elif step[0] == "tick":
                w.now += 1
            elif step[0] == "fail":
                w.fail(step[1], [step[2]])
        if step[0] == "ack":
            ready = together.ack(step[1], step[2])
            assert [one_by_one.ack_one(step[1], entry_id) for entry_id in step[2]][-1] == ready
            if ready:
                assert together.confirm() == one_by_one.confirm()
        together.check()
        assert str(together) == str(one_by_one)
        assert together.unsettled_bytes == one_by_one.unsettled_bytes
        times = [together.acked_times[i] <= one_by_one.acked_times[i] for i in range(3)]
        assert all(times), "of acks together the last tells the time"
        for time in range(5):
            assert together.any_before(time) == any(pushed < time for _, pushed, _, _ in together.open.values())
