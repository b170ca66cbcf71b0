"""Namespaces of many parts: federated ones, which are read and not changed (spec streams §11).

Streams of a federated namespace stand in one of its parts: the namespace itself, or one below
`<namespace>/.subnamespaces`, each laid out like a namespace. Java puts a new stream where there is room, and keeps each
name in one part only; which one is found by looking into all of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from ...errors import StreamMetadataError
from ...metadata.tree import RecordTree
from .logs import Logs
from .naming import stream_name
from .paths import LogPaths

PARTS = ".subnamespaces"


class Federation:
    """The parts of a federated namespace."""

    def __init__(self, tree: RecordTree, namespace: str) -> None:
        self._tree = tree
        self._namespace = namespace

    async def home(self, name: str) -> Logs | None:
        """The part that has a stream; None: none has. Raises `StreamMetadataError` if several have it."""
        parts = await self._parts()
        nodes = await self._tree.get_many([LogPaths(part, stream_name(name)).segments for part in parts])
        having = [part for part, node in zip(parts, nodes, strict=True) if node is not None]
        if len(having) > 1:
            raise StreamMetadataError(f"stream {name} is in {' and in '.join(having)}: which one is meant?")
        return Logs(self._tree, having[0]) if having else None

    async def names(self) -> AsyncGenerator[str, None]:
        """Of all streams, by part."""
        for part in await self._parts():
            async with aclosing(Logs(self._tree, part).names(recursive=True)) as names:
                async for name in names:
                    yield name

    async def _parts(self) -> list[str]:
        above = f"{self._namespace}/{PARTS}"
        listing = await self._tree.children(above, fresh=True)
        return [self._namespace, *(f"{above}/{name}" for name in (() if listing is None else listing.names))]
