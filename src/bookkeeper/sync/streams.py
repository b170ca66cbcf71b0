"""Streams without an event loop: what `bookkeeper.streams` has, as plain calls.

    with bookkeeper.sync.open_namespace("distributedlog://zk1:2181/orders", create=True) as namespace:
        with namespace.open_writer("clicks", create=True) as writer:
            position = writer.append(b"hello")
        with namespace.open_reader("clicks", tail=False) as reader:
            for record in reader:
                print(record.position, record.payload)

A reader's records come an entry at a time. It does not run ahead of its caller as the iterators of ledgers do, so
`position` is always behind the record that was given out last, and can be stored; the ledger beneath is read ahead all
the same.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType

from ..client.arguments import check_payloads
from ..config import ClientConfiguration
from ..errors import BookKeeperError, ClientClosedError
from ..runtime import Runtime
from ..runtime.loop_thread import LoopThread
from ..streams import namespace as aio
from ..streams import writer as aio_writer
from ..streams.dlsn import DLSN
from ..streams.formats.keyed import Codec
from ..streams.formats.segment import SegmentMetadata
from ..streams.ledgers import Replication
from ..streams.namespace import LOST_AFTER, StreamInfo
from ..streams.opening import open_namespace as opened_namespace
from ..streams.pending import pieces
from ..streams.policy import WritePolicy
from ..streams.publishing import staged as aio_staged
from ..streams.publishing.collecting import Collected
from ..streams.publishing.drafts import SegmentDraft
from ..streams.publishing.marker import Marker, PublishKey
from ..streams.publishing.publisher import Published
from ..streams.reading import reader as aio_reader
from ..streams.reading import subscriptions as aio_subscriptions
from ..streams.reading.reader import EARLIEST, Latest, Record, RecordBatch, TxId
from ..streams.reading.verify import CheckedSegment
from ..streams.retention.choice import RetentionPolicy
from ..streams.retention.maintenance import Maintained
from ..streams.retention.policies import StreamPolicy
from ..streams.retention.truncation import Retained
from ..streams.writer import Positions
from .blocking import Blocking, ClosedAtExit, Deadline
from .client import BookKeeper
from .iterator import BlockingIterator


def open_namespace(
    where: str,
    *,
    client: BookKeeper | None = None,
    create: bool = False,
    ledgers: str | None = None,
    replication: Replication | None = None,
    client_id: str | None = None,
    config: ClientConfiguration | None = None,
    runtime: Runtime | None = None,
    timeout: float | None = None,
) -> Namespace:
    """A namespace of streams. Close it in the end, best by `with`.

    The arguments are those of `bookkeeper.open_namespace`, but for `client`, one of `bookkeeper.sync`; `timeout` is in
    seconds. Raises what that raises, and `TimeoutError`.
    """
    thread = LoopThread("bookkeeper-sync") if client is None else client._thread

    async def start() -> aio.Namespace:
        return await opened_namespace(
            where,
            client=None if client is None else client._client,
            create=create,
            ledgers=ledgers,
            replication=replication,
            client_id=client_id,
            config=config,
            runtime=runtime,
        )

    try:
        return Namespace(Blocking(thread)._call(start(), timeout), thread, owns_thread=client is None)
    except BaseException:
        if client is None:
            thread.stop()
        raise


class Namespace(ClosedAtExit, Blocking):
    """The streams of one namespace. Make one with `open_namespace`.

    Every call takes a `timeout` in seconds (None: no limit) and then raises `TimeoutError`. The rest is as in
    `bookkeeper.Namespace`: arguments, results, errors.
    """

    def __init__(self, namespace: aio.Namespace, thread: LoopThread, *, owns_thread: bool) -> None:
        super().__init__(thread)
        self._namespace = namespace
        self._owns_thread = owns_thread
        self.path = namespace.path
        """The record of the namespace in its metadata store."""

    def __repr__(self) -> str:
        return repr(self._namespace)

    def close(self, *, timeout: float | None = None) -> None:
        """End the session and the client, unless that was handed in. Writers are not closed. Idempotent."""
        self._may_wait()
        if not self._thread.ended:
            with contextlib.suppress(ClientClosedError):  # another thread was faster
                self._call(self._namespace.close(), timeout)
        if self._owns_thread:
            self._thread.stop()

    def create(self, name: str, *, exist_ok: bool = False, timeout: float | None = None) -> None:
        """Make a stream."""
        self._call(self._namespace.create(name, exist_ok=exist_ok), timeout)

    def exists(self, name: str, *, timeout: float | None = None) -> bool:
        """Whether there is a stream of this name."""
        return self._call(self._namespace.exists(name), timeout)

    def delete(
        self,
        name: str,
        *,
        missing_ok: bool = False,
        lock_timeout: float | None = 30.0,
        timeout: float | None = None,
    ) -> None:
        """Delete a stream and its ledgers, once nobody writes it."""
        self._call(self._namespace.delete(name, missing_ok=missing_ok, lock_timeout=lock_timeout), timeout)

    def rename(self, old: str, new: str, *, lock_timeout: float | None = 30.0, timeout: float | None = None) -> None:
        """Give a stream another name, once nobody writes it."""
        self._call(self._namespace.rename(old, new, lock_timeout=lock_timeout), timeout)

    def first(self, name: str, *, timeout: float | None = None) -> Record:
        """Its first record that is left."""
        return self._call(self._namespace.first(name), timeout)

    def last(self, name: str, *, timeout: float | None = None) -> Record:
        """Its last record that readers can see."""
        return self._call(self._namespace.last(name), timeout)

    def count(
        self,
        name: str,
        start: DLSN | str = EARLIEST,
        until: DLSN | str | None = None,
        *,
        timeout: float | None = None,
    ) -> int:
        """How many records there are from a position to before another."""
        return self._call(self._namespace.count(name, start, until), timeout)

    def position_for(
        self, name: str, *, txid: int | None = None, time: datetime | None = None, timeout: float | None = None
    ) -> DLSN:
        """Where the first record with this transaction id, or of this time, or a higher one is."""
        return self._call(self._namespace.position_for(name, txid=txid, time=time), timeout)

    def verify(self, name: str, *, timeout: float | None = None) -> BlockingIterator[CheckedSegment]:
        """Read all of a stream and compare it with its metadata, segment by segment. `timeout` is for each of them."""
        return BlockingIterator(self._thread, lambda: self._namespace.verify(name), timeout)

    def recover(self, name: str, *, lock_timeout: float | None = 30.0, timeout: float | None = None) -> None:
        """End what a writer that has died left open."""
        self._call(self._namespace.recover(name, lock_timeout=lock_timeout), timeout)

    def maintain(self, *, timeout: float | None = None) -> Maintained:
        """Apply the policies of all streams, finish what publishers began, and collect what they left."""
        return self._call(self._namespace.maintain(), timeout)

    def run_maintenance(self, *, interval: float = 60.0, timeout: float | None = None) -> None:
        """Call `maintain` every `interval` seconds, for ever, as long as no other client of the namespace does."""
        self._call(self._namespace.run_maintenance(interval=interval), timeout)

    def truncate(
        self, name: str, before: DLSN | str, *, delete: bool = False, timeout: float | None = None
    ) -> Retained:
        """Let a stream begin at this position; with `delete` free what whole segments before it take."""
        return self._call(self._namespace.truncate(name, before, delete=delete), timeout)

    def purge(self, name: str, policy: RetentionPolicy | None = None, *, timeout: float | None = None) -> Retained:
        """Delete what a retention policy does not keep; nothing by default."""
        return self._call(self._namespace.purge(name, policy), timeout)

    def seal(self, name: str, *, lock_timeout: float | None = 30.0, timeout: float | None = None) -> None:
        """End a stream for ever, once nobody writes it."""
        self._call(self._namespace.seal(name, lock_timeout=lock_timeout), timeout)

    def stage(
        self,
        sink: str,
        epoch: int,
        *,
        query: str | None = None,
        run: str | None = None,
        timeout: float | None = None,
    ) -> Staging:
        """Begin a run: a place for ledgers that are to be published together as an epoch of a sink."""
        return Staging(self._call(self._namespace.stage(sink, epoch, query=query, run=run), timeout), self._thread)

    def give_up_staging(self, sink: str, path: str, *, timeout: float | None = None) -> None:
        """End a run, which is not published then unless it was before."""
        self._call(self._namespace.give_up_staging(sink, path), timeout)

    def last_published(self, sink: str, *, timeout: float | None = None) -> Marker | None:
        """What a sink has published last, or begun to; None: nothing."""
        return self._call(self._namespace.last_published(sink), timeout)

    def sinks(self, *, timeout: float | None = None) -> BlockingIterator[str]:
        """Names of all that publish to this namespace, ascending."""
        return BlockingIterator(self._thread, self._namespace.sinks, timeout)

    def join_staging(self, path: str, *, timeout: float | None = None) -> Staging:
        """A run that was begun elsewhere."""
        return Staging(self._call(self._namespace.join_staging(path), timeout), self._thread)

    def publish_segments(
        self,
        drafts: Mapping[str, Sequence[SegmentDraft]],
        key: PublishKey | None = None,
        *,
        staging: Staging | str | None = None,
        reset: bool = False,
        supersede: bool = False,
        lock_timeout: float | None = 30.0,
        timeout: float | None = None,
    ) -> Published:
        """Make closed ledgers, which were written elsewhere, the next segments of streams: all or none, and once only.

        After `TimeoutError` it is not known what happened: call again with the same key.
        """
        run = staging._staging if isinstance(staging, Staging) else staging
        publishing = self._namespace.publish_segments(
            drafts, key, staging=run, reset=reset, supersede=supersede, lock_timeout=lock_timeout
        )
        return self._call(publishing, timeout)

    def collect_staged(
        self, *, lost_after: float = LOST_AFTER, lock_timeout: float | None = 30.0, timeout: float | None = None
    ) -> Collected:
        """Finish what publishers began, and delete ledgers that were staged and will not be published."""
        return self._call(self._namespace.collect_staged(lost_after=lost_after, lock_timeout=lock_timeout), timeout)

    def policy(self, name: str | None = None, *, timeout: float | None = None) -> StreamPolicy:
        """What a stream, or the namespace, says of retention and replication."""
        return self._call(self._namespace.policy(name), timeout)

    def codec(self, name: str, *, timeout: float | None = None) -> Codec:
        """What the payloads of a stream are, by its policy and that of the namespace."""
        return self._call(self._namespace.codec(name), timeout)

    def set_policy(self, policy: StreamPolicy, name: str | None = None, *, timeout: float | None = None) -> None:
        """Replace what a stream, or the namespace, says of retention and replication."""
        self._call(self._namespace.set_policy(policy, name), timeout)

    def info(self, name: str, *, timeout: float | None = None) -> StreamInfo:
        """What the metadata says of a stream."""
        return self._call(self._namespace.info(name), timeout)

    def list(self, prefix: str = "", *, recursive: bool = False, timeout: float | None = None) -> BlockingIterator[str]:
        """Names of streams, ascending. `timeout` is for each wait."""
        return BlockingIterator(self._thread, lambda: self._namespace.list(prefix, recursive=recursive), timeout)

    def watch(self, *, timeout: float | None = None) -> BlockingIterator[frozenset[str]]:
        """The names of the streams directly below the namespace, now and after each change."""
        return BlockingIterator(self._thread, self._namespace.watch, timeout)

    def watch_segments(self, name: str, *, timeout: float | None = None) -> BlockingIterator[Sequence[SegmentMetadata]]:
        """The segments of a stream, now and after each change."""
        return BlockingIterator(self._thread, lambda: self._namespace.watch_segments(name), timeout)

    def unbind(self, *, force: bool = False, timeout: float | None = None) -> None:
        """Take the binding away: there is no namespace here any more."""
        self._call(self._namespace.unbind(force=force), timeout)

    def open_writer(
        self,
        name: str,
        *,
        policy: WritePolicy | None = None,
        create: bool = False,
        lock_timeout: float | None = 30.0,
        timeout: float | None = None,
    ) -> StreamWriter:
        """Become the one writer of a stream."""
        opening = self._namespace.open_writer(name, policy=policy, create=create, lock_timeout=lock_timeout)
        return StreamWriter(self._call(opening, timeout), self._thread)

    def open_reader(
        self,
        name: str,
        start: DLSN | TxId | Latest | datetime | str | None = None,
        *,
        until: DLSN | str | None = None,
        tail: bool = True,
        idle_timeout: float | None = None,
        ignore_truncation: bool = False,
        subscriber: str | None = None,
        exclusive: bool = False,
        lock_timeout: float | None = 30.0,
        timeout: float | None = None,
    ) -> StreamReader:
        """Read a stream."""
        opening = self._namespace.open_reader(
            name,
            start,
            until=until,
            tail=tail,
            idle_timeout=idle_timeout,
            ignore_truncation=ignore_truncation,
            subscriber=subscriber,
            exclusive=exclusive,
            lock_timeout=lock_timeout,
        )
        return StreamReader(self._call(opening, timeout), self._thread)

    def subscriptions(self, name: str) -> Subscriptions:
        """The subscribers of a stream, and how far they have come."""
        return Subscriptions(self._namespace.subscriptions(name), self._thread)


class Subscriptions(Blocking):
    """The subscribers of one stream, by name. `bookkeeper.Subscriptions` says more."""

    def __init__(self, subscriptions: aio_subscriptions.Subscriptions, thread: LoopThread) -> None:
        super().__init__(thread)
        self._subscriptions = subscriptions

    def get(self, subscriber: str, *, timeout: float | None = None) -> DLSN | None:
        """Where it goes on; None: it has not said so yet, or there is no such subscriber."""
        return self._call(self._subscriptions.get(subscriber), timeout)

    def list(self, *, timeout: float | None = None) -> dict[str, DLSN | None]:
        """All of them, by name."""
        return self._call(self._subscriptions.list(), timeout)

    def commit(
        self, subscriber: str, position: DLSN, *, expected: DLSN | None = None, timeout: float | None = None
    ) -> None:
        """Store where it goes on: the position of the next record that it wants."""
        self._call(self._subscriptions.commit(subscriber, position, expected=expected), timeout)

    def delete(self, subscriber: str, *, timeout: float | None = None) -> None:
        """Forget a subscriber."""
        self._call(self._subscriptions.delete(subscriber), timeout)


class StreamWriter(Blocking):
    """The one writer of a stream. Leaving its `with` closes it, or aborts it at Ctrl-C.

    `bookkeeper.StreamWriter` says what each call means and raises. When the `timeout` of an append is over, its
    records may be part of the stream, and the writer may have failed.
    """

    def __init__(self, writer: aio_writer.StreamWriter, thread: LoopThread) -> None:
        super().__init__(thread)
        self._writer = writer

    def __enter__(self) -> StreamWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            self.abort()
        else:
            self.close()

    @property
    def last_txid(self) -> int:
        """The highest transaction id in the stream; -999 if there is none."""
        return self._writer.last_txid

    def append(self, payload: bytes, *, txid: int | None = None, timeout: float | None = None) -> DLSN:
        """Append a record and wait until it is acknowledged; where it is."""
        return self._call(self._writer.append(payload, txid=txid), timeout)

    def append_batch(
        self,
        payloads: Sequence[bytes],
        *,
        txid: int | None = None,
        txids: Sequence[int] | None = None,
        as_sets: bool = False,
        timeout: float | None = None,
    ) -> Positions:
        """Append records in as few entries as they fit, and wait until all are acknowledged; where they are."""
        return self._call(self._writer.append_batch(payloads, txid=txid, txids=txids, as_sets=as_sets), timeout)

    def append_nowait(self, payload: bytes, *, txid: int | None = None) -> concurrent.futures.Future[DLSN]:
        """Append a record without waiting; its future gives what `append` gives, or raises.

        For many records `append_many` is quicker: each call of this one goes to the loop by itself.
        """

        async def post() -> DLSN:
            return await self._writer.append_nowait(payload, txid=txid)

        return self._submit(post())

    def append_many(self, payloads: Iterable[bytes], *, timeout: float | None = None) -> int:
        """Append all that an iterable gives, and wait until it is acknowledged; how many records that were.

        The iterable is read by this thread. `timeout` is for each piece.
        """
        check_payloads(payloads)
        count = 0
        before: concurrent.futures.Future[int] | None = None
        for piece in pieces(payloads):
            sent = self._submit(self._writer.append_many(piece))
            if before is not None:
                count += self._finish(before, timeout)
            before = sent
        return count if before is None else count + self._finish(before, timeout)

    def _finish(self, future: concurrent.futures.Future[int], timeout: float | None) -> int:
        return self._wait(future, Deadline(timeout), "the records may be part of the stream")

    def flush(self, *, timeout: float | None = None) -> int:
        """Wait until readers can see all that was appended; the last transaction id."""
        return self._call(self._writer.flush(), timeout)

    def roll(self, *, timeout: float | None = None) -> None:
        """Go on in a new segment, unless the open one has no records."""
        self._call(self._writer.roll(), timeout)

    def mark_end(self, *, timeout: float | None = None) -> None:
        """Seal the stream for ever, and close the writer."""
        self._call(self._writer.mark_end(), timeout)

    def close(self, *, timeout: float | None = None) -> None:
        """Finish and complete the open segment. Idempotent."""
        self._call(self._writer.close(), timeout)

    def abort(self, *, timeout: float | None = None) -> None:
        """Let go at once; the next owner recovers the segment. Idempotent."""
        self._call(self._writer.abort(), timeout)


class Staging(Blocking):
    """A run: the ledgers that are to be published together. `bookkeeper.Staging` says more."""

    def __init__(self, staging: aio_staged.Staging, thread: LoopThread) -> None:
        super().__init__(thread)
        self._staging = staging
        self.path = staging.path
        """To be sent to those who write."""

    def open_segment(
        self, stream: str, policy: WritePolicy | None = None, *, timeout: float | None = None
    ) -> StagedSegment:
        """A new draft for a stream, in a ledger of its own."""
        return StagedSegment(self._call(self._staging.open_segment(stream, policy), timeout), self._thread)

    def merge(
        self,
        stream: str,
        drafts: Sequence[SegmentDraft],
        policy: WritePolicy | None = None,
        *,
        timeout: float | None = None,
    ) -> SegmentDraft:
        """One draft with the records of several of this run, in order."""
        return self._call(self._staging.merge(stream, drafts, policy), timeout)

    def beat(self, after: float = 0.0, *, timeout: float | None = None) -> None:
        """Say that the run is alive, unless somebody has within `after` seconds."""
        self._call(self._staging.beat(after), timeout)


class StagedSegment(Blocking):
    """The writer of a draft. Leaving its `with` without `finish` gives the ledger up."""

    def __init__(self, segment: aio_staged.StagedSegment, thread: LoopThread) -> None:
        super().__init__(thread)
        self._segment = segment

    def __enter__(self) -> StagedSegment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    @property
    def ledger_id(self) -> int:
        """Of the ledger."""
        return self._segment.ledger_id

    @property
    def records(self) -> int:
        """How many were added."""
        return self._segment.records

    @property
    def last_txid(self) -> int:
        """The transaction id of the last record."""
        return self._segment.last_txid

    def append_batch(
        self,
        payloads: Sequence[bytes],
        *,
        txids: Sequence[int] | None = None,
        as_sets: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Add records; `finish` waits until they are stored."""
        self._call(self._segment.append_batch(payloads, txids=txids, as_sets=as_sets), timeout)

    def finish(self, *, timeout: float | None = None) -> SegmentDraft:
        """Store all, close the ledger; what to publish."""
        return self._call(self._segment.finish(), timeout)

    def abort(self, *, timeout: float | None = None) -> None:
        """Give the ledger up: it is deleted. Idempotent; after `finish` without effect."""
        self._call(self._segment.abort(), timeout)


