"""Choosing bookies, the order of reads, speculation delays (spec client §9.4, §9.5, §11.4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.client.bookies import SLOW, UNAVAILABLE, BookieWatcher
from bookkeeper.client.placement import DefaultEnsemblePlacementPolicy
from bookkeeper.client.speculation import Speculation
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import NotEnoughBookiesError, ServiceUnavailable
from bookkeeper.metadata.api import Mode, Versioned
from bookkeeper.runtime import TaskScope
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId


class Clock(RealRuntime):
    time = 100.0

    def now(self) -> float:
        return self.time


class Directory:
    def __init__(self, writable: list[str], readonly: list[str] | None = None) -> None:
        self.lists = {Mode.WRITABLE: writable, Mode.READ_ONLY: readonly}

    async def list(self, mode: Mode) -> Versioned[frozenset[BookieId]]:
        listed = self.lists[mode]
        if listed is None:
            raise ServiceUnavailable("not now")
        return Versioned(frozenset(map(BookieId, listed)), 1)

    async def watch(self, mode: Mode) -> AsyncIterator[Versioned[frozenset[BookieId]]]:
        if self.lists[mode] is not None:
            yield await self.list(mode)


def watcher_of(writable: list[str], readonly: list[str] | None = None) -> tuple[BookieWatcher, Clock]:
    clock = Clock()
    watcher = BookieWatcher(clock, ClientConfiguration.from_mapping({}), Directory(writable, readonly))  # type: ignore[arg-type]

    async def start() -> None:
        tasks = TaskScope(clock, "test")
        await watcher.start(tasks)
        await tasks.close()

    asyncio.run(start())
    return watcher, clock


NAMES = ["a", "b", "c", "d"]
IDS = [BookieId(name) for name in NAMES]


@given(st.integers(0, 8), st.integers(1, 8), st.sets(st.integers(0, 7)))
def test_an_ensemble_is_different_writable_bookies_that_are_not_excluded(
    available: int, wanted: int, excluded: set[int]
) -> None:
    watcher, clock = watcher_of([f"b{i}" for i in range(available)], ["r"])
    policy = DefaultEnsemblePlacementPolicy(watcher, clock)
    refused = [BookieId(f"b{i}") for i in sorted(excluded)]
    possible = {f"b{i}" for i in range(available)} - set(refused)
    if len(possible) < wanted:
        with pytest.raises(NotEnoughBookiesError):
            policy.new_ensemble(wanted, wanted, wanted, {}, refused)
        return
    ensemble = policy.new_ensemble(wanted, wanted, wanted, {}, refused)
    assert len(set(ensemble)) == len(ensemble) == wanted
    assert set(ensemble) <= possible


def test_a_replacement_is_new_to_the_ensemble() -> None:
    watcher, clock = watcher_of(NAMES)
    policy = DefaultEnsemblePlacementPolicy(watcher, clock)
    assert policy.replace(3, 3, 2, {}, IDS[:3], 0) == "d"
    assert policy.replace(2, 2, 2, {}, IDS[:2], 0, [BookieId("c")]) == "d"
    with pytest.raises(NotEnoughBookiesError):
        policy.replace(3, 3, 2, {}, IDS[:3], 0, [BookieId("d")])
    assert policy.acks_span_domains(IDS[:1], 3, 2)


@pytest.mark.parametrize(
    ("writable", "readonly", "slow", "order"),
    [
        ("abcd", "", "", (0, 1, 2, 3)),
        ("bcd", "", "", (1, 2, 3, 0)),
        ("bcd", "a", "", (0, 1, 2, 3)),
        ("abcd", "", "a", (1, 2, 3, 0)),
        ("cd", "b", "", (2, 3, 1, 0)),
        ("bd", "c", "b", (3, 2, 1, 0)),
    ],
)
def test_replicas_in_trouble_are_asked_last(writable: str, readonly: str, slow: str, order: tuple[int, ...]) -> None:
    watcher, clock = watcher_of(list(writable), list(readonly))
    policy = DefaultEnsemblePlacementPolicy(watcher, clock)
    before = policy.version
    policy.note_slow([BookieId(name) for name in slow])
    assert (policy.version != before) == bool(slow)
    assert policy.reorder_read(IDS, (0, 1, 2, 3)) == order


def test_a_slow_bookie_is_forgiven_in_time() -> None:
    watcher, clock = watcher_of(NAMES)
    watcher.note_slow([IDS[0]])
    version = watcher.version
    assert watcher.read_rank(IDS[0]) == SLOW
    clock.time += 59
    assert watcher.version == version
    watcher.note_slow([IDS[0]])  # again: the time begins anew
    clock.time += 59
    assert watcher.version == version
    clock.time += 1
    assert watcher.version != version
    assert watcher.read_rank(IDS[0]) < SLOW


def test_tracking_can_be_switched_off() -> None:
    watcher, _ = watcher_of(NAMES)
    config = ClientConfiguration.from_mapping({"enableBookieFailureTracking": False})
    watcher = BookieWatcher(Clock(), config, Directory(NAMES))  # type: ignore[arg-type]
    watcher.note_slow(IDS)
    assert watcher.version == 0


def test_starting_needs_the_writable_list_only() -> None:
    watcher, _ = watcher_of(NAMES, None)
    assert watcher.writable == tuple(IDS)
    assert watcher.is_available(IDS[0])
    assert watcher.read_rank(BookieId("x")) == UNAVAILABLE
    directory = Directory(NAMES)
    directory.lists[Mode.WRITABLE] = None
    watcher = BookieWatcher(Clock(), ClientConfiguration.from_mapping({}), directory)  # type: ignore[arg-type]
    with pytest.raises(ServiceUnavailable):
        asyncio.run(watcher.start(TaskScope(Clock(), "test")))


def fire_times(speculation: Speculation, count: int) -> list[float]:
    times = [speculation.first]
    delay = speculation.first
    for _ in range(count - 1):
        delay = speculation.after(delay)
        times.append(round(times[-1] + delay, 3))
    return times


def test_delays_of_speculation() -> None:
    config = ClientConfiguration.from_mapping({})
    reads = Speculation.for_reads(config)
    polls = Speculation.for_long_polls(config)
    assert reads is not None
    assert polls is not None
    assert fire_times(reads, 3) == [2, 4, 6]
    assert fire_times(polls, 4) == [1.5, 4.5, 9.5, 14.5]
    off = ClientConfiguration.from_mapping({"speculativeReadTimeout": 0, "firstSpeculativeReadLACTimeout": -1})
    assert Speculation.for_reads(off) is None
    assert Speculation.for_long_polls(off) is None
