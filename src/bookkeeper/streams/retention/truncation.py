"""Marks segments truncated, deletes them, applies a policy (spec streams §10.1, §10.2, §15.4).

Theory of operation

1. **Say it.** How far the stream is truncated is written into its mark (`mark`). From then on it is decided.
2. **Mark.** The segments below are marked, oldest first, in as many transactions as it takes. A record of a segment is
   replaced, never written, as lists are kept by names (spec streams §4.4). Readers that begin skip what is marked;
   readers under way hear of it.
3. **Delete.** A segment that is marked as a whole loses its ledger, then its record: never the other way, which would
   leave a ledger that nothing points to.

Each step can be repeated, and each begins with what the one before has left in the store. So whoever dies in between
is replaced by whoever calls next, for whatever position. Two may work at once: they mark the same, because both work
from the same mark, and of a segment only the first one's deletion finds anything.

The writer of the stream is not disturbed: it appends at the other end, and no transaction here touches its records.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...errors import NoSuchRecord, RecordChanged, RecordExists, StreamConflictError, Unsupported
from ...metadata.tree import Create, Delete, Operation, RecordTree
from ..dlsn import DLSN, LOWER_BOUND
from ..errors import SegmentFormatError
from ..formats.segment import SegmentMetadata, decode_segment, encode_segment
from ..formats.segment import Truncation as Marking
from ..names.paths import LogPaths
from ..names.segments import SegmentCodec, SegmentList
from .choice import RetentionMode, RetentionPolicy, attainable, cut, deletable, expired, marks
from .mark import Mark, load_mark, raise_mark

log = logging.getLogger(__name__)

MOST_ATTEMPTS = 100
"""How often a change is tried again because another client was faster; each of them has got further then."""

MARKED_AT_ONCE = 500
"""Segments that one transaction marks, where the store would take more."""

TRUNCATED = Marking.TRUNCATED
CODEC = SegmentCodec(decode_segment, number=lambda segment: segment.number, order=lambda segment: segment.order)


class Ledgers(Protocol):
    """What is asked of the ledgers of a stream."""

    async def delete(self, ledger_id: int) -> None:
        """One that is gone already is a success."""

    async def size(self, ledger_id: int) -> int:
        """Bytes of one that is closed; 0 if it is gone."""


@dataclass(frozen=True, slots=True)
class Retained:
    """What was done."""

    truncated: DLSN
    """The stream begins here now, or behind; (0, 0, 0): nothing of it was ever truncated."""
    deleted: Sequence[SegmentMetadata] = field(default_factory=tuple)
    """Segments that are gone, and their ledgers."""


class Truncation:
    """Truncates one stream. Raises `StreamNotFoundError` everywhere."""

    def __init__(self, tree: RecordTree, paths: LogPaths, ledgers: Ledgers) -> None:
        self._tree = tree
        self._paths = paths
        self._ledgers = ledgers
        self._list = SegmentList(tree, paths, CODEC)

    async def truncate(self, before: DLSN) -> DLSN:
        """What is before this position is not read any more; where the stream begins now.

        That may be earlier, since a segment that is still written is not truncated, or later, if it was already. Space
        is freed by `delete_truncated`, and only of whole segments.
        """
        for _ in range(MOST_ATTEMPTS):
            mark = await load_mark(self._tree, self._paths)
            wanted = attainable(await self._list.refresh(), before)
            try:
                await raise_mark(self._tree, mark, wanted)
            except (RecordChanged, NoSuchRecord):
                continue
            return await self.finish()
        raise self._too_busy()

    async def supersede(self, first: int) -> list[Operation]:
        """What a transaction must do besides that adds segments from number `first` on, so that the stream begins with
        these: all that are there are marked. They must be completed. Raises `Unsupported` for what cannot be marked."""
        mark = await load_mark(self._tree, self._paths)
        names = {segment: name for name, segment in (await self._list.named()).items()}
        segments = sorted(names, key=lambda segment: segment.order)
        changes = marks(segments, DLSN(first, 0, 0))
        marked = dict(changes)
        if any(marked.get(segment, segment).truncation is not TRUNCATED for segment in segments):
            raise Unsupported(f"stream {self._paths.name} has segments of old writers, which cannot be truncated")
        batch: list[Operation] = [mark.overwritten(first)]
        for old, new in changes:
            path = self._paths.segment(names[old])
            batch += [Delete(path), Create(path, encode_segment(new))]
        return batch

    async def finish(self) -> DLSN:
        """Mark what was decided to be truncated, here or by a client that has died; where the stream begins now."""
        for _ in range(MOST_ATTEMPTS):
            mark = await load_mark(self._tree, self._paths)
            names = {segment: name for name, segment in (await self._list.named()).items()}
            changes = [
                (names[old], encode_segment(new))
                for old, new in marks(sorted(names, key=lambda segment: segment.order), mark.before)
            ]
            try:
                await self._replace(mark, changes)
            except (RecordChanged, NoSuchRecord, RecordExists):
                continue
            return mark.before
        raise self._too_busy()

    async def _replace(self, mark: Mark, changes: Sequence[tuple[str, bytes]]) -> None:
        """Oldest first, so that the stream has one beginning at any moment."""
        batch: list[Operation] = [mark.unchanged]
        for name, data in changes:
            path = self._paths.segment(name)
            both: list[Operation] = [Delete(path), Create(path, data)]
            if len(batch) > 2 * MARKED_AT_ONCE or not self._tree.limits.hold([*batch, *both]):
                await self._tree.commit(batch)
                batch = [mark.unchanged]
            batch += both
        if len(batch) > 1:
            await self._tree.commit(batch)

    def _too_busy(self) -> StreamConflictError:
        return StreamConflictError(f"stream {self._paths.name} is truncated by other clients all the time")

    async def delete_truncated(self, only: Sequence[SegmentMetadata] | None = None) -> list[SegmentMetadata]:
        """Delete the segments that are truncated as a whole, but for the newest completed one; which they were.

        - `only`: of these. None: of all.
        """
        allowed = None if only is None else {segment.number for segment in only}
        named = {segment: name for name, segment in (await self._list.named()).items()}
        gone = []
        for segment in deletable(sorted(named, key=lambda segment: segment.order)):
            if allowed is not None and segment.number not in allowed:
                break
            await self._ledgers.delete(segment.ledger_id)
            try:
                await self._tree.delete(self._paths.segment(named[segment]))
            except NoSuchRecord:
                continue  # another client's doing
            gone.append(segment)
        return gone

    async def apply(self, policy: RetentionPolicy, now_ms: int) -> Retained:
        """Do what the policy says; with `RetentionMode.NONE` nothing at all.

        - `now_ms`: milliseconds since 1970, to be compared with the time that the segments' owners have recorded.
        """
        if policy.mode is RetentionMode.NONE:
            return Retained((await load_mark(self._tree, self._paths)).before)
        unread = await self.unread() if policy.protect_subscriptions else None
        segments = await self._list.refresh()
        gone = expired(segments, policy, now_ms, unread, await self._sizes(segments, policy))
        before = cut(policy, gone)
        begins = await (self.finish() if before is None else self.truncate(before))
        deleted = await self.delete_truncated(gone)
        if deleted:
            log.info("stream %s: deleted segments %d to %d", self._paths.name, deleted[0].number, deleted[-1].number)
        return Retained(begins, deleted)

    async def _sizes(self, segments: Sequence[SegmentMetadata], policy: RetentionPolicy) -> dict[int, int]:
        """Of completed segments, if the policy asks for them."""
        if policy.max_bytes is None:
            return {}
        return {
            segment.ledger_id: await self._ledgers.size(segment.ledger_id) for segment in segments if segment.completed
        }

    async def unread(self) -> DLSN | None:
        """The first position that a subscriber has still to read; None: there are no subscribers.

        One that has not said where it is has still to read everything.
        """
        listing = await self._tree.children(self._paths.subscribers, fresh=True)
        if listing is None or not listing.names:
            return None
        nodes = await self._tree.get_many([f"{self._paths.subscribers}/{name}" for name in listing.names])
        return min((_position(node.data) for node in nodes if node is not None), default=None)


def _position(data: bytes) -> DLSN:
    try:
        return DLSN.parse(data.decode("latin-1"))
    except SegmentFormatError:
        return LOWER_BOUND
