"""What recovery concludes (spec client §10.2 to §10.5; safety §2)."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.errors import UnexpectedError
from bookkeeper.quorum.distribution import Distribution
from bookkeeper.quorum.recovery import (
    Action,
    Close,
    Fail,
    Fence,
    LedgerRecovery,
    Phase,
    ReadFrom,
    WriteBack,
    closing_ensembles,
)
from bookkeeper.types import BookieId
from tests.support.planted import SAFE, ProtocolRules, UnfencedRead, WriteBackWithOwnLac, planted

B1, B2, B3, B4 = (BookieId(f"b{i}") for i in range(1, 5))
OK, NE, NL, NA, TO, BAD, EUA, LIMBO = 0, -13, -7, -8, -23, -5, -102, -108


def recovery(
    quorum: tuple[int, int, int] = (3, 3, 2),
    ensembles: dict[int, tuple[BookieId, ...]] | None = None,
    *,
    batch: int = 1,
    max_batch: int = 1,
    rules: ProtocolRules | None = None,
    max_write_backs: int = 1000,
    max_write_back_bytes: int = 64 << 20,
) -> LedgerRecovery:
    return planted(LedgerRecovery, rules or SAFE)(
        Distribution(*quorum),
        ensembles or {0: (B1, B2, B3)},
        batch_size=batch,
        max_batch_size=max_batch,
        max_write_backs=max_write_backs,
        max_write_back_bytes=max_write_back_bytes,
    )


def fenced(r: LedgerRecovery, *answers: tuple[int, int, int]) -> list[Action]:
    """Answer the fencing reads in index order with (code, lac, length); the last actions."""
    actions: list[Action] = r.start_fencing()
    for index, (code, lac, length) in enumerate(answers):
        actions = r.on_fence_answer(index, code, lac, length)
    return actions


def reads(actions: list[Action]) -> list[tuple[int, int]]:
    return [(a.entry_id, a.index) for a in actions if isinstance(a, ReadFrom)]


def test_the_worked_example() -> None:
    r = recovery()
    assert r.start_fencing() == [Fence(0, B1), Fence(1, B2), Fence(2, B3)]
    assert r.on_fence_answer(0, OK, 0, 20) == []
    actions = r.on_fence_answer(1, OK, 1, 30)
    assert actions == [ReadFrom(2, 2, B3)]
    assert r.on_fence_answer(2, NA) == []  # too late to matter
    assert r.on_read_answer(2, 2, NA) == [ReadFrom(2, 0, B1)]
    assert r.on_read_answer(2, 0, NE) == [ReadFrom(2, 1, B2)]
    actions = r.on_read_answer(2, 1, OK, b"e2", 30)
    assert actions == [WriteBack(2, b"e2", 30, lac=1), ReadFrom(3, 0, B1)]
    r.on_ensemble_changed(2, (B1, B2, B4))
    assert r.on_written_back() == []
    assert r.on_read_answer(3, 0, NE) == [ReadFrom(3, 1, B2)]
    assert r.on_read_answer(3, 1, NE) == [Close(2, 30)]
    assert closing_ensembles({0: (B1, B2, B3)}, r.recovered) == {0: (B1, B2, B3), 2: (B1, B2, B4)}


# --- fencing ---


def test_fencing_fails_when_all_answered_and_too_few_are_known() -> None:
    assert fenced(recovery(), (NA, -1, 0), (OK, 3, 9), (NA, -1, 0)) == [Fail(-1)]
    assert fenced(recovery(), (NA, -1, 0), (OK, 3, 9), (TO, -1, 0)) == [Fail(TO)]


def test_a_wrong_password_fails_at_once() -> None:
    assert fenced(recovery(), (EUA, -1, 0)) == [Fail(EUA)]


def test_a_bookie_in_limbo_does_not_count_as_fenced() -> None:
    assert fenced(recovery(), (LIMBO, -1, 0), (OK, -1, 0)) == []


def test_a_damaged_last_entry_counts_as_fenced_and_tells_no_lac() -> None:
    """JH-13, SEC-33."""
    r = recovery()
    assert reads(fenced(r, (OK, -1, 0), (OK, 4, 50))) == [(5, 2)]
    assert r.start == 4


def test_reading_never_begins_below_the_last_fragment() -> None:
    """S-2, #2615. FX-2."""
    ensembles = {0: (B1, B2), 5: (B3, B4)}
    r = recovery((2, 2, 2), ensembles)
    assert fenced(r, (NE, -1, 0)) == [ReadFrom(5, 1, B4)]
    wrong = recovery((2, 2, 2), ensembles, rules=ProtocolRules(lac_floor=False))
    assert fenced(wrong, (NE, -1, 0)) == [ReadFrom(0, 0, B1)]


