"""Collects what was verified, and writes docs/compatibility.md from it.

A test says `@verifies("area", "what")`. Its parameters named in `COLUMNS` become columns of the area's table; each cell
is how the test ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

F = TypeVar("F", bound=Callable[..., Any])

COLUMNS = ("client", "cluster")
"""Parameters (fixture names) that make the columns."""

NAMES = {
    "java-v2": "Java client v2",
    "java-v3": "Java client v3",
    "ours-v2": "our client v2",
    "ours-v3": "our client v3",
    "ours-auto": "our client",
    "java": "Java bookies",
    "ours": "our bookies",
    "mixed": "both kinds",
}

MARKS = {"passed": "yes", "failed": "**no**", "skipped": "-"}

INTRODUCTION = """\
# Compatibility with Apache BookKeeper

Written by `make test-interop`: each line is a test against Apache BookKeeper {versions}, run with that version's own
client, bookies and tools. "yes" means that the test passed; "-" that the combination does not exist.

Our client speaks v2, v3, or (as it comes) both, each request in the one that suits it. "Both kinds" is one ensemble of
Java bookies and our bookies.
"""


def verifies(area: str, what: str) -> Callable[[F], F]:
    """What a test proves, in the words of the report."""
    return pytest.mark.verifies(area, what)


@dataclass
class Report:
    """Outcomes by area, by what was verified, by column."""

    version: str
    areas: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)

    def add(self, item: pytest.Item, outcome: str) -> None:
        mark = item.get_closest_marker("verifies")
        if mark is None:
            return
        area, what = mark.args
        callspec = getattr(item, "callspec", None)
        parameters: Mapping[str, object] = callspec.params if callspec is not None else {}
        values = [str(parameters[name]) for name in COLUMNS if name in parameters]
        column = ", ".join(NAMES.get(value, value) for value in values)
        cells = self.areas.setdefault(area, {}).setdefault(what, {})
        # One cell may stand for several runs: one failure fails it, one run that was not skipped passes it.
        cells[column] = min(outcome, cells.get(column, outcome), key=("failed", "passed", "skipped").index)

    def write(self, path: Path) -> None:
        parts = [INTRODUCTION.format(versions=self.version)]
        for area, rows in self.areas.items():
            columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
            parts.append(f"\n## {area}\n\n")
            parts.append("| verified | " + " | ".join(column or "result" for column in columns) + " |\n")
            parts.append("|---" * (len(columns) + 1) + "|\n")
            for what, cells in rows.items():
                marks = (MARKS[cells[column]] if column in cells else "-" for column in columns)
                parts.append(f"| {what} | " + " | ".join(marks) + " |\n")
        path.write_text("".join(parts))
