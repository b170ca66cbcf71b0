"""How fast copies are made: by a setting, or so that clients hardly notice."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.autorecovery.copying.pace import LARGE_PIECE, SMALL_PIECE, Pace

MIB = 1 << 20


class World:
    """Time that passes while somebody sleeps or copies."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = 0.0
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    def now(self) -> float:
        return self.time

    async def _sleep(self, seconds: float) -> None:
        self.time += seconds

    async def copy(self, pace: Pace, seconds: float, piece_takes: float) -> tuple[int, float]:
        """Copy for so long; how many bytes, and which share of the time it was."""
        began, count = self.time, 0
        while self.time < began + seconds:
            await pace.spend(pace.piece)
            self.time += piece_takes
            count += 1
            pace.took(piece_takes)
        return count * pace.piece, count * piece_takes / (self.time - began)


@pytest.mark.parametrize("takes", [0.0002, 0.004, 0.3])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.5])
async def test_without_a_rate_copies_have_their_share_of_the_time(
    monkeypatch: pytest.MonkeyPatch, takes: float, share: float
) -> None:
    world = World(monkeypatch)
    pace = Pace(world, -1, share)  # type: ignore[arg-type]
    await world.copy(pace, 0.5 / share, takes)  # it begins with a guess
    _, used = await world.copy(pace, 200 * takes / share, takes)
    assert 0.9 * share < used < 1.1 * share


async def test_it_slows_down_with_the_bookies_and_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    pace = Pace(world, 0, 0.1)  # type: ignore[arg-type]
    quick, _ = await world.copy(pace, 100, 0.002)
    slow, _ = await world.copy(pace, 100, 0.02)
    again, _ = await world.copy(pace, 100, 0.002)
    assert 8 < quick / slow < 12
    assert 0.9 < again / quick <= 1.01


async def test_a_process_that_stood_still_copies_on_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    pace = Pace(world, -1, 0.05)  # type: ignore[arg-type]
    before, _ = await world.copy(pace, 30, 0.005)
    pace.took(10.0)
    await world.copy(pace, 10, 0.005)
    after, _ = await world.copy(pace, 30, 0.005)
    assert after > 0.9 * before


async def test_ledgers_side_by_side_have_one_share(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    pace = Pace(world, -1, 0.1)  # type: ignore[arg-type]
    for _ in range(1000):
        for _ in range(4):
            await pace.spend(SMALL_PIECE)
        world.time += 0.004  # all four at the same time
        for _ in range(4):
            pace.took(0.004)
    assert 0.9 * 4000 * 0.004 / 0.1 < world.time < 1.2 * 4000 * 0.004 / 0.1


async def test_a_rate_is_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    pace = Pace(world, MIB, 0.001)  # type: ignore[arg-type]
    copied, _ = await world.copy(pace, 100, 0.001)
    assert 99 * MIB < copied < 102 * MIB


async def test_the_whole_time_is_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    _, used = await world.copy(Pace(world, -1, 1.0), 10, 0.01)  # type: ignore[arg-type]
    assert used == pytest.approx(1)


@pytest.mark.parametrize(
    ("rate", "share", "piece"),
    [
        (-1, 1.0, LARGE_PIECE),
        (0, 0.1, SMALL_PIECE),
        (16 * MIB, 0.1, MIB),
        (1000, 1.0, SMALL_PIECE),
        (1 << 40, 0.1, LARGE_PIECE),
    ],
)
def test_a_piece_is_no_burst(monkeypatch: pytest.MonkeyPatch, rate: int, share: float, piece: int) -> None:
    assert Pace(World(monkeypatch), rate, share).piece == piece  # type: ignore[arg-type]
