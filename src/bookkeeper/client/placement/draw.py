"""Chance in placement: bookies in a random order, each equally likely to come first, or by free space (spec client
§11.6).

Bookies are drawn without replacement, so that a search for one that fits ends when all were looked at.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from ...runtime import Random
from ...types import BookieId
from .topology import host_of


def probabilities(weights: Sequence[int], max_multiple: float) -> list[float]:
    """How likely each of these is to be drawn first, up to a common factor.

    What weighs nothing counts as the lightest that weighs something. Nothing is more than `max_multiple` times as
    likely as the median (0: no such limit).
    """
    total = sum(weights)
    if total == 0:
        weights = [1] * len(weights)
        total = len(weights)
    least = min(weight for weight in weights if weight)
    shares = [(weight or least) / total for weight in weights]
    limit = max_multiple * statistics.median(weights) / total if weights else 0.0
    return [min(share, limit) for share in shares] if limit > 0 else shares


class Draw:
    """Draws bookies. `free_space`: bytes by bookie, once known; None while every bookie is as good as another."""

    def __init__(self, random: Random, max_multiple: float = 0.0) -> None:
        self._random = random
        self._max_multiple = max_multiple
        self.free_space: Mapping[BookieId, int] | None = None

    def some(self, bookies: Sequence[BookieId], count: int) -> list[BookieId]:
        """So many of them, the first ones in the order of drawing."""
        return self._random.sample(bookies, count) if self.free_space is None else self.order(bookies)[:count]

    def one_of_each_host(self, bookies: Sequence[BookieId], preferred: Sequence[BookieId] = ()) -> list[BookieId]:
        """Of each machine one of its bookies, a preferred one if there is one. No chance where each has just one."""
        if len({host_of(bookie) for bookie in bookies}) == len(bookies):
            return [*bookies]
        wanted = set(preferred)
        order = [*filter(wanted.__contains__, bookies), *self.order(bookies)]
        return list({host_of(bookie): bookie for bookie in reversed(order)}.values())

    def order(self, bookies: Iterable[BookieId]) -> list[BookieId]:
        """All of them, in the order of drawing."""
        drawn = list(bookies)
        if self.free_space is None or not drawn:
            self._random.shuffle(drawn)
            return drawn
        weights = [self.free_space.get(bookie, 0) for bookie in drawn]
        # Whose exponential clock, of a rate as its weight, rings first: the same as drawing by weight again and again
        # from those that are left.
        rings = [-math.log(1.0 - self._random.random()) / p for p in probabilities(weights, self._max_multiple)]
        return [bookie for _, bookie in sorted(zip(rings, drawn, strict=True))]
