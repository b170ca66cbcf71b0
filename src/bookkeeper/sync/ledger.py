"""Ledgers without an event loop: what `bookkeeper.client` has, as plain calls."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ..client import reader as aio_reader
from ..client import writer as aio_writer
from ..client.arguments import Payload, check_integer, check_payloads
from ..client.entry import LastConfirmedAndEntry, LedgerEntry
from ..client.readable import ReadableLedger
from ..config import ClientConfiguration
from ..errors import ClientClosedError
from ..metadata.ledger_metadata import LedgerMetadata
from ..runtime.loop_thread import LoopThread
from .appends import AppendQueue, Post, append_all
from .blocking import Blocking, ClosedAtExit, Deadline
from .iterator import BlockingIterator

if TYPE_CHECKING:
    import pyarrow as pa


class Readable(Blocking):
    """The reads of a ledger."""

    def __init__(self, ledger: ReadableLedger, thread: LoopThread) -> None:
        super().__init__(thread)
        self._ledger = ledger

    def __repr__(self) -> str:
        return repr(self._ledger)

    @property
    def id(self) -> int:
        """The ledger's id."""
        return self._ledger.id

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as this handle knows it."""
        return self._ledger.metadata

    @property
    def closed(self) -> bool:
        """Whether the ledger is sealed, as far as this handle knows."""
        return self._ledger.closed

    @property
    def last_add_confirmed(self) -> int:
        """The last entry known to be confirmed; -1 if none is."""
        return self._ledger.last_add_confirmed

    @property
    def length(self) -> int:
        """Payload bytes of the ledger, as far as they are known."""
        return self._ledger.length

    def read(self, first: int, last: int, *, timeout: float | None = None) -> list[LedgerEntry]:
        """Confirmed entries `first` to `last`, inclusive."""
        return self._call(self._ledger.read(first, last), timeout)

    def read_entry(self, entry_id: int, *, timeout: float | None = None) -> LedgerEntry:
        """One confirmed entry."""
        return self._call(self._ledger.read_entry(entry_id), timeout)

    def read_last_entry(self, *, timeout: float | None = None) -> LedgerEntry:
        """The last confirmed entry."""
        return self._call(self._ledger.read_last_entry(), timeout)

    def read_unconfirmed(self, first: int, last: int, *, timeout: float | None = None) -> list[LedgerEntry]:
        """`read` without a look at the LAC."""
        return self._call(self._ledger.read_unconfirmed(first, last), timeout)

    def batch_read(
        self, start: int, *, max_count: int, max_size: int = 0, timeout: float | None = None
    ) -> list[LedgerEntry]:
        """Some confirmed entries from `start` on, at least one."""
        return self._call(self._ledger.batch_read(start, max_count=max_count, max_size=max_size), timeout)

    def batch_read_unconfirmed(
        self, start: int, *, max_count: int, max_size: int = 0, timeout: float | None = None
    ) -> list[LedgerEntry]:
        """`batch_read` without a look at the LAC."""
        return self._call(self._ledger.batch_read_unconfirmed(start, max_count=max_count, max_size=max_size), timeout)

    def entries(
        self,
        first: int = 0,
        last: int | None = None,
        *,
        window: int = 1024,
        window_bytes: int = 4 << 20,
        timeout: float | None = None,
    ) -> BlockingIterator[LedgerEntry]:
        """Entries from `first` to `last` (None: the LAC of now), in order. `timeout` is for each wait."""
        return BlockingIterator(
            self._thread,
            lambda: self._ledger.entries(first, last, window=window, window_bytes=window_bytes),
            timeout,
        )

    def read_arrow(
        self,
        first: int = 0,
        last: int | None = None,
        *,
        window: int = 1024,
        window_bytes: int = 4 << 20,
        timeout: float | None = None,
    ) -> BlockingIterator[pa.RecordBatch]:
        """What `entries` gives, as Arrow record batches. `timeout` is for each wait."""
        return BlockingIterator(
            self._thread,
            lambda: self._ledger.read_arrow(first, last, window=window, window_bytes=window_bytes),
            timeout,
        )

    def __iter__(self) -> Iterator[LedgerEntry]:
        return self.entries()

    def tail(
        self, first: int = 0, *, poll_timeout: float = 3.0, parallel: bool = False, timeout: float | None = None
    ) -> BlockingIterator[LedgerEntry]:
        """Entries as they become confirmed, until the ledger is closed. `timeout` is for each wait."""
        return BlockingIterator(
            self._thread, lambda: self._ledger.tail(first, poll_timeout=poll_timeout, parallel=parallel), timeout
        )

    def read_last_add_confirmed(self, *, timeout: float | None = None) -> int:
        """Ask the bookies for the LAC."""
        return self._call(self._ledger.read_last_add_confirmed(), timeout)

    def try_read_last_add_confirmed(self, *, timeout: float | None = None) -> int:
        """Ask the bookies for the LAC and take the first news."""
        return self._call(self._ledger.try_read_last_add_confirmed(), timeout)

    def read_explicit_last_add_confirmed(self, *, timeout: float | None = None) -> int:
        """Ask the bookies for the LAC, explicit ones too."""
        return self._call(self._ledger.read_explicit_last_add_confirmed(), timeout)

    def read_last_add_confirmed_and_entry(
        self, entry_id: int, *, poll_timeout: float, parallel: bool = False, timeout: float | None = None
    ) -> LastConfirmedAndEntry:
        """The LAC, and the entry as soon as it is confirmed; without it after about `poll_timeout` seconds."""
        polling = self._ledger.read_last_add_confirmed_and_entry(entry_id, poll_timeout=poll_timeout, parallel=parallel)
        return self._call(polling, timeout)

    def refresh_metadata(self, *, timeout: float | None = None) -> LedgerMetadata:
        """Read the ledger's metadata again."""
        return self._call(self._ledger.refresh_metadata(), timeout)


