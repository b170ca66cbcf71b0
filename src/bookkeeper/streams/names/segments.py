"""The list of a stream's segments, kept up to date (spec streams §9.2).

Theory of operation

Records of segments are never written: a change removes a record and creates another one, in one transaction. So a name
that is still there has the data that was read once, unless it was removed and created again between two listings. A
listing counts creations and removals; if there were more of them than names that came or went, some name was replaced,
and all are read again. If the stream itself was deleted and made again, all are read again, too.

A record that vanishes between listing and reading shows that the list has changed: most often a segment was completed,
which is there under its other name now. What was read then is no list at any moment, with a gap even; there is another
listing to wait for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, TypeVar

from ...errors import StreamNotFoundError, StreamStateError
from ...metadata.tree import Listing, RecordTree
from .paths import LogPaths

S = TypeVar("S")

MOST_SEGMENTS = 200_000
"""Of one stream, as far as it is kept in memory here. ZooKeeper's lists end long before; retention keeps them short."""


LISTINGS = 20
"""Attempts to read a list that changes while it is read. Nobody rolls segments that fast."""


@dataclass(frozen=True, slots=True)
class SegmentCodec(Generic[S]):
    """What this room must know of the records of segments."""

    decode: Callable[[bytes], S]
    number: Callable[[S], int]
    """0 for those of the oldest format, which has no numbers."""
    order: Callable[[S], Any]
    """Sort key: by number, and where two have the same, the one in progress first."""


class SegmentList(Generic[S]):
    """The segments of one stream."""

    def __init__(self, tree: RecordTree, paths: LogPaths, codec: SegmentCodec[S]) -> None:
        self._tree = tree
        self._paths = paths
        self._codec = codec
        self._listing: Listing | None = None
        """What was seen last, whose records were all asked for."""
        self._known: dict[str, S] = {}
        self._updating = asyncio.Lock()
        """Held from one complete listing to the next: `refresh` and `watch` may go on side by side."""
        self.reads = 0
        """Records that were read so far."""

    async def refresh(self, *, interest: Callable[[tuple[str, ...]], list[str]] | None = None) -> list[S]:
        """All segments as they are now, in order. `interest`: only those that it picks by their names (then there are
        gaps, and nothing is remembered). Raises `StreamNotFoundError`, `StreamStateError` for a gap.
        """
        for _ in range(LISTINGS):
            listing = await self._tree.children(self._paths.segments, fresh=True)
            if listing is None:
                raise StreamNotFoundError(f"there is no stream {self._paths.name}")
            if interest is not None:
                names = interest(listing.names)
                found = await self._read(names)
                if len(found) == len(names):
                    return self._in_order(found)
            else:
                async with self._updating:
                    segments = await self._update(listing)
                if segments is not None:
                    return segments
        raise StreamStateError(f"the segments of stream {self._paths.name} change faster than they can be read")

    async def named(self) -> dict[str, S]:
        """All segments as they are now, by the names of their records. Raises as `refresh`."""
        await self.refresh()
        return dict(self._known)

    async def watch(self) -> AsyncGenerator[list[S], None]:
        """All segments in order, now and after each change. Raises as `refresh`; ends when the driver is closed."""
        async with aclosing(self._tree.watch_children(self._paths.segments)) as listings:
            async for listing in listings:
                if listing is None:
                    raise StreamNotFoundError(f"there is no stream {self._paths.name} any more")
                async with self._updating:
                    found = await self._update(listing)
                if found is not None:
                    yield found

    async def _update(self, listing: Listing) -> list[S] | None:
        """All segments of a listing; None if some were gone when they were read."""
        if len(listing.names) > MOST_SEGMENTS:
            raise StreamStateError(f"stream {self._paths.name} has {len(listing.names)} segments: truncate it")
        wanted = set(listing.names)
        if not self._is_continued_by(listing):
            self._known.clear()
        for name in [name for name in self._known if name not in wanted]:
            del self._known[name]
        self._listing = None  # until all is read
        self._known |= await self._read([name for name in listing.names if name not in self._known])
        self._listing = listing
        if len(self._known) < len(wanted):
            return None
        found = self._in_order(self._known)
        self._check_gaps(found)
        return found

    def _is_continued_by(self, listing: Listing) -> bool:
        """Whether the names that both listings have are records that were not replaced meanwhile."""
        last = self._listing
        if last is None or last.life != listing.life:
            return False
        return len(set(last.names) ^ set(listing.names)) == listing.changes - last.changes

    async def _read(self, names: list[str]) -> dict[str, S]:
        self.reads += len(names)
        nodes = await self._tree.get_many([self._paths.segment(name) for name in names])
        return {
            name: self._codec.decode(node.data) for name, node in zip(names, nodes, strict=True) if node is not None
        }

    def _in_order(self, segments: dict[str, S]) -> list[S]:
        return sorted(segments.values(), key=self._codec.order)

    def _check_gaps(self, segments: list[S]) -> None:
        numbers = [number for segment in segments if (number := self._codec.number(segment))]
        for before, after in pairwise(numbers):
            if after - before not in (0, 1):
                raise StreamStateError(f"stream {self._paths.name}: segment {after} follows {before}; some are missing")
