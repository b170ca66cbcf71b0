"""The tree of records over a record store (`metadata.tree`).

| key | holds |
|---|---|
| `03/messaging/orders/clicks` | the record at a path: number of its parts in two digits, then the path |
| `03/messaging/orders/` | how many children `/messaging/orders` ever got, and its version before the first |

So the children of a record lie together, without what lies below them, and a counter stands just before those that it
counts. The counter gives members their numbers. It goes with its record, and it need not be told of removals (the
store removes members by itself when a session ends): twice what was created, less what is there, is the number of
creations and removals, as ZooKeeper counts them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial

from ...errors import (
    MetadataError,
    NoSuchRecord,
    RecordChanged,
    RecordExists,
    RecordNotEmpty,
)
from ..api import ANY, Version
from ..tree import (
    Check,
    Create,
    Delete,
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
from .session import Holding
from .store import PERMANENT, Changes, Record, Topic, Transaction
from .store_client import StoreClient

READ_AT_ONCE = 1_000
"""Records that `get_many` reads in one transaction."""

ROOT_LIFE = 1
"""Of `/`, which is no record."""

ABSENT = -1
"""In place of a version: there is no record."""


def record_key(path: str) -> str:
    """Where the record at a path lies."""
    return f"{path.count('/'):02d}{path}"


def counter_key(path: str) -> str:
    """Where its children are counted; what they have in common."""
    return "01/" if path == "/" else f"{path.count('/') + 1:02d}{path}/"


class Tree(RecordTree):
    """Component `tree`."""

    def __init__(self, link: StoreClient, limits: TransactionLimits) -> None:
        self._link = link
        self.limits = limits
        link.hub.listen(self._tell_parents)

    def _tell_parents(self, changes: Changes) -> None:
        """Who follows a list of children waits for its counter's key. It does not change when a session takes members
        with it, nor when the parent itself is made.
        """
        for topic, key in changes or ():
            if topic == Topic.TREE:
                path = key[2:]
                self._link.hub.wake((Topic.TREE, counter_key(parent_of(path))))
                self._link.hub.wake((Topic.TREE, counter_key(path)))

    async def get(self, path: str, *, fresh: bool = False) -> Node | None:  # noqa: ARG002  (it always is)
        check_path(path)
        return await self._link.read("tree.get", partial(_get, path))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        found: list[Node | None] = []
        for start in range(0, len(paths), READ_AT_ONCE):
            some = [check_path(path) for path in paths[start : start + READ_AT_ONCE]]
            found += await self._link.read("tree.get_many", partial(_get_many, some))
        return found

    async def children(self, path: str, *, fresh: bool = False) -> Listing | None:  # noqa: ARG002  (it always is)
        _check_directory(path)
        return await self._link.read("tree.children", partial(_children, path))

    async def watch(self, path: str) -> AsyncGenerator[Node | None, None]:
        check_path(path)

        def look(tx: Transaction) -> tuple[Version, Node | None]:
            node = _get(path, tx)
            return (ABSENT if node is None else node.version), node

        async with aclosing(self._link.follow("tree.watch", Topic.TREE, record_key(path), look)) as following:
            async for _, node in following:
                yield node

    async def watch_children(self, path: str) -> AsyncGenerator[Listing | None, None]:
        _check_directory(path)

        def look(tx: Transaction) -> tuple[tuple[Version, int], Listing | None]:
            listing = _children(path, tx)
            if listing is None:
                return (ABSENT, ABSENT), None
            return (listing.life, listing.changes), listing

        following = self._link.follow("tree.watch_children", Topic.TREE, counter_key(path), look)
        async with aclosing(following):
            async for _, listing in following:
                yield listing

    async def commit(self, operations: Sequence[Operation]) -> Written:
        for operation in operations:
            check_path(operation.path)
        self.limits.check(operations)

        def resolve(tx: Transaction, conflict: MetadataError) -> Written:
            written = recognised(operations, {path: _get(path, tx) for path in would_leave(operations)})
            if written is None:
                raise conflict
            return written

        return await self._link.change(
            "tree.commit", partial(_apply, operations), resolve=resolve, repeat=leaves_a_record(operations)
        )

    async def enter(self, directory: str, name: Callable[[int], str], data: bytes = b"") -> RecordMember:
        check_path(directory)
        session = await self._link.session.live()
        prefix = check_path(f"{directory}/{name(session)}")

        def enter(tx: Transaction, tried: list[RecordMember]) -> RecordMember:
            for earlier in tried:
                if earlier.is_ours(tx):
                    return earlier
            if tx.get(Topic.TREE, record_key(directory)) is None:
                raise NoSuchRecord(f"there is no record {directory}", directory)
            member = RecordMember(self._link, f"{prefix}{_count(tx, directory, 1):010d}", session)
            tried.append(member)
            tx.put(Topic.TREE, member.key, data, session=session)
            return member

        member = await self._link.take("tree.enter", enter)
        assert member is not None
        return member


class RecordMember(Holding):
    """See `metadata.tree.Member`."""

    def __init__(self, link: StoreClient, path: str, session: int) -> None:
        super().__init__(Topic.TREE, record_key(path), session)
        self.path = path
        self._link = link

    async def leave(self) -> None:
        if not self.lost.is_set():
            self.lost.set()
            await self._link.give_back("tree.leave", self)


# --- inside a transaction; these touch nothing but their arguments ---


def _check_directory(path: str) -> None:
    if path != "/":
        check_path(path)


def _get(path: str, tx: Transaction) -> Node | None:
    record = tx.get(Topic.TREE, record_key(path))
    return None if record is None else Node(record.data, record.version, record.version, record.session)


def _get_many(paths: Sequence[str], tx: Transaction) -> list[Node | None]:
    return [_get(path, tx) for path in paths]


def _children(path: str, tx: Transaction) -> Listing | None:
    if path != "/" and tx.get(Topic.TREE, record_key(path)) is None:
        return None
    names = tuple(key.rpartition("/")[2] for key in _keys_below(tx, path, None))
    created, life = _counter(tx, path)
    return Listing(names, 2 * created - len(names), life)


def _keys_below(tx: Transaction, path: str, limit: int | None) -> list[str]:
    counter = counter_key(path)
    return tx.keys(Topic.TREE, after=counter, before=counter[:-1] + chr(ord("/") + 1), limit=limit)


def _counter(tx: Transaction, path: str) -> tuple[int, int]:
    """How many children there were ever, and which life of the record this is."""
    counter = tx.get(Topic.TREE, counter_key(path))
    if counter is None:
        return 0, 0
    created, life = counter.data.split()
    return int(created), int(life)


def _count(tx: Transaction, path: str, more: int) -> int:
    """Count new children; returns how many there were before."""
    created, life = _counter(tx, path)
    if not created:
        record = tx.get(Topic.TREE, record_key(path))
        life = ROOT_LIFE if record is None else record.version
    tx.put(Topic.TREE, counter_key(path), b"%d %d" % (created + more, life))
    return created


def _apply(operations: Sequence[Operation], tx: Transaction) -> Written:
    written: dict[str, Version] = {}
    created: dict[str, int] = {}
    for operation in operations:
        path, key = operation.path, record_key(operation.path)
        if isinstance(operation, Create):
            _check_free(tx, path)
            written[path] = tx.put(Topic.TREE, key, operation.data)
            created[parent_of(path)] = created.get(parent_of(path), 0) + 1
            continue
        record = _expect(tx, operation)
        if isinstance(operation, Write):
            written[path] = tx.put(Topic.TREE, key, operation.data, session=record.session)
        elif isinstance(operation, Delete):
            if _keys_below(tx, path, 1):
                raise RecordNotEmpty(f"record {path} has children", path)
            tx.delete(Topic.TREE, key)
            tx.delete(Topic.TREE, counter_key(path))
            written.pop(path, None)
            created.pop(path, None)
    for parent, count in created.items():
        _count(tx, parent, count)
    return written


def _check_free(tx: Transaction, path: str) -> None:
    parent = parent_of(path)
    if tx.get(Topic.TREE, record_key(path)) is not None:
        raise RecordExists(f"there is a record {path} already", path)
    above = tx.get(Topic.TREE, record_key(parent))
    if parent != "/" and above is None:
        raise NoSuchRecord(f"there is no record {parent}", parent)
    if above is not None and above.session != PERMANENT:
        raise NoSuchRecord(f"record {parent} ends with a session: it can have no children", parent)


def _expect(tx: Transaction, operation: Write | Delete | Check) -> Record:
    """The record that an operation is about. Raises its errors."""
    record = tx.get(Topic.TREE, record_key(operation.path))
    if record is None:
        raise NoSuchRecord(f"there is no record {operation.path}", operation.path)
    if operation.expected not in (ANY, record.version):
        raise RecordChanged(
            f"record {operation.path} has version {record.version}, not {operation.expected}", operation.path
        )
    return record
