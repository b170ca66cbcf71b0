"""Which bookies there are, and how they fare (spec client §9.5, §12.1).

`BookieWatcher` follows the registrations in the metadata store and keeps what this client has seen of each bookie.
Following never ends by an error: a list counts even if what prepares it (the user's resolver of locations) fails, and
a watch that breaks is begun anew.
Sets are kept as sorted tuples, so that a choice at random from them is the same for the same seed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable

from ...config import ClientConfiguration
from ...errors import MetadataError
from ...metadata.api import BookieDirectory, Mode, Versioned
from ...runtime import Runtime, TaskScope, guarded
from ...types import BookieId
from .read_order import ReplicaClass

WATCH_AGAIN = 1.0
"""Seconds until a watch that broke is begun anew."""

Prepare = Callable[[Collection[BookieId]], Awaitable[None]]


async def _nothing(_bookies: Collection[BookieId]) -> None:
    pass


class BookieWatcher:
    """The writable and the read-only bookies, kept up to date in the background. Start with `start`."""

    def __init__(
        self,
        runtime: Runtime,
        config: ClientConfiguration,
        discovery: BookieDirectory,
        prepare: Prepare = _nothing,
    ) -> None:
        """`prepare` is waited for with every new list, before it becomes known here."""
        self._runtime = runtime
        self._discovery = discovery
        self._prepare = prepare
        self._remembered_for = config.bookieFailureHistoryExpirationMSec / 1000
        if not config.enableBookieFailureTracking:
            self._remembered_for = 0.0
        self.writable: tuple[BookieId, ...] = ()
        """Sorted."""
        self.readonly: tuple[BookieId, ...] = ()
        """Sorted."""
        self._registered: dict[BookieId, ReplicaClass] = {}
        self._slow_until: dict[BookieId, float] = {}
        self._failed_until: dict[BookieId, float] = {}
        self._version = 0
        self._changed = asyncio.Event()
        self._learning = asyncio.Lock()
        """Lists become known in the order in which they were read, however long one is prepared."""

    @property
    def version(self) -> int:
        """Changes whenever `read_class` of some bookie may have changed."""
        if self._slow_until or self._failed_until:
            now = self._runtime.now()
            for remembered in (self._slow_until, self._failed_until):
                over = [bookie for bookie, until in remembered.items() if until <= now]
                for bookie in over:
                    del remembered[bookie]
                self._version += bool(over)
        return self._version

    async def start(self, tasks: TaskScope) -> None:
        """Read both lists, then follow them. Raises `MetadataError` if the writable one cannot be read."""
        first = await self._discovery.list(Mode.WRITABLE)
        await self._learn(Mode.WRITABLE, first)
        try:
            await self._learn(Mode.READ_ONLY, await self._discovery.list(Mode.READ_ONLY))
        except MetadataError:
            self._replace(Mode.READ_ONLY, Versioned(frozenset(), first.version))  # the watch will tell
        for mode in Mode:
            tasks.spawn(self._follow(mode), name=f"watch {mode.value} bookies")

    async def refresh(self, known: tuple[BookieId, ...] | None = None) -> bool:
        """Read the writable bookies anew, for when the watch may be behind; True if they are others than `known`, or
        than were known when this was called. Raises `MetadataError`."""
        if known is None:
            known = self.writable
        async with self._learning:
            await self._learn(Mode.WRITABLE, await self._discovery.list(Mode.WRITABLE))
        return self.writable != known

    async def _follow(self, mode: Mode) -> None:
        while True:
            with guarded(f"watch of {mode.value} bookies"):
                async for bookies in self._discovery.watch(mode):
                    async with self._learning:
                        await self._learn(mode, bookies)
            await asyncio.sleep(WATCH_AGAIN)

    async def _learn(self, mode: Mode, bookies: Versioned[frozenset[BookieId]]) -> None:
        with guarded(f"preparation of {mode.value} bookies"):
            await self._prepare(bookies.value)
        self._replace(mode, bookies)

    def _replace(self, mode: Mode, bookies: Versioned[frozenset[BookieId]]) -> None:
        listed = tuple(sorted(bookies.value))
        if mode is Mode.WRITABLE:
            self.writable = listed
        else:
            self.readonly = listed
        self._registered = dict.fromkeys(self.readonly, ReplicaClass.READ_ONLY)
        self._registered |= dict.fromkeys(self.writable, ReplicaClass.LOCAL)
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self, writable: tuple[BookieId, ...]) -> None:
        """Wait until the writable bookies are others than these."""
        while self.writable == writable:
            await self._changed.wait()

    def is_available(self, bookie: BookieId) -> bool:
        """Whether it is registered, writable or read-only."""
        return bookie in self._registered

    # --- what was seen of bookies ---

    def note_slow(self, bookies: Iterable[BookieId]) -> None:
        """These did not answer a read before another bookie did."""
        self._remember(bookies, self._slow_until)

    def note_failed(self, bookie: BookieId) -> None:
        """It denied an entry that is waited for."""
        self._remember((bookie,), self._failed_until)

    def _remember(self, bookies: Iterable[BookieId], remembered: dict[BookieId, float]) -> None:
        if self._remembered_for > 0:
            until = self._runtime.now() + self._remembered_for
            for bookie in bookies:
                if bookie not in remembered:
                    self._version += 1
                remembered[bookie] = until

    def read_class(self, bookie: BookieId) -> ReplicaClass:
        """The class of a bookie for reads, without regard to regions. Valid while `version` stays the same."""
        registered = self._registered.get(bookie)
        if registered is None:
            return ReplicaClass.UNAVAILABLE
        if bookie in self._slow_until:
            return ReplicaClass.SLOW
        if registered is ReplicaClass.LOCAL and bookie in self._failed_until:
            return ReplicaClass.LOCAL_FAIL
        return registered
