"""Positions that readers keep with the stream (spec streams §11).

    <stream>/subscribers/<id>             the position to go on from, as text; empty: none yet
    <stream>/subscribers/<id>/readLock    who reads for this subscriber now

A subscriber has a name of its own choice. What it has not read stays in the stream, if the stream's retention protects
subscribers, and they do from their first reader on. Java stores the position of the last record that was read, and
reads that one again; ours that of the next record, which Java takes as it is.
"""

from __future__ import annotations

from ...errors import (
    NoSuchRecord,
    NotOwnerError,
    RecordChanged,
    RecordExists,
    RecordNotEmpty,
    StreamConflictError,
)
from ...metadata.tree import Node, RecordTree
from ..dlsn import DLSN
from ..errors import SegmentFormatError
from ..names.paths import LogPaths


class Subscriptions:
    """The subscribers of one stream, by name."""

    def __init__(self, tree: RecordTree, paths: LogPaths) -> None:
        self._tree = tree
        self._paths = paths

    async def get(self, subscriber: str) -> DLSN | None:
        """Where it goes on; None: it has not said so yet, or there is no such subscriber."""
        return _position(await self._tree.get(self._paths.subscriber(subscriber), fresh=True))

    async def list(self) -> dict[str, DLSN | None]:
        """All of them, by name."""
        listing = await self._tree.children(self._paths.subscribers, fresh=True)
        names = () if listing is None else listing.names
        nodes = await self._tree.get_many([f"{self._paths.subscribers}/{name}" for name in names])
        return {name: _position(node) for name, node in zip(names, nodes, strict=True) if node is not None}

    async def commit(self, subscriber: str, position: DLSN, *, expected: DLSN | None = None) -> None:
        """Store where it goes on: the position of the next record that it wants. Made, if it is not there.

        - `expected`: only if this is stored now. None: whatever is.

        Raises `StreamConflictError` if something else is stored, or another client stores something just now.
        """
        path, data = self._paths.subscriber(subscriber), str(position).encode()
        while True:
            node = await self._tree.get(path, fresh=True)
            if expected is not None and _position(node) != expected:
                raise StreamConflictError(f"subscriber {subscriber} of stream {self._paths.name} is somewhere else")
            try:
                if node is None:
                    await self._tree.make(self._paths.subscribers)
                    await self._tree.create(path, data)
                else:
                    await self._tree.write(path, data, node.version)
                return
            except (RecordChanged, RecordExists, NoSuchRecord):
                continue  # look again

    async def delete(self, subscriber: str) -> None:
        """Forget a subscriber; what it has not read is not protected any more. One that is not there is fine.

        Raises `NotOwnerError` while somebody reads for it.
        """
        path = self._paths.subscriber(subscriber)
        try:
            await self._tree.delete(self._paths.subscriber_lock(subscriber))
        except NoSuchRecord:
            pass
        except RecordNotEmpty:
            raise NotOwnerError(f"somebody reads stream {self._paths.name} for subscriber {subscriber}") from None
        try:
            await self._tree.delete(path)
        except NoSuchRecord:
            return
        except RecordNotEmpty:
            raise NotOwnerError(f"somebody begins to read {self._paths.name} for subscriber {subscriber}") from None


def _position(node: Node | None) -> DLSN | None:
    try:
        return None if node is None else DLSN.parse(node.data.decode("latin-1"))
    except SegmentFormatError:
        return None