class StreamReader(Blocking):
    """Reads a stream from a position on. Every iteration begins at `position`, and moves it; one at a time."""

    def __init__(self, reader: aio_reader.StreamReader, thread: LoopThread) -> None:
        super().__init__(thread)
        self._reader = reader

    def __enter__(self) -> StreamReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, *, timeout: float | None = None) -> None:
        """Let go of what `read` holds, and of the right to read alone; without such a right it may be used again."""
        if not self._thread.ended:
            with contextlib.suppress(ClientClosedError):
                self._call(self._reader.close(), timeout)

    def read(self, most: int = 500, *, timeout: float | None = None) -> list[Record]:
        """The next records, as many as are at hand; none when `timeout` is over, or nothing more can be read."""
        return self._call(self._reader.read(most, timeout=timeout), None)

    def ack(self, *, timeout: float | None = None) -> None:
        """Store `position` for the subscriber: all before it has been worked on, its next reader begins there."""
        self._call(self._reader.ack(), timeout)

    @property
    def position(self) -> DLSN | TxId | Latest:
        """Where the next record will be; before the first was read, where to begin. May be set between iterations."""
        return self._reader.position

    @position.setter
    def position(self, position: DLSN | TxId | Latest) -> None:
        self._reader.position = position

    def locate(self, *, timeout: float | None = None) -> DLSN:
        """Turn a transaction id or *latest* into a position, as the stream is now."""
        return self._call(self._reader.locate(), timeout)

    def __iter__(self) -> Iterator[Record]:
        with contextlib.closing(self.batches()) as batches:
            for batch in batches:
                for record in batch.records():
                    self.position = record.position.next()
                    yield record

    def batches(self, *, timeout: float | None = None) -> Generator[RecordBatch, None, None]:
        """All records in order, those of an entry together. `timeout` is for each wait; after it iterate anew."""
        start = self.locate(timeout=timeout)
        batches = self._reader.batches()

        async def following() -> RecordBatch | None:
            return await anext(batches, None)

        try:
            while True:
                try:
                    batch = self._call(following(), timeout)
                except BaseException:
                    self._reader._start = start  # a batch that came too late is read again; what TxId asked for holds
                    raise
                if batch is None:
                    return
                start = batch.next_position
                yield batch
        finally:
            if not self._thread.ended and not self._thread.inside:  # else the loop's end takes it along
                with contextlib.suppress(BookKeeperError):  # the client was closed meanwhile
                    self._call(batches.aclose(), None)
