"""Lines of waiting tasks: order, and what cancellation does to it (runtime.waiting.wait_queue)."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.runtime.waiting.wait_queue import STALE_PLACES, OneByOne, WaitQueue


class Room:
    """Admits while there is room."""

    def __init__(self, size: int) -> None:
        self.free = size
        self.queue: WaitQueue[str] = WaitQueue(self.serve)
        self.entered: list[str] = []

    def serve(self) -> None:
        while self.queue.first() is not None and self.free > len(self.queue.admitted):
            self.queue.admit()

    async def enter(self, name: str, rank: int = 0) -> None:
        await self.queue.wait(name, rank)
        self.free -= 1
        self.entered.append(name)

    def leave(self) -> None:
        self.free += 1
        self.serve()

    def begin(self, *names: str) -> list[asyncio.Task[None]]:
        return [asyncio.ensure_future(self.enter(name, int(name) if name.isdigit() else 0)) for name in names]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_first_come_first_served() -> None:
    room = Room(2)
    tasks = room.begin("a", "b", "c", "d")
    await settle()
    assert room.entered == ["a", "b"]
    room.leave()
    await settle()
    assert room.entered == ["a", "b", "c"]
    room.leave()
    await asyncio.gather(*tasks)
    assert not room.queue.waiting
    assert not room.queue.admitted


async def test_the_lowest_rank_goes_first() -> None:
    room = Room(0)
    tasks = room.begin("7", "3", "5", "3")
    await settle()
    for _ in range(4):
        room.leave()
        await settle()
    assert room.entered == ["3", "3", "5", "7"]
    await asyncio.gather(*tasks)


async def test_one_that_is_cancelled_while_it_waits_leaves_the_line_at_once() -> None:
    room = Room(0)
    first, second = room.begin("a", "b")
    await settle()
    first.cancel()
    await settle()
    assert list(room.queue.waiting.values()) == ["b"]
    room.leave()
    await second
    assert room.entered == ["b"]


async def test_one_that_is_cancelled_after_it_was_admitted_hands_its_turn_on() -> None:
    room = Room(0)
    first, second = room.begin("a", "b")
    await settle()
    room.leave()
    assert list(room.queue.admitted.values()) == ["a"]
    first.cancel()
    await second
    assert room.entered == ["b"]
    assert room.free == 0


async def test_a_place_admitted_in_the_moment_of_its_cancellation_is_handed_on() -> None:
    room = Room(0)
    first, second = room.begin("a", "b")
    await settle()
    first.cancel()
    room.leave()  # before the task has heard of it
    await second
    assert room.entered == ["b"]


async def test_cancelled_waiters_are_not_kept() -> None:
    room = Room(0)
    keep = room.begin("keep")
    for _ in range(20):
        tasks = room.begin(*["x"] * 50)
        await settle()
        for task in tasks:
            task.cancel()
        await settle()
    assert len(room.queue.waiting) == 1
    assert len(room.queue._line) <= 2 * 50 + STALE_PLACES + 50
    room.leave()
    await asyncio.gather(*keep)


async def test_who_waits_when_it_closes_gets_an_error_of_his_own() -> None:
    room = Room(1)
    tasks = room.begin("a", "b", "c")
    await settle()
    room.queue.close(lambda: OSError("closed"))
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[0] is None
    assert [type(error) for error in results[1:]] == [OSError, OSError]
    assert results[1] is not results[2]


@pytest.mark.parametrize("seed", range(20))
async def test_under_random_cancellation_no_turn_is_lost(seed: int) -> None:
    dice = random.Random(seed)
    room = Room(3)
    tasks: list[asyncio.Task[None]] = []
    inside = 0
    for number in range(300):
        tasks += room.begin(f"task {number}")
        if dice.random() < 0.5:
            dice.choice(tasks).cancel()
        while len(room.entered) - inside > 0 and dice.random() < 0.7:
            inside += 1
            room.leave()
        for _ in range(dice.randrange(3)):
            await asyncio.sleep(0)
    await settle()
    while room.queue.waiting or room.queue.admitted:
        await settle()
        room.leave()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(room.entered) == sum(not task.cancelled() for task in tasks)


# --- one by one ---


class Store:
    """Some pieces; a task waits until there are as many as it wants, and then takes them, or not."""

    def __init__(self) -> None:
        self.pieces = 0
        self.line: OneByOne[int] = OneByOne(lambda wanted: self.pieces >= wanted)
        self.entered: list[int] = []
        self.order: list[int] = []

    async def take(self, number: int, wanted: int, takes: bool) -> None:
        self.order.append(number)
        await self.line.wait(wanted)
        assert self.line.in_turn
        assert self.pieces >= wanted, "who has its turn has what it waited for"
        self.entered.append(number)
        if takes:
            self.pieces -= wanted

    def bring(self, pieces: int) -> None:
        self.pieces += pieces
        self.line.serve()

    def steal(self) -> None:
        """Taken by what does not wait."""
        self.pieces = max(0, self.pieces - 1)


Arrives = st.tuples(st.just("arrives"), st.integers(1, 3), st.booleans())
Steps = st.lists(
    st.one_of(
        Arrives,
        st.tuples(st.just("brings"), st.integers(1, 4), st.just(False)),
        st.tuples(st.just("is cancelled"), st.integers(0, 50), st.just(False)),
        st.tuples(st.just("steals"), st.just(0), st.just(False)),
        st.tuples(st.just("turns"), st.integers(1, 3), st.just(False)),
    ),
    max_size=60,
)


@given(Steps)
def test_one_by_one_no_turn_is_lost_and_the_order_is_kept_whenever_tasks_are_cancelled(
    steps: list[tuple[str, int, bool]],
) -> None:
    async def program() -> None:
        store = Store()
        tasks: list[asyncio.Task[None]] = []
        wants: list[int] = []
        for what, number, takes in steps:
            if what == "arrives":
                tasks.append(asyncio.ensure_future(store.take(len(tasks), number, takes)))
                wants.append(number)
            elif what == "brings":
                store.bring(number)
            elif what == "is cancelled" and tasks:
                tasks[number % len(tasks)].cancel()
            elif what == "steals":
                store.steal()
            for _ in range(number if what == "turns" else 0):
                await asyncio.sleep(0)
        for _ in range(6 * len(tasks) + 6):
            await asyncio.sleep(0)
        waiting = [number for number, task in enumerate(tasks) if not task.done()]
        assert all(wants[number] > store.pieces for number in waiting[:1]), "a wake-up was lost"
        assert store.entered == sorted(store.entered)
        store.bring(1000)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert store.entered == sorted(store.entered)
        assert all(number in store.entered for number in waiting)
        assert not store.line.busy

    asyncio.run(program())


async def test_one_by_one_a_turn_that_takes_nothing_goes_to_the_next() -> None:
    store = Store()
    tasks = [asyncio.ensure_future(store.take(number, 1, number == 2)) for number in range(4)]
    await settle()
    assert store.line.busy
    assert not store.line.in_turn
    store.bring(1)
    await asyncio.gather(*tasks[:3])
    await settle()
    assert store.entered == [0, 1, 2]
    store.bring(1)
    await tasks[3]
    await settle()
    assert not store.line.in_turn
    assert not store.line.busy


async def test_one_by_one_all_who_wait_get_an_error_of_their_own() -> None:
    store = Store()
    tasks = [asyncio.ensure_future(store.take(number, 1, False)) for number in range(3)]
    await settle()
    store.line.close(lambda: OSError("closed"))
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in errors] == [OSError] * 3
    assert len({id(error) for error in errors}) == 3


async def test_one_by_one_nobody_waits_in_a_line_that_was_closed() -> None:
    store = Store()
    admitted = asyncio.ensure_future(store.take(0, 1, False))
    await settle()
    store.bring(1)
    store.steal()  # what it was admitted for is taken before its task runs: it would have to wait again
    store.line.close(lambda: OSError("closed"))
    with pytest.raises(OSError, match="closed"):
        await asyncio.wait_for(admitted, 10)
    with pytest.raises(OSError, match="closed"):
        await asyncio.wait_for(store.take(1, 1, False), 10)
