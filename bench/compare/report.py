"""What a comparison found, as JSON, as a picture and as a table; of one run of it, or of several together.

    python -m bench.compare.report monday.json tuesday.json --svg compare.svg --table compare.md

The picture has a bar for each figure, on a logarithmic scale around 1, with the spread as a line. The table has a row
for each measurement, with the median and the spread of each of its figures. Of several runs each pair counts alike.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tests.interop.support.cluster import JAVA, OURS

HIGHER, LOWER = "higher", "lower"
"""Which value of a figure is the better one."""

CONDITIONS = ("peer", "python", "cpus", "seconds", "warm")
"""What runs must have alike to be counted together."""

ROW = 18
LEFT = 330
WIDTH = 900
RIGHT = 70
TOP = 50
BETTER = "#2a7f4f"
WORSE = "#b3532f"


@dataclass
class Figure:
    """One figure of one measurement: what each system brought, pair by pair."""

    better: str
    values: dict[str, list[float]] = field(default_factory=lambda: {JAVA: [], OURS: []})

    def ratios(self) -> list[float]:
        """How many times better ours is, for each pair."""
        pairs = zip(self.values[JAVA], self.values[OURS], strict=True)
        return [ours / java if self.better == HIGHER else java / ours for java, ours in pairs]


def lines_of(figures: dict[str, Figure]) -> list[dict[str, Any]]:
    """A line for each figure: its name, its values, and the median, least and greatest ratio of its pairs."""
    lines = []
    for name, figure in figures.items():
        ratios = figure.ratios()
        lines.append(
            {
                "what": name,
                "better": figure.better,
                **figure.values,
                "ratio": round(statistics.median(ratios), 3),
                "least": round(min(ratios), 3),
                "greatest": round(max(ratios), 3),
            }
        )
    return lines


def read(path: Path) -> dict[str, Any]:
    """A report that `write` wrote. Raises ValueError, naming the file, if it is none; OSError if it can't be read."""
    try:
        report: dict[str, Any] = json.loads(path.read_text())
        missing = {*CONDITIONS, "pairs", "results", "failures"} - report.keys()
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{path} is not what a comparison writes: {error}") from error
    if missing:
        raise ValueError(f"{path} is not what a comparison writes: no {', '.join(sorted(missing))}")
    return report