class LedgerReader(ClosedAtExit, Readable):
    """An open ledger, to read from; `bookkeeper.LedgerReader` says what each call means and raises.

    Every call takes a `timeout` in seconds (None: no limit) and then raises `TimeoutError`.
    """

    _ledger: aio_reader.LedgerReader

    def close(self, *, timeout: float | None = None) -> None:
        """Stop following the metadata. Idempotent."""
        with contextlib.suppress(ClientClosedError):  # the client's end was the reader's too
            self._call(self._ledger.close(), timeout)


class Writer(Readable):
    """What both kinds of writers share."""

    _ledger: aio_writer.LedgerWriter | aio_writer.LedgerAdvWriter
    _queue: AppendQueue

    @property
    def last_add_pushed(self) -> int:
        """The highest entry id handed out; -1 if none."""
        return self._ledger.last_add_pushed

    def flush(self, *, timeout: float | None = None) -> int:
        """Wait until everything appended so far is acknowledged; its last id."""
        deadline = Deadline(timeout)
        self._queue.pass_mark(deadline)
        self._call(self._queue.sent(), deadline.left())
        return self._call(self._ledger.flush(), deadline.left())

    def force(self, *, timeout: float | None = None) -> None:
        """Make durable what was acknowledged."""
        self._call(self._ledger.force(), timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(drain=kind is None)

    def close(self, *, drain: bool = False, timeout: float | None = None) -> None:
        """Seal the ledger; `drain` waits for pending appends first.

        When `timeout` is over while it is being sealed, that goes on; another call waits for the outcome.
        """
        deadline = Deadline(timeout)
        if drain:
            self._queue.pass_mark(deadline)
        self._call(self._ledger.close(drain=drain), deadline.left())


class LedgerWriter(Writer):
    """A ledger to append to. Appends of one thread get their ids in the order of the calls, whichever they are.

    `bookkeeper.LedgerWriter` says what each call means and raises. `timeout` is in seconds (None: no limit); then
    `TimeoutError` is raised.
    """

    _ledger: aio_writer.LedgerWriter

    def __init__(self, ledger: aio_writer.LedgerWriter, thread: LoopThread, config: ClientConfiguration) -> None:
        super().__init__(ledger, thread)
        self._queue = AppendQueue(thread, _InOrder(ledger), config, ledger.largest_payload, ordered=True)

    def append(self, data: Payload, *, timeout: float | None = None) -> int:
        """Append an entry; its id, once it is acknowledged.

        When `timeout` is over the entry is not appended if it had no room yet; else it may become part of the ledger.
        """
        deadline = Deadline(timeout)
        post = Post(self._queue.checked(data))
        self._queue.post_when_there_is_room(post, deadline)
        try:
            return int(self._wait(post.future, deadline, "the entry is on its way and may become part of the ledger"))
        except BaseException:
            self._queue.withdraw(post)
            raise

    def append_nowait(self, data: Payload) -> concurrent.futures.Future[int]:
        """Append without waiting; the future gets the id when the entry is acknowledged.

        Raises `BackpressureError` at once, and appends nothing, when `maxPendingAddEntries` or `maxPendingAddBytes`
        of this writer are on their way; `IncorrectParameterError` for what is no entry, or too large. What was
        accepted fails only with the writer, and all behind it fails too.
        """
        post = Post(self._queue.checked(data))
        self._queue.post(post)
        return post.future

    def append_soon(self, data: Payload, *, timeout: float | None = None) -> concurrent.futures.Future[int]:
        """`append_nowait` that waits for room: for keeping many appends under way. `timeout` is for the room."""
        post = Post(self._queue.checked(data))
        self._queue.post_when_there_is_room(post, Deadline(timeout))
        return post.future

    def append_many(self, payloads: Iterable[Payload], *, timeout: float | None = None) -> list[int]:
        """Append many entries; their ids, once all are acknowledged.

        `payloads` is consumed here, on the caller's thread, in pieces as there is room. When it raises, or time is
        over, what it gave before is on its way; `flush` waits for it. An error of an append tells in its
        `acknowledged` which of these entries are safe.
        """
        check_payloads(payloads)
        return append_all(self._queue, payloads, Deadline(timeout))


class LedgerAdvWriter(Writer):
    """A ledger to write to under ids of the caller's.

    `bookkeeper.LedgerAdvWriter` says what each call means and raises. `timeout` is in seconds (None: no limit); then
    `TimeoutError` is raised.
    """

    _ledger: aio_writer.LedgerAdvWriter

    def __init__(self, ledger: aio_writer.LedgerAdvWriter, thread: LoopThread, config: ClientConfiguration) -> None:
        super().__init__(ledger, thread)
        self._queue = AppendQueue(thread, _ById(ledger), config, ledger.largest_payload, ordered=False)

    def write(self, entry_id: int, data: Payload, *, timeout: float | None = None) -> int:
        """Write an entry; its id, once it is acknowledged."""
        return self._call(self._ledger.write(entry_id, self._queue.checked(data)), timeout)

    def write_nowait(self, entry_id: int, data: Payload) -> concurrent.futures.Future[int]:
        """Write without waiting; the future gets the id when the entry is acknowledged.

        Raises `BackpressureError` at once, as `LedgerWriter.append_nowait`, but never for the entry that the others
        wait for.
        """
        check_integer("the entry id", entry_id)
        post = Post(self._queue.checked(data), entry_id)
        self._queue.post(post, urgent=entry_id <= self._ledger.last_add_confirmed + 1)
        return post.future


class _InOrder:
    """The `Target` that is a plain writer."""

    def __init__(self, ledger: aio_writer.LedgerWriter) -> None:
        self._ledger = ledger
        self.send_many = ledger.send_many
        self.confirm_many = ledger.confirm_many

    def start(self, post: Post) -> asyncio.Future[int]:
        assert isinstance(post.payload, bytes)
        return self._ledger.append_nowait(post.payload)

    async def start_when_there_is_room(self, post: Post) -> asyncio.Future[int]:
        assert isinstance(post.payload, bytes)
        return await self._ledger.append_soon(post.payload)


class _ById:
    """The `Target` that is an advanced writer."""

    def __init__(self, ledger: aio_writer.LedgerAdvWriter) -> None:
        self._ledger = ledger

    def start(self, post: Post) -> asyncio.Future[int]:
        assert isinstance(post.payload, bytes)
        assert post.entry_id is not None
        return self._ledger.write_nowait(post.entry_id, post.payload)

    async def start_when_there_is_room(self, post: Post) -> asyncio.Future[int]:
        assert isinstance(post.payload, bytes)
        assert post.entry_id is not None
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        done.set_result(await self._ledger.write(post.entry_id, post.payload))
        return done

    async def send_many(self, payloads: list[bytes], ids: list[int]) -> None:
        raise NotImplementedError("the entries of an advanced writer come with their ids")

    async def confirm_many(self, ids: list[int]) -> None:
        raise NotImplementedError
