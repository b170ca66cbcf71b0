"""What `bookkeeper bench` measures."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from bookkeeper import LedgerWriter
from bookkeeper.cli.bench.common import Result, all_done
from bookkeeper.cli.bench.ledgers import _feed, _feed_slowly, _spans
from bookkeeper.cli.session import stoppable
from bookkeeper.errors import BKError, BookKeeperError
from bookkeeper.runtime import Runtime
from bookkeeper.runtime.real import RealRuntime


class StepClock:
    """Time that passes only while an append is waited for."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time


class OneSecondAppends:
    """The part of a writer that the benchmark uses; every append takes a second after the one before."""

    def __init__(self, clock: StepClock) -> None:
        self.clock = clock
        self.entries = 0

    def append_nowait(self, _payload: bytes) -> asyncio.Future[int]:
        async def acknowledge(entry_id: int) -> int:
            self.clock.time += 1.0
            return entry_id

        self.entries += 1
        return asyncio.ensure_future(acknowledge(self.entries - 1))


async def test_an_append_is_timed_from_its_own_start_not_from_that_of_the_one_before() -> None:
    clock = StepClock()
    writer = OneSecondAppends(clock)
    result = Result("write", 10)
    await _feed(cast(Runtime, clock), cast(LedgerWriter, writer), b"x" * 10, window=1, deadline=5.0, result=result)
    assert result.entries == writer.entries > 4
    assert result.latency.greatest == 1.0


class ManualAppends:
    """Appends are acknowledged when the test says so."""

    def __init__(self) -> None:
        self.under_way: list[asyncio.Future[int]] = []

    def append_nowait(self, _payload: bytes) -> asyncio.Future[int]:
        self.under_way.append(asyncio.get_running_loop().create_future())
        return self.under_way[-1]

    async def append_soon(self, payload: bytes) -> asyncio.Future[int]:
        return self.append_nowait(payload)

    def acknowledge(self, count: int) -> None:
        for future in self.under_way[:count]:
            future.set_result(0)
        del self.under_way[:count]


async def test_the_window_is_filled_up_again_long_before_it_is_empty() -> None:
    clock, writer, result = StepClock(), ManualAppends(), Result("write", 10)
    feeding = asyncio.ensure_future(
        _feed(cast(Runtime, clock), cast(LedgerWriter, writer), b"x", window=100, deadline=1.0, result=result)
    )
    for _ in range(50):
        async with asyncio.timeout(20):
            while len(writer.under_way) < 88:
                await asyncio.sleep(0)
        assert len(writer.under_way) <= 100
        writer.acknowledge(12)
    clock.time = 1.0
    while not feeding.done():
        writer.acknowledge(len(writer.under_way))
        await asyncio.sleep(0)
    assert result.entries > 600


class TickingClock:
    """Time that goes on by a step with each look at it."""

    def __init__(self, step: float) -> None:
        self.step = step
        self.time = 0.0

    def now(self) -> float:
        self.time += self.step
        return self.time


class QuickAppends(ManualAppends):
    """Every append is acknowledged, or refused, at once."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error

    def append_nowait(self, payload: bytes) -> asyncio.Future[int]:
        future = super().append_nowait(payload)
        if self.error is None:
            future.set_result(len(self.under_way) - 1)
        else:
            future.set_exception(self.error)
        return future


async def paced(writer: QuickAppends, rate: float, deadline: float) -> Result:
    result, clock = Result("write", 1), TickingClock(0.01)
    with stoppable() as stop:
        await _feed_slowly(cast(Runtime, clock), cast(LedgerWriter, writer), b"x", 50, deadline, result, stop, rate)
    return result


async def test_at_a_rate_no_more_is_appended_than_is_due() -> None:
    writer = QuickAppends()
    result = await paced(writer, rate=10.0, deadline=5.0)
    assert result.entries == len(writer.under_way)
    assert 40 <= result.entries <= 50


async def test_an_append_that_fails_at_a_rate_is_not_lost() -> None:
    writer = QuickAppends(BKError("refused"))
    with pytest.raises(BKError, match="refused"):
        await paced(writer, rate=10.0, deadline=5.0)
    assert len(writer.under_way) < 40  # it ends the run at once


@pytest.mark.parametrize("count", [1, 7, 100, 7919, 20_000])
def test_scattered_reads_come_by_other_entries_each_time_and_stay_in_the_ledger(count: int) -> None:
    spans = list(_spans(count - 1, 1, once=True, scatter=True))
    assert len(spans) == count
    assert all(first == last < count for first, last in spans)
    if count % 7919:
        assert {first for first, _ in spans} == set(range(count))


async def test_where_one_of_many_fails_the_others_end_too() -> None:
    ended: list[str] = []

    async def goes_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def fails() -> None:
        await asyncio.sleep(0)
        raise BookKeeperError("no")

    with pytest.raises(BookKeeperError, match="no"):
        await all_done(RealRuntime(), [goes_on(), fails(), goes_on()], 1.0, Result("write", 10))
    await asyncio.sleep(0)
    assert ended == ["cancelled"] * 2