def together(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One report of the pairs of several runs.

    Raises ValueError if they were not run alike (`CONDITIONS`), or not of the same measurements.
    """
    first = reports[0]
    for other in reports[1:]:
        for condition in CONDITIONS:
            if other[condition] != first[condition]:
                raise ValueError(f"runs with different {condition}: {first[condition]} and {other[condition]}")
        odd = {line["what"] for line in first["results"]} ^ {line["what"] for line in other["results"]}
        if odd:
            raise ValueError(f"not in every run: {', '.join(sorted(odd))}")
    figures = {line["what"]: Figure(line["better"]) for line in first["results"]}
    for report in reports:
        for line in report["results"]:
            for who in (JAVA, OURS):
                figures[line["what"]].values[who] += line[who]
    return {
        **first,
        "pairs": sum(report["pairs"] for report in reports),
        "results": lines_of(figures),
        "failures": [failure for report in reports for failure in report["failures"]],
    }


def show(report: dict[str, Any]) -> None:
    """Print the ratios and which runs failed."""
    for line in report["results"]:
        print(
            f"{line['what']:<60} {line['ratio']:>7.2f}  ({line['least']:.2f} to {line['greatest']:.2f}){_asides(line)}"
        )
    if "ceiling_mb_per_s" in report:
        print(f"the disk's ceiling, before and after: {report['ceiling_mb_per_s']} MB of payload a second")
    for failure in report["failures"]:
        print(f"a run failed: {failure['who']}: {failure['what']}: {failure.get('why', '')}")


def _asides(line: dict[str, Any]) -> str:
    """What is asked for, and how much of the disk's ceiling was used, where these are known."""
    goal = f"  asked: {line['goal']:g}" if "goal" in line else ""
    part = line.get("of_ceiling")
    return goal + (f"  of the ceiling: {part[OURS]:.2f}, Java {part[JAVA]:.2f}" if part else "")


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """The options that say what `write` writes."""
    parser.add_argument("--json", type=Path, help="where every figure goes, as JSON")
    parser.add_argument("--svg", type=Path, help="where the chart goes")
    parser.add_argument("--table", type=Path, help="where a table goes, as Markdown")


def write(report: dict[str, Any], outputs: argparse.Namespace) -> None:
    """The files that were asked for."""
    lines = report["results"]
    if outputs.json:
        outputs.json.write_text(json.dumps(report, indent=1) + "\n")
    if outputs.svg:
        outputs.svg.write_text(draw(lines, f"against Apache BookKeeper {report['peer']}, {report['pairs']} pairs"))
    if outputs.table:
        outputs.table.write_text(table(lines))


def draw(lines: Sequence[dict[str, Any]], title: str) -> str:
    """An SVG document. A line has `what`, `ratio`, `least`, `greatest`; a ratio above 1 is in our favour."""
    most = max([2.0, *(max(line["greatest"], 1 / max(line["least"], 1e-3)) for line in lines)])
    span = math.log2(most) * 1.05
    scale = (WIDTH - LEFT - RIGHT) / (2 * span)
    middle = LEFT + span * scale

    def at(ratio: float) -> float:
        return middle + max(-span, min(span, math.log2(max(ratio, 1e-6)))) * scale

    height = TOP + ROW * len(lines) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="20" font-size="14">Times better than Java (right of 1), {escape(title)}</text>',
    ]
    tick = -math.floor(span)
    while tick <= span:
        x = at(2.0**tick)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - 15}" stroke="#ddd"/>')
        label = f"{2**tick}" if tick >= 0 else f"1/{2**-tick}"
        parts.append(f'<text x="{x:.1f}" y="{TOP - 12}" text-anchor="middle" fill="#666">{label}</text>')
        tick += 1
    for number, line in enumerate(lines):
        y = TOP + ROW * number
        x, ratio = at(line["ratio"]), line["ratio"]
        color = BETTER if ratio >= 1 else WORSE
        parts.append(f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(line["what"])}</text>')
        parts.append(
            f'<rect x="{min(x, middle):.1f}" y="{y + 3}" width="{abs(x - middle):.1f}" height="{ROW - 7}" '
            f'fill="{color}"/>'
        )
        parts.append(
            f'<line x1="{at(line["least"]):.1f}" y1="{y + 8.5}" x2="{at(line["greatest"]):.1f}" y2="{y + 8.5}" '
            'stroke="black" stroke-width="1.5"/>'
        )
        parts.append(f'<text x="{WIDTH - RIGHT + 8}" y="{y + 12}">{ratio:.2f}</text>')
    parts.append("</svg>\n")
    return "\n".join(parts)


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Markdown. The part of `what` behind the last colon names the figure."""
    figures: dict[str, None] = {}
    rows: dict[str, dict[str, str]] = {}
    for line in lines:
        what, _, figure = line["what"].rpartition(": ")
        figures[figure] = None
        ratio = f"{line['ratio']:.2f}" if line["ratio"] < 1 else f"**{line['ratio']:.2f}**"
        spread = f" ({line['least']:.2f} to {line['greatest']:.2f})" if len(line[JAVA]) > 1 else ""
        rows.setdefault(what, {})[figure] = ratio + spread
    head = ["", *figures]
    parts = [
        head,
        ["---"] * len(head),
        *([what, *(row.get(name, "") for name in figures)] for what, row in rows.items()),
    ]
    return "".join(f"| {' | '.join(part)} |\n" for part in parts)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", type=Path, nargs="+", help="what `make bench-compare` wrote as JSON")
    add_outputs(parser)
    arguments = parser.parse_args(argv)
    try:
        report = together([read(run) for run in arguments.runs])
    except OSError as error:
        sys.exit(f"{error.filename} can't be read: {error.strerror}")
    except ValueError as error:
        sys.exit(f"these runs can't be counted: {error}")
    show(report)
    write(report, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
