"""When to ask the next replica although the last one has not failed (spec client §9.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ...config import ClientConfiguration


@dataclass(frozen=True, slots=True)
class Speculation:
    """Delays in seconds: `first`, then each `multiplier` times the one before, `longest` at most."""

    first: float
    multiplier: float
    longest: float

    def after(self, delay: float) -> float:
        """The delay that follows `delay`, rounded half up to milliseconds."""
        return int(min(delay * self.multiplier, self.longest) * 1000 + 0.5) / 1000

    @classmethod
    def for_reads(cls, config: ClientConfiguration) -> Self | None:
        """For entry reads; None if switched off."""
        base = config.speculativeReadTimeout
        first = base if config.firstSpeculativeReadTimeout is None else config.firstSpeculativeReadTimeout
        longest = base if config.maxSpeculativeReadTimeout is None else config.maxSpeculativeReadTimeout
        return cls._of(first, config.speculativeReadTimeoutBackoffMultiplier, longest)

    @classmethod
    def for_long_polls(cls, config: ClientConfiguration) -> Self | None:
        """For reads of LAC and entry together; None if switched off."""
        return cls._of(
            config.firstSpeculativeReadLACTimeout,
            config.speculativeReadLACTimeoutBackoffMultiplier,
            config.maxSpeculativeReadLACTimeout,
        )

    @classmethod
    def _of(cls, first: int, multiplier: float, longest: int) -> Self | None:
        return cls(first / 1000, multiplier, max(first, longest) / 1000) if first > 0 else None
