"""Level-triggered watching, made of reads and one-shot hints (spec metadata §12.3, "Watches")."""

from __future__ import annotations

import asyncio
import logging

from ....runtime.api import Runtime
from ....runtime.waiting.backoff import Backoff
from .client import NoNode, Stat, ZooKeeper
from .removewatches import WatchKind

log = logging.getLogger(__name__)

BACKOFF = Backoff(first=0.2, longest=5.0, jitter=(0.8, 1.2))


class Pacer:
    """Errors inside a watch are retried for ever: after 200 ms, growing to 5 s."""

    def __init__(self, runtime: Runtime) -> None:
        self._random = runtime.random("zookeeper-watch")

    async def after_failure(self, what: str, error: Exception, failures: int) -> int:
        """Wait before trying again; returns the new count of failures in a row."""
        log.warning("%s: %s; it is tried again", what, error)
        await asyncio.sleep(BACKOFF.jittered(failures, self._random))
        return failures + 1


class Subscription:
    """One node, read again whenever it may have changed. Read first, then wait: no change is missed."""

    def __init__(self, zk: ZooKeeper, path: str) -> None:
        self._zk = zk
        self._path = path
        self._hint = asyncio.Event()
        self._kinds: dict[WatchKind, None] = {}  # kinds armed so far

    def _on_hint(self) -> None:
        self._hint.set()

    async def data(self) -> tuple[bytes, Stat] | None:
        """Data and stat; None if there is no node."""
        self._arm(WatchKind.DATA)
        while True:
            try:
                return await self._zk.get(self._path, self._on_hint)
            except NoNode:
                if await self._zk.exists(self._path, self._on_hint) is None:
                    return None

    async def stat(self) -> Stat | None:
        self._arm(WatchKind.DATA)
        return await self._zk.exists(self._path, self._on_hint)

    async def children(self) -> tuple[list[str], Stat] | None:
        """Names and stat; None if there is no node (told when it is created)."""
        self._arm(WatchKind.CHILDREN)
        while True:
            try:
                return await self._zk.children(self._path, self._on_hint)
            except NoNode:
                if await self.stat() is None:
                    return None

    def _arm(self, kind: WatchKind) -> None:
        self._hint.clear()
        self._kinds[kind] = None

    @property
    def current(self) -> bool:
        """Whether what was read last is what there is, as far as anybody has said."""
        return not self._hint.is_set()

    async def changed(self) -> None:
        """Wait until the node may have changed since the last read, or the driver is closed."""
        await self._hint.wait()

    def close(self) -> None:
        """Stop watching. Idempotent."""
        for kind in self._kinds:
            self._zk.unwatch(kind, self._path, self._on_hint)
