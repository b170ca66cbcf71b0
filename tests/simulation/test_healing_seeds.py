"""A few seeds of runs with autorecovery, under the same harm as others. `--healing` of the simulation runs more."""

from __future__ import annotations

import pytest

from bookkeeper.autorecovery import repair
from bookkeeper.autorecovery.copy import Copier
from bookkeeper.autorecovery.moves import targets
from bookkeeper.simulation import run
from bookkeeper.simulation.run import run_seed
from bookkeeper.simulation.swarm import Options

from .test_autorecovery_mistakes import record_changes_first

FOUND = [
    39,  # two bookies that were there lacked an entry, and there was one to spare
]
"""Seeds that once failed."""

HEALING = Options(healing=True)


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
    assert any("lack copies" in (run_seed(seed, HEALING).violation or "") for seed in (32, 39))
