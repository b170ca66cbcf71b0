"""What the journal consists of, each by itself: batches, when they leave, who is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.journal.departure import Departures
from bookkeeper.bookie.journal.gathering import Batch, Gathering
from bookkeeper.bookie.journal.group_commit import GROUPING_PER_RECORD, MAX_UNSYNCED_BATCHES
from bookkeeper.bookie.journal.telling import DONE_AT_ONCE, Growth, Telling


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans())))
def test_only_the_last_batch_gathers_and_one_that_must_be_synced_stays_so(appends: list[tuple[int, bool]]) -> None:
    gathering = Gathering(100, 5)
    needs_sync: dict[int, bool] = {}
    for size, sync in appends:
        batch = gathering.batch(sync)
        assert batch is gathering.queue[-1]
        batch.size += size
        batch.count += 1
        batch.full = gathering.is_full(batch)
        needs_sync[id(batch)] = needs_sync.get(id(batch), False) or sync
    assert all(batch.full for batch in list(gathering.queue)[:-1])
    assert all(batch.size < 140 and batch.count <= 5 for batch in gathering.queue)
    assert all(batch.sync == needs_sync[id(batch)] for batch in gathering.queue)
    assert sum(batch.count for batch in gathering.queue) == len(appends)


@given(st.lists(st.integers(0, 3 * DONE_AT_ONCE), max_size=6))
def test_all_are_told_in_order_and_no_more_in_one_turn_than_may_be(batches: list[int]) -> None:
    async def program() -> None:
        told: list[int] = []
        ends: list[int] = []
        telling = Telling(lambda: ends.append(len(told)))
        total = 0
        for count in batches:
            telling.add([lambda number=number: told.append(number) for number in range(total, total + count)])  # type: ignore[misc]
            telling.tell()
            total += count
            assert len(told) <= DONE_AT_ONCE * len(batches)
        while telling.waiting:
            before = len(told)
            await asyncio.sleep(0)
            assert len(told) - before <= DONE_AT_ONCE
        assert told == list(range(total))
        assert not batches or ends[-1] == total

    asyncio.run(program())


async def test_who_was_not_told_when_it_stops_never_is() -> None:
    told: list[int] = []
    telling = Telling(lambda: None)

    def tell(number: int) -> None:
        told.append(number)
        if number == 1:
            telling.stop()

    telling.add([lambda number=number: tell(number) for number in range(4)])  # type: ignore[misc]
    telling.tell()
    await asyncio.sleep(0)
    assert told == [0, 1]
    assert not telling.waiting


async def test_one_that_raises_keeps_the_next_from_nothing() -> None:
    told: list[int] = []
    telling = Telling(lambda: None)
    telling.add([lambda: 1 / 0, lambda: told.append(1)])  # type: ignore[list-item, return-value]
    with pytest.raises(ZeroDivisionError):
        telling.tell()
    await asyncio.sleep(0)
    assert told == [1]


@given(st.integers(1, 50), st.lists(st.integers(1, 100)))
def test_growth_is_told_after_every_step(step: int, sizes: list[int]) -> None:
    growth = Growth()
    growth.written(1000)
    told: list[int] = []
    growth.watch(step, lambda: told.append(1))
    growth.written(0)  # what was written before is told with the first
    since, expected = 0, 1
    for size in sizes:
        growth.written(size)
        since += size
        if since >= step:
            since, expected = 0, expected + 1
    assert len(told) == expected


class Clock:
    """A runtime of which only the clock is asked; timers run when the test says so."""

    def __init__(self) -> None:
        self.time = 100.0
        self.timers: list[tuple[float, Any]] = []

    def now(self) -> float:
        return self.time

    def call_later(self, delay: float, call: Any) -> Any:
        entry = (self.time + delay, call)
        self.timers.append(entry)

        class Handle:
            def cancel(_) -> None:  # noqa: N805
                if entry in self.timers:
                    self.timers.remove(entry)

        return Handle()


class Case:
    def __init__(self, longest_wait: float = 0.001) -> None:
        self.clock = Clock()
        self.batch: Batch | None = Batch(sync=True)
        self.left = 0
        self.departures = Departures(self.clock, longest_wait, lambda: self.batch is not None, self.leave)  # type: ignore[arg-type]

    def leave(self) -> None:
        assert self.batch is not None
        self.departures.left(self.batch)
        self.left += 1
        self.batch = None

    def next(self, count: int = 0, *, full: bool = False) -> Batch:
        self.batch = Batch(sync=True)
        self.batch.count, self.batch.full = count, full
        return self.batch


async def test_a_batch_leaves_at_the_end_of_the_turn_a_full_one_at_once() -> None:
    case = Case()
    case.departures.schedule(case.next(), 0)
    assert case.departures.turn_ends
    assert case.left == 0
    await asyncio.sleep(0)
    assert case.left == 1
    case.departures.schedule(case.next(full=True), MAX_UNSYNCED_BATCHES - 1)
    assert case.left == 2
    case.departures.schedule(case.next(full=True), MAX_UNSYNCED_BATCHES)
    await asyncio.sleep(0)
    assert case.left == 2


async def test_a_large_batch_buys_a_wait_and_one_that_becomes_full_ends_it() -> None:
    case = Case()
    case.departures.schedule(case.next(count=int(0.001 / GROUPING_PER_RECORD), full=True), 0)
    batch = case.next()
    case.departures.schedule(batch, 0)
    await asyncio.sleep(0)
    assert (case.left, len(case.clock.timers)) == (1, 1)
    case.departures.schedule(batch, 0)
    await asyncio.sleep(0)
    assert len(case.clock.timers) == 1, "it waits already"
    batch.full = True
    case.departures.schedule(batch, 0)
    assert (case.left, case.clock.timers) == (2, [])


async def test_what_has_left_meanwhile_does_not_leave_again() -> None:
    case = Case()
    case.departures.schedule(case.next(), 0)
    case.leave()
    await asyncio.sleep(0)
    assert case.left == 1
    case.departures.hurry()
    case.departures.schedule(case.next(), 0)
    await asyncio.sleep(0)
    assert case.left == 2
