"""Defects that were really there, made again, are noticed by hardened runs."""

from __future__ import annotations

import pytest

from bookkeeper.simulation.run import run_seed

from . import hardened_mutations  # noqa: F401 - enters them
from .first_found import seeds_for
from .mutations import MUTATIONS

SEEDS = 12
"""So many are tried; those below need the first, or nearly so."""


NAMES = [
    "claims leave no token",
    "adds expire though answers come",
    "gaps wait like everybody",
    "cancelled opens leave their watch",
    "cancelled closes are never finished",
    "answers have no bound",
    "keys of any size are kept",
    "journal waiters pass their turn in a circle",
    "no space is fatal",
    "directories may change places",
    "lost mounts are made anew",
    "marks are believed",
    "damaged index logs are cut short",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_defect_that_was_there_is_noticed(name: str) -> None:
    mistake = MUTATIONS[name]
    with mistake.applied():
        assert any(run_seed(seed, mistake.options).violation for seed in seeds_for(name, SEEDS)), (
            f"no seed notices: {name}"
        )
