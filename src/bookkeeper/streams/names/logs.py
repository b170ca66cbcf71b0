"""Create, load, list, delete and rename streams (spec streams §3, §10).

Theory of operation

A stream is there when all its records are; they are made in one transaction, only those that are missing, so that a
half-made stream of an old program is completed. Who loads a stream gets the records that change with their versions:
with these, and nothing else, its owner changes them later (`head`).

Deleting and renaming are one transaction over all records of the stream. That includes the records of its lock, which
a transaction can only remove while nobody but the caller is in it: the caller holds the lock, and hands over its own
place in it to be removed together with the rest. So between "unlocked" and "gone" there is no moment in which another
client could begin to write. Streams whose names begin with this one's are left alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from ...errors import (
    LockError,
    NamespaceNotBoundError,
    NoSuchRecord,
    RecordExists,
    RecordNotEmpty,
    StreamExistsError,
    StreamMetadataError,
    StreamNotFoundError,
)
from ...metadata.api import Versioned
from ...metadata.tree import Create, Delete, Member, Node, Operation, RecordTree
from .naming import is_reserved, stream_name
from .paths import (
    IDENTIFIER,
    LAYOUT_VERSION,
    LogPaths,
    parse_allocation,
    parse_max_segment,
    parse_max_txid,
)

DeleteLedger = Callable[[int], Awaitable[object]]
"""Deletes a ledger; one that is gone already is a success."""


@dataclass(frozen=True, slots=True)
class LogRecords:
    """The small records of a stream, as they were read."""

    paths: LogPaths
    max_segment: Versioned[int]
    """Highest number that a segment ever had; 0: there was none."""
    max_txid: Versioned[int]
    """Highest txid of completed segments."""
    allocation: Versioned[int | None]
    """A ledger that was made for a segment that was never begun."""


class Logs:
    """The streams of one namespace."""

    def __init__(self, tree: RecordTree, namespace: str) -> None:
        self._tree = tree
        self._namespace = namespace

    def paths(self, name: str) -> LogPaths:
        """Raises `InvalidStreamNameError`."""
        return LogPaths(self._namespace, stream_name(name))

    # --- one stream ---

    async def create(self, name: str, *, exist_ok: bool = False) -> LogRecords:
        """Raises `StreamExistsError`, `NamespaceNotBoundError`."""
        paths = self.paths(name)
        made = False
        while True:
            records = paths.records()
            nodes = await self._tree.get_many(list(records))
            missing = [path for path, node in zip(records, nodes, strict=True) if node is None]
            if not missing and not (made or exist_ok):
                raise StreamExistsError(f"there is a stream {paths.name} already")
            if not missing:
                return await self.load(name)
            try:
                await self._tree.commit([Create(path, records[path]) for path in missing])
                made = True
            except RecordExists:
                continue  # another client makes it: look again
            except NoSuchRecord as error:
                if error.path == self._namespace:
                    raise NamespaceNotBoundError(f"there is no namespace at {self._namespace}") from None

    async def load(self, name: str) -> LogRecords:
        """The small records as they are now. Raises `StreamNotFoundError`, `StreamMetadataError`."""
        paths = self.paths(name)
        await self._tree.get(paths.root, fresh=True)
        wanted = (paths.segments, paths.max_txid, paths.allocation, paths.version, paths.lock, paths.read_lock)
        nodes = await self._tree.get_many(wanted)
        there = [node for node in nodes if node is not None]
        if len(there) < len(wanted):
            raise StreamNotFoundError(f"there is no stream {paths.name} in {self._namespace}")
        segments, txid, allocation, version, *_ = there
        if version.data != LAYOUT_VERSION:
            raise StreamMetadataError(f"{paths.version} holds {version.data!r}: that layout is not known here")
        return LogRecords(
            paths,
            Versioned(parse_max_segment(segments.data, paths.segments), segments.version),
            Versioned(parse_max_txid(txid.data), txid.version),
            Versioned(parse_allocation(allocation.data, paths.allocation), allocation.version),
        )

    async def exists(self, name: str) -> bool:
        return await self._tree.get(self.paths(name).segments, fresh=True) is not None

    # --- all of them ---

    async def names(self, prefix: str = "", *, recursive: bool = False) -> AsyncGenerator[str, None]:
        """Names of streams directly below `prefix` (a stream's name, or a part of one), ascending; with `recursive` all
        below it. Only what is a stream is given. A prefix that is not there has none.
        """
        at = f"{self._namespace}/{stream_name(prefix)}" if prefix else self._namespace
        listing = await self._tree.children(at, fresh=True)
        parts = [part for part in (() if listing is None else listing.names) if not is_reserved(part)]
        names = [f"{stream_name(prefix)}/{part}" if prefix else part for part in parts]
        nodes = await self._tree.get_many([LogPaths(self._namespace, name).segments for name in names])
        for name, node in zip(names, nodes, strict=True):
            if node is not None:
                yield name
            if recursive:
                async for below in self.names(name, recursive=True):
                    yield below

    # --- the end of a stream, and another name ---

    async def delete(
        self, name: str, lock: Member, *, ledger_of: Callable[[bytes], int], delete_ledger: DeleteLedger
    ) -> None:
        """Remove a stream whose lock is held by `lock`, and its ledgers. Raises `StreamNotFoundError`, `LockError`.

        `ledger_of` reads a segment's ledger from its record. A ledger goes before the record that names it, so that a
        failure leaves none behind that nothing points to; what is left is deleted by calling again.
        """
        records = await self.load(name)
        paths = records.paths
        listing = await self._tree.children(paths.segments, fresh=True)
        segments = [paths.segment(name) for name in (() if listing is None else listing.names)]
        for path, node in zip(segments, await self._tree.get_many(segments), strict=True):
            if node is not None:
                await delete_ledger(ledger_of(node.data))
                await self._tree.delete(path)
        if records.allocation.value is not None:
            await delete_ledger(records.allocation.value)
        try:
            await self._tree.commit(await self._removal(paths, lock))
        except (RecordNotEmpty, NoSuchRecord) as error:
            raise LockError(f"stream {paths.name} is in use: {error}") from None
        await self._drop_name(paths)

    async def _drop_name(self, paths: LogPaths) -> None:
        """The name goes too, unless longer ones are below it."""
        try:
            await self._tree.delete(paths.top)
        except (RecordNotEmpty, NoSuchRecord):
            return

    async def rename(self, old: str, new: str, lock: Member) -> None:
        """Give a stream whose lock is held by `lock` another name. Its subscribers come along, too.

        Raises `StreamNotFoundError`, `StreamExistsError`, `LockError`, and `RecordTooLarge` for more segments than a
        transaction of the store holds.
        """
        source, target = (await self.load(old)).paths, self.paths(new)
        if await self._tree.get(target.root, fresh=True) is not None:
            raise StreamExistsError(f"there is a stream {target.name} already")
        above = [path for path in target.records() if not path.startswith(target.root)]
        missing = [path for path, node in zip(above, await self._tree.get_many(above), strict=True) if node is None]
        copied = await self._below(source.root)
        if any(node.session and path != lock.path for path, node in copied):
            raise LockError(f"stream {source.name} is in use")
        changes: list[Operation] = [Create(path) for path in missing]
        changes += [
            Create(target.root + path.removeprefix(source.root), node.data)
            for path, node in copied
            if path != lock.path
        ]
        changes += [Delete(path, node.version) for path, node in reversed(copied)]
        changes.append(await self._end_of_truncation(source, copied))
        try:
            await self._tree.commit(changes)
        except RecordExists:
            raise StreamExistsError(f"there is a stream {target.name} already") from None
        except (RecordNotEmpty, NoSuchRecord) as error:
            raise LockError(f"stream {source.name} is in use: {error}") from None
        if not target.top.startswith(f"{source.top}/"):
            await self._drop_name(source)

    async def _removal(self, paths: LogPaths, lock: Member) -> list[Operation]:
        """Operations that remove a stream's records. Raises `LockError` if others than `lock` are in it."""
        records = await self._below(paths.root)
        if any(node.session and path != lock.path for path, node in records):
            raise LockError(f"{paths.root} is in use")
        removal: list[Operation] = [Delete(path, node.version) for path, node in reversed(records)]
        return [*removal, await self._end_of_truncation(paths, records)]

    async def _end_of_truncation(self, paths: LogPaths, records: Sequence[tuple[str, Node]]) -> Operation:
        """Removes the record by which those who truncate the stream know that it is still the same; made, if there is
        none, so that nobody can make it just before the stream is gone, and truncate the next one of this name.
        """
        if not records:
            raise StreamNotFoundError(f"there is no stream {paths.name} in {self._namespace}")
        mark = paths.truncation(records[0][1].stamp)
        await self._tree.make(mark)
        return Delete(mark)

    async def _below(self, root: str) -> list[tuple[str, Node]]:
        """A record and all below it, parents first."""
        found: list[tuple[str, Node]] = []
        level = [root]
        while level:
            nodes = await self._tree.get_many(level)
            there = [(path, node) for path, node in zip(level, nodes, strict=True) if node is not None]
            found += there
            level = []
            for path, node in there:
                listing = None if node.session else await self._tree.children(path)
                level += [f"{path}/{name}" for name in (() if listing is None else listing.names)]
        return found


assert IDENTIFIER.startswith("<"), "so that no name of a stream can be the record of another"
