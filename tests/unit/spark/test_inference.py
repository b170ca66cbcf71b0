"""A ledger's record, from which bookie lists which entries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.spark.jobs.inference import infer

BOOKIES = 7


@st.composite
def ledgers(draw: st.DrawFn) -> tuple[int, int, dict[int, tuple[int, ...]], int]:
    """Ensemble size, write quorum, ensembles, entries."""
    size = draw(st.integers(1, 5))
    write = draw(st.integers(1, size))
    entries = draw(st.integers(1, 60))
    firsts = sorted({0, *draw(st.lists(st.integers(1, 59), max_size=2))})
    ensembles = {first: tuple(draw(st.permutations(range(BOOKIES)))[:size]) for first in firsts if first < entries}
    return size, write, ensembles, entries


def holders(ensembles: dict[int, tuple[int, ...]], write: int, entry: int) -> int:
    members = ensembles[max(first for first in ensembles if first <= entry)]
    return sum(1 << members[(entry + offset) % len(members)] for offset in range(write))


@given(ledgers())
def test_a_record_that_is_inferred_names_the_bookies_that_have_the_entries(
    ledger: tuple[int, int, dict[int, tuple[int, ...]], int],
) -> None:
    _, write, ensembles, entries = ledger
    held = [holders(ensembles, write, entry) for entry in range(entries)]
    found = infer(held, BOOKIES)
    assert found is not None
    assert found.exact
    assert found.quorums.write_quorum == write
    assert [holders(found.ensembles, write, entry) for entry in range(entries)] == held
    assert len(found.ensembles) <= len(ensembles)


@given(ledgers(), st.data())
def test_lost_and_surplus_copies_do_not_mislead(
    ledger: tuple[int, int, dict[int, tuple[int, ...]], int], data: st.DataObject
) -> None:
    size, write, ensembles, entries = ledger
    true = [holders(ensembles, write, entry) for entry in range(entries)]
    held = list(true)
    for entry in data.draw(st.lists(st.integers(0, entries - 1), max_size=3)):
        held[entry] |= 1 << data.draw(st.integers(0, BOOKIES - 1))
    for entry in data.draw(st.lists(st.integers(0, entries - 1), max_size=3)):
        if held[entry] == true[entry] and write > 1:
            held[entry] &= held[entry] - 1
    found = infer(held, BOOKIES, ensemble=size, quorum=write)
    assert found is not None
    assert found.exact == all(mask.bit_count() == write for mask in held)
    for entry in range(entries):
        named = holders(found.ensembles, write, entry)
        assert named & held[entry] == (named if held[entry].bit_count() >= write else held[entry])


def test_a_striped_ledger_is_told_from_one_that_changes_all_the_time() -> None:
    held = [holders({0: (3, 1, 4, 0)}, 2, entry) for entry in range(40)]
    found = infer(held, BOOKIES)
    assert found is not None
    assert (found.quorums.ensemble_size, found.ensembles) == (4, {0: (3, 1, 4, 0)})


def test_an_entry_that_is_nowhere_leaves_it_undecided() -> None:
    assert infer([3, 0, 3], BOOKIES) is None
    assert infer([], BOOKIES) is None
    assert infer([1, 1], BOOKIES, ensemble=1, quorum=2) is None
