"""Deliberate mistakes are noticed: some that few seeds catch soon. `make mutations` looks for all of them."""

from __future__ import annotations

import pytest

from bookkeeper.simulation.run import run_seed

from .first_found import seeds_for
from .mutations import MUTATIONS

SEEDS = 30
"""So many are tried before a mistake counts as missed; the ones below need up to six today."""


NAMES = [
    "writer closes at the last push",
    "appends are acknowledged in any order",
    "append is done with one ack less",
    "entries carry the lac plus one",
    "new fragment begins behind the last push",
    "force waits for nobody",
    "deferred entries move the lac",
    "recovery closes without compare",
    "reader lac falls",
    "damaged entries are given to readers",
    "connections stay open",
    "fenced ledgers take adds",
    "fences are not journaled",
    "unknown ledgers are not fenced",
    "keys are not journaled",
    "journal does not sync",
    "replay stops early",
    "journals are deleted one too early",
    "entry logs are not synced",
    "locations are not synced",
    "attributes are flushed with entries only",
    "compaction moves nothing",
    "unreadable metadata means gone",
    "lost sessions are ignored",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_mistake_is_noticed(name: str) -> None:
    mistake = MUTATIONS[name]
    with mistake.applied():
        assert any(run_seed(seed, mistake.options).violation for seed in seeds_for(name, SEEDS)), (
            f"no seed notices: {name}"
        )
