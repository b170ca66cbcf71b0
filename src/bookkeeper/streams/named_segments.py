"""The segments of a stream with a name: the store that writers and readers stand on (spec streams §4.4, §8.2).

An owner has the stream's lock, and got the small records with their versions once, after it had the lock. All its
changes build on those: who changes the stream without owning it makes the next change fail (`names.head`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from ..client.reader import LedgerReader
from ..client.writer import LedgerWriter
from ..errors import NotOwnerError
from ..metadata.tree import Operation, RecordTree
from .formats.segment import SegmentMetadata, decode_segment, encode_segment
from .ledgers import StreamLedgers
from .names.allocation import LedgerAllocator
from .names.head import LogHead
from .names.lock import LogLock
from .names.logs import Logs
from .names.segments import SegmentCodec, SegmentList
from .segments import StreamState

CODEC = SegmentCodec(decode_segment, number=lambda segment: segment.number, order=lambda segment: segment.order)


class NamedSegments:
    """One client's view of a stream; a `segments.SegmentStore`."""

    def __init__(
        self, tree: RecordTree, logs: Logs, name: str, ledgers: StreamLedgers, lock: LogLock | None = None
    ) -> None:
        """`lock`: held, if segments are to be changed; it is given back by `release`."""
        self._tree = tree
        self._logs = logs
        self._name = name
        self._ledgers = ledgers
        self._lock = lock
        self._list = SegmentList(tree, logs.paths(name), CODEC)
        self._head: LogHead | None = None
        self._allocator: LedgerAllocator[LedgerWriter] | None = None

    async def load(self) -> StreamState:
        """As it is now, as far as this owner knows; what others changed is found when it changes something.

        Raises `NotOwnerError` where the list alone shows it: another owner has begun a segment since.
        """
        again = self._lock is not None and self._head is not None
        head, _ = await self._loaded()
        segments = await self._list.refresh()
        if again and segments and (last := segments[-1].number) > head.max_segment:
            raise NotOwnerError(f"another client has taken over stream {self._name}: it has begun segment {last}")
        return StreamState(segments, head.max_segment, head.max_txid)

    async def _loaded(self) -> tuple[LogHead, LedgerAllocator[LedgerWriter]]:
        if self._head is None or self._allocator is None:
            records = await self._logs.load(self._name)
            self._head = LogHead(self._tree, records)
            self._allocator = LedgerAllocator(self._tree, records, self._ledgers)
        return self._head, self._allocator

    async def _owned(self) -> tuple[LogHead, LedgerAllocator[LedgerWriter]]:
        """What a change needs. Raises as `LogLock.check`."""
        if self._lock is not None:
            self._lock.check()
        return await self._loaded()

    async def start(self, number: int, first_txid: int) -> tuple[SegmentMetadata, LedgerWriter]:
        """Begin a segment, with a ledger of its own."""
        head, allocator = await self._owned()
        ledger = await allocator.allocate()
        segment = SegmentMetadata(ledger_id=ledger.id, first_txid=first_txid, number=number)
        handover = allocator.offer()
        try:
            written = await head.start(number, encode_segment(segment), handover=handover)
        except BaseException as error:
            allocator.refused(error)
            raise
        allocator.taken(written)
        return segment, ledger

    async def complete(self, segment: SegmentMetadata) -> None:
        """End a segment, whose ledger is closed."""
        head, _ = await self._owned()
        await head.complete(segment.number, encode_segment(segment), last_txid=segment.last_txid)

    async def attach(self, segments: Sequence[SegmentMetadata]) -> list[Operation]:
        """What a transaction must do to add completed segments at the end; this view is of no use after it."""
        head, _ = await self._owned()
        return head.attach(
            [(segment.number, encode_segment(segment)) for segment in segments],
            last_txid=max(segment.last_txid for segment in segments),
        )

    async def remove(self, segment: SegmentMetadata) -> None:
        """Delete a segment in progress that has no records, the ledger first."""
        head, _ = await self._owned()
        await self._ledgers.delete(segment.ledger_id)
        await head.retract(segment.number)

    async def open(self, segment: SegmentMetadata) -> LedgerReader:
        """Its ledger; a writer of it is not disturbed."""
        return await self._ledgers.open(segment.ledger_id)

    async def recover(self, segment: SegmentMetadata) -> LedgerReader:
        """Its ledger, closed: a writer of it is fenced off."""
        return await self._ledgers.recover(segment.ledger_id)

    def watch(self) -> AsyncGenerator[Sequence[SegmentMetadata], None]:
        """All segments in order, now and after each change."""
        return self._list.watch()

    async def release(self) -> None:
        """Let the next owner in. Idempotent."""
        try:
            if self._allocator is not None:
                await self._allocator.close()
        finally:
            if self._lock is not None:
                await self._lock.release()