# --- reading ---


def at_entry_zero(*, rules: ProtocolRules | None = None, **more: int) -> LedgerRecovery:
    r = recovery(rules=rules, **more)  # type: ignore[arg-type]
    fenced(r, (NE, -1, 0), (NE, -1, 0))
    return r


def test_silence_is_not_denial() -> None:
    r = at_entry_zero()
    r.on_read_answer(0, 0, NE)
    r.on_read_answer(0, 1, TO)
    assert r.on_read_answer(0, 2, TO) == [Fail(TO)]
    wrong = at_entry_zero(rules=ProtocolRules(unknown_is_not_negative=False))
    wrong.on_read_answer(0, 0, NE)
    assert wrong.on_read_answer(0, 1, TO) == [Close(-1, 0)]


def test_limbo_is_not_denial() -> None:
    r = at_entry_zero()
    r.on_read_answer(0, 0, NE)
    assert reads(r.on_read_answer(0, 1, LIMBO)) == [(0, 2)]
    assert r.on_read_answer(0, 2, LIMBO) == [Fail(LIMBO)]


def test_one_denial_does_not_end_the_ledger() -> None:
    """SEC-32."""
    r = at_entry_zero()
    assert reads(r.on_read_answer(0, 0, NE)) == [(0, 1)]
    wrong = at_entry_zero(rules=ProtocolRules(negatives_need_coverage=False))
    assert wrong.on_read_answer(0, 0, NE) == [Close(-1, 0)]


def test_reads_fence_unless_mu_1_is_planted() -> None:
    wrong = recovery(rules=ProtocolRules(fencing_reads=False))
    (read,) = fenced(wrong, (NE, -1, 0), (NE, -1, 0))
    assert read == UnfencedRead(0, 0, B1)


def test_a_speculative_read_asks_the_next_replica() -> None:
    r = at_entry_zero()
    assert reads(r.speculate(0)) == [(0, 1)]
    assert r.speculate(7) == []
    assert r.on_read_answer(0, 1, OK, b"x", 1)[0] == WriteBack(0, b"x", 1, lac=-1)
    assert not r.reading(0)
    assert r.on_read_answer(0, 0, NE) == []


def test_a_batch_is_delivered_in_order_and_what_lies_behind_the_end_is_ignored() -> None:
    """Scenario 71: entry 0 and a stray 2."""
    r = recovery((1, 1, 1), {0: (B1,)}, batch=3)
    assert reads(fenced(r, (NE, -1, 0))) == [(0, 0), (1, 0), (2, 0)]
    assert r.on_read_answer(2, 0, OK, b"stray", 99) == []
    assert r.on_read_answer(0, 0, OK, b"e0", 2) == [WriteBack(0, b"e0", 2, lac=-1)]
    assert r.on_read_answer(1, 0, NE) == []
    assert r.on_written_back() == [Close(0, 2)]


def batches(r: LedgerRecovery, entries: int, payload: bytes) -> list[list[int]]:
    """Entries of one bookie that are read together, up to the end of the ledger; each is written back at once."""
    found = []
    actions = fenced(r, (NE, -1, 0))
    while r.phase is Phase.READING:
        found.append(asked := [entry_id for entry_id, _ in reads(actions)])
        for entry_id in asked:
            if entry_id < entries:
                actions = r.on_read_answer(entry_id, 0, OK, payload, len(payload) * (entry_id + 1))
                assert r.on_written_back() == []
            elif r.phase is Phase.READING:
                actions = r.on_read_answer(entry_id, 0, NE)
    assert actions == [Close(entries - 1, entries * len(payload))]
    return found


def test_batches_grow_while_they_are_there_whole() -> None:
    found = batches(recovery((1, 1, 1), {0: (B1,)}, max_batch=8), 20, b"x")
    assert [len(batch) for batch in found] == [1, 2, 4, 8, 8]
    assert [entry_id for batch in found for entry_id in batch] == list(range(23))
    found = batches(recovery((1, 1, 1), {0: (B1,)}, batch=3), 9, b"x")
    assert [len(batch) for batch in found] == [3, 3, 3, 3]


def test_batches_of_large_entries_do_not_grow_beyond_the_bytes_that_may_wait() -> None:
    r = recovery((1, 1, 1), {0: (B1,)}, max_batch=64, max_write_back_bytes=500)
    assert [len(batch) for batch in batches(r, 20, bytes(100))] == [1, 2, 4, 5, 5, 5]


