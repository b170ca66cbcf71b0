"""The client for code without an event loop: notebooks, scripts, Spark tasks (spec client §14.6).

    import bookkeeper.sync

    with bookkeeper.sync.connect("zk://zk1:2181/ledgers") as bk:
        with bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"s") as ledger:
            ledger.append(b"hello")
        with bk.open_ledger(ledger.id, password=b"s") as reader:
            for entry in reader:
                print(entry.id, entry.data)

The same names, arguments and errors as the asynchronous classes, whose documentation holds here too; coroutines
became calls, asynchronous iterators plain ones, futures those of `concurrent.futures`.

Theory of operation

- One thread with an event loop runs the client. Every call is posted there, so the objects may be used from any
  number of threads. A call from the loop's own thread would wait for itself: `RuntimeError`.
- Every call takes `timeout` in seconds (None: no limit). When it is over, `TimeoutError` is raised and the operation
  goes on.
- Going to the loop and back costs more than an append. So `append_nowait` gathers: calls made while the loop is busy
  are taken over together, in their order. Iterators run ahead of their caller by a bounded number of entries and hand
  them over in runs.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from .client import client as aio
from .client import reader as aio_reader
from .client import writer as aio_writer
from .client.client import BookieInfo
from .client.entry import LastConfirmedAndEntry, LedgerEntry
from .client.opening import Opening
from .client.readable import ReadableLedger
from .config import ClientConfiguration
from .metadata.api import MetadataDriver
from .metadata.ledger_metadata import LedgerMetadata
from .protocol.availability import Availability
from .runtime import Runtime
from .runtime.real import LoopThread
from .types import BookieId, DigestType, WriteFlag

__all__ = ["connect", "BookKeeper", "LedgerReader", "LedgerWriter", "LedgerAdvWriter"]

T = TypeVar("T")
Payload = bytes | bytearray | memoryview

READ_AHEAD = 1024
"""Entries that an iterator holds ready."""


def connect(
    uri: str | None = None,
    *,
    config: ClientConfiguration | None = None,
    runtime: Runtime | None = None,
    driver: MetadataDriver | None = None,
    timeout: float | None = None,
) -> BookKeeper:
    """Connect to a cluster; see `bookkeeper.connect`. Close the client in the end, best by `with`."""
    thread = LoopThread("bookkeeper-sync")

    async def start() -> aio.BookKeeper:
        return await aio.connect(uri, config=config, runtime=runtime, driver=driver)

    connecting = thread.submit(start())
    try:
        return BookKeeper(connecting.result(timeout), thread)
    except BaseException:
        thread.stop()
        raise


class _Blocking:
    """Something that lives on the loop's thread."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread

    def _submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine over there."""
        if self._thread.inside:
            work.close()
            raise RuntimeError("a blocking call from the event loop's own thread would wait for itself")
        return self._thread.submit(work)

    def _call(self, work: Coroutine[Any, Any, T], timeout: float | None) -> T:
        """Run a coroutine over there and wait for it."""
        return self._submit(work).result(timeout)


class BookKeeper(_Blocking):
    """A client. Make one with `connect`."""

    def __init__(self, client: aio.BookKeeper, thread: LoopThread) -> None:
        super().__init__(thread)
        self._client = client
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, *, timeout: float | None = None) -> None:
        """End the client and its thread. Writers are not closed. Idempotent."""
        if not self._closed:
            self._closed = True
            self._call(self._client.close(), timeout)
            self._thread.stop()

    def create_ledger(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        password: bytes = b"",
        digest: DigestType = DigestType.CRC32C,
        custom_metadata: Mapping[str, bytes] | None = None,
        write_flags: WriteFlag = WriteFlag.NONE,
        timeout: float | None = None,
    ) -> LedgerWriter:
        """A new ledger, open for appending."""
        opening = self._client.create_ledger(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            password=password,
            digest=digest,
            custom_metadata=custom_metadata,
            write_flags=write_flags,
        )
        return LedgerWriter(self._call(_await(opening), timeout), self._thread)

    def create_ledger_adv(
        self,
        *,
        ledger_id: int | None = None,
        ensemble_size: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        password: bytes = b"",
        digest: DigestType = DigestType.CRC32C,
        custom_metadata: Mapping[str, bytes] | None = None,
        write_flags: WriteFlag = WriteFlag.NONE,
        timeout: float | None = None,
    ) -> LedgerAdvWriter:
        """A new ledger whose entry ids, and if wanted its own id, are chosen by the caller."""
        opening = self._client.create_ledger_adv(
            ledger_id=ledger_id,
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            password=password,
            digest=digest,
            custom_metadata=custom_metadata,
            write_flags=write_flags,
        )
        return LedgerAdvWriter(self._call(_await(opening), timeout), self._thread)

    def reserve_ledger(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        password: bytes = b"",
        digest: DigestType = DigestType.CRC32C,
        custom_metadata: Mapping[str, bytes] | None = None,
        timeout: float | None = None,
    ) -> int:
        """Create a ledger without a writer, and return its id; `claim_ledger` makes its one writer."""
        reserving = self._client.reserve_ledger(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            password=password,
            digest=digest,
            custom_metadata=custom_metadata,
        )
        return self._call(reserving, timeout)

    def claim_ledger(self, ledger_id: int, *, password: bytes = b"", timeout: float | None = None) -> LedgerWriter:
        """Become the writer of a reserved ledger."""
        opening = self._client.claim_ledger(ledger_id, password=password)
        return LedgerWriter(self._call(_await(opening), timeout), self._thread)

    def open_ledger(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        digest: DigestType | None = None,
        recover: bool = False,
        keep_update_metadata: bool = False,
        timeout: float | None = None,
    ) -> LedgerReader:
        """A ledger, to be read up to its last add confirmed; with `recover` it is ended first."""
        opening = self._client.open_ledger(
            ledger_id,
            password=password,
            digest=digest,
            recover=recover,
            keep_update_metadata=keep_update_metadata,
        )
        return LedgerReader(self._call(_await(opening), timeout), self._thread)

    def recover_ledger(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        digest: DigestType | None = None,
        keep_update_metadata: bool = False,
        timeout: float | None = None,
    ) -> LedgerReader:
        """End a ledger whose writer is gone, for good, and open it to be read."""
        return self.open_ledger(
            ledger_id,
            password=password,
            digest=digest,
            recover=True,
            keep_update_metadata=keep_update_metadata,
            timeout=timeout,
        )

    def delete_ledger(self, ledger_id: int, *, timeout: float | None = None) -> None:
        """Remove a ledger's metadata; its space comes back later."""
        self._call(self._client.delete_ledger(ledger_id), timeout)

    def list_ledgers(self, *, timeout: float | None = None) -> BlockingIterator[int]:
        """The ids of all ledgers, ascending. `timeout` is for each id."""
        return BlockingIterator(self._thread, self._client.list_ledgers, timeout)

    def get_ledger_metadata(self, ledger_id: int, *, timeout: float | None = None) -> LedgerMetadata:
        """A ledger's record, without opening it."""
        return self._call(self._client.get_ledger_metadata(ledger_id), timeout)

    def is_closed(self, ledger_id: int, *, timeout: float | None = None) -> bool:
        """Whether the ledger is sealed."""
        return self._call(self._client.is_closed(ledger_id), timeout)

    def writable_bookies(self, *, timeout: float | None = None) -> set[BookieId]:
        """Bookies that take writes."""
        return self._call(self._client.writable_bookies(), timeout)

    def readonly_bookies(self, *, timeout: float | None = None) -> set[BookieId]:
        """Bookies that only serve reads."""
        return self._call(self._client.readonly_bookies(), timeout)

    def all_bookies(self, *, timeout: float | None = None) -> set[BookieId]:
        """All bookies that belong to the cluster, running or not."""
        return self._call(self._client.all_bookies(), timeout)

    def bookie_info(self, *, timeout: float | None = None) -> dict[BookieId, BookieInfo]:
        """Disk space of the running bookies; one that does not answer is absent."""
        return self._call(self._client.bookie_info(), timeout)

    def list_entries_of(self, ledger_id: int, bookie: BookieId, *, timeout: float | None = None) -> Availability:
        """Which entries of a ledger one bookie holds."""
        return self._call(self._client.list_entries_of(ledger_id, bookie), timeout)

    def metadata_service_available(self, *, timeout: float | None = None) -> bool:
        """Whether the metadata store answers."""
        return self._call(self._client.metadata_service_available(), timeout)


