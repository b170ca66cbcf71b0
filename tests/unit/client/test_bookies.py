"""Which bookies there are, and what is remembered of them (spec client §9.5, §12.1)."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.client.placement.bookie_watcher import BookieWatcher
from bookkeeper.client.placement.read_order import ReplicaClass
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import ServiceUnavailable
from bookkeeper.metadata.api import Mode
from bookkeeper.runtime import TaskScope
from bookkeeper.types import BookieId

from .placement.support import Clock, Directory, ids

NAMES = ["a", "b", "c", "d"]
IDS = ids(*NAMES)


async def watcher_of(directory: Directory, **settings: object) -> tuple[BookieWatcher, Clock]:
    """A watcher that has read both lists."""
    clock = Clock()
    watcher = BookieWatcher(clock, ClientConfiguration.from_mapping(settings), directory)
    tasks = TaskScope(clock, "test")
    await watcher.start(tasks)
    await tasks.close()
    return watcher, clock


async def test_a_slow_bookie_is_forgiven_in_time() -> None:
    watcher, clock = await watcher_of(Directory(NAMES))
    watcher.note_slow([IDS[0]])
    version = watcher.version
    assert watcher.read_class(IDS[0]) is ReplicaClass.SLOW
    clock.time += 59
    assert watcher.version == version
    watcher.note_slow([IDS[0]])  # again: the time begins anew
    clock.time += 59
    assert watcher.version == version
    clock.time += 1
    assert watcher.version != version
    assert watcher.read_class(IDS[0]) is ReplicaClass.LOCAL


async def test_a_bookie_that_denied_an_entry_is_forgiven_in_time() -> None:
    watcher, clock = await watcher_of(Directory(["a"], ["r"]))
    version = watcher.version
    watcher.note_failed(IDS[0])
    watcher.note_failed(BookieId("r"))
    assert watcher.version != version
    assert watcher.read_class(IDS[0]) is ReplicaClass.LOCAL_FAIL
    assert watcher.read_class(BookieId("r")) is ReplicaClass.READ_ONLY
    clock.time += 60
    assert watcher.version
    assert watcher.read_class(IDS[0]) is ReplicaClass.LOCAL


async def test_tracking_can_be_switched_off() -> None:
    watcher, _ = await watcher_of(Directory(NAMES), enableBookieFailureTracking=False)
    version = watcher.version
    watcher.note_slow(IDS)
    watcher.note_failed(IDS[0])
    assert watcher.version == version


async def test_starting_needs_the_writable_list_only() -> None:
    watcher, _ = await watcher_of(Directory(NAMES, None))
    assert watcher.writable == tuple(IDS)
    assert watcher.is_available(IDS[0])
    assert watcher.read_class(BookieId("x")) is ReplicaClass.UNAVAILABLE
    with pytest.raises(ServiceUnavailable):
        await watcher_of(Directory(None))


async def test_a_new_list_is_prepared_before_it_is_known() -> None:
    directory = Directory(["a"])
    clock = Clock()
    prepared: list[frozenset[BookieId]] = []
    gate = asyncio.Event()

    async def prepare(bookies: frozenset[BookieId]) -> None:
        await gate.wait()
        prepared.append(bookies)

    watcher = BookieWatcher(clock, ClientConfiguration.from_mapping({}), directory, prepare)  # type: ignore[arg-type]
    gate.set()
    await watcher.start(TaskScope(clock, "test"))
    gate.clear()
    waiting = asyncio.create_task(watcher.changed(watcher.writable))
    directory.lists[Mode.WRITABLE] = ["a", "b"]
    refreshing = asyncio.create_task(watcher.refresh())
    for _ in range(10):
        await asyncio.sleep(0)
    assert watcher.writable == ("a",)
    assert not waiting.done()
    gate.set()
    assert await refreshing
    await waiting
    assert watcher.writable == ("a", "b")
    assert prepared[-1] == {"a", "b"}


async def test_an_old_list_that_takes_long_does_not_replace_a_newer_one() -> None:
    directory = Directory(["a"])
    clock = Clock()
    gates: list[asyncio.Event] = []

    async def prepare(_bookies: object) -> None:
        gates.append(asyncio.Event())
        await gates[-1].wait()

    async def until_prepared(count: int) -> None:
        async with asyncio.timeout(20):
            while len(gates) < count:
                await asyncio.sleep(0)

    tasks = TaskScope(clock, "test")
    watcher = BookieWatcher(clock, ClientConfiguration.from_mapping({}), directory, prepare)
    starting = asyncio.create_task(watcher.start(tasks))
    for both in (1, 2):
        await until_prepared(both)
        gates[-1].set()
    await starting
    directory.lists[Mode.WRITABLE] = ["a", "b"]
    refreshing = asyncio.create_task(watcher.refresh())
    await until_prepared(3)
    directory.now_writable("a", "b", "c")
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(gates) == 3  # the newer list waits its turn
    gates[2].set()
    assert await refreshing
    assert watcher.writable == ("a", "b")
    await until_prepared(4)
    refreshing = asyncio.create_task(watcher.refresh())
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(gates) == 4  # and so does whoever comes while it is prepared
    gates[3].set()
    await watcher.changed(("a", "b"))
    assert watcher.writable == ("a", "b", "c")
    await until_prepared(5)
    gates[4].set()
    assert await refreshing  # others than were known when it was asked
    await tasks.close()


async def test_a_watch_survives_whatever_its_callbacks_and_the_store_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bookkeeper.client.placement.bookie_watcher.WATCH_AGAIN", 0.0)
    directory = Directory(["a"])
    clock = Clock()
    breaks: list[BaseException] = []

    async def prepare(_bookies: object) -> None:
        raise KeyError("a hiccup of the user's resolver")

    async def watch(mode: Mode) -> object:
        async for bookies in Directory.watch(directory, mode):
            if breaks:
                raise breaks.pop()
            yield bookies

    directory.watch = watch  # type: ignore[method-assign, assignment]
    tasks = TaskScope(clock, "test")
    watcher = BookieWatcher(clock, ClientConfiguration.from_mapping({}), directory, prepare)
    await watcher.start(tasks)
    assert watcher.writable == ("a",)
    for writable in [("a", "b"), ("b",), ("b", "c")]:
        directory.now_writable(*writable)
        await watcher_knows(watcher, writable)
    breaks.append(RuntimeError("the watch breaks"))
    directory.now_writable("d")
    while breaks:
        await asyncio.sleep(0)
    directory.now_writable("d", "e")
    await watcher_knows(watcher, ("d", "e"))
    await tasks.close()


async def watcher_knows(watcher: BookieWatcher, writable: tuple[str, ...]) -> None:
    async with asyncio.timeout(20):
        while watcher.writable != writable:
            await asyncio.sleep(0)
