"""The register of scenarios is complete, and what it names exists."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from .register import HERE, Entry, exists, functions_in, read_register

REGISTER = {entry.key: entry for entry in read_register()}

NUMBERED = {
    "simulation/test_bookie_scenarios.py": re.compile(r"test_([cs])(\d+)_"),
    "simulation/test_client_scenarios.py": re.compile(r"test_([cs])(\d+)_"),
    "simulation/test_stream_leaders.py": re.compile(r"test_([cs])(\d+)_"),
    "unit/client_core/test_ensemble_changes.py": re.compile(r"test_(s?)_?(\d+)_"),
    "unit/client_core/test_recovery.py": re.compile(r"test_(s?)_?(\d+)_"),
}
"""Modules whose tests carry the numbers of scenarios in their names."""


def test_every_scenario_is_there_once_and_in_order() -> None:
    expected = [f"C-{number}" for number in range(1, 98)] + [f"S-{number}" for number in range(1, 19)]
    assert [entry.key for entry in read_register()] == expected


@pytest.mark.parametrize("entry", REGISTER.values(), ids=REGISTER.keys())
def test_what_shows_a_scenario_exists(entry: Entry) -> None:
    assert entry.shown or entry.waits
    assert [shown for shown in entry.shown if not exists(shown)] == []
    assert len(set(entry.shown)) == len(entry.shown)


def numbers_of_files() -> Iterator[tuple[str, str]]:
    """Scenario files, and the scenarios that their names and stories begin with: `# Client 5, 6, S-7: ...`."""
    for path in sorted(HERE.glob("[cs][0-9]*.txt")):
        yield path.name, f"{path.name[0].upper()}-{int(path.name[1:3])}"
        told = path.read_text().partition(":")[0]
        for numbers in re.findall(r"[Cc]lient ((?:\d+, )*\d+)", told):
            yield from ((path.name, f"C-{number}") for number in numbers.split(", "))
        for number in re.findall(r"\bS-(\d+)", told):
            yield path.name, f"S-{number}"


def numbers_of_tests() -> Iterator[tuple[str, str]]:
    for path, pattern in NUMBERED.items():
        for name in sorted(functions_in(path)):
            if found := pattern.match(name):
                letter, number = found.groups()
                yield f"{path}::{name}", f"{(letter or 'c').upper()}-{int(number)}"


def test_no_numbered_file_or_test_is_missing() -> None:
    named = [*numbers_of_files(), *numbers_of_tests()]
    assert len(named) > 100
    missing = [(what, key) for what, key in named if key in REGISTER and what not in REGISTER[key].shown]
    assert missing == []
    assert {key for _, key in named if key not in REGISTER} <= {"S-19"}  # shown as far as C-8 goes
