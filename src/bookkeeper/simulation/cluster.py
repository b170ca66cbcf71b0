"""A cluster in the simulated world: the shipped bookie and client code on simulated machines, around one store.

The metadata store is the in-memory one, on a machine of its own: what a bookie or client does to it takes time, can
be cut off by a partition between the two machines, and its answer can get lost after it was applied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ..bookie.bookie import Bookie
from ..bookie.integrity.peers import Peers
from ..bookie.node.exit_code import ExitCode
from ..client.client import BookKeeper, connect
from ..config import ClientConfiguration, ServerConfiguration
from ..errors import ServiceUnavailable
from ..metadata.memory import MemoryDriver, MemoryStore, StoreFaults
from ..peers import ClientPeers
from ..runtime import Runtime
from ..types import BookieId
from .world.world import Incarnation, Machine, SimulatedRuntime, World

log = logging.getLogger(__name__)

STORE = "store"
PORT = 3181
SESSION_TIMEOUT_MS = 3000

BOOKIE_SETTINGS: Mapping[str, Any] = {
    "bookiePort": PORT,
    "allowLoopback": True,
    "journalDirectories": "/journal",
    "ledgerDirectories": "/ledgers",
    "journalPreAllocSizeMB": 1,
    "journalMaxSizeMB": 1,
    "journalMaxBackups": 1,
    "logSizeLimit": 1 << 20,
    "flushInterval": 1000,
    "zkTimeout": SESSION_TIMEOUT_MS,
    "dbStorage_reservedSpaceMb": 1,
    "dbStorage_writeCacheMaxSizeMb": 4,
    "dbStorage_readAheadCacheMaxSizeMb": 1,
}
"""Small files and frequent checkpoints, so that a short run rolls, flushes and trims."""


class SimulatedStoreFaults(StoreFaults):
    """Delays, partitions and lost answers between a machine and the store."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._dice = world.stream("store")
        self.lost_answer_chance = 0.0
        self.lost_request_chance = 0.0
        """Of requests that never arrive, while their sender cannot know that."""
        self.refusal_chance = 0.0
        self.patience = 2.0
        """Seconds after which a request that cannot reach the store fails."""
        self.lose_requests_of: dict[str, int] = {}
        """Operation -> how many of the next ones never arrive, while their senders cannot know that."""
        self.lose_answers_to: dict[str, int] = {}
        """Operation -> how many of the next ones are carried out, and their answers lost."""

    async def before(self, client: str, operation: str) -> None:
        await self._pass(client, STORE, operation)
        if self._dice.random() < self.refusal_chance:
            raise ServiceUnavailable(f"{operation}: the store did not answer (simulated)")
        left = self.lose_requests_of.get(operation, 0)
        if left:
            self.lose_requests_of[operation] = left - 1
            raise ServiceUnavailable(f"{operation}: the connection was lost (simulated)", maybe_applied=True)
        if self.lost_request_chance and self._dice.random() < self.lost_request_chance:
            self._world.sometimes("store: a request was lost, and its sender cannot know")
            raise ServiceUnavailable(f"{operation}: the connection was lost (simulated)", maybe_applied=True)

    async def after(self, client: str, operation: str) -> None:
        await self._pass(STORE, client, operation, applied=True)
        left = self.lose_answers_to.get(operation, 0)
        if left:
            self.lose_answers_to[operation] = left - 1
        if left or self._dice.random() < self.lost_answer_chance:
            self._world.sometimes("store: an answer was lost after the change")
            raise ServiceUnavailable(f"{operation}: the answer was lost (simulated)", maybe_applied=True)

    async def _pass(self, source: str, target: str, operation: str, *, applied: bool = False) -> None:
        link = self._world.link(source, target)
        await asyncio.sleep(link.draw(self._dice))
        if not link.blocked:
            return
        try:
            async with asyncio.timeout(self.patience):
                await self._world.passable(link)
        except TimeoutError:
            raise ServiceUnavailable(f"{operation}: no way to the store (simulated)", maybe_applied=applied) from None

    def news_delay(self, client: str) -> float:
        return self._world.link(STORE, client).draw(self._dice)


