"""Directory listings that are kept until they change."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from .client import NoNode, ZooKeeper
from .watch_point import Changed


class Listings:
    """Names in directories, read once, and again after a change.

    A caller that walks a tree with it bounds its size by the tree: a directory leaves with the watch on its end.
    """

    def __init__(self, zk: ZooKeeper) -> None:
        self._zk = zk
        self._known: dict[str, Sequence[str]] = {}
        self._hints: dict[str, Changed] = {}  # armed, or about to be
        self._next_change = asyncio.Event()
        self.changes = 0
        """How many changes were seen so far, or may have been missed."""

    async def names(self, path: str) -> Sequence[str]:
        """Sorted; a directory that is not there is empty, and counts as changed: it may come while nothing watches."""
        known = self._known.get(path)
        if known is not None:
            return known
        hint = self._hints.get(path)
        if hint is None:
            hint = self._hints[path] = partial(self._on_change, path)
        try:
            found, _ = await self._zk.children(path, hint)
        except NoNode:
            self._hints.pop(path, None)
            self.changes += 1
            return ()
        if self._hints.get(path) is hint:  # it did not change again meanwhile
            self._known[path] = found
        return found

    async def changed_since(self, changes: int) -> None:
        """Wait until `changes` is not the number of changes any more."""
        while self.changes == changes:
            await self._next_change.wait()

    def _on_change(self, path: str) -> None:
        self._known.pop(path, None)
        self._hints.pop(path, None)
        self.changes += 1
        self._next_change.set()
        self._next_change = asyncio.Event()
