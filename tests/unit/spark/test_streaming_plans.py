"""What batches of a query read of logs that grow, roll, shrink and are made anew (spec streams §17.4, §17.5)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.spark.errors import OptionError
from bookkeeper.spark.streaming.admission import Limits, Patience, admit, waiting
from bookkeeper.spark.streaming.offsets import LEDGERS, STREAMS, Offset
from bookkeeper.spark.streaming.spans import Log, Place, Span, between, resume

PLACES = st.builds(
    Place, st.integers(0, 9), st.integers(0, 2**40), st.integers(0, 3), st.none() | st.integers(0, 2**62)
)
MANY = st.dictionaries(st.text(max_size=4), PLACES, max_size=3)
OFFSETS = st.builds(Offset, st.sampled_from((STREAMS, LEDGERS)), MANY, st.none() | MANY, st.booleans())
LIMITS = st.builds(Limits, *[st.none() | st.integers(1, 30)] * 3)


def text(offset: Offset) -> str:
    return json.dumps(offset.to_json())


@given(OFFSETS)
def test_an_offset_is_read_as_it_was_written(offset: Offset) -> None:
    assert Offset.from_json(json.loads(text(offset))) == offset


@given(OFFSETS, st.randoms())
def test_equal_offsets_are_equal_texts(offset: Offset, chance: st.DrawFn) -> None:
    names = list(offset.places)
    chance.shuffle(names)  # type: ignore[attr-defined]
    other = replace(offset, places={name: offset.places[name] for name in names})
    assert text(other) == text(offset)
    assert text(offset) == json.dumps(offset.to_json(), sort_keys=True)


@pytest.mark.parametrize(
    "wrong", [{}, {"v": 2, "s": {}}, {"v": 1}, {"v": 1, "s": {"a": {"l": -1, "e": 0}}}, {"v": 1, "s": {"a": 3}}]
)
def test_what_is_no_offset_is_an_error(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        Offset.from_json(wrong)


def test_a_first_batch_reads_again_what_it_read() -> None:
    """Whatever Spark is told of the start by then."""
    start = Offset(STREAMS, {"a": Place(1, 7)}, first=True)
    end = start.to({"a": Place(1, 9)})
    moved = Offset(STREAMS, {"a": Place(3, 0)}, first=True)
    assert moved.start_for(end).places == start.places
    assert start.to(start.places) != start, "the start is stored at once"
    following = end.to({"a": Place(2, 0)})
    assert following.initial is None
    assert end.start_for(following) == end
    assert end.to(end.places) is end


def test_what_is_found_later_begins_where_it_was_found() -> None:
    """Also when the batch is repeated, and the stream has been truncated meanwhile."""
    start = Offset(STREAMS, {"a": Place(1, 7)})
    end = start.to({"a": Place(1, 7), "b": Place(2, 3)}, {"b": Place(2, 0)})
    again = Offset.from_json(json.loads(text(end)))
    assert start.start_for(again).places == {"a": Place(1, 7), "b": Place(2, 0)}
    assert again.to(again.places) is again


# --- logs ---


class GrowingLog:
    """A stream as its writers make it: what is in it, and how it looks now."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.spans: list[Span] = []
        self.ledgers = 0

    def step(self, action: int) -> None:
        last = self.spans[-1] if self.spans else None
        if last is None or last.final:
            self.ledgers += 1
            self.spans.append(Span(last.number + 1 if last else 1, self.ledgers, end=0))
        elif action == 0 and last.end == 0:  # taken back; another ledger gets its number
            self.spans.pop()
        elif action == 0:
            self.spans[-1] = replace(last, final=True)
        else:
            end = (last.end or 0) + action
            self.spans[-1] = replace(last, end=end, bytes=last.bytes + action * action * 10, records=2 * end)

    def entries(self) -> list[tuple[int, int]]:
        return [(span.ledger_id, entry) for span in self.spans for entry in range(span.end or 0)]

    @property
    def log(self) -> Log:
        return Log(self.name, tuple(self.spans))


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5), st.booleans(), LIMITS), max_size=40))
def test_batches_read_each_entry_once_and_in_order(story: list[tuple[int, int, bool, Limits]]) -> None:
    grown = [GrowingLog("a"), GrowingLog("b")]
    starts = {one.name: one.log.earliest for one in grown}
    read: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}
    for which, action, look, limits in [*story, *[(0, 1, True, Limits(entries=3))] * 3, (0, 1, True, Limits())]:
        grown[which].step(action)
        if not look:
            continue
        logs = {one.name: one.log for one in grown}
        for name, start in starts.items():
            assert resume(logs[name], start) == (start, None)
        ends = {name: logs[name].end(start) for name, start in starts.items()}
        stops = admit(logs, starts, ends, limits)
        new = {name: between(logs[name], start, stops[name]) for name, start in starts.items()}
        for name, some in new.items():
            assert stops[name].where <= ends[name].where
            read[name] += [(reach.span.ledger_id, n) for reach in some for n in range(reach.first, reach.last + 1)]
        count = sum(reach.last - reach.first + 1 for some in new.values() for reach in some)
        waiting = any(between(logs[name], starts[name], ends[name]) for name in starts)
        assert bool(count) == waiting, "a query goes on"
        assert limits.entries is None or count <= limits.entries
        if limits.bytes is not None and count > 1:
            taken = sum((r.last - r.first + 1) * r.span.entry_bytes for some in new.values() for r in some)
            assert taken <= limits.bytes + 1e-6
        starts = stops
    assert read == {one.name: one.entries() for one in grown}


