"""So many units a second."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.runtime.waiting.rate_limit import RateLimit


class Clock:
    """Time that passes while somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = 50.0
        self.slept: list[float] = []
        monkeypatch.setattr(asyncio, "sleep", self.sleep)

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


async def test_a_rate_is_kept_over_time_and_spare_time_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    limit = RateLimit(clock, 100)  # type: ignore[arg-type]
    await limit.take(300)
    assert clock.slept == []
    await limit.take(100)
    await limit.take(50)
    assert clock.slept == [3.0, 1.0]
    clock.time += 1000
    await limit.take(100)
    await limit.take(100)
    assert clock.slept == [3.0, 1.0, 1.0]
    await RateLimit(clock, 0).take(1 << 40)  # type: ignore[arg-type]
    assert len(clock.slept) == 3


async def test_a_rate_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    limit = RateLimit(clock, 100)  # type: ignore[arg-type]
    await limit.take(100)
    limit.rate = 50
    await limit.take(100)
    await limit.take(100)
    assert clock.slept == [1.0, 2.0]
