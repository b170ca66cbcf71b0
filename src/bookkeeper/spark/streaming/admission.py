"""How much a batch reads (spec streams §17.4). Pure.

Spark knows one limit at a time; here entries, bytes and records may be limited at once, and the tightest counts. What
is admitted is shared among the logs of a query in proportion to what each of them has waiting, after one entry for each
of them, as long as there is room. Bytes and records of an entry are the average of its span. If a single entry is more
than a limit, it is read by itself: a query always goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .spans import Log, Place, Reach, between

Cost = tuple[float, float, float]
"""Entries, bytes, records."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one batch, over all logs; None: without."""

    entries: int | None = None
    bytes: int | None = None
    records: int | None = None

    @property
    def none(self) -> bool:
        return self == UNLIMITED

    def of(self, cost: Cost) -> float:
        """Which share of the limits something takes; more than 1 is too much."""
        limits = (self.entries, self.bytes, self.records)
        return max((used / limit for used, limit in zip(cost, limits, strict=True) if limit is not None), default=0.0)


UNLIMITED = Limits()


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a query waits until a batch is worth its while."""

    entries: int = 0
    """Waiting over all logs: then it is."""
    delay: float = 900.0
    """Seconds after the last batch: then it is in any case."""

    def is_over(self, entries: int, waited: float | None) -> bool:
        """`waited`: seconds since the last batch; None: this is the first one that the process makes."""
        return waited is None or waited >= self.delay or entries >= self.entries


IMPATIENT = Patience()


def waiting(logs: Mapping[str, Log], starts: Mapping[str, Place], ends: Mapping[str, Place]) -> int:
    """Entries between two places, over all logs that are there."""
    return sum(_count(between(log, starts[name], ends[name])) for name, log in logs.items())


def admit(
    logs: Mapping[str, Log], starts: Mapping[str, Place], ends: Mapping[str, Place], limits: Limits
) -> dict[str, Place]:
    """Where a batch ends that begins at `starts`, and may go to `ends`."""
    if limits.none:
        return dict(ends)
    waiting = {name: between(logs[name], start, ends[name]) for name, start in starts.items()}
    total = sum(limits.of(_cost(reach, reach.last - reach.first + 1)) for some in waiting.values() for reach in some)
    if total <= 1:
        return dict(ends)
    entries = dict.fromkeys(starts, 0)
    left = 1.0
    for name in sorted(waiting, key=lambda name: -_count(waiting[name])):
        if not waiting[name]:
            continue
        needed = limits.of(_cost(waiting[name][0], 1))
        if needed > left and any(entries.values()):
            break
        entries[name] = 1
        left -= needed
    for name, some in waiting.items():
        if entries[name]:
            share = sum(limits.of(_cost(reach, reach.last - reach.first + 1)) for reach in some) / total
            entries[name] = _fill(some, limits, max(0.0, left) * share)
    return {name: _walk(logs[name], start, waiting[name], entries[name], ends[name]) for name, start in starts.items()}


def _count(some: Sequence[Reach]) -> int:
    return sum(reach.last - reach.first + 1 for reach in some)


def _cost(reach: Reach, entries: int) -> Cost:
    span = reach.span
    return entries, entries * span.entry_bytes, entries * span.entry_records


def _fill(some: Sequence[Reach], limits: Limits, room: float) -> int:
    """How many entries fit into a share of the limits, behind the first one, which has its place."""
    taken = 1
    for number, reach in enumerate(some):
        count = reach.last - reach.first + 1 - (number == 0)
        each = limits.of(_cost(reach, 1))
        fits = count if each * count <= room else int(room / each)
        taken += fits
        room -= fits * each
        if fits < count:
            break
    return taken


def _walk(log: Log, start: Place, some: Sequence[Reach], entries: int, end: Place) -> Place:
    """The place so many entries behind `start`."""
    if entries >= _count(some):
        return end
    reached = start
    for reach in some:
        if entries <= 0:
            break
        count = min(entries, reach.last - reach.first + 1)
        entries -= count
        reached = log.behind(reach.span, reach.first + count)
    return reached
