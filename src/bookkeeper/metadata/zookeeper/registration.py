"""The bookie's side of registration: one ephemeral node per bookie and mode (spec metadata §7.4).

    available/<bookie id>            a writable bookie
    available/readonly/<bookie id>   a read-only one

A bookie that changes to read-only appears there first and leaves the writable list after that, so it is always in one
of the two. A node of another session is in the way of a quick restart until that session has timed out: `register`
waits as long as our own session would live.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from ...errors import AlreadyRegistered, NotInitialized
from ...types import BookieId
from ..api import BookieServiceInfo, Mode, Unsubscribe
from ..formats.service_info import encode_service_info
from .session.client import NodeExists, NoNode, ZooKeeper
from .session.watching import Subscription

log = logging.getLogger(__name__)

WAIT_MARGIN_SECONDS = 1.0
"""Added to the wait for another session's end: the server looks for dead sessions once per tick."""


class ZooKeeperRegistry:
    """Registers this process's bookies (`BookieRegistry`)."""

    def __init__(self, zk: ZooKeeper, wait_seconds: float) -> None:
        self._zk = zk
        self._available = zk.root + "/available"
        self._readonly = zk.root + "/available/readonly"
        self._wait = wait_seconds
        self._listeners: dict[object, Callable[[], None]] = {}
        self._registered = False

    def _path(self, bookie_id: BookieId, mode: Mode) -> str:
        return f"{self._available if mode is Mode.WRITABLE else self._readonly}/{bookie_id}"

    async def register(self, bookie_id: BookieId, mode: Mode, info: BookieServiceInfo) -> None:
        data = encode_service_info(info)
        if mode is Mode.READ_ONLY:
            await self._ensure_readonly()
        await self._claim(self._path(bookie_id, mode), data)
        self._registered = True
        if mode is Mode.READ_ONLY:
            await self._delete(self._path(bookie_id, Mode.WRITABLE))

    async def _ensure_readonly(self) -> None:
        try:
            await self._zk.create(self._readonly)
        except NodeExists:
            pass
        except NoNode:
            raise NotInitialized(f"there is no cluster: {self._available} is missing") from None

    async def _claim(self, path: str, data: bytes) -> None:
        """Create the node, or find it ours; another session's node has time to go from when it is first seen."""
        subscription = Subscription(self._zk, path)
        clock = asyncio.get_running_loop().time
        deadline: float | None = None
        try:
            while True:
                stat = await subscription.stat()
                if stat is None:
                    if await self._create(path, data):
                        return
                elif self._zk.owns(stat):
                    return
                elif deadline is None:
                    deadline = clock() + self._wait + WAIT_MARGIN_SECONDS
                    log.info("%s belongs to session %x still: waiting for its end", path, stat.ephemeralOwner)
                elif clock() >= deadline:
                    raise AlreadyRegistered(f"{path} belongs to another live process")
                else:
                    with contextlib.suppress(TimeoutError):  # then it is looked at a last time
                        async with asyncio.timeout(deadline - clock()):
                            await subscription.changed()
        finally:
            subscription.close()

    async def _create(self, path: str, data: bytes) -> bool:
        """False if there is such a node now, be it ours."""
        try:
            await self._zk.create(path, data, ephemeral=True)
        except NodeExists:
            return False
        except NoNode:
            raise NotInitialized(f"there is no cluster: {self._available} is missing") from None
        return True

    async def _delete(self, path: str) -> None:
        with contextlib.suppress(NoNode):  # nothing to take back
            await self._zk.delete(path)

    async def unregister(self, bookie_id: BookieId, mode: Mode) -> None:
        await self._delete(self._path(bookie_id, mode))

    async def is_registered(self, bookie_id: BookieId) -> bool:
        for mode in Mode:
            if await self._zk.exists(self._path(bookie_id, mode)) is not None:
                return True
        return False

    def on_registration_lost(self, callback: Callable[[], None]) -> Unsubscribe:
        key = object()
        self._listeners[key] = callback
        return lambda: self._listeners.pop(key, None) and None

    def session_lost(self) -> None:
        """Tell the listeners, if there was a registration to lose."""
        if self._registered:
            for callback in list(self._listeners.values()):
                callback()
