"""What comparisons found, commit by commit: a JSON line each in `bench/history.jsonl`, and a chart of them.

    python -m bench.compare.history                                   what changed with the last run
    python -m bench.compare.history --svg history.svg --only "100 B"  a chart over the commits

Figures of two machines don't compare, ratios of runs of different length hardly: a run is compared with the last one of
the same machine that was run alike (`ALIKE`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

PATH = Path(__file__).parent.parent / "history.jsonl"

ALIKE = ("machine", "peer", "quick", "seconds", "warm")

LEFT, TOP, WIDTH, HEIGHT, LEGEND = 50, 40, 900, 420, 300
COLORS = ("#1b6ca8", "#2a7f4f", "#b3532f", "#7a4fa3", "#b8860b", "#c2407a", "#4a7c7c", "#555555")


def machine() -> str:
    """What makes figures comparable: processor, how many, and the interpreter."""
    return f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}"


def commit() -> str:
    """The commit that was measured; with a `+` if files differ from it. "unknown" outside a repository."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=PATH.parent, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", ":!" + PATH.name)
        return git("rev-parse", "--short=10", "HEAD") + "+" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def entry(report: dict[str, Any], measured: str, now: datetime) -> dict[str, Any]:
    """The line of a run: when, what and where, and its ratios."""
    return {
        "commit": measured,
        "date": now.astimezone(UTC).isoformat(timespec="seconds"),
        **{name: report[name] for name in ALIKE},
        "pairs": report["pairs"],
        "settings": report.get("settings", {}),
        "ceiling_mb_per_s": report["ceiling_mb_per_s"],
        "ratios": {line["what"]: line["ratio"] for line in report["results"]},
        "of_ceiling": {line["what"]: line["of_ceiling"]["ours"] for line in report["results"] if "of_ceiling" in line},
        "failed": sorted({failure["what"] for failure in report["failures"]}),
    }


def read(path: Path) -> list[dict[str, Any]]:
    """All runs, oldest first; none if there is no file. Raises ValueError, naming file and line, at what is no run."""
    if not path.exists():
        return []
    runs: list[dict[str, Any]] = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            run = json.loads(text)
            missing = {*ALIKE, "commit", "date", "ratios"} - run.keys()
        except (ValueError, AttributeError) as error:
            raise ValueError(f"{path}, line {number}, is no run: {error}") from error
        if missing:
            raise ValueError(f"{path}, line {number}, is no run: no {', '.join(sorted(missing))}")
        runs.append(run)
    return runs


def append(path: Path, run: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(run) + "\n")


def last_alike(runs: Sequence[dict[str, Any]], run: dict[str, Any]) -> dict[str, Any] | None:
    """The youngest run of the same machine and kind that has a ratio of this one's rows."""

    def alike(other: dict[str, Any]) -> bool:
        same = all(other[name] == run[name] for name in ALIKE)
        same = same and other.get("settings", {}) == run.get("settings", {})
        return same and not run["ratios"].keys().isdisjoint(other["ratios"])

    return next((other for other in reversed(runs) if alike(other)), None)


def changes(run: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """A line for each ratio that both have: now, then, and the change in percent."""
    lines = [f"since {before['commit']} ({before['date']}):"]
    for what, ratio in run["ratios"].items():
        if what in before["ratios"]:
            then = before["ratios"][what]
            lines.append(f"{what:<60} {ratio:>7.2f}  was {then:>6.2f}  {(ratio / then - 1) * 100:+5.0f} %")
    return lines


def chart(runs: Sequence[dict[str, Any]], only: str = "") -> str:
    """An SVG document: a line for each ratio whose name has this text, over the runs, oldest to the left."""
    names = list(dict.fromkeys(what for run in runs for what in run["ratios"] if only in what))
    ratios = [run["ratios"][name] for run in runs for name in names if name in run["ratios"]]
    if not ratios:
        raise ValueError(f"no run has a row with {only!r} in its name")
    low, high = math.log2(min(1.0, *ratios)) - 0.2, math.log2(max(2.0, *ratios)) + 0.2

    def x(number: int) -> float:
        return LEFT + (number + 0.5) * (WIDTH - LEFT - LEGEND) / len(runs)

    def y(ratio: float) -> float:
        return HEIGHT - TOP - (math.log2(ratio) - low) / (high - low) * (HEIGHT - 2 * TOP)

    height = max(HEIGHT, TOP + 16 * len(names) + 20)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        '<text x="10" y="20" font-size="14">Times better than Java, run by run</text>',
    ]
    for tick in range(math.ceil(low), math.floor(high) + 1):
        at = y(2.0**tick)
        parts.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - LEGEND}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{2.0**tick:g}</text>')
    for number, run in enumerate(runs):
        label = escape(run["commit"][:8])
        parts.append(f'<text x="{x(number):.1f}" y="{HEIGHT - 12}" text-anchor="middle">{label}</text>')
    for place, name in enumerate(names):
        color = COLORS[place % len(COLORS)]
        points = [(x(number), y(run["ratios"][name])) for number, run in enumerate(runs) if name in run["ratios"]]
        path = " ".join(f"{left:.1f},{top:.1f}" for left, top in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        parts += [f'<circle cx="{left:.1f}" cy="{top:.1f}" r="2.5" fill="{color}"/>' for left, top in points]
        parts.append(f'<text x="{WIDTH - LEGEND + 12}" y="{TOP + 16 * place}" fill="{color}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare.history",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--history", type=Path, default=PATH, help="the file of runs")
    parser.add_argument("--only", default="", help="ratios whose name has this text")
    parser.add_argument("--svg", type=Path, help="where the chart goes")
    arguments = parser.parse_args(argv)
    try:
        runs = read(arguments.history)
        if not runs:
            raise ValueError(f"{arguments.history} has no runs; `make bench-quick` adds one")
        if arguments.svg:
            arguments.svg.write_text(chart(runs, arguments.only))
    except ValueError as error:
        sys.exit(str(error))
    before = last_alike(runs[:-1], runs[-1])
    print("\n".join(changes(runs[-1], before)) if before else "the last run has none before it to compare with")


if __name__ == "__main__":
    main(sys.argv[1:])
