"""The simulated world keeps the promises that production code relies on."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bookkeeper.simulation.world.disk import MachineCrashed
from bookkeeper.simulation.world.world import World


@pytest.fixture(autouse=True)
def _dispose_of_worlds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Worlds are ended after each test."""
    worlds: list[World] = []
    original = World.__init__

    def remember(self: World, seed: int) -> None:
        original(self, seed)
        worlds.append(self)

    monkeypatch.setattr(World, "__init__", remember)
    yield
    for world in worlds:
        world.close()


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Collect(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = bytearray()
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.changed = asyncio.Event()
        self.paused = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.changed.set()

    def pause_writing(self) -> None:
        self.paused += 1

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(exc)

    async def wait_for(self, size: int) -> bytes:
        while len(self.received) < size:
            self.changed.clear()
            await self.changed.wait()
        return bytes(self.received)


def echo_world(seed: int) -> World:
    world = World(seed)
    server = world.machine("server").start()

    async def serve() -> None:
        await server.network.listen(None, 7, Echo)

    world.spawn_on(server.incarnation, serve(), "serve")
    return world


async def connect(world: World, timeout: float = 5.0) -> Collect:
    runtime = world.machine("client").incarnation
    client = world.machine("client").start() if runtime is None else None
    assert client is not None
    task = world.spawn_on(client.incarnation, client.network.connect("server", 7, Collect, timeout=timeout), "connect")
    _, protocol = await task
    assert isinstance(protocol, Collect)
    return protocol


def exchange(seed: int) -> tuple[str, bytes, int]:
    world = echo_world(seed)

    async def main() -> bytes:
        await asyncio.sleep(0.01)
        client = await connect(world)
        for number in range(50):
            client.transport.write(b"message %d;" % number)
            await asyncio.sleep(0.001)
        return await client.wait_for(50 * 11 - 10)

    data = world.run(main())
    return world.loop.trace_hash(), data, world.loop.steps


def test_bytes_arrive_once_and_in_order() -> None:
    _, data, _ = exchange(1)
    assert data.split(b";")[:50] == [b"message %d" % number for number in range(50)]


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    """SR-7."""
    assert exchange(3) == exchange(3)
    assert exchange(3)[0] != exchange(4)[0]


def test_the_run_does_not_depend_on_the_hash_seed() -> None:
    """SR-5, SR-6, SR-14."""
    script = "from tests.simulation.test_world import exchange; print(exchange(5)[0])"
    hashes = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert hashes == {exchange(5)[0] + "\n"}


def test_a_day_passes_at_once() -> None:
    world = World(1)
    world.run(asyncio.sleep(86400))
    assert world.loop.time() == pytest.approx(86400, abs=0.001)


def test_a_refused_connection_and_a_blackholed_one_differ() -> None:
    world = World(1)
    client = world.machine("client").start()
    world.machine("server").start()

    async def main() -> None:
        with pytest.raises(ConnectionRefusedError):
            await client.network.connect("server", 7, Collect, timeout=5)
        world.set_blocked("client", "server", True)
        started = world.loop.time()
        with pytest.raises(TimeoutError):
            await client.network.connect("server", 7, Collect, timeout=5)
        assert world.loop.time() - started == pytest.approx(5, abs=0.01)

    world.run(main())


def test_a_cut_link_delays_and_a_healed_one_delivers() -> None:
    world = echo_world(1)

    async def main() -> None:
        await asyncio.sleep(0.01)
        client = await connect(world)
        world.set_blocked("client", "server", True)
        client.transport.write(b"hello")
        await asyncio.sleep(60)
        assert client.received == b""
        world.heal()
        assert await client.wait_for(5) == b"hello"

    world.run(main())


@pytest.mark.parametrize("seed", range(20))
def test_bytes_stay_in_order_over_a_link_that_is_cut_while_they_are_under_way(seed: int) -> None:
    world = echo_world(seed)
    dice = random.Random(seed)

    async def main() -> bytes:
        await asyncio.sleep(0.01)
        client = await connect(world)
        for number in range(200):
            client.transport.write(b"%03d;" % number)
            world.set_blocked("client", "server", dice.random() < 0.3)
            await asyncio.sleep(dice.random() / 5000)
        world.heal()
        return await client.wait_for(200 * 4)

    assert world.run(main()) == b"".join(b"%03d;" % number for number in range(200))


def test_a_killed_process_closes_its_connections() -> None:
    world = echo_world(1)

    async def main() -> None:
        await asyncio.sleep(0.01)
        client = await connect(world)
        world.machine("server").kill()
        assert isinstance(await client.lost, ConnectionResetError)

    world.run(main())


def test_a_machine_without_power_says_nothing_until_it_is_back() -> None:
    world = echo_world(1)

    async def main() -> None:
        await asyncio.sleep(0.01)
        client = await connect(world)
        world.machine("server").power_off()
        client.transport.write(b"anybody?")
        await asyncio.sleep(600)
        assert not client.lost.done()
        world.machine("server").start()
        assert isinstance(await client.lost, ConnectionResetError)

    world.run(main())


def test_a_crash_runs_no_cleanup_of_the_dead() -> None:
    world = World(1)
    runtime = world.machine("m").start()
    ran: list[str] = []

    async def victim() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            ran.append("cleanup")

    async def main() -> None:
        world.spawn_on(runtime.incarnation, victim(), "victim")
        await asyncio.sleep(1)
        world.machine("m").kill()
        await asyncio.sleep(20)

    world.run(main())
    assert ran == []


def test_a_paused_machine_runs_late() -> None:
    world = World(1)
    runtime = world.machine("m").start()

    async def main() -> float:
        task = world.spawn_on(runtime.incarnation, asyncio.sleep(1), "sleep")
        world.machine("m").pause(30)
        await task
        return world.loop.time()

    assert world.run(main()) >= 30


def test_a_reader_that_does_not_read_stops_the_writer() -> None:
    world = World(1)
    server = world.machine("server").start()

    class Deaf(Echo):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.transport.pause_reading()

    async def serve() -> None:
        await server.network.listen(None, 7, Deaf)

    async def main() -> None:
        await world.spawn_on(server.incarnation, serve(), "serve")
        client = await connect(world)
        for _ in range(100):
            client.transport.write(bytes(10_000))
            await asyncio.sleep(0.01)
        assert client.paused == 1

    world.run(main())


def test_unsynced_sectors_may_vanish_and_synced_ones_stay() -> None:
    """DF-1."""
    outcomes = set()
    for seed in range(60):
        world = World(seed)
        machine = world.machine("m")
        files = machine.start().files
        files.makedirs("/d")
        with files.open("/d/f", "w+") as file:
            file.pwrite(b"A" * 1024, 0)
            file.fdatasync()
            file.pwrite(b"B" * 1024, 512)
        machine.power_off()
        content = machine.start().files.read_bytes("/d/f")
        assert content[:512] == b"A" * 512
        assert len(content) in range(1024, 1537)
        outcomes.add((content[512:1024] == b"B" * 512, content[1024:] == b"B" * 512))
    assert len(outcomes) == 4


def test_a_new_name_needs_a_sync_of_its_directory() -> None:
    """DF-4."""
    kept = set()
    for seed in range(40):
        world = World(seed)
        machine = world.machine("m")
        files = machine.start().files
        files.makedirs("/d")
        files.open("/d/loose", "w+")
        files.open("/d/tied", "w+")
        files.fsync_dir("/d")
        files.open("/d/late", "w+")
        machine.power_off()
        names = machine.start().files.listdir("/d")
        assert {"loose", "tied"} <= set(names)
        kept.add("late" in names)
    assert kept == {True, False}


def test_a_failed_sync_forgets_the_data_and_the_next_one_succeeds() -> None:
    """DF-6."""
    world = World(1)
    machine = world.machine("m")
    files = machine.start().files
    files.makedirs("/d")
    file = files.open("/d/f", "w+")
    file.fdatasync()
    file.pwrite(b"X" * 512, 0)
    machine.disk.faults.fail_next_sync = True
    with pytest.raises(OSError, match="simulated sync"):
        file.fdatasync()
    file.fdatasync()
    assert file.pread(512, 0) == b"X" * 512
    machine.power_off()
    assert b"X" not in machine.start().files.read_bytes("/d/f")


def test_a_machine_can_crash_at_any_disk_call() -> None:
    world = World(1)
    machine = world.machine("m")
    files = machine.start().files
    files.makedirs("/d")
    machine.disk.faults.crash_after_calls = 2
    file = files.open("/d/f", "w+")
    with pytest.raises(MachineCrashed):
        file.pwrite(b"x", 0)
    assert machine.incarnation is not None
    assert not machine.incarnation.alive


def test_a_key_value_batch_survives_whole_or_not_at_all() -> None:
    counts = set()
    for seed in range(40):
        world = World(seed)
        machine = world.machine("m")
        store = machine.start().open_key_value("/d/kv")
        for number in range(4):
            batch = store.batch()
            for part in range(3):
                batch.put(b"%d/%d" % (number, part), b"v")
            store.write(batch, sync=number == 1)
        machine.power_off()
        found = [key for key, _ in machine.start().open_key_value("/d/kv").iterate(b"", b"\xff")]
        assert len(found) % 3 == 0
        assert len(found) >= 6
        counts.add(len(found))
    assert counts == {6, 9, 12}
