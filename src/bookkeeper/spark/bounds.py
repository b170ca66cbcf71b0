"""Bounds of ids: what conditions leave of all ledgers, or of all entries of a ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..types import MAX_LEDGER_ID


@dataclass(frozen=True, slots=True)
class Bounds:
    """What filters leave of ledger or entry ids: a range and, if not None, members of a list."""

    least: int = 0
    greatest: int = MAX_LEDGER_ID
    among: frozenset[int] | None = None

    def __contains__(self, number: int) -> bool:
        return self.least <= number <= self.greatest and (self.among is None or number in self.among)

    def within(self, least: int, greatest: int) -> Bounds:
        """Also between these, inclusive."""
        return Bounds(max(self.least, least), min(self.greatest, greatest), self.among)

    def one_of(self, numbers: Iterable[int]) -> Bounds:
        """Also one of these."""
        among = frozenset(numbers)
        return Bounds(self.least, self.greatest, among if self.among is None else among & self.among)

    def pieces(self, first: int, last: int) -> list[tuple[int, int]]:
        """The parts of `first`..`last` that are inside, ascending."""
        first, last = max(first, self.least), min(last, self.greatest)
        if self.among is None:
            return [(first, last)] if first <= last else []
        pieces: list[tuple[int, int]] = []
        for number in sorted(number for number in self.among if first <= number <= last):
            if pieces and pieces[-1][1] == number - 1:
                pieces[-1] = (pieces[-1][0], number)
            else:
                pieces.append((number, number))
        return pieces


ALL = Bounds()
