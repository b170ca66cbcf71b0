"""One element of a plan of harm."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One element of a plan."""

    at: float
    """Seconds after the beginning."""
    kind: str
    target: str
    other: str = ""
    duration: float = 0.0
    amount: int = 0
    moment: str = ""
    """What to wait for, from then on; empty: nothing."""
    delay: float = 0.0
    """Seconds after that."""

    def __str__(self) -> str:
        when = f", {self.delay * 1000:g} ms after: {self.moment}" if self.moment else ""
        return f"{self.kind}: {self.target} ({self.other}, {self.duration:.2f} s, {self.amount}{when})"
