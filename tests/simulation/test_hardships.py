"""The harm of `simulation.hardships` is what it says it is."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.simulation.loop import Thaw
from bookkeeper.simulation.network import WINDOW
from bookkeeper.simulation.world import World

from .test_world import Collect, connect, echo_world


@pytest.mark.parametrize(("thaw", "read"), [(Thaw.TIMERS_FIRST, b""), (Thaw.INPUT_FIRST, b"hello")])
def test_a_frozen_process_finds_late_timers_and_full_sockets_in_the_order_of_its_loop(thaw: Thaw, read: bytes) -> None:
    with echo_world(1) as world:
        seen: list[bytes] = []

        async def story(client: Collect) -> None:
            loop = asyncio.get_running_loop()
            client.transport.write(b"hello")
            loop.call_later(1.0, lambda: seen.append(bytes(client.received)))
            await asyncio.sleep(5.0)

        async def main() -> None:
            client = await connect(world)
            incarnation = world.machine("client").incarnation
            assert incarnation is not None
            task = world.spawn_on(incarnation, story(client), "story")
            await asyncio.sleep(0.0002)
            world.machine("client").freeze(10.0, thaw)
            await asyncio.sleep(9.0)
            assert seen == []
            await task

        world.run(main())
        assert seen == [read]


def test_what_a_narrow_link_cannot_take_at_once_waits_in_the_senders_buffer() -> None:
    with echo_world(2) as world:

        async def main() -> tuple[float, int]:
            client = await connect(world)
            world.set_bandwidth("client", "server", 100_000)
            begun = world.loop.time()
            client.transport.write(bytes(1_000_000))
            await asyncio.sleep(1.0)
            waiting = client.transport.get_write_buffer_size()
            await client.wait_for(1_000_000)
            return world.loop.time() - begun, waiting

        seconds, waiting = world.run(main())
        assert 10.0 <= seconds < 12.0
        assert waiting > 1_000_000 - WINDOW - 200_000


def test_a_link_heals_to_its_full_width() -> None:
    world = World(3)
    with world:
        world.set_bandwidth("a", "b", 1.0)
        world.heal()
        assert not world.link("a", "b").narrow
        assert not world.link("b", "a").narrow