def log(*spans: Span) -> Log:
    return Log("x", spans)


THREE = (Span(1, 11, 5, True), Span(2, 12, 4, True), Span(3, 13, 2))


def test_the_last_entry_may_be_read_in_part() -> None:
    reaches = between(log(*THREE), Place(1, 3, 2), Place(2, 1, 4))
    assert [(r.span.number, r.first, r.last, r.first_slot, r.stop_slot) for r in reaches] == [
        (1, 3, 4, 2, None),
        (2, 0, 1, 0, 4),
    ]
    assert between(log(*THREE), Place(1, 3, 2), Place(1, 3, 2)) == []


def test_what_was_truncated_before_it_was_read_is_lost() -> None:
    shorter = log(replace(THREE[0], truncated=True), replace(THREE[1], first_entry=2, first_slot=1), THREE[2])
    place, lost = resume(shorter, Place(1, 3, after=11))
    assert place == Place(2, 2, 1, 12)
    assert lost is not None
    assert "truncated" in lost
    assert resume(shorter, Place(2, 2, 1, 12)).lost is None
    assert resume(shorter, Place(2, 1, 0, 12)).lost is not None
    purged = log(THREE[2])
    assert resume(purged, Place(3, 0, after=12)).lost is None, "all of it was read before it was purged"
    assert resume(purged, Place(2, 4, after=12)).lost is not None


@pytest.mark.parametrize("start", [Place(2, 1, after=12), Place(2, 0, after=11), Place(4, 0), Place(1, 6, after=21)])
def test_a_stream_made_anew_is_not_taken_for_the_old_one(start: Place) -> None:
    anew = log(Span(1, 21, 5, True), Span(2, 22, 4))
    place, lost = resume(anew, start)
    assert place == Place(1, 0)
    assert lost is not None
    assert "made anew" in lost


def test_a_segment_that_is_missing_in_the_middle_is_noticed() -> None:
    holed = log(THREE[0], THREE[2])
    end = holed.end(Place(1, 0))
    assert end == Place(2, 0, 0, 11)
    assert resume(holed, end) == (Place(3, 0), "segment 2 is missing")


def test_one_large_entry_is_read_by_itself() -> None:
    big = {"x": log(Span(1, 11, 3, True, bytes=3000))}
    start = {"x": Place(1, 0)}
    stop = admit(big, start, {"x": big["x"].end(start["x"])}, Limits(bytes=10))
    assert between(big["x"], start["x"], stop["x"])[0][1:3] == (0, 0)


def test_a_batch_waits_until_it_is_worth_its_while() -> None:
    patience = Patience(100, 60.0)
    assert patience.is_over(1, None), "the first one comes at once"
    assert not patience.is_over(99, 59.0)
    assert patience.is_over(100, 0.0)
    assert patience.is_over(1, 60.0)
    logs = {"a": Log("a", (Span(1, 7, 30, final=True), Span(2, 8, 5))), "b": Log("b", (Span(1, 9, 4),))}
    starts = {"a": Place(1, 10), "b": Place(1, 4), "gone": Place(3, 0)}
    ends = {"a": Place(2, 5), "b": Place(1, 4), "gone": Place(3, 0)}
    assert waiting(logs, starts, ends) == 25


def test_every_log_gets_on_while_others_have_much() -> None:
    logs = {"large": Log("large", (Span(1, 11, 10_000, True),)), "small": Log("small", (Span(1, 12, 3, True),))}
    starts = {name: Place(1, 0) for name in logs}
    ends = {name: one.end(Place(1, 0)) for name, one in logs.items()}
    stops = admit(logs, starts, ends, Limits(entries=100))
    assert stops["small"].entry == 1
    assert 90 <= stops["large"].entry <= 99
