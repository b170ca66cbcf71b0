"""A few seeds of the whole simulated cluster, faults as drawn; `make simulate` runs as many as one likes."""

from __future__ import annotations

import pytest

from bookkeeper.simulation.run import run_seed


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_violated(seed: int) -> None:
    report = run_seed(seed)
    assert report.violation is None, f"{report.violation}\nreplay: make simulate SEED={seed}"
    assert report.steps > 0
