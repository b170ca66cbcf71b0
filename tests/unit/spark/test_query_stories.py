"""The driver of a query dies at any moment: what Spark keeps and asks again, played (spec streams §17.4).

Spark keeps two logs: the end of each batch, before it is read, and that the batch is done. Offsets are texts to it. A
new driver goes on behind the last batch that is done, or repeats the one that is not; of the first batch it does not
know the start, and asks for it again. What a repeated batch reads replaces what it read before, as with any sink that
is idempotent.

Mistakes planted into the offsets are found by the same stories.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from bookkeeper.spark.streaming.admission import Limits, admit
from bookkeeper.spark.streaming.offsets import STREAMS, Offset, Places
from bookkeeper.spark.streaming.spans import Log, Place, between

from .test_streaming_plans import GrowingLog

STORIES = 60
STEPS = 60
Entry = tuple[str, int, int]


class Checkpoint:
    """What outlives a driver."""

    def __init__(self) -> None:
        self.ends: list[str] = []
        self.done = 0
        self.rows: dict[int, list[Entry]] = {}
        """What the sink has of each batch."""


class Died(Exception):
    """The driver did."""


class Story:
    """Streams that grow, one query on them from their end at the time when it began, and its drivers."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.streams = [GrowingLog(name) for name in ("b", "a", "c")]
        self.kept = Checkpoint()
        self.first: dict[str, Place] | None = None
        """Where the query is to begin: the ends when its first batch was logged."""

    def play(self) -> None:
        """Raises `AssertionError`."""
        for _ in range(STEPS):
            if self.dice.random() < 0.6:
                self.grow()
                continue
            try:
                self.drive(lambda: self.dice.random() < 0.2)
            except Died:
                continue
        for _ in range(3 * STEPS):
            self.drive(lambda: False)
        done = self.kept.done
        for _ in self.streams:
            self.drive(lambda: False)
        assert self.kept.done == done, "a query comes to an end of what is there"
        self.check()

    def grow(self) -> None:
        self.dice.choice(self.streams).step(self.dice.randrange(6))

    def logs(self) -> dict[str, Log]:
        """As a driver finds them: in any order."""
        found = [(stream.name, stream.log) for stream in self.streams]
        self.dice.shuffle(found)
        return dict(found)

    def ends(self, logs: Mapping[str, Log], starts: Places) -> dict[str, Place]:
        return {name: log.end(starts[name]) for name, log in logs.items()}

    # --- what Spark does ---

    def drive(self, dies: Callable[[], bool]) -> None:
        """One batch, if there is any, by a driver that knows nothing but the checkpoint."""
        kept = self.kept
        if len(kept.ends) == kept.done:
            start = kept.ends[-1] if kept.ends else self.initial_offset()
            if not kept.ends:
                self.grow()  # between the two questions, too
            end = self.latest_offset(start)
            if end == start:
                return
            self.may_die(dies)
            if not kept.ends:
                self.first = dict(Offset.from_json(json.loads(start)).places)
            kept.ends.append(end)
        self.may_die(dies)
        start = kept.ends[-2] if len(kept.ends) > 1 else self.initial_offset()
        kept.rows[kept.done] = self.read(start, kept.ends[-1])
        self.may_die(dies)
        kept.done += 1

    def may_die(self, dies: Callable[[], bool]) -> None:
        if dies():
            raise Died

    # --- what the source answers, by the code that decides it ---

    def initial_offset(self) -> str:
        logs = self.logs()
        start = {name: log.end(log.earliest) for name, log in logs.items()}
        return json.dumps(Offset(STREAMS, start, first=True).to_json())

    def latest_offset(self, start: str) -> str:
        begin, logs = Offset.from_json(json.loads(start)), self.logs()
        starts = {name: begin.places[name] for name in logs}
        limits = Limits(entries=self.dice.choice((1, 4, None)))
        return json.dumps(begin.to(admit(logs, starts, self.ends(logs, starts), limits)).to_json())

    def read(self, start: str, end: str) -> list[Entry]:
        stop = Offset.from_json(json.loads(end))
        begin = Offset.from_json(json.loads(start)).start_for(stop)
        return [
            (name, reach.span.ledger_id, entry)
            for name, log in self.logs().items()
            for reach in between(log, begin.places[name], stop.places[name])
            for entry in range(reach.first, reach.last + 1)
        ]

    # --- what must hold ---

    def check(self) -> None:
        kept = self.kept
        read = [entry for batch in range(kept.done) for entry in kept.rows[batch]]
        assert self.first is not None
        expected = [
            (stream.name, reach.span.ledger_id, entry)
            for stream in self.streams
            for reach in between(stream.log, self.first[stream.name], stream.log.end(self.first[stream.name]))
            for entry in range(reach.first, reach.last + 1)
        ]
        assert sorted(read) == sorted(expected), "each entry is read once"


@pytest.mark.parametrize("seed", range(STORIES))
def test_each_entry_is_read_once_whenever_the_driver_dies(seed: int) -> None:
    Story(seed).play()


def _as_found(places: Places) -> dict[str, dict[str, int]]:
    """In any order."""
    found = [(name, {"l": place.number, "e": place.entry}) for name, place in places.items()]
    random.shuffle(found)
    return dict(found)


def _offsets_not_canonical(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal places are other texts."""
    monkeypatch.setattr("bookkeeper.spark.streaming.offsets._encode", _as_found)

    def to(self: Offset, places: Places, newcomers: Any = None) -> Offset:
        return Offset(self.kind, places, self.places if self.first else None)

    monkeypatch.setattr(Offset, "to", to)


def _initial_offset_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch begins where Spark is told that it begins, whenever that is."""
    monkeypatch.setattr(Offset, "start_for", lambda self, _: self)


def _start_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first batch without entries is none, as later ones."""

    def to(self: Offset, places: Places, newcomers: Any = None) -> Offset:
        if {n: p.where for n, p in places.items()} == {n: p.where for n, p in self.places.items()}:
            return self
        return Offset(self.kind, places, self.places if self.first else None)

    monkeypatch.setattr(Offset, "to", to)


@pytest.mark.parametrize("mistake", [_offsets_not_canonical, _initial_offset_moves])
def test_planted_mistakes_are_found(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    random.seed(1)
    with pytest.raises(AssertionError):
        play_all()


def play_all() -> None:
    for seed in range(STORIES):
        Story(seed).play()


def test_a_start_at_the_end_is_stored_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it moves: what is written after the query has begun would not be read."""

    def begun() -> Story:
        story = Story(1)
        for _ in range(5):
            story.streams[0].step(3)
        story.drive(lambda: False)
        return story

    assert begun().kept.done == 1
    _start_is_not_stored(monkeypatch)
    assert begun().kept.done == 0
