"""Entries of one segment, out to its ledger (spec streams §8.3).

Theory of operation

One lane: who holds it packs records and hands full entries to the ledger, so ids are given in the order in which the
packer counted them. Handing over waits where the ledger's writer has too much in flight; that is the only bound needed,
as the packer buffers less than an entry. The lane is not held while acknowledgements are on their way.

What is buffered, and what readers cannot see yet, is driven by one task. It runs only while there is something to do:
it lingers, then seals the buffer; if all is acknowledged and the last entry has user records, it sends a control
record. Lingering is for records to share an entry, so it ends where waiting gains nothing: at once if no entry is on
its way, else with the next acknowledgement, which readers hear of by the next entry.

The first entry that fails ends the segment: everything waiting fails with that error, and nothing more is sent. What
comes of it is found by recovery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from ..client.writer import LedgerWriter
from ..errors import BKError, LedgerFencedError, NotOwnerError, StreamError
from ..runtime.tasks import TaskScope
from .errors import StreamClosedError, TransmitError
from .formats.segment import SegmentMetadata
from .packing import Entry, EntryPacker, Run
from .policy import Visibility, WritePolicy

log = logging.getLogger(__name__)


class SegmentWriter:
    """The open segment of a stream."""

    def __init__(
        self, metadata: SegmentMetadata, ledger: LedgerWriter, policy: WritePolicy, tasks: TaskScope, started: float
    ) -> None:
        self.metadata = metadata
        self.started = started
        self.error: StreamError | None = None
        """Once this is set, nothing is sent any more."""
        self.packer = EntryPacker(metadata.number, policy, metadata.first_txid)
        self._ledger = ledger
        self._policy = policy
        self._tasks = tasks
        self._lane = asyncio.Lock()
        self._acked = -1
        """All entries up to this one are acknowledged."""
        self._waiting: dict[int, asyncio.Future[None]] = {}
        """By entry; of those in flight and of the buffer, where somebody waits."""
        self._unseen = False
        """The last entry that was sent has user records."""
        self._driver: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        """What is buffered need not wait for more."""

    @property
    def size(self) -> int:
        """Bytes of its ledger so far."""
        return self._ledger.length

    @property
    def ledger_id(self) -> int:
        return self._ledger.id

    async def append(self, payloads: Sequence[bytes], txids: Sequence[int], *, as_sets: bool) -> list[Run]:
        """Pack records, and send what is full; where they are. `as_sets`: in record sets, all with the first txid."""
        async with self._lane:
            self._check()
            pack = self.packer
            entries, runs = pack.add_sets(payloads, txids[0]) if as_sets else pack.add(payloads, txids)
            await self._send(entries)
        self._drive()
        return runs

    async def acknowledged(self, entry: int) -> None:
        """Wait until an entry, perhaps the one that is being filled, and all before it are acknowledged."""
        if entry <= self._acked:
            return
        self._check()
        future = self._waiting.get(entry)
        if future is None:
            future = self._waiting[entry] = asyncio.get_running_loop().create_future()
        await asyncio.shield(future)

    async def flush(self, *, seen: bool = True) -> None:
        """Send what is buffered and wait until it is acknowledged; with `seen` also until readers can see it."""
        async with self._lane:
            self._check()
            await self._send(self.packer.seal())
            if seen and self._unseen:
                await self._send(self.packer.control())
            last = self.packer.next_entry - 1
        if last >= 0:
            await self.acknowledged(last)

    async def end_stream(self) -> None:
        """Append the end of the stream, and wait until it is acknowledged."""
        async with self._lane:
            self._check()
            await self._send(self.packer.end())
        await self.flush()

    async def close(self) -> None:
        """Send all that is left, and close the ledger. Raises what stood in the way: then recovery must end it."""
        try:
            await self.flush()
        except StreamError:
            await self.release()
            raise
        self.stop(StreamClosedError("the segment is closed"))
        try:
            await self._ledger.close(drain=True)
        except BKError as error:
            raise _stream_error(error) from error

    async def release(self) -> None:
        """End the ledger's writer, if it can be done; recovery takes a ledger closed or not. The segment is stopped."""
        try:
            await self._ledger.close()
        except BKError as error:
            log.info("ledger %d is left to be recovered: %s", self._ledger.id, error)

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    async def _send(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._check()
            try:
                future = await self._ledger.append_soon(entry.payload)
            except BKError as error:
                self.stop(_stream_error(error))
                raise _stream_error(error) from error
            except asyncio.CancelledError:
                self.stop(StreamClosedError("an append was cancelled before all of its entries were sent"))
                raise
            future.add_done_callback(partial(self._answered, entry.number))
            self._unseen = entry.records > 0

    def _answered(self, number: int, future: asyncio.Future[int]) -> None:
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or error is not None:
            self.stop(_stream_error(error))
            return
        self._acked = number
        if self.packer.has_buffered:
            self._hurry.set()
        waiting = self._waiting.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
        if self._unseen and self._is_idle:
            self._drive()

    def stop(self, error: StreamError) -> None:
        """Drop what is buffered, and send nothing any more; who waits gets this error, or the first one. Idempotent."""
        if self.error is None:
            self.error = error
        if self._driver is not None and self._driver is not asyncio.current_task():
            self._driver.cancel()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self.error)
                future.exception()  # whoever waits hears of it; nobody may
        self._waiting.clear()

    # --- linger, then show ---

    def _has_work(self) -> bool:
        if self.error is not None:
            return False
        if self.packer.has_buffered:
            return True
        shown = not self._unseen or self._policy.visibility is Visibility.MANUAL
        return not shown and self._is_idle

    @property
    def _is_idle(self) -> bool:
        """Whether no entry is on its way."""
        return self._acked == self.packer.next_entry - 1

    def _drive(self) -> None:
        if self._driver is not None:
            if self._is_idle:
                self._hurry.set()
        elif self._has_work():
            self._driver = self._tasks.spawn(self._linger(), name=f"segment {self.metadata.number}")

    async def _linger(self) -> None:
        try:
            while self._has_work():
                await self._wait_for_more()
                async with self._lane:
                    if self.packer.has_buffered:
                        await self._send(self.packer.seal())
                    elif self._has_work():
                        await self._send(self.packer.control())
        except StreamError:
            assert self.error is not None  # all who wait were told
        finally:
            self._driver = None

    async def _wait_for_more(self) -> None:
        """At most the linger; callers whose turn it is, one after the other, always come along."""
        self._hurry.clear()
        if not (self.packer.has_buffered and self._is_idle):
            with suppress(TimeoutError):
                async with asyncio.timeout(self._policy.linger):
                    await self._hurry.wait()
        before = -1
        while self._is_idle and before != self.packer.records:
            before = self.packer.records
            await asyncio.sleep(0)


def _stream_error(error: BaseException | None) -> StreamError:
    if isinstance(error, LedgerFencedError):
        return NotOwnerError(f"another client has taken over the stream: {error}")
    if isinstance(error, BKError):
        return TransmitError(f"an entry of the stream could not be stored: {error}", error.code)
    return TransmitError(f"an entry of the stream could not be stored: {error}", BKError.code)
