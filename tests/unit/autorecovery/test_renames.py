"""Another id for a bookie, in the records of ledgers (spec autorecovery-admin §7.3)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.autorecovery.fragments import bookies_of
from bookkeeper.autorecovery.renames import clashes, renamed

from .test_fragments import bookies, ledger

A, B = bookies("ab")
ENSEMBLES = st.lists(st.permutations("abcdef").map(lambda names: "".join(names[:3])), min_size=1, max_size=4)


@given(ENSEMBLES)
def test_one_id_takes_the_place_of_the_other_everywhere_and_nothing_else_changes(names: list[str]) -> None:
    record = ledger({3 * number: name for number, name in enumerate(names)})
    changed = renamed(record, A, B)
    assert A not in bookies_of(changed)
    assert changed.ensembles.keys() == record.ensembles.keys()
    for first, ensemble in record.ensembles.items():
        assert changed.ensembles[first] == tuple(B if bookie == A else bookie for bookie in ensemble)
    assert (changed.state, changed.quorums) == (record.state, record.quorums)
    twice = any(len(set(ensemble)) < 3 for ensemble in changed.ensembles.values())
    assert clashes(record, A, B) == twice


def test_both_ids_in_different_ensembles_do_not_clash() -> None:
    assert not clashes(ledger({0: "acd", 4: "bcd"}), A, B)
    assert clashes(ledger({0: "acd", 4: "bca"}), A, B)
