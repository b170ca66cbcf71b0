"""The simulated world: machines, the network between them, one clock, one seed.

A `World` holds `Machine`s. A machine has a disk that stays, and at most one `Incarnation`: the processes that run on it
since its last start, as one unit. Killing it drops everything in memory; `power_off` also loses what the disk had not
synced. Production code gets a `SimulatedRuntime`, made for one incarnation.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import math
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ...runtime.api import BackgroundSync, File, KeyValueStore, Runtime, Workers
from .disk import MachineCrashed, SimulatedDisk, SimulatedFiles
from .keyvalue import open_store
from .loop import MACHINE, SimulatedLoop, Thaw, from_outside
from .network import Link, Owner, SimulatedListener, SimulatedNetwork, SimulatedTransport, Tap
from .odds import Odds

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000
MEMORY = 1 << 30


@dataclass
class Incarnation:
    """What runs on a machine between a start and a crash. Callbacks of a dead one are dropped by the loop."""

    machine: Machine
    number: int
    name: str
    """`machine#number`; tasks carry it in front of their names."""
    alive: bool = True
    paused_until: float = 0.0
    held: list[asyncio.Handle] = field(default_factory=list)
    thaw: Thaw = Thaw.AS_IT_CAME
    context: contextvars.Context = field(default_factory=contextvars.Context)


class Machine:
    """A computer: a name, a disk, a clock that may be wrong, and what runs on it."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.disk = SimulatedDisk(
            world.stream(f"disk {name}"), lambda what: world.loop.note(name, what), world.odds.disk
        )
        self.disk.crash = self.power_off
        self.disk.stop = self.stop
        self.incarnation: Incarnation | None = None
        self.powered = True
        self.wall_offset_ms = 0
        self._starts = 0
        self._death_waiters: list[asyncio.Future[None]] = []

    def start(self) -> SimulatedRuntime:
        """Bring up a new incarnation; returns the runtime for its programs."""
        assert self.incarnation is None or not self.incarnation.alive, f"{self.name} runs already"
        self._starts += 1
        incarnation = Incarnation(self, self._starts, f"{self.name}#{self._starts}")
        incarnation.context.run(MACHINE.set, incarnation)
        self.incarnation = incarnation
        self.world.note(self.name, "started")
        if not self.powered:
            self.powered = True
            self.world.machine_back(self)
        return SimulatedRuntime(self.world, incarnation)

    def death(self) -> asyncio.Future[None]:
        """Done when what runs now has died."""
        future: asyncio.Future[None] = self.world.loop.create_future()
        if self.incarnation is None or not self.incarnation.alive:
            future.set_result(None)
        else:
            self._death_waiters.append(future)
        return future

    def kill(self) -> None:
        """As kill -9: memory is gone, written files stay, connections are closed by the system."""
        incarnation = self._end()
        if incarnation is None:
            return
        self.world.note(self.name, "killed")
        self.disk.process_killed()
        self.world.process_died(incarnation, tell_peers=True)

    def power_off(self) -> None:
        """The power fails: memory is gone, the disk keeps what it must, peers are not told."""
        incarnation = self._end()
        if incarnation is None:
            return
        self.world.note(self.name, "power off")
        self.powered = False
        self.disk.power_loss()
        self.world.process_died(incarnation, tell_peers=False)

    def pause(self, seconds: float) -> None:
        """Nothing runs here for a while; others notice only the silence."""
        if self.incarnation is not None:
            self.incarnation.paused_until = self.world.loop.time() + seconds

    def freeze(self, seconds: float, thaw: Thaw) -> None:
        """A pause, at the end of which timers and input come in a certain order. A longer one under way goes on."""
        if self.incarnation is not None:
            until = self.world.loop.time() + seconds
            self.incarnation.paused_until = max(until, self.incarnation.paused_until)
            self.incarnation.thaw = thaw

    def stop(self, seconds: float) -> None:
        """One of its calls holds up everything else."""
        self.world.note(self.name, f"stands still for {seconds:.1f} s")
        self.freeze(seconds, Thaw.AS_IT_CAME)

    def resume(self) -> None:
        """End a pause early."""
        if self.incarnation is not None:
            self.world.loop.resume(self.incarnation)

    def _end(self) -> Incarnation | None:
        incarnation = self.incarnation
        if incarnation is None or not incarnation.alive:
            return None
        incarnation.alive = False
        waiters, self._death_waiters = self._death_waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)
        return incarnation


