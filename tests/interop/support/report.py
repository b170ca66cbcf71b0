"""Collects what was verified, keeps it per version of Apache BookKeeper, and writes docs/compatibility.md from that.

A test says `@verifies("area", "what")`. Its parameters named in `COLUMNS` become columns of the area's table; each cell
is how the test ended. `Report.tell` adds a line below the table. With `--record`, the areas that ran take the place of
what results/VERSION.json had of them, and the page is written anew from all versions' results; so does
`python -m tests.interop.support.report`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

F = TypeVar("F", bound=Callable[..., Any])

RESULTS = Path(__file__).parent.parent / "results"
PAGE = Path(__file__).parents[3] / "docs" / "compatibility.md"

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
    "java-streams": "Java's DistributedLog",
    "our-streams": "our streams",
}

ORDER = ("Operations", "Recovery", "Rolling swap", "Random history", "Disk", "Metadata", "Bookies", "Repair", "Streams")
"""Areas as the page has them; others come after these."""

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

MARKS = {PASSED: "yes", FAILED: "**no**", SKIPPED: "-"}

INTRODUCTION = """\
# Compatibility with Apache BookKeeper

Written by `make compatibility`: each line is a test against Apache BookKeeper {versions}, run with that version's own
client, bookies and tools. "yes" means that the test passed{each}; "-" that the combination does not exist.

Our client speaks v2, v3, or (as it comes) both, each request in the one that suits it. "Both kinds" is one ensemble of
Java bookies and our bookies.
"""


def verifies(area: str, what: str) -> Callable[[F], F]:
    """What a test proves, in the words of the report."""
    return pytest.mark.verifies(area, what)


@dataclass
class Area:
    """What was verified of one area."""

    rows: dict[str, dict[str, str]] = field(default_factory=dict)
    """What -> column -> outcome."""
    told: dict[str, str] = field(default_factory=dict)
    """Lines below the table, by a key: the same key replaces a line."""


@dataclass
class Report:
    """What one version's run showed, by area."""

    version: str
    areas: dict[str, Area] = field(default_factory=dict)

    def add(self, item: pytest.Item, outcome: str) -> None:
        """A test ended: `passed`, `failed` or `skipped`."""
        mark = item.get_closest_marker("verifies")
        if mark is None:
            return
        area, what = mark.args
        callspec = getattr(item, "callspec", None)
        parameters: Mapping[str, object] = callspec.params if callspec is not None else {}
        values = [str(parameters[name]) for name in COLUMNS if name in parameters]
        column = ", ".join(NAMES.get(value, value) for value in values)
        cells = self.areas.setdefault(area, Area()).rows.setdefault(what, {})
        # One cell may stand for several runs: one failure fails it, one run that was not skipped passes it.
        cells[column] = min(outcome, cells.get(column, outcome), key=(FAILED, PASSED, SKIPPED).index)

    def tell(self, area: str, key: str, line: str) -> None:
        """A line below an area's table."""
        self.areas.setdefault(area, Area()).told[key] = line

    def record(self) -> None:
        """Merge this run into its version's results, and write the page anew."""
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.version}.json"
        known = load(path) if path.exists() else Report(self.version)
        for name, area in self.areas.items():
            told = known.areas[name].told if name in known.areas else {}
            known.areas[name] = Area(area.rows, told | area.told)
        areas = {name: {"rows": area.rows, "told": area.told} for name, area in known.areas.items()}
        path.write_text(json.dumps({"version": self.version, "areas": areas}, indent=1) + "\n")
        write_page()


def load(path: Path) -> Report:
    """Results that `record` wrote."""
    found = json.loads(path.read_text())
    return Report(found["version"], {name: Area(**area) for name, area in found["areas"].items()})


def write_page() -> None:
    """Write the page from the results of all versions."""
    PAGE.write_text(render([load(path) for path in sorted(RESULTS.glob("*.json"))]))


def render(reports: list[Report]) -> str:
    """The page: one table per area, a cell for all versions."""
    versions = [report.version for report in reports]
    each = " with each of them" if len(versions) > 1 else ""
    parts = [INTRODUCTION.format(versions=" and ".join(versions), each=each)]
    known = dict.fromkeys(name for report in reports for name in report.areas)
    for name in dict.fromkeys([*(name for name in ORDER if name in known), *known]):
        areas = {report.version: report.areas.get(name, Area()) for report in reports}
        rows = dict.fromkeys(what for area in areas.values() for what in area.rows)
        columns = dict.fromkeys(column for area in areas.values() for cells in area.rows.values() for column in cells)
        parts.append(f"\n## {name}\n\n")
        parts.append("| verified | " + " | ".join(column or "result" for column in columns) + " |\n")
        parts.append("|---" * (len(columns) + 1) + "|\n")
        for what in rows:
            cells = (
                _cell({version: area.rows.get(what, {}).get(column) for version, area in areas.items()})
                for column in columns
            )
            parts.append(f"| {what} | " + " | ".join(cells) + " |\n")
        told = [
            f"- {version}, {key}: {line}\n"
            for version, area in areas.items()
            for key, line in sorted(area.told.items())
        ]
        parts.extend(["\n", *told] if told else [])
    return "".join(parts)


def _cell(outcomes: Mapping[str, str | None]) -> str:
    """One mark if all versions agree, else one for each."""
    marks = {version: MARKS[outcome or SKIPPED] for version, outcome in outcomes.items()}
    if len(set(marks.values())) == 1:
        return next(iter(marks.values()))
    return ", ".join(f"{version}: {mark}" for version, mark in marks.items())


if __name__ == "__main__":
    write_page()
