"""A small simulated cluster that a test drives step by step, with all checkers listening.

def test_something() -> None:
    async def story(s: Scenario) -> None:
        bk = await s.connect("w")
        writer = await s.create(bk)
        await s.append(writer, 3)
        s.cluster.machine("b1").power_off()
        ...

    play(story, bookies=4)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import pytest

from bookkeeper.client.adds.life import WriterState
from bookkeeper.client.client import BookKeeper
from bookkeeper.client.reader import LedgerReader
from bookkeeper.client.writer import LedgerWriter
from bookkeeper.errors import LedgerClosedError, LedgerFencedError
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.simulation.checkers.bookie_local import check_bookie
from bookkeeper.simulation.checkers.metadata_states import MetadataChecker
from bookkeeper.simulation.checkers.quorums import QuorumChecker
from bookkeeper.simulation.cluster import SimulatedCluster
from bookkeeper.simulation.history import History, LedgerHistory, payload
from bookkeeper.simulation.programs.users import PASSWORD, read_whole
from bookkeeper.simulation.wire import WireTap
from bookkeeper.simulation.world.disk import MachineCrashed
from bookkeeper.simulation.world.trace import LogListener, Reader
from bookkeeper.simulation.world.world import World

T = TypeVar("T")

BOOKIES = ("b1", "b2", "b3")
"""Those of a cluster of three."""

STORY_SECONDS = 600.0
"""Virtual seconds after which a story hangs."""


class Died(Exception):
    """The machine that was to do something went down."""


class Scenario:
    """What a story has at hand. Operations of a client are run on its machine: `await s.on("w", something())`."""

    def __init__(
        self, seed: int, bookies: int, settings: Mapping[str, Any], client_settings: Mapping[str, Any]
    ) -> None:
        self.world = World(seed)
        self.history = History()
        self.cluster = SimulatedCluster(self.world, bookies, settings=settings, client_settings=client_settings)
        self.failure: asyncio.Future[None] = self.world.loop.create_future()
        self.tap = self.world.tap = WireTap(self.cluster.names, self.world.sometimes, self._fail)
        self.metadata = MetadataChecker(self.cluster.store, self.history, self._fail)
        QuorumChecker(self.history, self.tap, self.metadata)
        self.world.loop.set_exception_handler(self._on_loop_error)
        self._homes: dict[int, str] = {}
        self._deaths: dict[asyncio.Task[Any], asyncio.Future[None]] = {}
        self._writers: list[LedgerWriter] = []

    def _fail(self, error: BaseException) -> None:
        if not self.failure.done():
            self.failure.set_exception(error)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException) and not isinstance(error, MachineCrashed):
            self._fail(error)

    # --- clients ---

    async def on(self, name: str, work: Awaitable[T]) -> T:
        """Do something on a client's machine. Raises `Died` if that goes down meanwhile."""
        return await self.wait(self.begin(name, work))

    def begin(self, name: str, work: Awaitable[T]) -> asyncio.Task[T]:
        """Begin to do something on a machine; `wait` for it later."""
        runtime = self.cluster.client_runtime(name)

        async def do() -> T:
            return await work

        task = self.world.spawn_on(runtime.incarnation, do(), "step")
        death = self.cluster.machine(name).death()
        self._deaths[task] = death
        return task

    async def wait(self, task: asyncio.Task[T]) -> T:
        """The result of something that was begun."""
        death = self._deaths[task]
        await asyncio.wait([task, death], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Died
        return task.result()

    async def connect(self, name: str, **settings: Any) -> BookKeeper:
        """A client on machine `name`."""
        runtime = self.cluster.client_runtime(name)
        bk = self.cluster.client(runtime, **settings)
        self._homes[id(bk.context)] = name

        async def connect() -> BookKeeper:
            return await bk

        return await self.on(name, connect())

    def home(self, handle: Any) -> str:
        """The machine of a handle or client."""
        return self._homes[id(handle.context if isinstance(handle, BookKeeper) else handle._context)]

    async def create(
        self, bk: BookKeeper, ensemble: int = 3, write: int = 3, ack: int = 2, **keywords: Any
    ) -> LedgerWriter:
        """A new ledger."""

        async def create() -> LedgerWriter:
            return await bk.create_ledger(
                ensemble_size=ensemble, write_quorum=write, ack_quorum=ack, password=PASSWORD, **keywords
            )

        writer = await self.on(self.home(bk), create())
        self.history.created(writer.id, write, ack, PASSWORD)
        self.keep(writer)
        return writer

    def keep(self, writer: LedgerWriter) -> None:
        """One that may die with its machine, see `forget`."""
        self._writers.append(writer)

    def ledger(self, handle: Any) -> LedgerHistory:
        return self.history.ledgers[handle.id]

    def push(self, writer: LedgerWriter, count: int = 1) -> list[asyncio.Task[int]]:
        """Begin to append entries."""
        ledger = self.ledger(writer)
        tasks = []
        for _ in range(count):
            data = payload(ledger.ledger_id, ledger.sent)
            ledger.sent += 1

            async def append(data: bytes = data) -> int:
                entry_id = await writer.append(data)
                self.history.acknowledged(writer.id, entry_id)
                return entry_id

            tasks.append(self.begin(self.home(writer), append()))
        return tasks

    async def append(self, writer: LedgerWriter, count: int = 1) -> None:
        """Append entries, and wait for them."""
        for task in self.push(writer, count):
            await self.wait(task)

    async def recover(self, bk: BookKeeper, ledger_id: int) -> None:
        """Open with recovery, read all of it and check that."""
        await self.on(self.home(bk), read_whole(bk, self.history, self.history.ledgers[ledger_id]))

    async def open(self, bk: BookKeeper, ledger_id: int, **keywords: Any) -> LedgerReader:
        """Open, by default without recovery."""

        async def open_it() -> LedgerReader:
            return await bk.open_ledger(ledger_id, password=PASSWORD, **keywords)

        return await self.on(self.home(bk), open_it())

    def stored(self, handle: Any) -> LedgerMetadata:
        """What the store has of a ledger."""
        found = self.metadata.current(handle.id)
        assert found is not None
        return found

    def forget(self) -> None:
        """At the end: nobody has to close what the dead had open."""
        for writer in self._writers:
            writer._state = WriterState.WITHDRAWN

    # --- bookies ---

    async def start(self, *names: str) -> None:
        """Start bookies that are down, and check that they have kept their promises."""
        for name in names:
            assert await self.cluster.start_bookie(name), f"{name} does not start"
            await self.check(name)

    async def check(self, name: str) -> None:
        """A running bookie has what it has promised."""
        incarnation = self.cluster.machine(name).incarnation
        assert incarnation is not None
        await self.world.spawn_on(
            incarnation,
            check_bookie(name, self.cluster.bookies[name], self.tap.promises[name], self.history, lambda: False),
            "check",
        )

    def mute(self, source: str, target: str, muted: bool = True) -> None:
        """Nothing goes from one machine to another any more."""
        self.world.set_blocked(source, target, muted)

    def cut(self, one: str, other: str, cut: bool = True) -> None:
        """Both directions."""
        self.mute(one, other, cut)
        self.mute(other, one, cut)

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait for something; fails after so many virtual seconds."""
        deadline = self.world.loop.time() + seconds
        while not condition():
            assert self.world.loop.time() < deadline, "it does not happen"
            await asyncio.sleep(0.01)


async def power_off(s: Scenario, name: str) -> None:
    s.cluster.machine(name).power_off()


async def refused(s: Scenario, writer: Any) -> None:
    """The writer's next append fails because somebody else has recovered the ledger."""
    with pytest.raises((LedgerFencedError, LedgerClosedError)):
        await s.append(writer)


Story = Callable[[Scenario], Awaitable[T]]


def play(
    story: Story[T],
    *,
    bookies: int = 3,
    seed: int = 1,
    settings: Mapping[str, Any] | None = None,
    show: bool = False,
    **client_settings: Any,
) -> T:
    """Play a story; raises what it raises, or the first violation. `show` prints what happens."""
    defaults = {"addEntryTimeoutSec": 1, "readEntryTimeoutSec": 1, "clientConnectTimeoutMillis": 500}
    scenario = Scenario(seed, bookies, settings or {}, {**defaults, **client_settings})
    world = scenario.world
    observer = Reader(world, print) if show else None
    world.observer = observer

    async def main() -> T:
        await scenario.cluster.start()
        playing = world.loop.create_task(_as_coroutine(story(scenario)), name="story")
        await asyncio.wait([playing, scenario.failure], return_when=asyncio.FIRST_COMPLETED, timeout=STORY_SECONDS)
        if scenario.failure.done():
            scenario.failure.result()
        assert playing.done(), "the story hangs"
        return playing.result()

    try:
        with world, LogListener(world, lambda record: None, observer):
            return world.run(main())
    finally:
        scenario.forget()


async def _as_coroutine(work: Awaitable[T]) -> T:
    return await work
