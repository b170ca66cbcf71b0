"""Ephemeral nodes that stand for a right, and end with the session: locks and votes (spec metadata §12.3,
"Ephemerals").

Theory of operation

A right ends when its owner gives it up, when the session is lost, or when the session is in doubt: the server may
have ended it by its own clock, and another process may hold the right already. All three set `lost`. A right in doubt
never comes back: if the session turns out to have survived, its node is still there and would keep all out, so
it is deleted then. Until that is done the same path cannot be claimed here again, else the claim would mistake the
old node for its own.

Nodes are deleted only within the session that created them: in the next session the same path may be another owner's.
So it may be when a deletion had no answer: it is tried again only if the node is still there, and ours.
"""

from __future__ import annotations

import asyncio
import logging

from ...errors import MetadataError, SessionLost
from ...runtime.tasks import TaskScope
from .session.client import NodeExists, NoNode, Session, ZooKeeper

log = logging.getLogger(__name__)


class Right:
    """One held ephemeral node."""

    __slots__ = ("lost", "path", "session")

    def __init__(self, path: str, session: Session) -> None:
        self.path = path
        self.session = session
        self.lost = asyncio.Event()
        """Set when the right has ended, however it did."""


class Rights:
    """The rights of one kind that this session holds."""

    def __init__(self, zk: ZooKeeper, tasks: TaskScope) -> None:
        self._zk = zk
        self._tasks = tasks
        self._held: dict[str, Right] = {}  # by path, in order of acquisition
        self._doubted: dict[str, Right] = {}  # lost by doubt, node perhaps still there

    async def claim(self, path: str, data: bytes) -> Right | None:
        """Create the node and hold it; None if another client holds it. Raises `NoNode` (parent), `SessionLost`."""
        if self.knows(path):
            return None
        try:
            await self._zk.create(path, data, ephemeral=True)
        except NodeExists as error:
            stat = await self._zk.exists(path) if error.after_unknown else None
            if stat is None or not self._zk.owns(stat) or self.knows(path):
                return None  # `knows`: it is another task's of this process
        except asyncio.CancelledError:
            self.disown(path)
            raise
        return self.hold(path)

    def hold(self, path: str) -> Right:
        """Hold a node that was just created. Raises `SessionLost` if the session is in doubt already."""
        try:
            right = self._held[path] = Right(path, self._zk.session)
        except SessionLost:
            self.disown(path)
            raise
        return right

    def knows(self, path: str) -> bool:
        """Whether a node is held here, or about to be deleted."""
        return path in self._held or path in self._doubted

    def disown(self, path: str) -> None:
        """A node that may have been created for a caller that is gone: remove it."""
        session = self._zk.session_in_any_state()
        if session is None or self._zk.closed():
            return  # it goes with the session
        right = self._doubted[path] = Right(path, session)
        right.lost.set()
        if self._zk.connected:
            self._tasks.spawn(self._clean_up(right), name="drop-disowned")

    async def release(self, right: Right) -> None:
        """Give up. A right already lost is left alone. After a failure its node is seen to later."""
        if right.lost.is_set() or self._held.get(right.path) is not right:
            return
        try:
            await self._zk.delete(right.path, session=right.session)
        except (NoNode, SessionLost):
            pass  # it is gone
        except BaseException:
            self.disown(right.path)
            raise
        finally:
            if self._held.get(right.path) is right:
                self.forget(right)

    def forget(self, right: Right) -> None:
        """The node is gone, or is no longer of interest."""
        self._held.pop(right.path, None)
        right.lost.set()

    # --- the session ---

    def session_lost(self) -> None:
        held, self._held = self._held, {}
        self._doubted.clear()
        for right in held.values():
            right.lost.set()

    def session_in_doubt(self) -> None:
        held, self._held = self._held, {}
        self._doubted.update(held)
        for right in held.values():
            right.lost.set()

    def session_connected(self) -> None:
        """Doubted rights of a session that has survived: delete their nodes."""
        for right in list(self._doubted.values()):
            self._tasks.spawn(self._clean_up(right), name="drop-doubted")

    async def _clean_up(self, right: Right) -> None:
        try:
            stat = await self._zk.exists(right.path)
            if stat is not None and self._zk.owns(stat):
                await self._zk.delete(right.path, session=right.session)
        except NoNode:
            pass
        except MetadataError as error:
            log.warning("%s stays until the session ends: %s", right.path, error)
            return  # still doubted: it cannot be claimed here
        if self._doubted.get(right.path) is right:
            del self._doubted[right.path]
