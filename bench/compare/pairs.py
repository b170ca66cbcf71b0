"""Runs pairs, Java's and ours in turn, and keeps what they brought."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.interop.support.cluster import JAVA, OURS

from .report import HIGHER, Figure
from .rows import Row, versions_for
from .systems import System

FAILURES = (RuntimeError, TimeoutError, AssertionError, OSError, LookupError, ValueError)
"""What a run may raise: a bookie or a client that ended, a condition that did not come, output that lacks a figure."""


def turn(number: int) -> tuple[str, str]:
    """Who begins in this pair, and who follows: they take turns."""
    return (JAVA, OURS) if number % 2 == 0 else (OURS, JAVA)


def best(row: Row, found: Sequence[dict[str, float]]) -> dict[str, float]:
    """The better figure of several versions of Java's, figure by figure."""
    return {
        figure: (max if better == HIGHER else min)(figures[figure] for figures in found)
        for figure, better in row.figures.items()
    }


@dataclass
class Comparison:
    """The systems, how often each row is run, and what came of it."""

    java: dict[str, System]
    """Version -> its cluster; the stable line first, the newest last."""
    ours: System
    pairs: int
    attempts: int
    """How often a pair is begun if a run of it fails."""
    quick: bool = False
    results: dict[str, Figure] = field(default_factory=dict)
    failures: list[dict[str, str]] = field(default_factory=list)
    """Runs that failed: of what, whose and why. They are part of the report."""

    def measure(self, row: Row, place: int) -> bool:
        """Run all pairs; who begins depends on the row's place, too. Whether there are figures: there are none if a
        pair failed in each attempt."""
        for number in range(self.pairs):
            if not any(self._pair(row, place + number) for _ in range(self.attempts)):
                for figure in row.figures:
                    self.results.pop(f"{row.name}: {figure}", None)
                return False
        return True

    def _pair(self, row: Row, number: int) -> bool:
        """One run of each system. Nothing is kept of a pair of which either failed."""
        figures = {}
        # Where Java's client is on our bookies, it is that of the newest of Java's that they stand beside.
        self.ours.cluster.java_version = self._versions(row)[-1]
        for who in turn(number):
            found = self._java(row) if who == JAVA else self._tried(row, self.ours, OURS, OURS)
            if found is None:
                return False
            figures[who] = found
        for figure, better in row.figures.items():
            kept = self.results.setdefault(f"{row.name}: {figure}", Figure(better))
            for who in (JAVA, OURS):
                kept.values[who].append(figures[who][figure])
        return True

    def _java(self, row: Row) -> dict[str, float] | None:
        """The best of the versions that are asked; one that fails does not count beside one that does not."""
        versions = self._versions(row)
        tried = [self._tried(row, self.java[version], JAVA, f"Java {version}") for version in versions]
        found = [figures for figures in tried if figures is not None]
        return best(row, found) if found else None

    def _versions(self, row: Row) -> list[str]:
        return list(versions_for(row, list(self.java), quick=self.quick))

    def _tried(self, row: Row, system: System, who: str, called: str) -> dict[str, float] | None:
        for each in (*self.java.values(), self.ours):
            each.wait_idle()
        try:
            figures = row.run(system, who)
            if min(figures[figure] for figure in row.figures) <= 0:
                raise RuntimeError(f"{called} did nothing in time: take more --seconds or --warm")
        except FAILURES as error:
            self.failures.append({"what": row.name, "who": called, "why": str(error)[:500]})
            print(f"  FAILED: {row.name}: {called}: {type(error).__name__}: {error}", flush=True)
            return None
        shown = ", ".join(f"{figure} {figures[figure]:,.3f}" for figure in row.figures)
        print(f"  {row.name}: {called}: {shown}", flush=True)
        return figures
