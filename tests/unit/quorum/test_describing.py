"""The pure states draw themselves, and notice when their relations do not hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.quorum.coverage import AckSet, CoverageSet
from bookkeeper.quorum.distribution import Distribution
from bookkeeper.quorum.ensemble import AskForChange, EnsembleKeeper, EnsemblePolicy, GiveUp, Resend, RetryLater
from bookkeeper.quorum.reading import EntryRead
from bookkeeper.quorum.recovery import Backlog, LedgerRecovery
from bookkeeper.quorum.window import SHOWN, PendingWindow
from bookkeeper.types import BookieId, LedgerState

BOOKIES = tuple(BookieId(f"b{i}") for i in range(1, 10))
UNAVAILABLE, NO_ENTRY, READ_ONLY = -8, -13, -104


def window(size: int = 3, write_quorum: int = 3, ack_quorum: int = 2, count: int = 3) -> PendingWindow:
    found = PendingWindow(Distribution(size, write_quorum, ack_quorum))
    for entry_id in range(count):
        found.push(entry_id, 10, b"frame")
    return found


def test_a_window_is_drawn_on_a_line() -> None:
    w = window()
    w.ack(0, [0, 1])
    w.ack(1, [0])
    w.fail(2, [1])
    w.confirm()
    assert str(w) == "lac=0 head=0 lap=2 length=30 open=[0:aa. 1:a.f 2:...]"
    assert str(window(3, 2, 2, 1)) == "lac=-1 head=-1 lap=0 length=10 open=[0:..-]"


def test_a_long_window_is_not_drawn_whole() -> None:
    assert str(window(count=SHOWN + 5)).endswith(f"{SHOWN - 1}:... and 5 more]")


def test_a_keeper_is_drawn_on_a_line() -> None:
    w = window()
    keeper = EnsembleKeeper(w, BOOKIES[:3], EnsemblePolicy())
    assert str(keeper) == "ensemble=[b1 b2 b3] rounds=0 late=0"
    keeper.on_failures(BOOKIES[1], [(0, UNAVAILABLE)])
    keeper.on_failures(BOOKIES[2], [(0, UNAVAILABLE)])
    assert str(keeper) == "ensemble=[b1 b2:held b3:held:delayed] changing rounds=1 late=0"


def test_a_recovery_is_drawn_on_a_line() -> None:
    r = LedgerRecovery(Distribution(3, 3, 2), {0: BOOKIES[:3]}, batch_size=2)
    r.start_fencing()
    r.on_fence_answer(0, UNAVAILABLE)
    r.on_fence_answer(1, 0, 4, 50)
    assert str(r) == "fencing lac=4 answers=?y."
    r.on_fence_answer(2, NO_ENTRY)
    assert str(r) == (
        "reading start=4 next=5 reads=[5:asked 1 of 3, 0 failed, 6:asked 1 of 3, 0 failed] backlog=0 (0 bytes)"
    )
    r.on_read_answer(5, 2, 0, b"payload", 57)
    assert str(r) == "reading start=4 next=6 reads=[6:asked 1 of 3, 0 failed] backlog=1 (7 bytes)"


def test_a_read_and_the_sets_are_drawn() -> None:
    read = EntryRead((2, 0))
    read.send_next()
    read.fail(NO_ENTRY)
    assert str(read) == "asked 1 of 2, 1 failed"
    read.send_next()
    read.succeed(0)
    assert str(read) == "found at 0"
    acks = AckSet((0, 1, 2), 2)
    acks.complete(0)
    acks.fail(2, UNAVAILABLE)
    acks.check()
    assert str(acks) == "acked=[0] failed={2: -8} needed=2"
    assert str(CoverageSet(Distribution(3, 3, 2))) == "answers=..."


# --- what must hold ---


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda w: setattr(w, "lac", 1), "lac <= head <= lap"),
        (lambda w: setattr(w, "lap", -2), "lac <= head <= lap"),
        (lambda w: setattr(w, "lac", -2), "the LAC follows the head"),
        (lambda w: w.open.pop(1), "bytes"),
        (lambda w: w.push(9, 1, b"f") or w._masks.pop(9), "each has a mask"),
        (lambda w: w._acked_to.__setitem__(0, 9), "acks of what is open"),
        (lambda w: setattr(w, "_settled_to", 0), "what is settled is confirmed"),
        (lambda w: setattr(w, "_settled_to", -2), "the others are open"),
        (lambda w: w._failed.__setitem__(0, 1), "failures are kept by masks"),
        (lambda w: setattr(w, "unsettled_bytes", 3), "bytes"),
        (lambda w: setattr(w, "now", -1.0), "nothing is of the future"),
        (lambda w: w._by_masks().__setitem__(0, 1 << 5), "inside its write set"),
        (lambda w: w._by_masks() and w._failed.__setitem__(0, 0), "has failed somewhere"),
        (lambda w: w._by_masks() and w._failed.__setitem__(7, 1), "failed where it is open"),
    ],
)
def test_a_window_notices_what_does_not_hold(harm: Callable[[PendingWindow], object], says: str) -> None:
    w = window()
    w.check()
    harm(w)
    with pytest.raises(AssertionError, match=says):
        w.check()


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda k: setattr(k, "ensemble", BOOKIES[1:4]), "the index is that of the ensemble"),
        (lambda k: k.held.__setitem__(3, None), "held indexes exist"),
        (lambda k: setattr(k, "changing", True), "a change is about some index"),
        (lambda k: k.delayed.__setitem__(0, BOOKIES[5]), "b6 is at 0"),
        (lambda k: setattr(k.window, "lap", -2), "lac <= head <= lap"),
    ],
)
def test_a_keeper_notices_what_does_not_hold(harm: Callable[[EnsembleKeeper], object], says: str) -> None:
    keeper = EnsembleKeeper(window(), BOOKIES[:3], EnsemblePolicy())
    keeper.check()
    harm(keeper)
    with pytest.raises(AssertionError, match=says):
        keeper.check()


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda r: setattr(r, "_next", 0), "what was asked for"),
        (lambda r: r._reads.clear(), "are being read"),
        (lambda r: r._found.__setitem__(9, (b"", 0)), "not delivered yet"),
        (lambda r: r.recovered.__setitem__(4, BOOKIES[:3]), "above the start"),
        (lambda r: setattr(r._backlog, "bytes", 1), "bytes"),
    ],
)
def test_a_recovery_notices_what_does_not_hold(harm: Callable[[LedgerRecovery], object], says: str) -> None:
    r = LedgerRecovery(Distribution(3, 3, 2), {0: BOOKIES[:3]})
    r.start_fencing()
    r.check()
    for index in range(2):
        r.on_fence_answer(index, 0, 4, 50)
        r.check()
    harm(r)
    with pytest.raises(AssertionError, match=says):
        r.check()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["push", "ack", "fail", "lose", "changed", "refused", "retry", "switch"]),
        st.integers(0, 4),
        st.lists(st.integers(0, 8), max_size=4),
        st.sampled_from([UNAVAILABLE, READ_ONLY]),
    ),
    max_size=50,
)


@settings(max_examples=300)
@given(st.sampled_from([(3, 3, 2), (3, 2, 2), (5, 3, 2), (1, 1, 1)]), STEPS, st.booleans())
def test_whatever_happens_to_a_keeper_its_relations_hold(
    quorum: tuple[int, int, int], steps: list[tuple[str, int, list[int], int]], delay: bool
) -> None:
    size = quorum[0]
    w = PendingWindow(Distribution(*quorum))
    keeper = EnsembleKeeper(w, BOOKIES[:size], EnsemblePolicy(delay_changes=delay))
    asked: AskForChange | None = None
    ended = paused = False
    for action, number, ids, code in steps:
        index = number % size
        bookie = keeper.ensemble[index]
        decision = None
        if ended:
            break
        if action == "push":
            w.now += 1.0
            decision = keeper.before_push()
            w.push(w.lap + 1, 1, b"f")
        elif action == "ack":
            w.ack(index, ids)
            if not keeper.changing:
                w.confirm()
        elif action == "fail":
            decision = keeper.on_failures(bookie, [(entry_id, code) for entry_id in ids])
        elif action == "lose":
            decision = keeper.on_channel_lost(bookie, code)
        elif action == "changed" and asked is not None:
            spare = [other for other in BOOKIES if other not in keeper.ensemble]
            new = list(keeper.ensemble)
            for at, _ in list(asked.failed.items())[: len(spare)]:
                new[at] = spare.pop()
            asked = None
            decision = keeper.on_changed(new)
        elif action == "refused" and asked is not None:
            decision = keeper.on_refused(LedgerState.CLOSED)
        elif action == "retry" and paused:
            paused = False
            decision = keeper.retry()
        elif action == "switch":
            keeper.changes_disabled = not keeper.changes_disabled
        if isinstance(decision, AskForChange):
            asked = decision
        elif isinstance(decision, Resend):
            for again in decision.indexes:
                w.resend(again)
        elif isinstance(decision, GiveUp):
            ended = True
            w.drain()
        elif isinstance(decision, RetryLater):
            paused = True
        keeper.check()


# --- what is being written back ---


@given(st.lists(st.integers(0, 100), max_size=20), st.integers(1, 10), st.integers(1, 300))
def test_a_backlog_counts_what_is_being_written_back(sizes: list[int], entries: int, most: int) -> None:
    backlog = Backlog(entries, most)
    for count, size in enumerate(sizes, 1):
        backlog.add(size)
        backlog.check()
        assert (len(backlog), backlog.bytes) == (count, sum(sizes[:count]))
        assert backlog.full == (count >= entries or sum(sizes[:count]) >= most)
    backlog.done(len(sizes) // 2)
    backlog.check()
    rest = sizes[len(sizes) // 2 :]
    assert (len(backlog), backlog.bytes) == (len(rest), sum(rest))
    with pytest.raises(AssertionError, match="are confirmed"):
        backlog.done(len(rest) + 1)