def test_an_error_behind_the_end_does_not_matter() -> None:
    r = recovery((1, 1, 1), {0: (B1,)}, batch=2)
    fenced(r, (NE, -1, 0))
    assert r.on_read_answer(1, 0, TO) == []
    assert r.on_read_answer(0, 0, NE) == [Close(-1, 0)]


def test_reading_pauses_while_too_much_is_being_written_back() -> None:
    r = recovery((1, 1, 1), {0: (B1,)}, max_write_backs=2)
    fenced(r, (NE, -1, 0))
    assert reads(r.on_read_answer(0, 0, OK, b"a", 1)) == [(1, 0)]
    assert r.on_read_answer(1, 0, OK, b"b", 2) == [WriteBack(1, b"b", 2, lac=-1)]
    assert reads(r.on_written_back()) == [(2, 0)]
    assert r.on_written_back() == []


def test_reads_stay_with_the_ensembles_of_the_start() -> None:
    r = at_entry_zero()
    r.on_ensemble_changed(0, (B4, B2, B3))
    assert r.on_read_answer(0, 0, OK, b"x", 1)[1] == ReadFrom(1, 1, B2)
    r.on_read_answer(1, 1, NA)
    assert r.on_read_answer(1, 2, NE) == [ReadFrom(1, 0, B1)]
    wrong = at_entry_zero(rules=ProtocolRules(reads_from_frozen_ensembles=False))
    wrong.on_ensemble_changed(0, (B4, B2, B3))
    wrong.on_read_answer(0, 0, OK, b"x", 1)
    wrong.on_read_answer(1, 1, NA)
    assert wrong.on_read_answer(1, 2, NE) == [ReadFrom(1, 0, B4)]


# --- closing ---


def found_one(*, rules: ProtocolRules | None = None) -> LedgerRecovery:
    r = at_entry_zero(rules=rules)
    r.on_read_answer(0, 0, OK, b"x", 1)
    r.on_read_answer(1, 1, NE)
    return r


def test_the_ledger_is_closed_only_when_all_write_backs_are_done() -> None:
    r = found_one()
    assert r.on_read_answer(1, 2, NE) == []
    assert r.on_written_back() == [Close(0, 1)]
    wrong = found_one(rules=ProtocolRules(close_after_write_backs=False))
    assert wrong.on_read_answer(1, 2, NE) == [Close(0, 1)]


def test_a_write_back_that_fails_fails_the_recovery() -> None:
    r = found_one()
    assert r.on_write_back_failed(-6) == [Fail(-6)]
    assert r.phase is Phase.DONE
    assert r.on_read_answer(1, 2, NE) == []
    wrong = found_one(rules=ProtocolRules(failed_write_back_fails=False))
    assert wrong.on_write_back_failed(-6) == [Close(-1, 1)]


def test_recovered_ensembles_stay_in_memory() -> None:
    r = at_entry_zero()
    r.on_ensemble_changed(0, (B4, B2, B3))
    assert r.recovered == {0: (B4, B2, B3)}


def test_the_length_of_a_ledger_without_an_open_tail_is_that_of_its_last_entry() -> None:
    """Quirk 20: the fencing answers may tell too much, or nothing."""
    r = recovery()
    fenced(r, (OK, 4, 77), (OK, 3, 70))
    r.on_read_answer(5, 2, NE)
    assert r.on_read_answer(5, 0, NE) == [ReadFrom(4, 1, B2)]
    assert r.phase is Phase.LENGTH
    assert reads(r.on_read_answer(4, 1, NA)) == [(4, 2)]
    assert r.on_read_answer(4, 2, OK, b"e4", 60) == [Close(4, 60)]


def test_the_length_falls_back_to_what_fencing_told() -> None:
    r = recovery((1, 1, 1), {0: (B1,)})
    fenced(r, (OK, 4, 77))
    assert reads(r.on_read_answer(5, 0, NE)) == [(4, 0)]
    assert r.on_read_answer(4, 0, BAD) == [Close(4, 77, length_known=False)]


def test_an_empty_ledger_has_no_length_although_a_bookie_has_an_entry() -> None:
    r = recovery()
    fenced(r, (OK, -1, 5), (OK, -1, 0))
    r.on_read_answer(0, 0, NE)
    assert r.on_read_answer(0, 1, NE) == [Close(-1, 0)]


