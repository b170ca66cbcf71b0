"""The figures of all rounds: JSON, a table, and a picture."""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from .systems import JSON, OURS, PARQUET, SYNCED, UNSYNCED

OTHERS = (SYNCED, UNSYNCED, PARQUET, JSON)
COLOURS = dict(zip((OURS, *OTHERS), ("#2a7f4f", "#7a4fb3", "#c3aee0", "#3c6fb3", "#a9c3e6"), strict=True))
WIDTH, LEFT, BAR, GAP = 760, 130, 12, 14
LOWEST = 0.1
"""Where bars begin: the scale is a logarithm."""

Key = tuple[str, int]
"""`sink` or `source`, and the size of a row."""


@dataclass
class Figures:
    """What was measured, round by round."""

    rates: dict[tuple[Key, str], list[float]] = field(default_factory=dict)
    """Rows a second, by what was done and by whom."""
    about: dict[str, Any] = field(default_factory=dict)
    """Versions, sizes, and what a micro-batch costs."""

    def note(self, key: Key, system: str, rate: float) -> None:
        """One measurement."""
        self.rates.setdefault((key, system), []).append(rate)

    @property
    def keys(self) -> list[Key]:
        """What was measured of anybody: sinks first, small rows first."""
        return sorted({key for key, _ in self.rates})

    def median(self, key: Key, system: str) -> float | None:
        """Rows a second."""
        found = self.rates.get((key, system))
        return statistics.median(found) if found else None

    def ratio(self, key: Key, system: str) -> float | None:
        """How many times as fast ours is."""
        ours, theirs = self.median(key, OURS), self.median(key, system)
        return ours / theirs if ours and theirs else None

    def as_dict(self) -> dict[str, Any]:
        """Everything."""
        return {**self.about, "rows": [self._row(key) for key in self.keys]}

    def _row(self, key: Key) -> dict[str, Any]:
        what, size = key
        rates = {system: self.rates[key, system] for system in COLOURS if (key, system) in self.rates}
        return {
            "what": what,
            "size": size,
            "rows_per_second": rates,
            "mb_per_second": {system: [rate * size / 1e6 for rate in each] for system, each in rates.items()},
            "ratios": {system: self.ratio(key, system) for system in OTHERS},
        }


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """Where figures go besides the screen."""
    for kind in ("json", "svg", "table"):
        parser.add_argument(f"--{kind}", type=Path, metavar="FILE", help=f"write a {kind} here")


def write(figures: Figures, outputs: argparse.Namespace) -> None:
    """On the screen, and where the options say."""
    print("\n".join(table(figures)))
    if outputs.json:
        outputs.json.write_text(json.dumps(figures.as_dict(), indent=1) + "\n")
    if outputs.table:
        outputs.table.write_text("\n".join(table(figures)) + "\n")
    if outputs.svg:
        outputs.svg.write_text("\n".join(picture(figures)) + "\n")


def table(figures: Figures) -> Iterator[str]:
    """Markdown: our rows and megabytes a second, and how many times those of each of the others they are."""
    yield "| | ours | | " + " | ".join(OTHERS) + " |"
    yield "|---" * (len(OTHERS) + 3) + "|"
    for key in figures.keys:
        what, size = key
        ours = figures.median(key, OURS)
        own = " | " if ours is None else f"{ours:,.0f} rows/s | {ours * size / 1e6:,.0f} MB/s"
        ratios = (figures.ratio(key, system) for system in OTHERS)
        cells = " | ".join("" if ratio is None else f"{ratio:.2f}" for ratio in ratios)
        yield f"| {what}, {size} B | {own} | {cells} |"


def picture(figures: Figures) -> Iterator[str]:
    """A bar for each system and row: its rate, as a ratio to Kafka's with synced appends, on a log scale."""
    shown = {key: found for key in figures.keys if (found := _relative(figures, key))}
    height = 50 + sum(len(found) * BAR + GAP for found in shown.values())
    highest = max([10.0, *(max(found.values()) for found in shown.values())])
    scale = (WIDTH - LEFT - 60) / math.log(highest / LOWEST)
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif">'
    yield f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    for number, (system, colour) in enumerate(COLOURS.items()):
        yield f'<rect x="{12 + number * 145}" y="10" width="10" height="10" fill="{colour}"/>'
        yield f'<text x="{27 + number * 145}" y="19" font-size="11">{escape(system)}</text>'
    top = 36.0
    for (what, size), found in shown.items():
        yield f'<text x="{LEFT - 8}" y="{top + 10}" font-size="11" text-anchor="end">{what}, {size} B</text>'
        for system, ratio in found.items():
            width = max(math.log(max(ratio, LOWEST) / LOWEST) * scale, 1)
            yield f'<rect x="{LEFT}" y="{top}" width="{width:.1f}" height="{BAR - 2}" fill="{COLOURS[system]}"/>'
            yield f'<text x="{LEFT + width + 4:.1f}" y="{top + 9}" font-size="9">{ratio:.2f}</text>'
            top += BAR
        top += GAP
    yield "</svg>"


def _relative(figures: Figures, key: Key) -> Mapping[str, float]:
    base = figures.median(key, SYNCED)
    rates = {system: figures.median(key, system) for system in COLOURS}
    return {system: rate / base for system, rate in rates.items() if rate and base}
