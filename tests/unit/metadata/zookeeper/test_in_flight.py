"""Requests that are under way, and a session that may be gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bookkeeper.metadata.zookeeper.session.doubt import Doubt
from bookkeeper.metadata.zookeeper.session.in_flight import InFlight
from bookkeeper.runtime.api import Runtime

GOOD = SimpleNamespace(exception=None, value=7)
BAD = SimpleNamespace(exception=KeyError("no"), value=None)


async def test_a_slot_is_kept_until_the_answer() -> None:
    requests = InFlight(1)
    await requests.slot()
    future = requests.begin()
    waiting = asyncio.ensure_future(requests.slot())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert len(requests) == 1
    requests.settle(future, GOOD)
    await waiting
    assert await future == 7
    assert not len(requests)


async def test_a_slot_that_was_taken_for_nothing_is_given_back() -> None:
    requests = InFlight(1)
    await requests.slot()
    requests.give_back()
    await requests.slot()


async def test_answers_come_once_whatever_they_are() -> None:
    requests = InFlight(3)
    for result, error in ((BAD, KeyError), (None, TimeoutError)):
        await requests.slot()
        future = requests.begin()
        requests.settle(future, result)
        requests.settle(future, GOOD)  # too late, and no second slot is freed
        with pytest.raises(error):
            await future


async def test_a_request_whose_caller_left_keeps_its_slot() -> None:
    requests = InFlight(1)
    await requests.slot()
    future = requests.begin()
    future.cancel()
    assert len(requests) == 1
    requests.settle(future, None)
    await requests.slot()


async def test_when_nothing_will_be_answered_all_are_told() -> None:
    requests = InFlight(2)
    futures = []
    for _ in range(2):
        await requests.slot()
        futures.append(requests.begin())
    futures[0].cancel()
    requests.fail_all(ConnectionError())
    with pytest.raises(ConnectionError):
        await futures[1]


class Clock:
    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.cancelled = 0

    def now(self) -> float:
        return 10.0

    def call_later(self, delay: float, call: Callable[..., None], *args: Any) -> Clock:
        self.timers.append((delay, call))
        return self

    def cancel(self) -> None:
        self.cancelled += 1


def test_doubt_begins_when_its_time_has_come_and_ends_with_the_next_news() -> None:
    clock = Clock()
    begun: list[str] = []
    doubt = Doubt(cast(Runtime, clock), lambda: begun.append("doubt"))
    doubt.begin_at(12.0)
    assert clock.timers[0][0] == 2.0
    doubt.end()
    assert (clock.cancelled, doubt.present) == (1, False)
    doubt.begin_at(9.0)
    delay, call = clock.timers[1]
    assert delay == 0.0
    call()
    assert (doubt.present, begun) == (True, ["doubt"])
    doubt.end()
    doubt.end()
    assert (clock.cancelled, doubt.present) == (1, False)
