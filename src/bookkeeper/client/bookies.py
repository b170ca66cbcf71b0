"""Which bookies there are, and how they fare (spec client §9.5, §12.1).

`BookieWatcher` follows the registrations in the metadata store and keeps what this client has seen of each bookie.
Sets are kept as sorted tuples, so that whoever chooses at random from them chooses the same for the same seed.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..config import ClientConfiguration
from ..errors import MetadataError
from ..metadata.api import BookieDirectory, Mode, Versioned
from ..runtime import Runtime, TaskScope
from ..types import BookieId

WRITABLE, READ_ONLY, SLOW, UNAVAILABLE = range(4)
"""Classes of replicas, best first (§9.5)."""


class BookieWatcher:
    """The writable and the read-only bookies, kept up to date in the background. Start with `start`."""

    def __init__(self, runtime: Runtime, config: ClientConfiguration, discovery: BookieDirectory) -> None:
        self._runtime = runtime
        self._discovery = discovery
        self._slow_for = config.bookieFailureHistoryExpirationMSec / 1000 if config.enableBookieFailureTracking else 0.0
        self.writable: tuple[BookieId, ...] = ()
        """Sorted."""
        self.readonly: tuple[BookieId, ...] = ()
        """Sorted."""
        self._state: dict[BookieId, int] = {}  # WRITABLE or READ_ONLY, for registered bookies
        self._slow_until: dict[BookieId, float] = {}
        self._version = 0

    @property
    def version(self) -> int:
        """Changes whenever `read_rank` of some bookie may have changed."""
        if self._slow_until:
            now = self._runtime.now()
            over = [bookie for bookie, until in self._slow_until.items() if until <= now]
            for bookie in over:
                del self._slow_until[bookie]
            self._version += bool(over)
        return self._version

    async def start(self, tasks: TaskScope) -> None:
        """Read both lists, then follow them. Raises `MetadataError` if the writable one cannot be read."""
        first = await self._discovery.list(Mode.WRITABLE)
        self._replace(Mode.WRITABLE, first)
        try:
            self._replace(Mode.READ_ONLY, await self._discovery.list(Mode.READ_ONLY))
        except MetadataError:
            self._replace(Mode.READ_ONLY, Versioned(frozenset(), first.version))  # the watch will tell
        for mode in Mode:
            tasks.spawn(self._follow(mode), name=f"watch {mode.value} bookies")

    async def refresh(self) -> bool:
        """Read the writable bookies anew, for when the watch may be behind; True if they are others than were known.

        Raises `MetadataError`.
        """
        known = self.writable
        self._replace(Mode.WRITABLE, await self._discovery.list(Mode.WRITABLE))
        return self.writable != known

    async def _follow(self, mode: Mode) -> None:
        async for bookies in self._discovery.watch(mode):
            self._replace(mode, bookies)

    def _replace(self, mode: Mode, bookies: Versioned[frozenset[BookieId]]) -> None:
        listed = tuple(sorted(bookies.value))
        if mode is Mode.WRITABLE:
            self.writable = listed
        else:
            self.readonly = listed
        self._state = dict.fromkeys(self.readonly, READ_ONLY) | dict.fromkeys(self.writable, WRITABLE)
        self._version += 1

    def is_available(self, bookie: BookieId) -> bool:
        """Whether it is registered, writable or read-only."""
        return bookie in self._state

    # --- what was seen of bookies ---

    def note_slow(self, bookies: Iterable[BookieId]) -> None:
        """These did not answer a read before another bookie did."""
        if self._slow_for > 0:
            until = self._runtime.now() + self._slow_for
            for bookie in bookies:
                if bookie not in self._slow_until:
                    self._version += 1
                self._slow_until[bookie] = until

    def read_rank(self, bookie: BookieId) -> int:
        """The class of a bookie for reads: lower is better. Valid while `version` stays the same."""
        state = self._state.get(bookie)
        if state is None:
            return UNAVAILABLE
        return SLOW if bookie in self._slow_until else state
