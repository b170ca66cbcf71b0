"""Ledger ids from ZooKeeper's counters (spec metadata §5.2).

A sequential node gets the number of nodes ever created under its parent: that number is the id, the node goes at
once. Numbers end at 2^31 - 2. Managers with long ids then go on under `idgen-long/HOB-<n>` ("high order bits"): each
such node has a counter of its own, and the id is n * 2^32 + its number. Once `idgen-long` exists, no client goes back.

An id node whose creation had an unknown outcome goes with the session; its number is never used.
"""

from __future__ import annotations

import logging
import re

from ...errors import LedgerIdOverflow, MetadataError, ServiceUnavailable
from ...runtime.tasks import TaskScope
from .layout import ZooKeeperLayout
from .session.client import NoNode, Refused, ZooKeeper

log = logging.getLogger(__name__)

ID_LIMIT = 2**31 - 1
"""Numbers of one counter are below this."""

KEPT_HOBS = 3
"""So many of the newest `HOB-` nodes are kept, for clients that still draw from them."""

_HOB = re.compile(r"HOB-(\d{1,10})", re.ASCII)
_NUMBER = re.compile(r"-?\d+", re.ASCII)


def sequence_number(path: str, prefix: str) -> int:
    """The number ZooKeeper put behind a prefix: ten digits, negative after an overflow."""
    text = path.rpartition(prefix)[2]
    if not _NUMBER.fullmatch(text):
        raise MetadataError(f"{path!r} does not end in a number")
    return int(text)


class ZooKeeperLedgerIds:
    """Draws ledger ids (`LedgerIdAllocator`)."""

    def __init__(self, zk: ZooKeeper, layout: ZooKeeperLayout, tasks: TaskScope) -> None:
        self._zk = zk
        self._root = zk.root
        self._long_root = zk.root + "/idgen-long"
        self._layout = layout
        self._tasks = tasks
        self._long: bool | None = None  # None: not known yet; True is for ever
        self._hobs: list[int] | None = None  # ascending; None: to be read

    async def allocate(self) -> int:
        manager = await self._layout.open()
        prefix = f"{self._root}/{manager.id_prefix}"
        if not manager.long_ids:
            return await self._draw_from(prefix)
        if self._long is None:
            self._long = await self._zk.exists(self._long_root) is not None
        if not self._long:
            try:
                return await self._draw_from(prefix)
            except LedgerIdOverflow:
                await self._ensure(self._long_root)
                self._long = True
        return await self._allocate_long()

    async def _allocate_long(self) -> int:
        while True:
            if not self._hobs:
                self._hobs = await self._list_hobs()
            if not self._hobs:
                await self._add_hob(1)
                continue
            hobs = self._hobs
            high = hobs[-1]
            try:
                low = await self._draw(f"{self._hob_path(high)}/ID-", world=True)
            except LedgerIdOverflow:
                await self._add_hob(high + 1)
                continue
            except NoNode:
                # A client that knows newer ones dropped it as old. A new one would count from 0 again.
                self._hobs = None
                continue
            if len(hobs) > KEPT_HOBS:
                self._hobs = None
                self._tasks.spawn(self._drop_hobs(hobs[:-KEPT_HOBS]), name="drop-old-hobs")
            return high << 32 | low

    def _hob_path(self, high: int) -> str:
        return f"{self._long_root}/HOB-{high:010d}"

    async def _list_hobs(self) -> list[int]:
        try:
            names, _ = await self._zk.children(self._long_root)
        except NoNode:
            return []
        return sorted(int(match[1]) for name in names if (match := _HOB.fullmatch(name)))

    async def _add_hob(self, high: int) -> None:
        await self._ensure(self._hob_path(high))
        self._hobs = None

    async def _ensure(self, path: str) -> None:
        """These nodes are open to all, whatever the security settings (spec metadata §4.4)."""
        await self._zk.ensure(path, world=True)

    async def _drop_hobs(self, old: list[int]) -> None:
        for high in old:
            try:
                await self._zk.delete(self._hob_path(high), 0)
            except (Refused, ServiceUnavailable) as error:
                log.debug("an old id counter stays: %s", error)

    async def _draw_from(self, prefix: str) -> int:
        """`_draw`, creating the counter if it is missing."""
        while True:
            try:
                return await self._draw(prefix)
            except NoNode:
                await self._zk.ensure(prefix.rpartition("/")[0])

    async def _draw(self, prefix: str, *, world: bool = False) -> int:
        """Raises `LedgerIdOverflow` when the counter has run out, `NoNode` when there is none."""
        path = await self._zk.create_sequential(prefix, world=world)
        self._tasks.spawn(self._drop(path), name="drop-id-node")
        number = sequence_number(path, prefix)
        if not 0 <= number < ID_LIMIT:
            raise LedgerIdOverflow(f"the counter {prefix} has run out at {number}")
        return number

    async def _drop(self, path: str) -> None:
        try:
            await self._zk.delete(path)
        except NoNode:
            pass
        except MetadataError as error:
            log.debug("an id node stays until the session ends: %s", error)
