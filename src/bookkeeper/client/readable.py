"""The reads of an open ledger (spec client §9, §14.2).

Theory of operation

- A reader knows a last add confirmed (LAC). It only rises: by the metadata of a closed ledger, by LAC reads, and by
  what v3 answers carry along. Confirmed reads stop there; nothing asks the bookies for a newer LAC by itself.
- The metadata of an open ledger changes: fragments are added, and one day it is closed. A reader opened without
  recovery follows it with a watch. Where a ledger was recovered it is closed, and only its fragments can move
  (re-replication); following that is the caller's choice.
- How one entry, a run of entries, the LAC, or the LAC and an entry are got from replicas that fail, lie or dawdle is
  the business of `reads`. This module puts them together.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable
from operator import attrgetter
from typing import TYPE_CHECKING

from ..errors import (
    BKError,
    BookieRequestError,
    BookieUnavailableError,
    ClientClosedError,
    ConfigurationError,
    IncorrectParameterError,
    LedgerRecoveryError,
    MetadataError,
    NoSuchEntryError,
    NoSuchLedgerError,
    NoSuchLedgerOnMetadataError,
    ReadError,
)
from ..metadata.api import Versioned
from ..metadata.ledger_metadata import LedgerMetadata
from ..protocol.digest import Digest
from ..runtime.waiting.backoff import Backoff, Pauses
from ..types import INVALID_ENTRY_ID
from ..version import install_hint
from .context import ClientContext
from .entry import LastConfirmedAndEntry, LedgerEntry
from .handle import LedgerHandle
from .reads.batch import BatchRead, read_in_parts
from .reads.lac import LacRead, TryLacRead
from .reads.ledger_reads import ENTRY_OVERHEAD, LedgerReads
from .reads.long_poll import LongPollRead
from .reads.range import RangeRead
from .reads.read_ahead import LEFT_OVER, Chunk, ReadAhead
from .reads.single import SingleReads
from .wire.results import from_metadata_error

if TYPE_CHECKING:
    import pyarrow as pa

    from .reads.arrow import ArrowReads

TAIL_SHORTEST_POLL = 0.1
"""Seconds that `tail` lets bookies wait at least: an idle ledger must not be asked again and again without a pause."""

LEAST_BATCH = 32
"""A range of so many small entries and more is read in batches: they cost less than a request for each."""

LEAST_RUN = 4
"""Entries are small of which so many make a run (`LedgerReads.run_length`)."""

TAIL_BACKOFF = Backoff(first=0.05, longest=5.0)
"""Between attempts of `tail` after errors, or when bookies answer at once that there is nothing new."""


class ReadableLedger(LedgerHandle):
    """The reads of an open ledger; readers and writers have them. Values of properties are local: nothing is asked."""

    def __init__(
        self, context: ClientContext, metadata: Versioned[LedgerMetadata], digest: Digest, master_key: bytes
    ) -> None:
        super().__init__(context, metadata, digest, master_key)
        self._made_reads: LedgerReads | None = None  # most writers never read
        self._made_singles: SingleReads | None = None
        self._polls: dict[LongPollRead, None] = {}
        """Under way."""
        self._deleted = False
        """Whether the metadata store has told that the ledger is gone."""

    @property
    def _reads(self) -> LedgerReads:
        if self._made_reads is None:
            self._made_reads = LedgerReads(
                self._context, self._distribution, self._digest, lambda: self.metadata, self._heard_of_lac
            )
        return self._made_reads

    @property
    def _singles(self) -> SingleReads:
        if self._made_singles is None:
            self._made_singles = SingleReads(self._reads)
        return self._made_singles

    @property
    @abstractmethod
    def last_add_confirmed(self) -> int:
        """The last entry known to be confirmed; -1 if none is."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Payload bytes of the ledger, as far as they are known."""

    def _more(self) -> str:
        return f", last add confirmed {self.last_add_confirmed}"

    @abstractmethod
    def _heard_of_lac(self, lac: int, length: int) -> None:
        """A bookie knows of this LAC, and of a ledger of this length (0: unknown)."""

    # --- entries ---

    async def read(self, first: int, last: int) -> list[LedgerEntry]:
        """Entries `first` to `last`, inclusive; both must be confirmed.

        All or nothing, and all in memory: for a long range use `entries`. Each entry's digest is checked. A replica
        that is damaged, late (`readEntryTimeoutSec` seconds) or gone is passed over for the next one.

        Many entries are asked for in batches where the bookies can do it, else each by a request of its own.

        Raises `IncorrectParameterError` for a range that there is not, `ReadError` beyond the LAC. Otherwise the error
        of the first entry that no replica could give (spec client §9.3): `NoSuchEntryError`, `NoSuchLedgerError`,
        `DigestMismatchError`, `BookieUnavailableError`, `RequestTimeoutError`, `UnauthorizedError` and others.
        """
        self._check_range(first, last)
        self._check_confirmed(last)
        self._check_open()
        entries, error = await self._read_once(first, last)
        return entries if error is None else await self._read_again(first, last, error)

    async def read_entry(self, entry_id: int) -> LedgerEntry:
        """One confirmed entry. Raises as `read`."""
        return (await self.read(entry_id, entry_id))[0]

    async def read_last_entry(self) -> LedgerEntry:
        """The last confirmed entry, after asking for the newest LAC. Raises `NoSuchEntryError` when there is none."""
        lac = await self._newest_lac()
        if lac < 0:
            raise NoSuchEntryError("the ledger has no confirmed entry", ledger_id=self.id)
        return await self.read_entry(lac)

    async def _newest_lac(self) -> int:
        """A writer knows it; a reader has to ask."""
        return await self.read_last_add_confirmed()

    async def read_unconfirmed(self, first: int, last: int) -> list[LedgerEntry]:
        """`read` without a look at the LAC: an entry seen so may still disappear if its writer fails.

        Raises as `read`, and `NoSuchEntryError` for what is not written yet.
        """
        self._check_range(first, last)
        self._check_open()
        entries, error = await self._read_once(first, last)
        return entries if error is None else await self._read_again(first, last, error)

    async def batch_read(self, start: int, *, max_count: int, max_size: int = 0) -> list[LedgerEntry]:
        """Some confirmed entries from `start` on, at least one.

        - `max_count`: so many at most; 1 or more.
        - `max_size`: about so many bytes of payload at most, but one entry always. 0: as many as fit a frame
          (`nettyMaxFrameSizeBytes`).

        One request where the bookies can do it, or a few side by side for many entries; else one for each entry. Raises
        as `read`.
        """
        self._check_batch(start, max_count)
        self._check_confirmed(start)
        return await self._batch(start, min(max_count, self.last_add_confirmed - start + 1), max_size, in_parts=True)

    async def batch_read_unconfirmed(self, start: int, *, max_count: int, max_size: int = 0) -> list[LedgerEntry]:
        """`batch_read` without a look at the LAC. Raises as `read_unconfirmed`."""
        self._check_batch(start, max_count)
        if max_size < 0:
            raise IncorrectParameterError(f"max_size {max_size} is negative", ledger_id=self.id)
        return await self._batch(start, max_count, max_size)

    def entries(
        self, first: int = 0, last: int | None = None, *, window: int = 1024, window_bytes: int = 4 << 20
    ) -> AsyncGenerator[LedgerEntry, None]:
        """All entries from `first` to `last`, in order.

        - `last`: inclusive. None: the LAC that this handle knows now. No bookie is asked for a newer one, and entries
          confirmed later are not given (`tail` gives them).
        - `window_bytes`: reads ahead about so many bytes, going by the size of entries seen before.
        - `window`: so many entries at most, where each needs a request of its own.

        To leave the loop early, use `contextlib.aclosing`; else requests under way go on until the iterator is
        collected.

        Raises `ReadError` for a `last` beyond the LAC, `IncorrectParameterError`. An entry that cannot be read raises
        its error, as `read` would, in its place: those before it were given.
        """
        last = self._end_of_range(first, last)
        entry_id = attrgetter("entry_id")
        ahead = ReadAhead(self._context.runtime, self._reads, self._chunk, entry_id, window, window_bytes)
        return ahead.entries(first, last)

    def read_arrow(
        self, first: int = 0, last: int | None = None, *, window: int = 1024, window_bytes: int = 4 << 20
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """What `entries` gives, as Arrow record batches: for programs that want columns, not objects.

        The columns are `ledger_id`, `entry_id`, `payload`, `length` (payload bytes of the ledger up to and including
        the entry) and `last_confirmed` (what the writer knew when it sent the entry): all int64 but the payload, which
        is binary. A batch is what one answer of a bookie had, so its size varies; it is never empty. Every entry's
        digest is checked. Arguments and bounds are those of `entries`.

        Raises as `entries`, and `ConfigurationError` if numpy or pyarrow is not installed (the extra `arrow`).
        """
        last = self._end_of_range(first, last)
        columns = _load_columns()(self._reads, self._check_open, self._look_again)
        ahead = ReadAhead(self._context.runtime, self._reads, columns.chunk, columns.last_of, window, window_bytes)
        return ahead.entries(first, last)

    def _end_of_range(self, first: int, last: int | None) -> int:
        """The last entry of a range that may end with the LAC, and may be empty."""
        if last is None:
            last = self.last_add_confirmed
        if first < 0 or last < INVALID_ENTRY_ID:
            raise IncorrectParameterError(f"there are no entries {first} to {last}", ledger_id=self.id)
        self._check_confirmed(last)
        return last

    def __aiter__(self) -> AsyncGenerator[LedgerEntry, None]:
        """All entries confirmed by now, in order."""
        return self.entries()

    async def tail(
        self, first: int = 0, *, poll_timeout: float = 3.0, parallel: bool = False
    ) -> AsyncGenerator[LedgerEntry, None]:
        """Entries from `first` on as they become confirmed; ends when the ledger is closed and its last one was given.

        Bookies learn from the next append that an entry is confirmed. The last entry of a writer that pauses comes when
        the writer announces it (`explicitLacInterval`, 300 milliseconds by default).

        - `first`: may be beyond the end; waits until it is there.
        - `poll_timeout`: seconds that a bookie is asked to hold a question for news; 0.1 at least. Not a limit of the
          wait: an idle ledger is asked again and again.
        - `parallel`: ask all replicas at once: news come sooner, and cost more requests.

        Raises `IncorrectParameterError`. Errors of waiting are retried with growing pauses, and raised after
        `tailRetryLimit` in a row; errors of reading entries are raised as `read` does, and
        `NoSuchLedgerOnMetadataError` when the ledger is deleted meanwhile.
        """
        if first < 0:
            raise IncorrectParameterError(f"entry {first} is negative", ledger_id=self.id)
        if not poll_timeout >= 0:
            raise IncorrectParameterError(
                f"poll_timeout {poll_timeout} is no time to wait: give seconds, zero or more", ledger_id=self.id
            )
        poll_timeout = max(poll_timeout, TAIL_SHORTEST_POLL)
        next_id = first
        pauses = _TailPauses()
        while True:
            if next_id <= self.last_add_confirmed:
                async with contextlib.aclosing(self.entries(next_id)) as confirmed:
                    async for entry in confirmed:
                        yield entry
                        next_id = entry.entry_id + 1
                pauses.reset()
            elif self.metadata.closed:
                return
            elif self._deleted:
                raise NoSuchLedgerOnMetadataError("the ledger was deleted", ledger_id=self.id)
            else:
                polled = await self._await_progress(next_id, poll_timeout, parallel, pauses)
                if polled is not None and polled.entry_id == next_id:
                    yield polled
                    next_id += 1

    async def _await_progress(
        self, entry_id: int, timeout: float, parallel: bool, pauses: _TailPauses
    ) -> LedgerEntry | None:
        """Wait until `entry_id` may be confirmed or the ledger closed, or `timeout` has passed.

        Returns the entry that the bookie has sent along, if it did.
        """
        polled: LedgerEntry | None = None
        now = self._context.runtime.now
        started = now()
        try:
            # Not above the LAC as bookies count it: a poll far ahead would sleep through what comes first.
            polled = (await self._poll(min(entry_id, self.last_add_confirmed + 1), timeout, parallel=parallel)).entry
            pauses.failed_polls = 0
        except ClientClosedError:
            raise
        except (NoSuchLedgerError, NoSuchEntryError):
            pauses.failed_polls = 0  # nothing has been written yet
        except (BookieRequestError, LedgerRecoveryError) as error:
            pauses.failed_polls += 1
            if pauses.failed_polls > self._context.config.tailRetryLimit:
                raise error
        if entry_id <= self.last_add_confirmed or self.metadata.closed:
            return polled
        if now() - started < timeout / 2:
            # Answered at once and with nothing: fenced or closed there, or no answer. The metadata may know why.
            await self.refresh_metadata()
            if not self.metadata.closed:
                await asyncio.sleep(pauses.next())
        return polled

    # --- last add confirmed ---

    async def read_last_add_confirmed(self) -> int:
        """Ask the bookies for the LAC; raises the local one.

        Raises `UnauthorizedError`, or the last bookie's error when too few answered.
        """
        return await self._read_lac(explicit=not self._context.bookies.v2_only)

    async def read_explicit_last_add_confirmed(self) -> int:
        """As `read_last_add_confirmed`, and in every protocol mode also what the writer announced without an entry.

        Raises as `read_last_add_confirmed`.
        """
        return await self._read_lac(explicit=True)

    async def _read_lac(self, *, explicit: bool) -> int:
        self._check_open()
        if not self.metadata.closed:
            found = await LacRead(self._reads, explicit=explicit).run()
            self._heard_of_lac(found, 0)
        return self.last_add_confirmed

    async def try_read_last_add_confirmed(self) -> int:
        """Ask the bookies for the LAC and take the first that is news; without news the local one.

        Raises `LedgerRecoveryError` when no bookie gives a valid answer, `UnauthorizedError`.
        """
        self._check_open()
        if not self.metadata.closed:
            found = await TryLacRead(self._reads, self.last_add_confirmed).run()
            self._heard_of_lac(found, 0)
        return self.last_add_confirmed

    async def read_last_add_confirmed_and_entry(
        self, entry_id: int, *, poll_timeout: float, parallel: bool = False
    ) -> LastConfirmedAndEntry:
        """The LAC, and entry `entry_id` as soon as it is confirmed; without it after about `poll_timeout` seconds.

        An entry known to be confirmed is read at once; one behind the end of a closed ledger is None at once. The
        replicas are asked one by one, or all at once with `parallel`. Raises as `read`, and the last bookie's
        error when none could be asked.
        """
        if entry_id < 0:
            raise IncorrectParameterError(f"entry {entry_id} is negative", ledger_id=self.id)
        self._check_open()
        if self.metadata.closed and entry_id > self.last_add_confirmed:
            return LastConfirmedAndEntry(self.last_add_confirmed, None)
        if entry_id <= self.last_add_confirmed:
            entry = await self.read_entry(entry_id)
            return LastConfirmedAndEntry(self.last_add_confirmed, entry)
        return await self._poll(entry_id, poll_timeout, parallel=parallel)

    async def _poll(self, entry_id: int, timeout: float, *, parallel: bool) -> LastConfirmedAndEntry:
        poll = LongPollRead(self._reads, entry_id, self.last_add_confirmed, timeout, parallel=parallel)
        self._polls[poll] = None
        try:
            return await poll.run()
        finally:
            del self._polls[poll]

    def _metadata_adopted(self, old: LedgerMetadata, new: LedgerMetadata) -> None:
        super()._metadata_adopted(old, new)
        if new.closed:
            for poll in self._polls:
                poll.end(new.last_entry_id)

    # --- metadata ---

    async def refresh_metadata(self) -> LedgerMetadata:
        """Read the ledger's metadata again and adopt it if it is newer. Raises `MetadataStoreError`."""
        self._check_open()
        try:
            self.adopt_metadata(await self._context.driver.ledgers.read(self.id))
        except MetadataError as error:
            self._check_open()
            raise from_metadata_error(error, self.id) from error
        return self.metadata

    # --- inside ---

    def _check_open(self) -> None:
        self._context.home.check()
        if self._context.closed:
            raise ClientClosedError(ledger_id=self.id)

    def _check_range(self, first: int, last: int) -> None:
        if first < 0 or first > last:
            raise IncorrectParameterError(f"there are no entries {first} to {last}", ledger_id=self.id)

    def _check_batch(self, start: int, max_count: int) -> None:
        if start < 0 or max_count < 1:
            raise IncorrectParameterError(f"cannot read {max_count} entries from {start} on", ledger_id=self.id)

    def _check_confirmed(self, entry_id: int) -> None:
        if entry_id > self.last_add_confirmed:
            raise ReadError(
                f"not confirmed; the last add confirmed is {self.last_add_confirmed}",
                ledger_id=self.id,
                entry_id=entry_id,
            )

    async def _look_again(self, error: BKError) -> bool:  # noqa: ARG002
        """An entry could not be read: whether the store knows of other bookies for it. A writer knows best itself."""
        return False

    async def _read_again(self, first: int, last: int, error: BKError) -> list[LedgerEntry]:
        """After a read that failed with `error`."""
        if await self._look_again(error):
            entries, again = await self._read_once(first, last)
            if again is None:
                return entries
            error = again
        raise error

    def _read_once(self, first: int, last: int) -> Awaitable[Chunk[LedgerEntry]]:
        if first == last:
            return self._singles.read(first)
        if last - first + 1 < LEAST_BATCH or self._reads.run_length < LEAST_RUN or not self._reads.can_batch(first):
            return RangeRead(self._reads, first, last).run()
        return self._in_batches(first, last)

    async def _in_batches(self, first: int, last: int) -> Chunk[LedgerEntry]:
        """All of these, or the error of the first that cannot be read.

        Where a batch brings few, replicas lack entries here and there: the rest is asked for one by one.
        """
        config = self._context.config
        entries: list[LedgerEntry] = []
        came = LEAST_BATCH
        while first <= last:
            count = min(last - first + 1, config.readEntriesWindow)
            if min(count, came) < LEAST_BATCH:
                rest, failed = await RangeRead(self._reads, first, last).run()
                return (entries + rest, None) if failed is None else ([], failed)
            try:
                batch = await self._batch_once(first, count, config.readEntriesWindowBytes, in_parts=True)
            except BKError as error:
                return [], error
            came = len(batch)
            first += came
            entries += batch
        return entries, None

    async def _batch(self, start: int, max_count: int, max_size: int, *, in_parts: bool = False) -> list[LedgerEntry]:
        try:
            return await self._batch_once(start, max_count, max_size, in_parts)
        except BKError as error:
            if await self._look_again(error):
                return await self._batch_once(start, max_count, max_size, in_parts)
            raise

    async def _batch_once(self, start: int, max_count: int, max_size: int, in_parts: bool) -> list[LedgerEntry]:
        self._check_open()
        boundary = self.metadata.next_ensemble_change(start)
        if boundary >= 0:
            max_count = min(max_count, boundary - start)
        limit = self._context.config.nettyMaxFrameSizeBytes
        size = max_size if 0 < max_size <= limit else limit
        if self._reads.can_batch(start):
            try:
                if in_parts:
                    return _within(await read_in_parts(self._reads, start, max_count, size), max_size)
                return await BatchRead(self._reads, start, max_count, size).run()
            except BookieUnavailableError:
                pass  # what bookies do that do not know the request, or whose answer would be too large for a frame
        entries, error = await self._one_by_one(start, start + max_count - 1, size)
        if not entries and error is not None:
            raise error
        return _within(entries, max_size)

    async def _one_by_one(self, first: int, last: int, max_size: int) -> Chunk[LedgerEntry]:
        """With a request for each entry."""
        last = min(last, first + self._context.config.readEntriesWindow - 1)
        return await RangeRead(self._reads, first, last, prefix=True, max_bytes=max_size).run()

    async def _chunk(self, first: int, last: int, max_size: int) -> Chunk[LedgerEntry]:
        """Entries `first` to `last`, about `max_size` bytes of them, in a batch if possible."""
        self._check_open()
        if not self._reads.can_batch(first):
            entries, error = await self._one_by_one(first, last, max_size)
            if error is not None and await self._look_again(error):
                return (entries, None) if entries else await self._one_by_one(first, last, max_size)
            return entries, error
        entries = []
        room = max_size
        try:
            while first <= last and room > max_size * LEFT_OVER:
                batch = await self._batch(first, last - first + 1, room)
                first += len(batch)
                entries += batch
                if first <= last:  # a fragment ends, or the bookie gives no more at once
                    room -= sum([len(entry.data) + ENTRY_OVERHEAD for entry in batch])
        except BKError as error:
            return entries, error
        return entries, None


def _within(entries: list[LedgerEntry], max_size: int) -> list[LedgerEntry]:
    """The first entries that are `max_size` bytes together (0: no bound), at least one."""
    if max_size <= 0:
        return entries
    size = 0
    for index, entry in enumerate(entries):
        size += len(entry.data)
        if size > max_size and index > 0:
            return entries[:index]
    return entries


def _load_columns() -> type[ArrowReads]:
    """What reads columns. Raises `ConfigurationError` if a package that it needs is not installed."""
    try:
        from .reads.arrow import ArrowReads
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("numpy", "pyarrow"):
            raise
        raise ConfigurationError(f"read_arrow needs the package {error.name}: {install_hint('arrow')}") from None
    return ArrowReads


class _TailPauses(Pauses):
    """Pauses between polls that came to nothing, and how many polls failed in a row."""

    __slots__ = ("failed_polls",)

    def __init__(self) -> None:
        super().__init__(TAIL_BACKOFF)
        self.failed_polls = 0

    def reset(self) -> None:
        super().reset()
        self.failed_polls = 0
