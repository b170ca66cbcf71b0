"""Where copies go, and what the record becomes (spec autorecovery-admin §5.3, §5.4)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.autorecovery.fragments import fragments_of
from bookkeeper.autorecovery.moves import (
    SupersededError,
    copies,
    differences,
    is_moved,
    misplaced,
    moved,
    possible_targets,
    targets,
)
from bookkeeper.client.placement.policy import Adherence
from bookkeeper.errors import NotEnoughBookiesError
from bookkeeper.types import BookieId, Quorums

from .test_fragments import QUORUMS, bookies, fragment, ledger


def first_of(names: str) -> object:
    def choose(ensemble: Sequence[BookieId], index: int, excluded: Sequence[BookieId]) -> BookieId:
        for bookie in bookies(names):
            if bookie not in ensemble and bookie not in excluded:
                return bookie
        raise NotEnoughBookiesError

    return choose


@given(st.data())
def test_every_entry_goes_to_exactly_the_targets_that_need_it(data: st.DataObject) -> None:
    quorums = data.draw(st.sampled_from(QUORUMS))
    bad = data.draw(st.sets(st.integers(0, quorums.ensemble_size - 1), min_size=1))
    part = fragment(3, data.draw(st.integers(2, 40)), quorums)
    chosen = targets(part, bad, first_of("abcdefghijklmnopq"))  # type: ignore[arg-type]
    assert sorted(chosen) == sorted(bad)
    assert len(set(chosen.values())) == len(bad)
    assert not set(chosen.values()) & set(part.ensemble)
    most = data.draw(st.integers(1, 12))
    starts = range(part.first - data.draw(st.integers(0, 3)), part.last + 3, most)
    pieces = [copies(part, chosen, start, start + most - 1) for start in starts]
    entries = [entry for piece in pieces for entry in piece]
    assert entries == sorted(set(entries))
    for index, bookie in chosen.items():
        assert [entry for piece in pieces for entry in piece if bookie in piece[entry]] == list(part.holds(index))


def test_without_enough_bookies_there_are_no_targets() -> None:
    with pytest.raises(NotEnoughBookiesError):
        targets(fragment(0, 3, QUORUMS[5]), [0, 1], first_of("abcd"))  # type: ignore[arg-type]


def test_the_record_names_the_new_bookie_in_its_place() -> None:
    record = ledger({0: "abc", 4: "abd"}).close(9, 100)
    part = fragments_of(record, 9)[0]
    chosen = {1: BookieId("e:3181")}
    assert not is_moved(record, part, chosen)
    changed = moved(record, part, chosen)
    assert changed.ensembles == {0: bookies("aec"), 4: bookies("abd")}
    assert (changed.state, changed.last_entry_id, changed.length) == (record.state, 9, 100)
    assert is_moved(changed, part, chosen)


@pytest.mark.parametrize("now", [{0: "aec", 4: "abd"}, {0: "abc", 3: "abd"}, {0: "abc"}])
def test_a_fragment_that_was_changed_meanwhile_is_left_alone(now: dict[int, str]) -> None:
    part = fragments_of(ledger({0: "abc", 4: "abd"}).close(9, 100), 9)[0]
    with pytest.raises(SupersededError):
        moved(ledger(now).close(9, 100), part, {0: BookieId("e:3181")})


def test_fragments_that_do_not_adhere_and_what_of_them_moves() -> None:
    record = ledger({0: "abc", 4: "abd", 9: "abe"}).close(8, 100)

    def judge(ensemble: Sequence[BookieId], quorums: Quorums) -> Adherence:
        assert quorums == record.quorums
        return Adherence.MEETS_SOFT if bookies("d")[0] in ensemble else Adherence.FAIL

    first, last = misplaced(record, judge)
    assert (first.first, first.last, last.first, last.last) == (0, 3, 9, 8)
    assert differences(first, bookies("abc")) == {}
    assert differences(first, bookies("bac")) == {0: bookies("b")[0], 1: bookies("a")[0]}
    assert moved(record, first, differences(first, bookies("adc"))).ensembles[0] == bookies("adc")


@given(st.data())
def test_what_can_be_repaired_is_and_nobody_is_there_twice(data: st.DataObject) -> None:
    quorums = data.draw(st.sampled_from(QUORUMS))
    part = fragment(0, 9, quorums)
    bad = data.draw(st.sets(st.integers(0, quorums.ensemble_size - 1), min_size=1))
    writable = data.draw(st.sets(st.sampled_from(part.ensemble)))
    spares = data.draw(st.sampled_from(["", "x", "xy", "xyz", "vwxyz"]))
    spare = list(bookies(spares))
    gone = [index for index in bad if part.ensemble[index] not in writable]
    reachable = len(gone) <= len(spare) or len(gone) < len(bad) or spare
    if not reachable:
        with pytest.raises(NotEnoughBookiesError):
            possible_targets(part, bad, first_of(spares), writable)  # type: ignore[arg-type]
        return
    chosen = possible_targets(part, bad, first_of(spares), writable)  # type: ignore[arg-type]
    assert set(chosen) <= bad
    assert len(set(chosen.values())) == len(chosen)
    for index, bookie in chosen.items():
        assert bookie in spare or (bookie == part.ensemble[index] and bookie in writable)
    assert len([index for index in gone if index in chosen]) == min(len(gone), len(spare))
    assert all(index in chosen for index in bad if index not in gone)
    assert len([bookie for bookie in chosen.values() if bookie in spare]) == min(len(spare), len(bad))
