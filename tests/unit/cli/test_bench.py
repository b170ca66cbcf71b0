"""What `bookkeeper bench` measures."""

from __future__ import annotations

import asyncio
from typing import cast

from bookkeeper import LedgerWriter
from bookkeeper.cli.bench import Result, _feed
from bookkeeper.runtime import Runtime


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

    async def append_soon(self, _payload: bytes) -> asyncio.Future[int]:
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
