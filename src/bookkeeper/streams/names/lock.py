"""The lock of a stream (spec streams §6).

Theory of operation

Who wants the lock enters its directory, with an ephemeral, numbered record. The lowest number owns the lock; each
other one waits for the record just before its own to go, and looks again: so a hand-over wakes one client, not all.

The record ends with the session. Then, in the background, the lock is taken again, without waiting: if the only record
in front is one that this lock left behind in its former session, it is no obstacle. Another owner ends it for good:
`lost` is set. While this is going on `check` does not complain: another client may own the lock meanwhile. So it is no
proof. A stream stays in one piece because its records change by compare-and-set, and its ledgers are fenced; the lock
only keeps clients from getting in each other's way.

A lock is used once: acquire, release.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from enum import Enum

from ...errors import LockError, MetadataError, NotOwnerError
from ...metadata.tree import Member, RecordTree
from ...runtime import Runtime, TaskScope
from ...runtime.waiting.backoff import Backoff, Pauses
from .members import Identity, identity, in_order, member_prefix

log = logging.getLogger(__name__)

BACKOFF = Backoff(first=0.2, longest=5.0)
"""Between attempts to take the lock again."""


class LockState(Enum):
    """What became of a lock."""

    NEW = "new"
    HELD = "held"
    """Also while it is taken again after the session was lost."""
    LOST = "lost"
    """Another client owns it."""
    RELEASED = "released"


class LogLock:
    """One client's hold on one lock, a writer's or a reader's."""

    def __init__(self, tree: RecordTree, runtime: Runtime, directory: str, client: str) -> None:
        """`directory`: `LogPaths.lock`, `LogPaths.read_lock`; `client`: what others are told of the owner."""
        self._tree = tree
        self._directory = directory
        self._client = client
        self._tasks = TaskScope(runtime, "stream-lock")
        self._member: Member | None = None
        self._former: set[Identity] = set()
        """What this lock was called in sessions that are lost."""
        self._taken: NotOwnerError | None = None
        """By whom, once it is lost."""
        self.state = LockState.NEW
        self.lost = asyncio.Event()
        """Set when the lock is another client's, for good."""

    @property
    def member(self) -> Member:
        """The record by which the lock is held. Raises as `check`."""
        self.check()
        assert self._member is not None
        return self._member

    def check(self) -> None:
        """Raises `NotOwnerError` if another client has it, `LockError` if it is not held, as far as is known here."""
        if self._taken is not None:
            raise NotOwnerError(f"another client has taken over: {self._taken}", self._taken.owner)
        if self.state is not LockState.HELD:
            raise LockError(f"the lock {self._directory} is not held: it is {self.state.value}")

    async def acquire(self, timeout: float | None = 30.0) -> None:
        """Take the lock, waiting for it at most `timeout` seconds; None: for ever, 0: only if it is free.

        Raises `NotOwnerError`, which says who has it; nothing stays behind then. `LockError` if the session ends.
        """
        if self.state is not LockState.NEW:
            raise LockError(f"the lock {self._directory} was used already: it is {self.state.value}")
        self._member = await self._take(timeout)
        self.state = LockState.HELD
        self._tasks.spawn(self._keep(self._member), name="keep")

    async def release(self) -> None:
        """Give the lock to the next one. Idempotent; a lock that is lost is left alone."""
        if self.state is LockState.HELD:
            self.state = LockState.RELEASED
        await self._tasks.close()
        member, self._member = self._member, None
        if member is not None:
            await member.leave()

    async def owner(self) -> str | None:
        """Who has the lock, or is next to have it; None: nobody. May be asked whether this one is held or not."""
        found = await self._owner()
        return None if found is None else found.client

    # --- taking it ---

    async def _take(self, timeout: float | None) -> Member:
        if timeout == 0 and (owner := await self._owner()) is not None and owner not in self._former:
            raise self._taken_by(owner)
        member = await self._tree.enter(
            self._directory, lambda session: member_prefix(self._client, session), self._client.encode()
        )
        deadline = asyncio.timeout(timeout or None)
        try:
            async with deadline:
                await self._until_first(member, wait=timeout != 0)
            return member
        except BaseException as error:
            await self._leave(member)
            if isinstance(error, TimeoutError) and deadline.expired():
                raise self._taken_by(await self._owner()) from None
            raise

    async def _leave(self, member: Member) -> None:
        try:
            await member.leave()
        except MetadataError as error:
            log.warning("a place in %s goes with the session: %s", self._directory, error)

    async def _until_first(self, member: Member, *, wait: bool) -> None:
        own = member.path.rpartition("/")[2]
        while True:
            members = await self._members()
            if own not in members:
                raise LockError(f"the place in {self._directory} is gone: the session has ended")
            ahead = members[: members.index(own)]
            if not ahead:
                return
            owner = await self._identity(ahead[0])
            if owner in self._former:
                if len(ahead) == 1:
                    return  # left behind by this lock
                owner = await self._identity(ahead[1])  # it is next
            if not wait:
                if owner is not None:
                    raise self._taken_by(owner)
                continue  # it has left just now
            await self._until_gone(f"{self._directory}/{ahead[-1]}", member)

    async def _until_gone(self, path: str, member: Member) -> None:
        """Until a record is gone, or ours is lost."""
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(self._gone(path)), group.create_task(member.lost.wait())]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
        if member.lost.is_set():
            raise LockError(f"the place in {self._directory} is gone: the session has ended")

    async def _gone(self, path: str) -> None:
        async with aclosing(self._tree.watch(path)) as nodes:
            async for node in nodes:
                if node is None:
                    return

    async def _members(self) -> list[str]:
        listing = await self._tree.children(self._directory, fresh=True)
        return [] if listing is None else in_order(listing.names)

    async def _owner(self) -> Identity | None:
        for name in await self._members():
            if (found := await self._identity(name)) is not None:
                return found
        return None

    async def _identity(self, name: str) -> Identity | None:
        """Who a member is; None if it is gone."""
        if (said := identity(name)) is not None:
            return said
        node = await self._tree.get(f"{self._directory}/{name}")
        return None if node is None else Identity(node.data.decode(errors="replace"), node.session)

    def _taken_by(self, owner: Identity | None) -> NotOwnerError:
        name = owner.client if owner is not None else "another client, which has left just now"
        return NotOwnerError(f"{self._directory} is held by {name}", "" if owner is None else owner.client)

    # --- keeping it ---

    async def _keep(self, member: Member) -> None:
        """Take the lock again whenever its session is lost, until another client has it."""
        pauses = Pauses(BACKOFF)
        while True:
            await member.lost.wait()
            self._former.add(Identity(self._client, member.session))
            try:
                self._member = member = await self._take(0)
                pauses.reset()
            except NotOwnerError as error:
                log.warning("the lock is lost: %s", error)
                self._member = None
                self._taken = error
                self.state = LockState.LOST
                self.lost.set()
                return
            except (LockError, MetadataError) as error:
                log.warning("%s could not be taken again: %s; it is tried again", self._directory, error)
                await asyncio.sleep(pauses.next())
