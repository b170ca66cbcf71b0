"""Latency figures at a fixed cost: a histogram with buckets that grow by a twentieth."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field

_GROWTH = 1.05
_SMALLEST = 1e-6
_BUCKETS = 400
_BOUNDS = [_SMALLEST * _GROWTH**index for index in range(1, _BUCKETS)]
"""Where each bucket but the last ends."""

_BARS = " ▁▂▃▄▅▆▇█"


@dataclass
class Histogram:
    """Counts of durations in seconds, from a microsecond to about five minutes, to within five per cent."""

    counts: list[int] = field(default_factory=lambda: [0] * _BUCKETS)
    total: int = 0
    greatest: float = 0.0

    def record(self, seconds: float, count: int = 1) -> None:
        self.counts[bisect_right(_BOUNDS, seconds)] += count
        self.total += count
        if seconds > self.greatest:
            self.greatest = seconds

    def quantile(self, share: float) -> float:
        """The duration in seconds that `share` of the samples do not exceed; 0 without samples."""
        if not self.total:
            return 0.0
        wanted = share * self.total
        seen = 0
        for index, count in enumerate(self.counts):
            seen += count
            if seen >= wanted and count:
                return min(float(_SMALLEST * _GROWTH ** (index + 1)), self.greatest)
        return self.greatest

    def summary(self) -> dict[str, float]:
        """Quantiles in milliseconds."""
        shares = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
        return {
            **{name: round(self.quantile(share) * 1000, 3) for name, share in shares.items()},
            "max_ms": round(self.greatest * 1000, 3),
        }

    def draw(self, width: int = 48) -> list[str]:
        """Rows of text: the distribution between the first and the last bucket in use, log scale."""
        used = [index for index, count in enumerate(self.counts) if count]
        if not used:
            return ["(no samples)"]
        first, last = used[0], used[-1] + 1
        per_column = max(1, math.ceil((last - first) / width))
        columns = [sum(self.counts[start : start + per_column]) for start in range(first, last, per_column)]
        peak = max(columns)
        bars = "".join(_BARS[math.ceil(count / peak * (len(_BARS) - 1))] for count in columns)
        low, high = (_SMALLEST * _GROWTH**index * 1000 for index in (first, last))
        left, right = f"{low:.3g} ms", f"{high:.3g} ms"
        return [bars, left + right.rjust(max(len(bars) - len(left), len(right) + 1))]


def sparkline(values: list[float], height: int = 6, mark: dict[int, str] | None = None) -> list[str]:
    """A chart of values over time, as rows of text with a scale; `mark` puts a letter below a column."""
    peak = max(values, default=0.0) or 1.0
    rows = []
    for level in range(height, 0, -1):
        cells = []
        for value in values:
            filled = value / peak * height - (level - 1)
            cells.append(_BARS[max(0, min(8, round(filled * 8)))])
        label = f"{peak * level / height:>10,.0f} ┤"
        rows.append(label + "".join(cells))
    rows.append(" " * 11 + "└" + "─" * len(values))
    if mark:
        rows.append(" " * 12 + "".join(mark.get(column, " ") for column in range(len(values))))
    return rows