class SimulatedCluster:
    """Bookies `b1`, `b2`, ... and any number of clients in one `World`."""

    def __init__(
        self,
        world: World,
        bookies: int,
        *,
        settings: Mapping[str, Any] | None = None,
        client_settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.world = world
        self.names = [f"b{number}" for number in range(1, bookies + 1)]
        self.faults = SimulatedStoreFaults(world)
        store_runtime = world.machine(STORE).start()
        self.store = store_runtime.incarnation.context.run(MemoryStore, store_runtime, faults=self.faults)
        self.bookies: dict[str, Bookie] = {}
        """The running, or last running, bookie of each machine."""
        self.serving: dict[str, Incarnation] = {}
        """The incarnation in which a bookie last came up."""
        self._drivers: dict[str, MemoryDriver] = {}
        self._watched_end: dict[str, bool] = {}
        """False: the machine stays up when its bookie has stopped."""
        self.mistakes: dict[str, Mapping[str, Any]] = {}
        """Wrong settings with which a bookie is started."""
        self.on_end: Callable[[str, ExitCode], None] | None = None
        """Called for a bookie that ended, and was not asked to."""
        self._asked_to_end: dict[str, Incarnation] = {}
        self.exit_codes: dict[str, ExitCode] = {}
        """How a bookie's last incarnation ended by itself."""
        self._settings = {**BOOKIE_SETTINGS, **(settings or {})}
        self._client_settings = dict(client_settings or {})

    @staticmethod
    def bookie_id(name: str) -> BookieId:
        return BookieId(f"{name}:{PORT}")

    def machine(self, name: str) -> Machine:
        return self.world.machine(name)

    def setting(self, name: str, setting: str) -> Any:
        """A setting of the bookie on a machine."""
        return {**self._settings, **self.mistakes.get(name, {})}[setting]

    def driver(self, name: str) -> MemoryDriver:
        """The metadata driver that the bookie or client on a machine uses, or used last."""
        return self._drivers[name]

    def is_serving(self, name: str) -> bool:
        """Whether the bookie on a machine has come up and not begun to end."""
        return (
            self.is_up(name)
            and self.serving.get(name) is self.machine(name).incarnation
            and not self.bookies[name].ending
        )

    def is_up(self, name: str) -> bool:
        incarnation = self.machine(name).incarnation
        return incarnation is not None and incarnation.alive

    async def start(self) -> None:
        """Make the cluster and start all bookies."""
        runtime = self.world.machine(STORE).incarnation
        assert runtime is not None
        await self.world.spawn_on(runtime, self._initialise(), "initialise")
        for name in self.names:
            if not await self.start_bookie(name):
                raise RuntimeError(f"{name} does not start on an empty disk: exit code {self.exit_codes.get(name)}")

    async def _initialise(self) -> None:
        incarnation = self.world.machine(STORE).incarnation
        assert incarnation is not None
        driver = MemoryDriver(self.store, SimulatedRuntime(self.world, incarnation), name=STORE)
        await driver.open()
        await driver.admin.init_new_cluster()
        await driver.close()

    async def start_bookie(self, name: str) -> bool:
        """Start the bookie on a machine that is down; False if it refused or died while starting."""
        runtime = self.machine(name).start()
        started: asyncio.Future[bool] = self.world.loop.create_future()
        died = self.machine(name).death()
        self.world.spawn_on(runtime.incarnation, self._serve(name, runtime, started), "bookie")
        while not started.done() and not died.done():
            await _either(started, died)
        return started.done() and started.result()

    async def _serve(self, name: str, runtime: SimulatedRuntime, started: asyncio.Future[bool]) -> None:
        config = ServerConfiguration.from_mapping(
            {**self._settings, "advertisedAddress": name, **self.mistakes.get(name, {})}
        )
        driver = MemoryDriver(self.store, runtime, name=name, session_timeout_ms=SESSION_TIMEOUT_MS)
        self._drivers[name] = driver
        bookie = self.bookies[name] = Bookie(runtime, config, driver, self._open_peers)
        try:
            await driver.open()
            await bookie.start()
        except Exception as error:
            self.exit_codes[name] = bookie.exit_code_of(error)
            self.world.sometimes(f"bookie did not start: {type(error).__name__}")
            log.info("bookie %s did not start: %s", name, error)
            started.set_result(False)
            self._gone(name, runtime)
            return
        started.set_result(True)
        self.serving[name] = runtime.incarnation
        self.exit_codes[name] = await bookie.wait_stopped()
        if self.on_end is not None and self._asked_to_end.get(name) is not runtime.incarnation:
            self.on_end(name, self.exit_codes[name])
        await driver.close()
        self._gone(name, runtime)

    def _gone(self, name: str, runtime: SimulatedRuntime) -> None:
        """The process has ended by itself: so have its connections."""
        if self._watched_end.get(name, True):
            self.world.loop.call_soon(self._kill_if_current, name, runtime.incarnation)

    def _kill_if_current(self, name: str, incarnation: Incarnation) -> None:
        if self.machine(name).incarnation is incarnation:
            self.machine(name).kill()

    async def stop_bookie(self, name: str) -> None:
        """A clean stop. Returns also when the machine goes down meanwhile."""
        incarnation = self.machine(name).incarnation
        assert incarnation is not None
        await self._stop(name, incarnation)
        self._kill_if_current(name, incarnation)

    async def _stop(self, name: str, incarnation: Incarnation) -> None:
        died = self.machine(name).death()
        self._asked_to_end[name] = incarnation
        stopped = self.world.spawn_on(incarnation, self.bookies[name].stop(), "stop")
        await asyncio.wait([stopped, died], return_when=asyncio.FIRST_COMPLETED)

    async def stop_bookie_only(self, name: str) -> None:
        """A clean stop that leaves the machine running, so that leftovers can be seen."""
        incarnation = self.machine(name).incarnation
        assert incarnation is not None
        self._watched_end[name] = False
        await self._stop(name, incarnation)

    def expire_session(self, name: str) -> bool:
        """End the session of the bookie or client on a machine, from the store's side."""
        driver = self._drivers.get(name)
        if driver is None or not self.store.is_live(driver.session):
            return False
        self.store.expire(driver.session)
        return True

    def client_runtime(self, name: str) -> SimulatedRuntime:
        """A runtime for a client program on its own machine, started if it is down."""
        machine = self.machine(name)
        if machine.incarnation is not None and machine.incarnation.alive:
            return SimulatedRuntime(self.world, machine.incarnation)
        return machine.start()

    @asynccontextmanager
    async def _open_peers(self, runtime: Runtime, config: ServerConfiguration, own: BookieId) -> AsyncIterator[Peers]:
        """The client in a bookie's process has a session of its own."""
        assert isinstance(runtime, SimulatedRuntime)
        name = runtime.incarnation.machine.name
        driver = MemoryDriver(self.store, runtime, name=name, session_timeout_ms=config.zkTimeout)
        settings = ClientConfiguration.from_mapping(self._client_settings)
        async with connect(config=settings, runtime=runtime, driver=driver) as client:
            yield ClientPeers(client, runtime, own)

    def client(self, runtime: SimulatedRuntime, **settings: Any) -> BookKeeper:
        """A client for a program on this runtime's machine; not yet connected."""
        config = ClientConfiguration.from_mapping({**self._client_settings, **settings})
        driver = MemoryDriver(
            self.store, runtime, name=runtime.incarnation.machine.name, session_timeout_ms=SESSION_TIMEOUT_MS
        )
        self._drivers[runtime.incarnation.machine.name] = driver
        return connect(config=config, runtime=runtime, driver=driver)


async def _either(one: asyncio.Future[bool], other: asyncio.Future[None]) -> None:
    await asyncio.wait([one, other], return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
