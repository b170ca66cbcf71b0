"""The tree of records in ZooKeeper (`metadata.tree`): paths are those of nodes, from the server's root.

A member whose creation had an unknown outcome is looked for among the nodes of this session before another one is
made. Only one is made at a time, so that what another task has just created is not taken for forgotten.

Members are numbered by ZooKeeper, with the count of creations below their directory. A name that states its session
must state the one that it belongs to; if another session began while it was created, it is given up and made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from ...errors import (
    MetadataError,
    NoSuchRecord,
    RecordChanged,
    RecordExists,
    RecordNotEmpty,
    RecordRefused,
    ServiceUnavailable,
)
from ...runtime.tasks import TaskScope
from ..tree import (
    Create,
    Listing,
    Node,
    Operation,
    RecordTree,
    TransactionLimits,
    Write,
    Written,
    check_path,
    leaves_a_record,
    parent_of,
    recognised,
    would_leave,
)
from .locks import Right, Rights
from .session.client import (
    REQUEST_OVERHEAD,
    BadVersion,
    NodeExists,
    NoNode,
    NotEmpty,
    Refused,
    Stat,
    ZooKeeper,
)
from .session.watching import Pacer, Subscription

T = TypeVar("T")

READ_AT_ONCE = 1_000
"""Reads that wait side by side; fewer are on their way to the server (`zkMaxOutstandingRequests`)."""

_REFUSALS: tuple[tuple[type[Refused], type[RecordRefused], str], ...] = (
    (NoNode, NoSuchRecord, "there is no record {}"),
    (NodeExists, RecordExists, "there is a record {} already"),
    (BadVersion, RecordChanged, "record {} has another version than was expected"),
    (NotEmpty, RecordNotEmpty, "record {} has children"),
)


class ZooKeeperTree(RecordTree):
    """Component `tree`."""

    def __init__(self, zk: ZooKeeper, max_packet: int, tasks: TaskScope, pacer: Pacer) -> None:
        self.limits = TransactionLimits(bytes=max_packet, overhead=REQUEST_OVERHEAD)
        self._zk = zk
        self._tasks = tasks
        self._pacer = pacer
        self._entering = asyncio.Lock()
        self.members = Rights(zk, tasks)

    async def get(self, path: str, *, fresh: bool = False) -> Node | None:
        check_path(path)
        if fresh:
            await self._zk.sync(path)
        return await self._get(path)

    async def _get(self, path: str) -> Node | None:
        try:
            return _node(*await self._zk.get(path))
        except NoNode:
            return None

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        found: list[Node | None] = []
        for start in range(0, len(paths), READ_AT_ONCE):
            some = [check_path(path) for path in paths[start : start + READ_AT_ONCE]]
            async with asyncio.TaskGroup() as group:
                reads = [group.create_task(self._get(path)) for path in some]
            found += [read.result() for read in reads]
        return found

    async def children(self, path: str, *, fresh: bool = False) -> Listing | None:
        _check_directory(path)
        try:
            return _listing(*await self._zk.children(path, sync=fresh))
        except NoNode:
            return None

    # --- changes ---

    async def commit(self, operations: Sequence[Operation]) -> Written:
        for operation in operations:
            check_path(operation.path)
        self.limits.check(operations)
        if not operations:
            return {}
        try:
            results = await self._zk.transact(operations)
        except Refused as refused:
            conflict = _refusal(refused, operations[refused.step])
            if not refused.after_unknown:
                raise conflict from None
            return await self._recognise(operations, conflict)
        written: dict[str, int] = {}
        for operation, result in zip(operations, results, strict=True):
            written.pop(operation.path, None)
            if isinstance(operation, Create):
                written[operation.path] = 0
            elif isinstance(operation, Write):
                written[operation.path] = result.version
        return written

    async def _recognise(self, operations: Sequence[Operation], conflict: RecordRefused) -> Written:
        """After an attempt with unknown outcome and a refusal: was it ours? Raises the refusal if not."""
        if not leaves_a_record(operations):
            raise ServiceUnavailable(f"it is not known who did it: {conflict}", maybe_applied=True)
        paths = list(would_leave(operations))
        written = recognised(operations, dict(zip(paths, await self.get_many(paths), strict=True)))
        if written is None:
            raise conflict
        return written

    # --- watches ---

    async def watch(self, path: str) -> AsyncGenerator[Node | None, None]:
        subscription = Subscription(self._zk, check_path(path))

        async def look() -> tuple[int, Node | None]:
            found = await subscription.data()
            node = None if found is None else _node(*found)
            return (-1 if node is None else node.stamp), node

        async with aclosing(self._follow(path, subscription, look)) as following:
            async for node in following:
                yield node

    async def watch_children(self, path: str) -> AsyncGenerator[Listing | None, None]:
        _check_directory(path)
        subscription = Subscription(self._zk, path)

        async def look() -> tuple[tuple[int, int], Listing | None]:
            found = await subscription.children()
            if found is None:
                return (-1, -1), None
            names, stat = found
            return (stat.czxid, stat.cversion), _listing(names, stat)

        async with aclosing(self._follow(path, subscription, look)) as following:
            async for listing in following:
                yield listing

    async def _follow(
        self, path: str, subscription: Subscription, look: Callable[[], Awaitable[tuple[object, T]]]
    ) -> AsyncGenerator[T, None]:
        """What `look` sees, now and whenever its first part has changed, until the driver is closed."""
        seen: object = None
        failures = 0
        try:
            while not self._zk.closed():
                try:
                    state, found = await look()
                except MetadataError as error:
                    if self._zk.closed():
                        return
                    failures = await self._pacer.after_failure(f"watch of {path}", error, failures)
                    continue
                failures = 0
                if state != seen:
                    seen = state
                    yield found
                await subscription.changed()
        finally:
            subscription.close()

    # --- members ---

    async def enter(self, directory: str, name: Callable[[int], str], data: bytes = b"") -> ZooKeeperMember:
        check_path(directory)
        try:
            return await self._enter(directory, name, data)
        except asyncio.CancelledError:
            if not self._zk.closed():
                self._tasks.spawn(self._drop_forgotten(directory), name="drop-forgotten-member")
            raise

    async def _enter(self, directory: str, name: Callable[[int], str], data: bytes) -> ZooKeeperMember:
        failures = 0
        while True:
            async with self._entering:
                session = self._zk.session
                prefix = check_path(f"{directory}/{name(session.id)}")
                try:
                    path = await self._zk.create_sequential(prefix, data, retry=False)
                    right = self.members.hold(path)
                except NoNode:
                    raise NoSuchRecord(f"there is no record {directory}", directory) from None
                except ServiceUnavailable as error:
                    if self._zk.closed():
                        raise
                    problem = error
                else:
                    if right.session == session:
                        return ZooKeeperMember(self.members, right)
                    self.members.forget(right)
                    self.members.disown(path)
                    continue
            failures = await self._pacer.after_failure(f"a place in {directory}", problem, failures)
            await self._drop_forgotten(directory)

    async def _drop_forgotten(self, directory: str) -> None:
        """Members of this session in a directory that this object does not know."""
        async with self._entering:
            listing = await self.children(directory, fresh=True)
            for name in () if listing is None else listing.names:
                path = f"{directory}/{name}"
                stat = await self._zk.exists(path)
                if stat is not None and self._zk.owns(stat) and not self.members.knows(path):
                    self.members.disown(path)


class ZooKeeperMember:
    """See `metadata.tree.Member`."""

    def __init__(self, members: Rights, right: Right) -> None:
        self.path = right.path
        self.session = right.session.id
        self.lost = right.lost
        self._members = members
        self._right = right

    async def leave(self) -> None:
        await self._members.release(self._right)


def _check_directory(path: str) -> None:
    if path != "/":
        check_path(path)


def _node(data: bytes, stat: Stat) -> Node:
    return Node(data, stat.version, stat.mzxid, stat.ephemeralOwner)


def _listing(names: Sequence[str], stat: Stat) -> Listing:
    return Listing(tuple(names), stat.cversion, stat.czxid if stat.cversion else 0)


def _refusal(refused: Refused, operation: Operation) -> RecordRefused:
    """What it means in the contract. A missing node is the record itself, or the parent of one to be created."""
    for kind, error, text in _REFUSALS:
        if isinstance(refused, kind):
            missing_parent = kind is NoNode and isinstance(operation, Create)
            path = parent_of(operation.path) if missing_parent else operation.path
            return error(text.format(path), path)
    return RecordRefused(str(refused), operation.path)