def test_write_backs_carry_the_fenced_lac_unless_pi_17_is_planted() -> None:
    wrong = at_entry_zero(rules=ProtocolRules(write_back_fenced_lac=False))
    assert wrong.on_read_answer(0, 0, OK, b"x", 1)[0] == WriteBackWithOwnLac(0, b"x", 1, lac=-1)


def test_closing_ensembles_replace_or_follow_the_last_one() -> None:
    stored = {0: (B1,), 4: (B2,)}
    assert closing_ensembles(stored, {4: (B3,), 6: (B4,)}) == {0: (B1,), 4: (B3,), 6: (B4,)}
    with pytest.raises(UnexpectedError):
        closing_ensembles(stored, {3: (B3,)})


# --- the end is found where it must be ---


@settings(max_examples=200)
@given(st.data())
def test_every_acknowledged_entry_is_recovered_or_recovery_fails(data: st.DataObject) -> None:
    """PI-3, RI-1: Copies on any bookies, any of them silent: never closed below what an ack quorum holds."""
    quorum = data.draw(st.sampled_from([(3, 3, 2), (3, 2, 2), (2, 2, 1), (4, 3, 2)]))
    schedule = Distribution(*quorum)
    size = quorum[0]
    ensemble = tuple(BookieId(f"b{i}") for i in range(size))
    acked = data.draw(st.integers(0, 4))  # entries 0 .. acked-1 have their ack quorum
    copies: dict[int, list[int]] = {}
    for entry in range(acked + 2):
        members = schedule.write_set(entry)
        least = quorum[2] if entry < acked else 0
        holders = data.draw(st.permutations(members))
        copies[entry] = sorted(holders[: data.draw(st.integers(least, len(members)))])
    silent = data.draw(st.sets(st.integers(0, size - 1)))
    r = recovery(quorum, {0: ensemble}, batch=data.draw(st.integers(1, 3)), max_batch=data.draw(st.integers(1, 4)))
    todo: list[Action] = r.start_fencing()
    written: list[int] = []
    while todo:
        action = todo.pop(data.draw(st.integers(0, len(todo) - 1)))
        if isinstance(action, Fence):
            has = [e for e, holders in copies.items() if action.index in holders]
            if action.index in silent:
                todo += r.on_fence_answer(action.index, TO)
            elif not has:
                todo += r.on_fence_answer(action.index, NL)
            else:
                lac = data.draw(st.integers(-1, min(max(has), acked) - 1)) if min(max(has), acked) > 0 else -1
                todo += r.on_fence_answer(action.index, OK, lac, max(has) + 1)
        elif isinstance(action, ReadFrom):
            if action.index in silent:
                todo += r.on_read_answer(action.entry_id, action.index, TO)
            elif action.index in copies.get(action.entry_id, []):
                todo += r.on_read_answer(action.entry_id, action.index, OK, b"x", action.entry_id + 1)
            else:
                todo += r.on_read_answer(action.entry_id, action.index, NE)
        elif isinstance(action, WriteBack):
            written.append(action.entry_id)
            todo += r.on_written_back()
        elif isinstance(action, Close):
            assert action.last_entry_id >= acked - 1
            assert sorted(written) == list(range(r.start + 1, action.last_entry_id + 1))
            assert all(copies[e] for e in range(action.last_entry_id + 1))
        else:
            assert isinstance(action, Fail)
            assert silent
        r.check()
    assert r.phase is Phase.DONE


@pytest.mark.parametrize("quorum", [(2, 2, 1), (2, 2, 2), (3, 3, 2), (3, 3, 3), (3, 3, 1)])
def test_every_vector_of_answers_to_one_recovery_read(quorum: tuple[int, int, int]) -> None:
    """Exhaustive: entry, end, or failure, exactly by the rules of §10.3."""
    size, write_quorum, ack_quorum = quorum
    ensemble = tuple(BookieId(f"b{i}") for i in range(size))
    for answers in product([OK, NE, NL, TO, LIMBO], repeat=write_quorum):
        r = recovery(quorum, {0: ensemble})
        r.start_fencing()
        for index in range(size):
            r.on_fence_answer(index, NL)
        actions: list[Action] = []
        negatives = 0
        for index, code in enumerate(answers):
            actions = r.on_read_answer(0, index, code, b"x", 1)
            negatives += code in (NE, NL)
            if code == OK:
                assert actions[0] == WriteBack(0, b"x", 1, lac=-1)
                break
            if negatives >= write_quorum - ack_quorum + 1:
                assert actions == [Close(-1, 0)]
                break
        else:
            assert isinstance(actions[0], Fail)