class _Readable(_Blocking):
    """The reads of a ledger."""

    def __init__(self, ledger: ReadableLedger, thread: LoopThread) -> None:
        super().__init__(thread)
        self._ledger = ledger

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
        self, entry_id: int, *, timeout: float, parallel: bool = False
    ) -> LastConfirmedAndEntry:
        """The LAC, and the entry as soon as it is confirmed. `timeout` is how long the bookies wait for it."""
        return self._call(
            self._ledger.read_last_add_confirmed_and_entry(entry_id, timeout=timeout, parallel=parallel), None
        )

    def refresh_metadata(self, *, timeout: float | None = None) -> LedgerMetadata:
        """Read the ledger's metadata again."""
        return self._call(self._ledger.refresh_metadata(), timeout)


class LedgerReader(_Readable):
    """An open ledger, to read from."""

    _ledger: aio_reader.LedgerReader

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, *, timeout: float | None = None) -> None:
        """Stop following the metadata. Idempotent."""
        self._call(self._ledger.close(), timeout)


class _Writer(_Readable):
    """What both kinds of writers share."""

    _ledger: aio_writer.LedgerWriter | aio_writer.LedgerAdvWriter

    def __init__(self, ledger: aio_writer.LedgerWriter | aio_writer.LedgerAdvWriter, thread: LoopThread) -> None:
        super().__init__(ledger, thread)
        self._posted: deque[tuple[Callable[[], asyncio.Future[int]], concurrent.futures.Future[int]]] = deque()
        self._taking_over = False  # a `_take_over` is on its way to the loop

    @property
    def last_add_pushed(self) -> int:
        """The highest entry id handed out; -1 if none."""
        return self._ledger.last_add_pushed

    def flush(self, *, timeout: float | None = None) -> int:
        """Wait until everything appended so far is acknowledged; its last id."""
        return self._call(self._ledger.flush(), timeout)

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
        """Seal the ledger; `drain` waits for pending appends first."""
        self._call(self._ledger.close(drain=drain), timeout)

    def _post(self, append: Callable[[], asyncio.Future[int]]) -> concurrent.futures.Future[int]:
        """Run `append` on the loop, after all that was posted before."""
        future: concurrent.futures.Future[int] = concurrent.futures.Future()
        # The order matters: what is in the queue before the flag is read is seen by a `_take_over` that resets the
        # flag before it empties the queue.
        self._posted.append((append, future))
        if not self._taking_over:
            self._taking_over = True
            self._thread.call_soon(self._take_over)
        return future

    def _take_over(self) -> None:
        self._taking_over = False
        posted = self._posted
        while posted:
            append, future = posted.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                appending = append()
            except Exception as error:
                future.set_exception(error)
            else:
                appending.add_done_callback(lambda done, future=future: _hand_over(done, future))  # type: ignore[misc]


