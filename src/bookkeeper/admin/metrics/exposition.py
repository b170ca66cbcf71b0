"""What is counted, as Prometheus reads it (spec autorecovery-admin §10.1).

Names are those of BookKeeper's own exporter, and so is the form: a TYPE line for each name, no help, latencies in
milliseconds as summaries with seven quantiles, failures first. Quantiles are of what happened since the last roll-over,
sums and counts since the start.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from ...autorecovery.stats import ValueStats
from ...bookie.stats import BOUNDS_SECONDS, OpStats

QUANTILES = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)

Labels = Mapping[str, str]

NO_LABELS: Labels = {}

_ILLEGAL = re.compile(r"[^a-zA-Z0-9_:]")


class Windows:
    """What had been counted at the last roll-over, so that quantiles are of what came since."""

    def __init__(self, now: Callable[[], float], seconds: float) -> None:
        self._now = now
        self._seconds = seconds
        self._began = now()
        self._seen: dict[tuple[str, str], list[int]] = {}
        self._shown: dict[tuple[str, str], list[int]] = {}
        self._rolls = False

    def begin(self) -> None:
        """A page is about to be made."""
        self._rolls = self._now() - self._began >= self._seconds
        if self._rolls:
            self._began = self._now()

    def since(self, key: tuple[str, str], buckets: Sequence[int]) -> Sequence[int]:
        """How many fell into each bucket in the window that ended last."""
        if self._rolls:
            before = self._seen.get(key, [0] * len(buckets))
            self._shown[key] = [now - then for now, then in zip(buckets, before, strict=True)]
            self._seen[key] = list(buckets)
        return self._shown.get(key, ())


class Exposition:
    """One page."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._families: dict[tuple[str, str], list[str]] = {}
        windows.begin()

    def counter(self, name: str, value: float, labels: Labels = NO_LABELS) -> None:
        self._simple("counter", name, value, labels)

    def gauge(self, name: str, value: float, labels: Labels = NO_LABELS) -> None:
        self._simple("gauge", name, value, labels)

    def process(self, name: str, kind: str, value: float) -> None:
        """One of those about the process: with braces, and the TYPE of a counter without its ending."""
        self._family(name.removesuffix("_total"), kind).append(f"{name}{{}} {_text(float(value))}")

    def latency(self, name: str, stats: OpStats, labels: Labels = NO_LABELS) -> None:
        """In milliseconds."""
        name, more = legal(name), _labels(labels)
        buckets = self._windows.since((name, more), stats.buckets)
        self._summary(name, more, "false", [math.nan] * len(QUANTILES), stats.failed, stats.failed_seconds * 1000)
        self._summary(name, more, "true", _quantiles(buckets), stats.succeeded, stats.seconds * 1000)

    def values(self, name: str, stats: ValueStats, labels: Labels = NO_LABELS) -> None:
        """Of sizes or numbers."""
        name, more = legal(name), _labels(labels)
        found = [float(stats.quantile(share)) if stats.count else math.nan for share in QUANTILES]
        self._summary(name, more, "false", [math.nan] * len(QUANTILES), 0, 0.0)
        self._summary(name, more, "true", found, stats.count, float(stats.total))

    def page(self) -> str:
        """The text."""
        lines = []
        for (name, kind), samples in self._families.items():
            lines.append(f"# TYPE {name} {kind}")
            lines += samples
        return "\n".join(lines) + "\n"

    def _family(self, name: str, kind: str) -> list[str]:
        return self._families.setdefault((name, kind), [])

    def _simple(self, kind: str, name: str, value: float, labels: Labels) -> None:
        name, more = legal(name), _labels(labels)
        self._family(name, kind).append(f"{name}{{{more}}} {_text(value)}" if more else f"{name} {_text(value)}")

    def _summary(self, name: str, more: str, success: str, found: Sequence[float], count: int, total: float) -> None:
        lines, rest = self._family(name, "summary"), f", {more}" if more else ""
        for share, value in zip(QUANTILES, found, strict=True):
            lines.append(f'{name}{{success="{success}",quantile="{share}"{rest}}} {_text(value)}')
        lines.append(f'{name}_count{{success="{success}"{rest}}} {count}')
        lines.append(f'{name}_sum{{success="{success}"{rest}}} {_text(float(total))}')


def legal(name: str) -> str:
    """A name that Prometheus takes."""
    return _ILLEGAL.sub("_", name)


def _quantiles(buckets: Sequence[int]) -> list[float]:
    """Milliseconds that these shares stayed within; not a number where nothing happened."""
    sums: list[int] = []
    for count in buckets:
        sums.append(count + (sums[-1] if sums else 0))
    if not sums or not sums[-1]:
        return [math.nan] * len(QUANTILES)
    places = [bisect_left(sums, share * sums[-1]) for share in QUANTILES]
    return [BOUNDS_SECONDS[min(place, len(BOUNDS_SECONDS) - 1)] * 1000 for place in places]


def _labels(labels: Labels) -> str:
    return ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _text(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))
    if math.isnan(value):
        return "NaN"
    return repr(float(value))
