"""The harm of `simulation.hardships` is what it says it is."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from bookkeeper.errors import CorruptStorageError
from bookkeeper.simulation.programs.impatience import Cut, where_it_waits
from bookkeeper.simulation.swarm import Options, draw
from bookkeeper.simulation.world.loop import Runaway, Thaw
from bookkeeper.simulation.world.network import WINDOW
from bookkeeper.simulation.world.world import SimulatedRuntime, World

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


def started(world: World) -> SimulatedRuntime:
    return world.machine("m").start()


def put(runtime: SimulatedRuntime, key: bytes) -> None:
    store = runtime.open_key_value("/index")
    batch = store.batch()
    batch.put(key, key)
    store.write(batch, sync=True)


def test_a_bit_flipped_in_a_synced_index_log_is_found_when_the_index_is_opened() -> None:
    with World(4) as world:
        put(started(world), b"key")
        machine = world.machine("m")
        assert machine.disk.flip_log("/index")
        machine.kill()
        with pytest.raises(CorruptStorageError):
            machine.start().open_key_value("/index")


def test_a_full_index_says_so_and_takes_writes_again_when_there_is_space() -> None:
    with World(5) as world:
        runtime = started(world)
        store = runtime.open_key_value("/index")
        batch = store.batch()
        batch.put(b"key", b"value")
        world.machine("m").disk.faults.index_full = True
        with pytest.raises(OSError, match="No space") as caught:
            store.write(batch, sync=True)
        assert caught.value.errno == errno.ENOSPC
        world.machine("m").disk.faults.index_full = False
        store.write(batch, sync=True)
        assert store.get(b"key") == b"value"


def test_a_call_of_a_slow_index_holds_up_its_lane_and_nothing_else() -> None:
    with World(6) as world:
        runtime = started(world)
        store = runtime.open_key_value("/index")
        world.machine("m").disk.faults.index_slowness = 3.0
        order: list[tuple[str, float]] = []

        async def work() -> None:
            lane = runtime.workers("lane")
            first, second = lane.submit(store.get, b"key"), lane.submit(int)
            first.add_done_callback(lambda _: order.append(("first", runtime.now())))
            second.add_done_callback(lambda _: order.append(("second", runtime.now())))
            await asyncio.sleep(1.0)
            order.append(("meanwhile", runtime.now()))
            await asyncio.wait([first, second])
            await lane.close()

        world.run(_as_part_of(world, runtime, work()))
        assert [what for what, _ in order] == ["meanwhile", "first", "second"]
        assert order[1][1] >= 3.0


def test_a_call_that_holds_the_interpreter_stops_its_machine() -> None:
    with World(7) as world:
        runtime = started(world)
        store = runtime.open_key_value("/index")
        world.machine("m").disk.faults.index_stops_for = 3.0
        ticks: list[float] = []

        async def work() -> None:
            lane = runtime.workers("lane")
            reading = lane.submit(store.get, b"key")
            for _ in range(3):
                await asyncio.sleep(0.5)
                ticks.append(runtime.now())
            await reading
            await lane.close()

        world.run(_as_part_of(world, runtime, work()))
        assert ticks[0] >= 3.0


def test_what_is_on_a_lost_mount_is_back_after_a_restart_and_what_came_meanwhile_is_out_of_sight() -> None:
    with World(8) as world:
        runtime = started(world)
        disk = world.machine("m").disk
        runtime.files.makedirs("/data/current")
        runtime.files.write_atomically("/data/current/kept", b"1")
        disk.unmount("/data")
        assert not runtime.files.exists("/data/current/kept")
        assert runtime.files.is_dir("/data")
        assert runtime.files.disk_usage("/data").device != runtime.files.disk_usage("/").device
        runtime.files.makedirs("/data/current")
        runtime.files.write_atomically("/data/current/below", b"2")
        world.machine("m").kill()
        again = world.machine("m").start()
        assert again.files.listdir("/data/current") == ["kept"]


def test_a_cut_cancels_at_the_await_that_was_chosen() -> None:
    with World(9) as world:
        runtime = started(world)
        places: list[str] = []
        reached: list[int] = []

        async def steps() -> None:
            for number in range(5):
                reached.append(number)
                await asyncio.sleep(1.0)

        async def work() -> None:
            task = asyncio.ensure_future(_wait_for(Cut(steps(), 3, 0.5, places.append)))
            await asyncio.wait([task])
            assert task.cancelled()

        world.run(_as_part_of(world, runtime, work()))
        assert reached == [0, 1, 2]
        assert places == ["-"], "nothing of the client waits"


def test_where_a_coroutine_waits_is_told_through_generators_and_objects() -> None:
    class Awaitable:
        def __await__(self):  # type: ignore[no-untyped-def]
            return asyncio.sleep(0).__await__()

    async def outer() -> None:
        await Awaitable()

    coroutine = outer()
    coroutine.send(None)
    assert where_it_waits(coroutine) == "-"
    coroutine.close()


def test_what_goes_round_and_round_is_noticed_long_before_the_end_of_the_run() -> None:
    with World(10) as world:
        world.loop.steps_per_second = 1000

        async def busy() -> None:
            while True:
                await asyncio.sleep(0)

        with pytest.raises(Runaway):
            world.run(busy())


def test_hardening_changes_nothing_of_what_was_drawn_before() -> None:
    for seed in range(20):
        plain = draw(random.Random(f"{seed}/configuration"), Options(hardening=False))
        hardened = draw(random.Random(f"{seed}/configuration"), Options(hardening=True, calm=False))
        assert plain.shape == hardened.shape
        assert set(plain.kinds) - {"kill bookie"} <= set(hardened.kinds)
        assert not plain.bookies_stay


async def _wait_for(cut: Cut[None]) -> None:
    await cut


async def _as_part_of(world: World, runtime: SimulatedRuntime, work: Coroutine[Any, Any, None]) -> None:
    await world.spawn_on(runtime.incarnation, work, "work")