class LedgerWriter(_Writer):
    """A ledger to append to."""

    _ledger: aio_writer.LedgerWriter

    def append(self, data: Payload, *, timeout: float | None = None) -> int:
        """Append an entry; its id, once it is acknowledged."""
        return self._call(self._ledger.append(data), timeout)

    def append_many(self, payloads: Iterable[Payload], *, timeout: float | None = None) -> list[int]:
        """Append many entries at once; their ids, once all are acknowledged."""
        return self._call(self._ledger.append_many(payloads), timeout)

    def append_nowait(self, data: Payload) -> concurrent.futures.Future[int]:
        """Append without waiting. Calls of one thread keep their order; refusals come through the future."""
        return self._post(lambda: self._ledger.append_nowait(data))


class LedgerAdvWriter(_Writer):
    """A ledger to write to under ids of the caller's."""

    _ledger: aio_writer.LedgerAdvWriter

    def write(self, entry_id: int, data: Payload, *, timeout: float | None = None) -> int:
        """Write an entry; its id, once it is acknowledged."""
        return self._call(self._ledger.write(entry_id, data), timeout)

    def write_nowait(self, entry_id: int, data: Payload) -> concurrent.futures.Future[int]:
        """Write without waiting; refusals come through the future."""
        return self._post(lambda: self._ledger.write_nowait(entry_id, data))


