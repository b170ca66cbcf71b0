"""The metadata update loop under concurrency (spec client §7, scenario 86)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from bookkeeper.client.handle import LedgerHandle
from bookkeeper.client.reader import LedgerReader
from bookkeeper.metadata import update_ledger
from bookkeeper.metadata.api import Versioned
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from tests.support.fake_ensemble import World
from tests.support.waiting import until

ONE, TWO = b"one", b"two"


def has(key: str, value: bytes) -> Callable[[LedgerMetadata], bool]:
    return lambda metadata: metadata.custom_metadata.get(key) == value


def lacks(key: str, value: bytes) -> Callable[[LedgerMetadata], bool]:
    return lambda metadata: not has(key, value)(metadata)


def put(key: str, value: bytes) -> Callable[[LedgerMetadata], LedgerMetadata]:
    return lambda metadata: replace(metadata, custom_metadata={**metadata.custom_metadata, key: value}, ctoken=0)


async def both(world: World, key: str, values: tuple[bytes, bytes]) -> list[LedgerMetadata]:
    """Two loops that begin from the same record, and reach the store together."""
    created = await world.create((3, 3, 2))
    world.hooks.writes = 0
    world.hooks.block()
    loops = [
        asyncio.ensure_future(update_ledger(world.driver.ledgers, 0, created, lacks(key, value), put(key, value)))
        for value in values
    ]
    await until(lambda: world.hooks.waiting == 2)
    world.hooks.unblock()
    return [(await loop).value for loop in loops]


async def test_two_loops_with_different_values_both_write_the_later_one_over_the_earlier() -> None:
    async with World(3) as world:
        found = await both(world, "k", (ONE, TWO))
        assert [metadata.custom_metadata["k"] for metadata in found] == [ONE, TWO]
        assert world.hooks.writes == 3  # one of them twice
        assert has("k", TWO)(await world.stored())


async def test_two_loops_with_the_same_value_write_it_once() -> None:
    async with World(3) as world:
        found = await both(world, "k", (ONE, ONE))
        assert [metadata.custom_metadata for metadata in found] == [{"k": ONE}, {"k": ONE}]
        assert world.hooks.writes == 2  # the second was refused, and there was no third
        assert has("k", ONE)(await world.stored())


async def test_news_that_arrive_while_a_write_is_under_way_are_not_undone_by_its_answer() -> None:
    """A handle's copy is replaced by a watch before the answer of an older write comes to it."""
    async with World(3) as world:
        created = await world.create((3, 3, 2))
        handle: LedgerHandle = LedgerReader(world.context, created, world.digest, world.KEY)
        written = await update_ledger(world.driver.ledgers, 0, created, lacks("k", ONE), put("k", ONE))
        await world.change(put("other", TWO))
        assert handle.adopt_metadata(await world.other.ledgers.read(0))
        assert not handle.adopt_metadata(written)
        assert has("other", TWO)(handle.metadata)
        again = await update_ledger(world.driver.ledgers, 0, handle.versioned_metadata, lacks("k", TWO), put("k", TWO))
        assert handle.adopt_metadata(again)
        assert has("other", TWO)(handle.metadata)
        assert has("k", TWO)(await world.stored())


async def test_a_hundred_writers_lose_no_update() -> None:
    async with World(3) as world:
        created = await world.create((3, 3, 2))

        def count(metadata: LedgerMetadata) -> LedgerMetadata:
            return put("n", b"%d" % (int(metadata.custom_metadata.get("n", b"0")) + 1))(metadata)

        async def write() -> Versioned[LedgerMetadata]:
            return await update_ledger(world.driver.ledgers, 0, created, lambda _: True, count)

        await asyncio.gather(*(write() for _ in range(100)))
        assert has("n", b"100")(await world.stored())
