"""Pauses that grow while something keeps failing.

`Backoff` is how they grow, a value that can stand beside its numbers as a constant. `Pauses` counts, for a caller that
tries until it succeeds.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..api import Random


@dataclass(frozen=True, slots=True)
class Backoff:
    """Times are seconds."""

    first: float
    """The first pause. May be zero: then all are."""
    longest: float
    """No pause is longer, jitter not counted."""
    factor: float = 2.0
    """Each pause is so many times the one before. At least 1."""
    jitter: tuple[float, float] = (1.0, 1.0)
    """A pause is multiplied with a random number between these, so that clients which failed together do not try again
    together."""

    def __post_init__(self) -> None:
        assert self.first >= 0
        assert self.longest >= 0
        assert self.factor >= 1
        assert 0 <= self.jitter[0] <= self.jitter[1]

    def pause(self, failures: int) -> float:
        """The pause after so many earlier failures in a row (0: the first pause), without jitter."""
        assert failures >= 0
        try:
            return min(self.longest, self.first * self.factor**failures)
        except OverflowError:
            return self.longest if self.first else 0.0

    def jittered(self, failures: int, random: Random) -> float:
        """The same, with jitter."""
        return self.pause(failures) * random.uniform(*self.jitter)


class Pauses:
    """The pauses of one caller: each `next` is longer than the one before, until `reset`."""

    __slots__ = ("_backoff", "failures")

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self.failures = 0
        """Pauses since the last success."""

    def next(self) -> float:
        """Seconds to wait now, without jitter."""
        pause = self._backoff.pause(self.failures)
        self.failures += 1
        return pause

    def reset(self) -> None:
        """It has succeeded."""
        self.failures = 0