class BlockingIterator(_Blocking, Generic[T]):
    """A plain iterator over an asynchronous one. Leaving it early: `close`, or use it in `with`."""

    def __init__(
        self, thread: LoopThread, iterate: Callable[[], AsyncGenerator[T, None]], timeout: float | None
    ) -> None:
        super().__init__(thread)
        self._timeout = timeout
        self._ready: deque[T] = deque()  # taken over from the loop
        self._taking: concurrent.futures.Future[deque[T]] | None = None  # asked for, not here yet
        self._pump: _Pump[T] | None = self._call(_start_pump(iterate), None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if not self._ready:
            self._take()
        return self._ready.popleft()

    def _take(self) -> None:
        """Get what is ready, at least one. Raises the generator's error, `StopIteration` at the end."""
        if self._pump is None:
            raise StopIteration
        if self._taking is None:
            self._taking = self._submit(self._pump.take())
        taking = self._taking
        try:
            self._ready = taking.result(self._timeout)
        except BaseException:
            if taking.done():
                self.close()
            raise  # not done: the next call goes on waiting for it
        self._taking = None
        if not self._ready:
            self.close()
            raise StopIteration

    def close(self) -> None:
        """Stop reading ahead. Idempotent."""
        pump, self._pump = self._pump, None
        self._ready.clear()
        if pump is not None:
            self._call(pump.stop(), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        pump = getattr(self, "_pump", None)
        if pump is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the pump with it
                self._thread.call_soon(pump.cancel)


class _Pump(Generic[T]):
    """Runs on the loop: fills a bounded buffer from an asynchronous generator."""

    def __init__(self, items: AsyncGenerator[T, None]) -> None:
        self._buffer: deque[T] = deque()  # at most READ_AHEAD
        self._changed = asyncio.Event()  # something arrived, or it is over
        self._room = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(items), name="bookkeeper.sync read-ahead")

    async def _run(self, items: AsyncGenerator[T, None]) -> None:
        try:
            async with contextlib.aclosing(items):
                async for item in items:
                    self._buffer.append(item)
                    self._changed.set()
                    if len(self._buffer) >= READ_AHEAD:
                        self._room.clear()
                        await self._room.wait()
        finally:
            self._changed.set()

    async def take(self) -> deque[T]:
        """Everything that is ready, waiting for at least one; empty at the end. Raises the generator's error."""
        while not self._buffer:
            if self._task.done():
                self._task.result()
                return deque()
            self._changed.clear()
            await self._changed.wait()
        taken, self._buffer = self._buffer, deque()
        self._room.set()
        return taken

    def cancel(self) -> None:
        self._task.cancel()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def _start_pump(iterate: Callable[[], AsyncGenerator[T, None]]) -> _Pump[T]:
    return _Pump(iterate())


async def _await(opening: Opening[Any]) -> Any:
    return await opening


def _hand_over(done: asyncio.Future[int], future: concurrent.futures.Future[int]) -> None:
    """Give the outcome of an append to the caller's thread."""
    if done.cancelled():
        future.set_exception(concurrent.futures.CancelledError())
        return
    error = done.exception()
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(done.result())
