"""A few seeds of runs with autorecovery, under the same harm as others. `--healing` of the simulation runs more."""

from __future__ import annotations

import pytest

from bookkeeper.autorecovery import repair
from bookkeeper.autorecovery.copying.copy import Copier
from bookkeeper.autorecovery.moves import targets
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.simulation import run
from bookkeeper.simulation.checkers.metadata_states import check_step
from bookkeeper.simulation.history import Violation
from bookkeeper.simulation.run import run_seed
from bookkeeper.simulation.swarm import Options
from bookkeeper.types import BookieId, LedgerState

from .test_autorecovery_mistakes import record_changes_first

FOUND = [
    39,  # two bookies that were there lacked an entry, and there was one to spare
    700441,  # an auditor that could not resign, as the store was away, went on though it was cancelled
    709623,  # a fragment was repaired while the ledger was recovered, which is as it should be before the last one
    900395,  # a journal told of a predecessor's end that only the page cache had
    700771,  # a bookie that is restarted need not know the fence of a ledger that was deleted
]
"""Seeds that once failed."""

HEALING = Options(healing=True)


def test_a_ledger_in_recovery_may_be_repaired_before_its_last_fragment_only() -> None:
    """PI-13."""
    a, b, c, d = map(BookieId, ("a:1", "b:1", "c:1", "d:1"))
    before = LedgerMetadata(1, 3, 3, 2, {0: (a, b, c), 8: (b, c, d)}, LedgerState.IN_RECOVERY)
    check_step(before, before.with_ensemble(0, (a, d, c)))
    for other in (before.with_ensemble(8, (b, c, a)), before.with_ensemble(9, (a, b, c))):
        with pytest.raises(Violation, match="changed during recovery"):
            check_step(before, other)


@pytest.mark.parametrize("seed", [0, 1, 2, *FOUND])
def test_every_ledger_is_whole_in_the_end(seed: int) -> None:
    """PI-19, LV-5, ACT-19: nothing acknowledged is lost, repair takes no good copy away and leaves nothing undone."""
    report = run_seed(seed, HEALING)
    assert report.violation is None, f"{report.violation}\nreplay with --healing --seed {seed}"


def test_planted_the_record_is_changed_before_the_copies_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    record_changes_first(monkeypatch)
    assert any(run_seed(seed, HEALING).violation is not None for seed in range(8))


def test_planted_nothing_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> None:
        """Planted."""

    monkeypatch.setattr(Copier, "copy", nothing)
    assert any("has not acknowledged" in (run_seed(seed, HEALING).violation or "") for seed in range(8))


def test_planted_all_bad_bookies_are_replaced_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Java does it."""
    monkeypatch.setattr(repair, "possible_targets", lambda part, bad, choose, _writable: targets(part, bad, choose))
    monkeypatch.setattr(run, "WHOLE_SECONDS", 30.0)
    assert any("lack copies" in (run_seed(seed, HEALING).violation or "") for seed in (47, 73))
