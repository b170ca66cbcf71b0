"""Writes drafts: ledgers with the records of segments that have no place yet (spec streams §15.7).

Entries leave in order, and wait only for room among those in flight; the last one's acknowledgement is that of all.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from itertools import pairwise
from types import TracebackType
from typing import Self

from ...client.writer import LedgerAdvWriter
from ...errors import BKError, IncorrectParameterError, NoSuchRecord
from ...metadata.tree import RecordTree
from ...runtime.api import Runtime
from ..errors import CorruptEntryError, StagingLostError, StreamClosedError, TransmitError, TxidOrderError
from ..formats.entry import decode_entry
from ..formats.records import END_TXID
from ..ledgers import StreamLedgers
from ..packing import Entry, EntryPacker
from ..policy import WritePolicy
from .drafts import UNSTAMPED, SegmentDraft
from .staging import add_token, beat, open_run, token_path


class Staging:
    """A run: the ledgers that are to be published together.

    `Namespace.stage` begins one, `Namespace.join_staging` finds it again by its path, in another process.
    """

    def __init__(
        self, tree: RecordTree, runtime: Runtime, path: str, ledgers: Callable[[str], Awaitable[StreamLedgers]]
    ) -> None:
        self.path = path
        """To be sent to those who write."""
        self._tree = tree
        self._runtime = runtime
        self._ledgers = ledgers

    async def open_segment(self, stream: str, policy: WritePolicy | None = None) -> StagedSegment:
        """A new draft for a stream, in a ledger of its own, replicated as the stream's are. Of `policy` the size of
        entries and compression hold.

        Raises `StagingLostError` if the run is over, and what creating a ledger raises.
        """
        ledgers = await self._ledgers(stream)
        ledger_id = await ledgers.reserve_id()
        token = token_path(self.path, ledger_id)
        await add_token(self._tree, self.path, ledger_id)
        ledger = await ledgers.create_as(ledger_id)

        async def give_up() -> None:
            await ledgers.delete(ledger_id)
            with contextlib.suppress(NoSuchRecord):
                await self._tree.delete(token)

        segment = StagedSegment(ledger, policy or WritePolicy(), give_up)
        try:
            await open_run(self._tree, self.path)
        except StagingLostError:  # who collects it may have looked for the ledger before it was there
            await segment.abort()
            raise
        return segment

    async def merge(
        self, stream: str, drafts: Sequence[SegmentDraft], policy: WritePolicy | None = None
    ) -> SegmentDraft:
        """One draft with the records of several of this run, in order. Those stay: what is not published goes with the
        run.

        Raises as `open_segment` and the calls of `StagedSegment`, `CorruptEntryError`, and what reading raises; then
        nothing was made.
        """
        ledgers = await self._ledgers(stream)
        async with await self.open_segment(stream, policy) as merged:
            for draft in drafts:
                before = merged.records
                async with await ledgers.open(draft.ledger_id) as ledger, aclosing(ledger.entries()) as entries:
                    async for entry in entries:
                        some = decode_entry(entry.data)
                        await merged.append_batch(some.payloads, txids=some.txids if draft.stamped else None)
                if merged.records - before != draft.records:
                    raise CorruptEntryError(
                        f"ledger {draft.ledger_id} has {merged.records - before} records, its draft {draft.records}", 0
                    )
            return await merged.finish()

    async def beat(self, after: float = 0.0) -> None:
        """Say that the run is alive; needed now and then of one that takes long. Raises `StagingLostError`.

        - `after`: nothing is done if somebody has said so within so many seconds. So many may say it.
        """
        await beat(self._tree, self.path, self._runtime.wall_ms(), after * 1000)


class StagedSegment:
    """The writer of a draft. An async context manager; leaving it without `finish` gives the ledger up.

    One call at a time. What fails is final: begin another draft.
    """

    def __init__(self, ledger: LedgerAdvWriter, policy: WritePolicy, give_up: Callable[[], Awaitable[object]]) -> None:
        self._ledger = ledger
        self._packer = EntryPacker(0, policy, UNSTAMPED)
        self._give_up = give_up
        self._first_txid: int | None = None
        self._last: asyncio.Future[int] | None = None
        self._size = 0
        self._over = False

    @property
    def ledger_id(self) -> int:
        """Of the ledger."""
        return self._ledger.id

    @property
    def records(self) -> int:
        """How many were added."""
        return self._packer.records

    @property
    def last_txid(self) -> int:
        """The transaction id of the last record."""
        return self._packer.last_txid

    async def append_batch(
        self, payloads: Sequence[bytes], *, txids: Sequence[int] | None = None, as_sets: bool = False
    ) -> None:
        """Add records; `finish` waits until they are stored.

        - `txids`: their transaction ids, which never fall. None, then for all of the draft: it gets them when it is
          published.
        - `as_sets`: in record sets, which cost 4 bytes a record in place of 20; without `txids` only.

        Raises `RecordTooLargeError`, `TxidOrderError`: nothing was added. `TransmitError`.
        """
        self._check()
        if not payloads:
            return
        if self._packer.records and (txids is None) != (self._first_txid is None):
            raise IncorrectParameterError("either all records of a draft have transaction ids or none")
        if txids is not None:
            self._check_txids(len(payloads), txids, as_sets)
        pack = self._packer
        entries, _ = (
            pack.add_sets(payloads, UNSTAMPED) if as_sets else pack.add(payloads, txids or [UNSTAMPED] * len(payloads))
        )
        if txids is not None and self._first_txid is None:
            self._first_txid = txids[0]
        await self._send(entries)

    async def append_bodies(self, bodies: Iterable[tuple[bytes | memoryview, int]]) -> None:
        """Add entries whose records are encoded: for each all of them, and how many there are. Their positions go on
        from `records`, and they have no transaction ids. Raises `TransmitError`."""
        self._check()
        if self._first_txid is not None:
            raise IncorrectParameterError("either all records of a draft have transaction ids or none")
        for body, count in bodies:
            await self._send(self._packer.add_body(body, count))

    def _check_txids(self, count: int, txids: Sequence[int], as_sets: bool) -> None:
        if len(txids) != count or as_sets:
            raise IncorrectParameterError("give a transaction id for each record, and no record sets")
        lowest = 0 if self._first_txid is None else self._packer.last_txid
        if txids[0] < lowest or txids[-1] >= END_TXID or any(after < before for before, after in pairwise(txids)):
            raise TxidOrderError("the transaction ids of a draft must not fall")

    async def _send(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            try:
                self._last = await self._ledger.write_soon(entry.number, entry.payload)
            except BKError as error:
                raise self._failed(error) from error
            self._size += len(entry.payload)
            self._last.add_done_callback(_retrieve)

    async def finish(self) -> SegmentDraft:
        """Store all, close the ledger; what to publish. Raises `TransmitError`, and `StreamClosedError` if the draft
        has no records."""
        self._check()
        last = self._packer.last
        if last is None:
            raise StreamClosedError("a draft without records cannot be published")
        await self._send(self._packer.seal())
        try:
            if self._last is not None:
                await self._last
            await self._ledger.close()
        except BKError as error:
            raise self._failed(error) from error
        self._over = True
        known = self._first_txid is not None
        return SegmentDraft(
            self._ledger.id,
            self._packer.sealed_records,
            last.entry,
            last.slot,
            self._first_txid,
            self._packer.last_txid if known else None,
            staged=True,
            size=self._size,
        )

    async def abort(self) -> None:
        """Give the ledger up: it is deleted. Idempotent; after `finish` without effect."""
        if not self._over:
            self._over = True
            with contextlib.suppress(BKError):  # it is deleted, in whatever state
                await self._ledger.close()
            await self._give_up()

    def _check(self) -> None:
        if self._over:
            raise StreamClosedError("the draft is finished or given up")

    def _failed(self, error: BKError) -> TransmitError:
        return TransmitError(f"an entry of the draft could not be stored: {error}", error.code)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.abort()


def _retrieve(future: asyncio.Future[int]) -> None:
    """Of an entry's failure the last one tells, too."""
    if not future.cancelled():
        future.exception()
