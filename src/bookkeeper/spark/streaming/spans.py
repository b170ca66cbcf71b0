"""Logs as they are at one moment, places in them, and what was lost (spec streams §17.4, §17.5). Pure.

Theory of operation

A log is a row of spans, each the readable entries of one ledger: the segments of a stream, or one raw ledger. A
*place* is where reading goes on. It names the span, the entry in it, and the ledger that holds what comes just before
it. The latter tells whether the log is still the one that was read: who deletes a stream and makes it anew gets other
ledgers.

A span is *final* once its ledger is closed: nothing is added to it any more. Only then does reading move on to the next
number. An open segment that turns out to be empty is taken back, and another ledger gets its number: so one without
entries is final only if its record says that it is complete.

A place is valid for ever if it was once reached, whoever writes the log afterwards: what is confirmed stays. Where it
is not valid any more, entries were lost to the query: the stream was truncated, deleted, or made anew.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple


class Place(NamedTuple):
    """Where a log is read next."""

    number: int
    """Of the segment; 0 for a raw ledger."""
    entry: int
    slot: int = 0
    """Records of that entry that are left out at its beginning."""
    after: int | None = None
    """The ledger that has the entry before this place; None: there is none, or it is not known."""

    @property
    def where(self) -> tuple[int, int, int]:
        """For comparing places: what is before does not count."""
        return self.number, self.entry, self.slot

    def __str__(self) -> str:
        slot = f", record {self.slot}" if self.slot else ""
        return (f"segment {self.number}, " if self.number else "") + f"entry {self.entry}{slot}"


@dataclass(frozen=True, slots=True)
class Span:
    """What can be read of one ledger."""

    number: int
    ledger_id: int
    end: int | None = None
    """Entries 0 to `end` - 1 can be read. None: nobody has looked, because all of it was read before."""
    final: bool = False
    """Nothing is added to it any more."""
    bytes: int = 0
    """Payload of these entries."""
    records: int | None = None
    """In them; None: not known yet."""
    first_entry: int = 0
    first_slot: int = 0
    """The first record that is not truncated."""
    truncated: bool = False
    """As a whole."""

    @property
    def first(self) -> Place:
        return Place(self.number, self.first_entry, self.first_slot)

    @property
    def entry_bytes(self) -> float:
        """Payload of an entry, on average."""
        return self.bytes / self.end if self.end else 0.0

    @property
    def entry_records(self) -> float:
        """Records of an entry, on average; 1 if that is not known."""
        return self.records / self.end if self.records and self.end else 1.0


@dataclass(frozen=True, slots=True)
class Log:
    """A stream or a raw ledger at one moment."""

    name: str
    spans: Sequence[Span]
    """All that are listed, ascending by number. Behind the first that is not final nothing can be read yet."""

    def at(self, number: int) -> Span | None:
        place = bisect_left(self.spans, number, key=attrgetter("number"))
        return self.spans[place] if place < len(self.spans) and self.spans[place].number == number else None

    def _ledger_before(self, number: int, entry: int) -> int | None:
        holder = self.at(number if entry else number - 1)
        return holder.ledger_id if holder is not None else None

    def place(self, number: int, entry: int, slot: int = 0) -> Place:
        """A place in this log."""
        return Place(number, entry, slot, self._ledger_before(number, entry))

    def behind(self, span: Span, entry: int) -> Place:
        """The place before an entry of a span; behind its last one that of the next span, which will come."""
        ended = span.number > 0 and span.final and entry == span.end
        return self.place(span.number + 1, 0) if ended else self.place(span.number, entry)

    @property
    def earliest(self) -> Place:
        """The first place that is left."""
        for span in self.spans:
            if not span.truncated:
                return self.place(*span.first.where)
        return self.place(self.spans[-1].number + 1 if self.spans else 1, 0)

    def end(self, since: Place) -> Place:
        """Behind all that can be read from `since` on."""
        reached = since
        for span in self.spans:
            if span.number < since.number or span.end is None:
                continue
            if span.number > reached.number:
                break  # what is between is not there: `gap` says so
            reached = max(reached, self.behind(span, span.end), key=lambda place: place.where)
            if not span.final:
                break
        return reached


class Resumed(NamedTuple):
    """Where reading really goes on."""

    place: Place
    lost: str | None
    """Why that is not where it should; None: it is."""


def resume(log: Log, start: Place) -> Resumed:
    """Whether all that follows a place is still there."""
    holder = log.at(start.number if start.entry else start.number - 1)
    if holder is not None and start.after is not None and holder.ledger_id != start.after:
        return Resumed(log.earliest, f"it was deleted and made anew after {start} was reached")
    top = log.spans[-1].number if log.spans else 0
    own = log.at(start.number)
    if start.number > top + 1 or (own is not None and own.end is not None and start.entry > own.end):
        return Resumed(log.earliest, f"it ends before {start}, which was reached: it was made anew")
    first = log.earliest
    if start.where < first.where:
        return Resumed(first, f"what follows {start} was truncated; the first that is left is {first}")
    if own is None and (after := next((span for span in log.spans if span.number > start.number), None)) is not None:
        return Resumed(log.place(*after.first.where), f"segment {start.number} is missing")
    return Resumed(start, None)


class Reach(NamedTuple):
    """Entries of one span that are read."""

    span: Span
    first: int
    last: int
    first_slot: int
    """Records of entry `first` that are left out."""
    stop_slot: int | None = None
    """The first record of entry `last` that is left out; None: it is read to its end."""


def between(log: Log, start: Place, end: Place) -> list[Reach]:
    """The entries from one place to another, of the spans that are there; the last one perhaps in part."""
    found: list[Reach] = []
    if start.where >= end.where:
        return found
    for span in log.spans:
        if span.end is None or not start.number <= span.number <= end.number:
            continue
        first = start.entry if span.number == start.number else 0
        ends_here = span.number == end.number
        part = ends_here and end.slot > 0 and end.entry < span.end
        stop = min(end.entry + part, span.end) if ends_here else span.end
        if first < stop:
            begun = start.slot if span.number == start.number else 0
            found.append(Reach(span, first, stop - 1, begun, end.slot if part else None))
    return found