class World:
    """Everything there is in one simulated run."""

    def __init__(self, seed: int, odds: Odds | None = None) -> None:
        self.seed = seed
        self.loop = SimulatedLoop(random.Random(f"{seed}/order"))
        self.dice = self.stream("network")
        self.odds = odds or Odds()
        """Of all links, disks and workers, unless one is changed."""
        self.machines: dict[str, Machine] = {}
        self.listeners: dict[tuple[str, int], SimulatedListener] = {}
        self.seen: dict[str, int] = {}
        """Rare things that happened, by name, and how often (see `sometimes`)."""
        self.tap: Tap | None = None
        """Listens to all connections."""
        self.on_buffered: Callable[[SimulatedTransport], None] | None = None
        """Called when a program writes more to a connection than its high water mark lets through."""
        self.observer: Callable[[str, str], None] | None = None
        """Called with what happens, in words: where, and what. For readers of a trace; has no influence."""
        self._links: dict[tuple[str, str], Link] = {}
        self._connections: dict[SimulatedTransport, None] = {}
        self._link_changed: list[asyncio.Event] = []
        self._next_port = 40_000
        self._collects = False  # garbage collection is to be switched on again at the end

    def stream(self, purpose: str) -> random.Random:
        """Random numbers for one purpose; drawing from one does not change another."""
        return random.Random(f"{self.seed}/{purpose}")

    def machine(self, name: str) -> Machine:
        """The machine of this name, made at its first mention."""
        machine = self.machines.get(name)
        if machine is None:
            machine = self.machines[name] = Machine(self, name)
        return machine

    def has_power(self, machine: str) -> bool | None:
        """Whether a machine has power; None if there is none of that name."""
        found = self.machines.get(machine)
        return None if found is None else found.powered

    def note(self, where: str, what: str) -> None:
        """Put an event into the trace, and show it to the observer."""
        self.loop.note(where, what)
        if self.observer is not None:
            self.observer(where, what)

    def sometimes(self, name: str) -> None:
        """Record that a rare situation was reached."""
        self.seen[name] = self.seen.get(name, 0) + 1

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, outside of every machine, to its end.

        Garbage is not collected until `close`: finalizers of what dead processes left would run in the middle.
        """
        if gc.isenabled():
            gc.disable()
            self._collects = True
        asyncio.set_event_loop(self.loop)
        try:
            return self.loop.run_until_complete(main)
        finally:
            asyncio.set_event_loop(None)

    def close(self) -> None:
        """End the run and let go of everything."""
        self.loop.dispose()
        if self._collects:
            self._collects = False
            gc.enable()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def spawn_on(self, incarnation: Incarnation, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start a task as a part of a machine."""
        return self.loop.create_task(work, name=f"{incarnation.name}/{name}", context=incarnation.context)

    # --- network ---

    def link(self, source: str, target: str) -> Link:
        """The directed link between two machines."""
        key = (source, target)
        link = self._links.get(key)
        if link is None:
            usual = self.odds.network
            link = self._links[key] = Link(False, usual.latency, usual.spread, usual.tail_chance, usual.tail)
        return link

    def set_blocked(self, source: str, target: str, blocked: bool) -> None:
        """Cut or restore one direction between two machines."""
        link = self.link(source, target)
        if link.blocked == blocked:
            return
        link.blocked = blocked
        self.loop.note(source, f"link to {target} {'cut' if blocked else 'restored'}")
        if not blocked:
            for connection in list(self._connections):
                if (connection.owner.machine.name, connection.peer_machine) == (source, target):
                    connection.link_restored()
            waiting, self._link_changed = self._link_changed, []
            for event in waiting:
                event.set()

    def set_bandwidth(self, one: str, other: str, bandwidth: float) -> None:
        """Bytes per second between two machines, each way."""
        self.link(one, other).bandwidth = self.link(other, one).bandwidth = bandwidth

    def heal(self) -> None:
        """Restore every link, and its usual speed."""
        usual = self.odds.network
        for (source, target), link in list(self._links.items()):
            link.latency, link.spread, link.bandwidth = usual.latency, usual.spread, math.inf
            if link.blocked:
                self.set_blocked(source, target, False)

    async def passable(self, *links: Link) -> None:
        """Wait until none of these links is blocked."""
        while any(link.blocked for link in links):
            event = asyncio.Event()
            self._link_changed.append(event)
            await event.wait()

    def remember(self, transport: SimulatedTransport) -> None:
        self._connections[transport] = None

    def connections(self) -> list[SimulatedTransport]:
        """All ends of connections that are open."""
        return list(self._connections)

    def forget(self, transport: SimulatedTransport) -> None:
        self._connections.pop(transport, None)

    def reset_connections(self, one: str, other: str) -> None:
        """Reset every connection between two machines, both ends."""
        for connection in list(self._connections):
            if {connection.owner.machine.name, connection.peer_machine} == {one, other}:
                connection.abort()

    def listen(self, owner: Owner, port: int, factory: Callable[[], asyncio.Protocol]) -> SimulatedListener:
        if port == 0:
            self._next_port += 1
            port = self._next_port
        key = (owner.machine.name, port)
        if key in self.listeners and self.listeners[key].owner.alive:
            raise OSError(98, f"address {key} is in use (simulated)")
        listener = self.listeners[key] = SimulatedListener(self, owner, port, factory)
        return listener

    def stop_listening(self, listener: SimulatedListener) -> None:
        key = (listener.owner.machine.name, listener.port)
        if self.listeners.get(key) is listener:
            del self.listeners[key]

    def process_died(self, incarnation: Incarnation, *, tell_peers: bool) -> None:
        for key in [key for key, listener in self.listeners.items() if listener.owner is incarnation]:
            del self.listeners[key]
        for connection in list(self._connections):
            if connection.owner is incarnation:
                if tell_peers:
                    connection.process_died()
                else:
                    self.forget(connection)

    def machine_back(self, machine: Machine) -> None:
        """Connections that peers still hold to an earlier incarnation are reset."""
        for connection in list(self._connections):
            peer = connection.peer
            if connection.peer_machine == machine.name and peer is not None and not peer.owner.alive:
                self.loop.call_soon(connection.machine_back, context=connection.owner.context)


