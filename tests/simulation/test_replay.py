"""The command that a failing run prints is that run."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from bookkeeper.simulation.__main__ import _parser, options_of, replay_command
from bookkeeper.simulation.campaign import Summary
from bookkeeper.simulation.swarm import HARDENING, IMPATIENTS, Options


@pytest.mark.parametrize(
    "options",
    [
        Options(hardening=not HARDENING),
        Options(calm=False),
        Options(calm=True, seconds=2.5),
        Options(programs=IMPATIENTS),
        Options(corrupt_network=True),
        Options(faults=("kill bookie", "index is slow"), fault_count=5, skip=frozenset((1, 4))),
    ],
)
def test_the_command_has_the_options_of_the_run(options: Options) -> None:
    python, _, module, *words = shlex.split(replay_command(options) + "7")
    arguments = _parser().parse_args(words)
    assert (python, module, arguments.seed) == ("python", "bookkeeper.simulation", 7)
    assert options_of(arguments) == options


def test_a_run_without_options_has_a_short_command() -> None:
    summary = replace(Summary(), failures=[(7, "broken", "3 bookies")])
    assert list(summary.lines(replay_command(Options())))[-1].strip() == "replay: make simulate SEED=7"
