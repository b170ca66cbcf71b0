"""The figures of all rounds: JSON, a table, and a picture."""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from .rows import CLIENTS, Row

OURS = "ours"
SYSTEMS = [f"{client}, {kind}" for kind in ("synced", "not synced") for client in CLIENTS]
COLOURS = dict(zip([OURS, *SYSTEMS], ["#2a7f4f", "#7a4fb3", "#3c6fb3", "#c3aee0", "#a9c3e6"], strict=True))

WIDTH, LEFT, BAR, GAP = 900, 300, 11, 14


@dataclass
class Figures:
    """What was measured, round by round."""

    rows: Sequence[Row]
    alone: dict[str, list[dict[str, Any]]]
    """What only streams have, by its name."""
    values: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    memory: dict[tuple[str, str], float] = field(default_factory=dict)

    def note(self, row: Row, system: str, found: Mapping[str, Any]) -> None:
        self.values.setdefault((row.name, system), []).append(float(found[row.figure]))
        self.memory[row.name, system] = max(self.memory.get((row.name, system), 0.0), found["max_rss"])

    def median(self, row: Row, system: str) -> float | None:
        found = self.values.get((row.name, system))
        return statistics.median(found) if found else None

    def ratio(self, row: Row, system: str) -> float | None:
        """How many times better ours is."""
        ours, theirs = self.median(row, OURS), self.median(row, system)
        if not ours or not theirs:
            return None
        return ours / theirs if row.more_is_better else theirs / ours

    def as_dict(self) -> dict[str, Any]:
        return {
            "rows": [
                {
                    "row": row.name,
                    "figure": row.figure,
                    "values": {name: self.values.get((row.name, name), []) for name in [OURS, *SYSTEMS]},
                    "ratios": {name: self.ratio(row, name) for name in SYSTEMS},
                    "max_rss": {name: self.memory.get((row.name, name)) for name in [OURS, *SYSTEMS]},
                }
                for row in self.rows
            ],
            "alone": self.alone,
        }


def add_outputs(parser: argparse.ArgumentParser) -> None:
    for kind in ("json", "svg", "table"):
        parser.add_argument(f"--{kind}", type=Path, help=f"write a {kind} here")


def write(figures: Figures, arguments: argparse.Namespace) -> None:
    print("\n".join(table(figures)))
    for name, found in figures.alone.items():
        print(name, json.dumps(found[-1]))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures.as_dict(), indent=1) + "\n")
    if arguments.table:
        arguments.table.write_text("\n".join(table(figures)) + "\n")
    if arguments.svg:
        arguments.svg.write_text("\n".join(picture(figures)) + "\n")


def table(figures: Figures) -> Iterator[str]:
    """Markdown: our figure, and how many times better it is than each of theirs; memory of the processes, too."""
    yield "| | ours | " + " | ".join(SYSTEMS) + " | memory: ours, confluent, aiokafka |"
    yield "|---" * (len(SYSTEMS) + 3) + "|"
    for row in figures.rows:
        ours = figures.median(row, OURS)
        own = "" if ours is None else f"{ours:,.0f}/s" if row.more_is_better else f"{ours:.2f} ms"
        ratios = (figures.ratio(row, system) for system in SYSTEMS)
        cells = " | ".join("" if ratio is None else f"{ratio:.2f}" for ratio in ratios)
        memory = (figures.memory.get((row.name, name)) for name in (OURS, *SYSTEMS[: len(CLIENTS)]))
        megabytes = ", ".join("-" if each is None else f"{each / 1e6:.0f} MB" for each in memory)
        yield f"| {row.name} | {own} | {cells} | {megabytes} |"


def picture(figures: Figures) -> Iterator[str]:
    """A bar for each system and row, as a ratio to the better Kafka client with synced appends, on a log scale."""
    shown = [(row, ratios) for row in figures.rows if (ratios := _relative(figures, row))]
    height = 60 + sum(len(ratios) * BAR + GAP for _, ratios in shown)
    lowest, highest = 0.1, max(10.0, *(max(ratios.values()) for _, ratios in shown)) if shown else 10.0
    scale = (WIDTH - LEFT - 60) / math.log(highest / lowest)

    def x(ratio: float) -> float:
        return LEFT + math.log(max(ratio, lowest) / lowest) * scale

    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif">'
    yield f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    for number, (system, colour) in enumerate(COLOURS.items()):
        left = 12 + number * 175
        yield f'<rect x="{left}" y="10" width="10" height="10" fill="{colour}"/>'
        yield f'<text x="{left + 15}" y="19" font-size="11">{escape(system)}</text>'
    top = 36.0
    for row, ratios in shown:
        yield f'<text x="{LEFT - 8}" y="{top + 10}" font-size="11" text-anchor="end">{escape(row.name)}</text>'
        for system, ratio in ratios.items():
            width = max(x(ratio) - x(lowest), 1)
            yield f'<rect x="{LEFT}" y="{top}" width="{width:.1f}" height="{BAR - 2}" fill="{COLOURS[system]}"/>'
            yield f'<text x="{LEFT + width + 4:.1f}" y="{top + 8}" font-size="9">{ratio:.2f}</text>'
            top += BAR
        top += GAP
    yield f'<line x1="{x(1):.1f}" y1="28" x2="{x(1):.1f}" y2="{top}" stroke="#888" stroke-dasharray="3 3"/>'
    yield "</svg>"


def _relative(figures: Figures, row: Row) -> dict[str, float]:
    """Each system as a multiple of the better synced client; more is better for every figure."""
    found = {name: value for name in [OURS, *SYSTEMS] if (value := figures.median(row, name))}
    speeds = {name: value if row.more_is_better else 1 / value for name, value in found.items()}
    synced = [speeds[name] for name in SYSTEMS[: len(CLIENTS)] if name in speeds]
    return {name: speed / max(synced) for name, speed in speeds.items()} if synced else {}
