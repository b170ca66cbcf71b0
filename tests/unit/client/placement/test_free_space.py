"""Asking bookies for their room (spec client §12.2)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bookkeeper.client.placement.bookie_watcher import BookieWatcher
from bookkeeper.client.placement.free_space import FreeSpace
from bookkeeper.config import ClientConfiguration
from bookkeeper.protocol.messages import GetBookieInfoRequest
from bookkeeper.runtime import TaskScope
from bookkeeper.types import BookieId
from tests.support.fake_bookie import fake_cluster

from ..support import eventually
from .support import Clock, Directory


class World:
    def __init__(self, *writable: str, **settings: object) -> None:
        self.clock = Clock()
        self.directory = Directory(writable)
        config = ClientConfiguration.from_mapping(settings)
        self.watcher = BookieWatcher(self.clock, config, self.directory)
        self.room: dict[str, int | None] = {}
        self.asked: Counter[str] = Counter()
        self.space = FreeSpace(self.clock, config, self.watcher, self._ask)

    async def _ask(self, bookie: BookieId) -> int | None:
        self.asked[bookie] += 1
        return self.room.get(bookie)


@asynccontextmanager
async def asking(*writable: str, room: dict[str, int | None], **settings: object) -> AsyncIterator[World]:
    world = World(*writable, **settings)
    world.room.update(room)
    tasks = TaskScope(world.clock, "test")
    await world.watcher.start(tasks)
    tasks.spawn(world.space.run(), name="free space")
    yield world
    await tasks.close()


async def test_new_bookies_are_asked_and_gone_ones_forgotten() -> None:
    async with asking("a", "b", room={"a": 1, "b": 2, "c": 3}) as world:
        await eventually(lambda: world.space.known == {"a": 1, "b": 2})
        world.directory.now_writable("b", "c")
        await eventually(lambda: world.space.known == {"b": 2, "c": 3})
        assert world.asked == {"a": 1, "b": 1, "c": 1}


async def test_a_silent_bookie_is_asked_again() -> None:
    async with asking("a", "b", room={"a": 1}, getBookieInfoRetryIntervalSeconds=0.001) as world:
        await eventually(lambda: world.asked["b"] > 3)
        world.room["b"] = 2
        await eventually(lambda: world.space.known == {"a": 1, "b": 2})
        assert world.asked["a"] == 1


async def test_all_are_asked_when_the_interval_is_over() -> None:
    async with asking("a", "b", room={"a": 1, "b": 2}, getBookieInfoIntervalSeconds=60) as world:
        await eventually(lambda: len(world.space.known) == 2)
        world.room.update(a=10, b=None)
        world.clock.time += 60
        world.directory.now_writable("a", "b", "c")  # wakes it up
        await eventually(lambda: world.asked["c"])
        await asyncio.sleep(0)
        assert world.space.known == {"a": 10, "b": 2}  # what is known stays until there is news


async def test_a_client_weighs_its_bookies() -> None:
    async with fake_cluster(3) as cluster:
        client = await cluster.connect(diskWeightBasedPlacementEnabled=True)
        await eventually(lambda: all(bookie.count(GetBookieInfoRequest) for bookie in cluster.bookies))
        async with client.create_ledger(password=b"p") as writer:
            await writer.append(b"x")
        await client.close()
