"""How fast copies are made: by a setting, or so that clients hardly notice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bookkeeper.autorecovery.pace import LARGE_PIECE, RESTING, SLOWEST, SMALL_PIECE, Pace
from bookkeeper.types import BookieId

MIB = 1 << 20
A, B = BookieId("a:1"), BookieId("b:1")


class World:
    """Bookies that take copies; time passes while somebody sleeps or a bookie stores."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = 0.0
        self.pace = Pace(self, -1, yields=True)  # type: ignore[arg-type]
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    def now(self) -> float:
        return self.time

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.time * 1000)

    async def _sleep(self, seconds: float) -> None:
        self.time += seconds

    async def copy(self, seconds: float, takes: Callable[[BookieId], float], idle: float = 0.0) -> float:
        """Copy for so long to both; the rate at the end."""
        end = self.time + seconds
        while self.time < end:
            await self.pace.spend(self.pace.piece)
            self.time += idle
            for bookie in (A, B):
                self.pace.took(bookie, takes(bookie))
        return self.pace.rate


async def test_it_rises_while_bookies_are_as_quick_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    assert world.pace.rate == RESTING
    assert await world.copy(10, lambda _: 0.004) >= 40 * RESTING


async def test_it_falls_while_one_bookie_is_slower_and_rises_after(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    quick = await world.copy(10, lambda bookie: 0.002 if bookie == A else 0.02)
    slow = await world.copy(9, lambda bookie: 0.004 if bookie == A else 0.02)
    assert slow < quick / 20
    assert await world.copy(20, lambda bookie: 0.004 if bookie == A else 0.02) == SLOWEST
    assert await world.copy(10, lambda bookie: 0.002 if bookie == A else 0.02) > 3 * SLOWEST


async def test_it_settles_where_copies_themselves_make_bookies_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie stores 40 MiB a second; what waits there is as in a queue with one server."""
    world = World(monkeypatch)

    def takes(_: BookieId) -> float:
        return 0.002 / max(0.02, 1 - world.pace.rate / (40 * MIB))

    await world.copy(30, takes)
    rates = sorted([await world.copy(1, takes) for _ in range(400)])
    bound = 40 * MIB / 3  # where it is one and a half times slower
    assert 0.6 * bound < rates[40] <= rates[360] < 1.4 * bound


async def test_bookies_that_stay_slow_are_taken_for_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    await world.copy(5, lambda _: 0.001)
    assert await world.copy(30, lambda _: 0.01) == SLOWEST
    await world.copy(30, lambda _: 0.01)
    assert max([await world.copy(1, lambda _: 0.01) for _ in range(15)]) > RESTING


async def test_a_rate_that_is_not_used_does_not_rise(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    assert await world.copy(60, lambda _: 0.001, idle=0.5) == RESTING


@pytest.mark.parametrize(
    ("rate", "yields", "piece"),
    [
        (-1, False, LARGE_PIECE),
        (0, True, SMALL_PIECE),
        (16 * MIB, True, MIB),
        (1000, False, SMALL_PIECE),
        (1 << 40, True, LARGE_PIECE),
    ],
)
async def test_a_piece_is_no_burst(rate: int, yields: bool, piece: int) -> None:
    class Still:
        def now(self) -> float:
            return 0.0

        def wall_ms(self) -> int:
            return 0

    pace = Pace(Still(), rate, yields=yields)  # type: ignore[arg-type]
    assert pace.piece == piece
    if rate > 0:
        pace.took(A, 1.0)
        assert pace.rate == rate
