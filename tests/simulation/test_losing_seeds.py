"""A few seeds of runs in which bookies lose what they acknowledged. `--losing` of the simulation runs more."""

from __future__ import annotations

from typing import Any

import pytest

from bookkeeper.bookie import bookie as bookie_module
from bookkeeper.simulation.run import run_seed
from bookkeeper.simulation.swarm import Options

FOUND = [
    14,  # a closed ledger does not name the bookie any more that had fenced its writer
]
"""Seeds that once failed."""


@pytest.mark.parametrize("seed", [*range(4), *FOUND])
def test_what_one_bookie_loses_the_others_make_up_for(seed: int) -> None:
    """BI-24, G12, A4."""
    report = run_seed(seed, Options(losing=True))
    assert report.violation is None, f"{report.violation}\nreplay with --losing --seed {seed}"
    assert any("whole again" in what for what in report.seen)


def test_without_protection_some_seed_finds_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_protection(*_: Any, **__: Any) -> int:
        return 0

    monkeypatch.setattr(bookie_module, "protect", no_protection)
    assert any(run_seed(seed, Options(losing=True)).violation is not None for seed in range(8))
