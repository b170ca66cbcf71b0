"""The comparison as a picture and as a table.

The picture has a bar for each figure, on a logarithmic scale around 1, with the spread as a line. The table has a row
for each measurement, with the median and the spread of each of its figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

ROW = 18
LEFT = 330
WIDTH = 900
RIGHT = 70
TOP = 50
OURS = "#2a7f4f"
THEIRS = "#b3532f"


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
        color = OURS if ratio >= 1 else THEIRS
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
        rows.setdefault(what, {})[figure] = f"{ratio} ({line['least']:.2f} to {line['greatest']:.2f})"
    head = ["", *figures]
    parts = [
        head,
        ["---"] * len(head),
        *([what, *(row.get(name, "") for name in figures)] for what, row in rows.items()),
    ]
    return "".join(f"| {' | '.join(part)} |\n" for part in parts)
