"""Reading consecutive entries with one request (spec client §9.7, wire-protocol §2.6).

The bookie returns entries from the first one asked on, at least that one, and stops where its size limit or its data
end. Replicas are asked as for the first entry alone. Of what comes, the verified prefix counts; if not even the first
entry is good, the next replica is asked.

A large batch is asked for in parts, side by side, each of another replica: while one part is checked here, the others
are read and on their way. What counts is the prefix again: the parts up to the first that is not whole.

Which replica is asked first follows from where a batch would be if the ledger were cut into batches of its length: so
who reads batch after batch, or many at once, has all replicas busy, and who reads the same again asks the same one.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from ...errors import BKError, ClientClosedError, TooManyRequestsError, from_code
from ...protocol.entry import HEADER_SIZE
from ...protocol.messages import BatchReadRequest, BatchReadResponse, Packed, Response
from ...quorum.reading import EntryRead
from ...runtime import TimerHandle
from ...types import BookieId
from ..entry import LedgerEntry, ledger_entries
from ..wire.results import DIGEST_MISMATCH, OK
from .ledger_reads import LedgerReads
from .speculation import Speculation

_SIZE = 4
"""Of the size in front of each entry."""

SMALLEST_PART = 100
"""Entries of a part: of fewer, a request of their own costs more than it brings."""

T = TypeVar("T")


class PackedBatchRead(ABC, Generic[T]):
    """Reads some entries from `first` on, `max_count` at most, and makes of them what `_take` says.

    The caller has made sure that `first`..`first + max_count - 1` lie in one fragment.
    """

    def __init__(self, reads: LedgerReads, first: int, max_count: int, max_size: int, turn: int | None = None) -> None:
        """`turn`: whose turn it is; None: as it follows from its place."""
        assert first >= 0
        assert max_count >= 1
        self._reads = reads
        self._first = first
        self._max_count = max_count
        self._max_size = max_size
        self._ensemble = reads.current_metadata().ensemble_at(first)
        if turn is None:
            turn = first // reads.expected_count(max_count, max_size)
        self._state = EntryRead(reads.batch_order(self._ensemble, turn))
        self._speculation = Speculation.for_reads(reads.context.config)
        self._delay = 0.0
        self._timer: TimerHandle | None = None
        self._entries: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    @abstractmethod
    def _take(self, bookie: BookieId, body: Packed) -> T | None:
        """What the good entries at the beginning of an answer are worth; None if not even the first is good."""

    async def run(self) -> T:
        """What `_take` made of at least one entry. Raises the `BKError` of the first entry."""
        try:
            self._ask_next()
            if self._speculation is not None:
                self._delay = self._speculation.first
                self._timer = self._reads.context.runtime.call_later(self._delay, self._speculate)
            return await self._entries
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _ask_next(self) -> bool:
        index = self._state.send_next()
        if index is None:
            return False
        request = BatchReadRequest(self._reads.ledger_id, self._first, 0, self._max_count, self._max_size)
        bookie, context = self._ensemble[index], self._reads.context
        try:
            context.bookies.call(
                bookie,
                request,
                None,
                lambda code, response: self._answered(index, code, response),
                apart=not context.batch_support.knows(bookie),
            )
        except (ClientClosedError, TooManyRequestsError) as error:
            asyncio.get_running_loop().call_soon(self._answered, index, error.code, None)
        return True

    def _answered(self, index: int, code: int, response: Response | None) -> None:
        self._reads.batch_answered(self._ensemble[index], code)
        if self._entries.done():
            return
        if code == OK and isinstance(response, BatchReadResponse):
            taken = self._take(self._ensemble[index], response.body)
            if taken is not None:
                self._succeeded(index)
                self._entries.set_result(taken)
                return
            code = DIGEST_MISMATCH
        self._reads.failed_at(index, self._ensemble[index], self._first, code)
        self._state.fail(code)
        if self._state.outcome is not None:
            self._fail(self._state.outcome)
        elif code == ClientClosedError.code:
            self._fail(code)
        elif self._state.idle:
            self._ask_next()

    def _succeeded(self, index: int) -> None:
        self._state.succeed(index)
        slow: list[BookieId] = [self._ensemble[other] for other in self._state.asked[:-1] if other != index]
        if slow:
            self._reads.context.placement.note_slow(slow)

    def _fail(self, code: int) -> None:
        error: BKError = from_code(code, ledger_id=self._reads.ledger_id, entry_id=self._first)
        self._entries.set_exception(error)

    def _speculate(self) -> None:
        """The asked replicas are silent: ask another as well."""
        assert self._speculation is not None
        self._timer = None
        if self._ask_next():
            self._delay = self._speculation.after(self._delay)
            self._timer = self._reads.context.runtime.call_later(self._delay, self._speculate)


class BatchRead(PackedBatchRead[list[LedgerEntry]]):
    """Reads some entries as `LedgerEntry`: `await BatchRead(...).run()`."""

    def _take(self, _bookie: BookieId, body: Packed) -> list[LedgerEntry] | None:
        ledger_id = self._reads.ledger_id
        digest = self._reads.digest
        even = digest.verify_even_run(ledger_id, self._first, body)
        if even is None:
            verified, _ = digest.verify_run(ledger_id, self._first, bytes(body))
            if not verified:
                return None
            _, _, lengths, payloads = map(list, zip(*verified, strict=True))
        else:
            lengths, payloads = even
        count = len(payloads)
        last_id = self._first + count - 1
        self._reads.saw(count, len(body) / count - (_SIZE + HEADER_SIZE + digest.size), last_id, lengths[-1])
        if count > self._max_count:
            lengths, payloads = lengths[: self._max_count], payloads[: self._max_count]
        return ledger_entries(ledger_id, range(self._first, last_id + 1), payloads, lengths)


def parts_of(first: int, count: int, replicas: int) -> list[range]:
    """The parts in which `count` entries from `first` on are asked for: one for each of so many replicas at most."""
    if replicas == 1 or count < 2 * SMALLEST_PART:
        return [range(first, first + count)]
    length = max(SMALLEST_PART, -(-count // replicas))
    return [range(at, min(at + length, first + count)) for at in range(first, first + count, length)]


async def read_in_parts(reads: LedgerReads, first: int, max_count: int, max_size: int) -> list[LedgerEntry]:
    """Some entries from `first` on, as `BatchRead` has them, of which all have about the size that is known of the
    ledger's entries: no more than fit `max_size` then. Raises the `BKError` of the first entry.

    Alone it asks all replicas side by side, which all have something to do then. They have anyway where other batches
    of the ledger are under way, and there more and smaller requests only cost more.
    """
    alone = not reads.batches_under_way
    reads.batches_under_way += 1
    try:
        return await _read_in_parts(reads, _parts(reads, first, max_count, max_size, alone=alone), max_size)
    finally:
        reads.batches_under_way -= 1


def _parts(reads: LedgerReads, first: int, max_count: int, max_size: int, *, alone: bool) -> list[range]:
    if not alone or not reads.entry_size:
        return [range(first, first + max_count)]
    parts = parts_of(first, reads.expected_count(max_count, max_size), reads.distribution.ensemble_size)
    return parts if len(parts) > 1 else [range(first, first + max_count)]


async def _read_in_parts(reads: LedgerReads, parts: list[range], max_size: int) -> list[LedgerEntry]:
    if len(parts) == 1:
        return await BatchRead(reads, parts[0].start, len(parts[0]), max_size).run()
    room = max_size // len(parts)
    turn = parts[0].start // len(parts[0])
    read = [BatchRead(reads, part.start, len(part), room, turn + place).run() for place, part in enumerate(parts)]
    entries: list[LedgerEntry] = []
    for part, found in zip(parts, await asyncio.gather(*read, return_exceptions=True), strict=True):
        if isinstance(found, BaseException):
            if entries and isinstance(found, BKError):
                break  # who reads on meets it
            raise found
        entries += found
        if len(found) < len(part):
            break
    return entries