class SimulatedWorkers(Workers):
    """Background threads: calls run in virtual time, each in one piece."""

    def __init__(self, world: World, owner: Incarnation, name: str, count: int) -> None:
        self.name = name
        self.count = count
        self._world = world
        self._owner = owner
        self._dice = world.stream(f"workers {owner.name} {name}")
        self._free_at = [0.0] * count
        self._busy_until = [0.0] * count  # with a call that took longer than it was to
        self._open = 0
        self._idle = asyncio.Event()
        self._closed = False

    def post(
        self, call: Callable[..., T], args: tuple[Any, ...], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        if self._closed:
            raise RuntimeError(f"workers {self.name} are closed")
        self._open += 1
        loop = self._world.loop
        worker = min(range(self.count), key=self._free_at.__getitem__)
        odds = self._world.odds.workers
        duration = odds.shortest + self._dice.random() * odds.spread
        if self._dice.random() < odds.stall_chance:
            duration += self._dice.random() * odds.stall
        duration += self._owner.machine.disk.faults.slowness
        at = max(loop.time(), self._free_at[worker]) + duration
        self._free_at[worker] = at
        loop.call_at(at, self._run, worker, call, args, done, context=self._owner.context)

    @from_outside
    def _run(self, worker: int, call: Callable[..., T], args: tuple[Any, ...], done: Callable[..., None]) -> None:
        loop, disk = self._world.loop, self._owner.machine.disk
        if self._busy_until[worker] > loop.time():
            loop.call_at(self._busy_until[worker], self._run, worker, call, args, done, context=self._owner.context)
            return
        disk.index_seconds = 0.0
        result: Any = None
        error: BaseException | None = None
        try:
            result = call(*args)
        except MachineCrashed:
            return
        except BaseException as failure:
            error = failure
        longer, disk.index_seconds = disk.index_seconds, 0.0
        if longer or self._owner.paused_until > loop.time():
            at = max(loop.time() + longer, self._owner.paused_until)
            self._busy_until[worker] = at
            self._free_at[worker] = max(at, self._free_at[worker])
            loop.call_at(at, self._ended, done, result, error, context=self._owner.context)
        else:
            self._ended(done, result, error)

    @from_outside
    def _ended(self, done: Callable[..., None], result: Any, error: BaseException | None) -> None:
        self._open -= 1
        if not self._open:
            self._idle.set()
        done(result, error)

    async def close(self) -> None:
        self._closed = True
        while self._open:
            self._idle.clear()
            await self._idle.wait()


class SimulatedBackgroundSync(BackgroundSync):
    """Takes as long as a call to a background thread."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        self._runtime = runtime
        self._workers = runtime.workers("background sync")
        self._done: Callable[[OSError | None], None] | None = None
        self._closed = False

    def start(self, file: File, done: Callable[[OSError | None], None]) -> bool:
        if self._done is not None or self._closed or self._runtime.buggify("no sync in the background", 0.2):
            return False
        self._done = done
        self._workers.post(file.fdatasync, (), self._is_over)
        return True

    def _is_over(self, _result: None, error: BaseException | None) -> None:
        done, self._done = self._done, None
        assert done is not None
        assert error is None or isinstance(error, OSError)
        done(error)

    async def close(self) -> None:
        self._closed = True
        await self._workers.close()


class SimulatedRuntime(Runtime):
    """The world as one incarnation of a machine sees it."""

    def __init__(self, world: World, incarnation: Incarnation) -> None:
        self.world = world
        self.incarnation = incarnation
        self.files = SimulatedFiles(incarnation.machine.disk)
        self.network = SimulatedNetwork(world, incarnation)
        self._random: dict[str, random.Random] = {}

    def now(self) -> float:
        return self.world.loop.time()

    def wall_ms(self) -> int:
        return EPOCH_MS + self.incarnation.machine.wall_offset_ms + int(self.world.loop.time() * 1000)

    def random(self, purpose: str) -> random.Random:
        source = self._random.get(purpose)
        if source is None:
            owner = self.incarnation
            source = self._random[purpose] = self.world.stream(f"{owner.name} {purpose}")
        return source

    def uuid(self) -> str:
        digits = f"{self.random('uuid').getrandbits(128):032x}"
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"

    def buggify(self, name: str, probability: float = 0.05) -> bool:
        world = self.world
        if world.odds.buggify and self.random(f"buggify {name}").random() < probability * world.odds.buggify:
            world.sometimes(f"buggify: {name}")
            return True
        return False

    def workers(self, name: str, count: int = 1) -> Workers:
        return SimulatedWorkers(self.world, self.incarnation, name, count)

    def background_sync(self) -> BackgroundSync | None:
        return SimulatedBackgroundSync(self)

    def open_key_value(self, path: str, options: Mapping[str, Any] | None = None) -> KeyValueStore:
        return open_store(self.incarnation.machine.disk, path, options or {})

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        return self.world.loop.create_task(work, name=f"{self.incarnation.name}/{name}")

    def hostname(self) -> str:
        return self.incarnation.machine.name

    def environ(self) -> Mapping[str, str]:
        return {}

    def physical_memory(self) -> int:
        return MEMORY
