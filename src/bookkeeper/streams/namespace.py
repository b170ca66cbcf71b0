"""Streams by name: what programs use (spec streams §15.3).

    async with bookkeeper.open_namespace("distributedlog://zk1:2181/orders", create=True) as namespace:
        async with namespace.open_writer("clicks", create=True) as writer:
            position = await writer.append(b"hello")
        async with namespace.open_reader("clicks") as reader:
            async for record in reader:
                print(record.position, record.payload)

A namespace's records are in one metadata store, its ledgers in one cluster, often in the same store. Everything opened
here uses the namespace's session and its client, and ends with it; writers are not closed by that, the next owner
recovers their segment. As with the client, a call ends when its task is cancelled, and `asyncio.timeout` limits it;
calls of the metadata store end after `metadataTimeoutSec` by themselves.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self
from urllib.parse import unquote

from ..client.client import BookKeeper
from ..client.opening import Opening
from ..errors import (
    BookKeeperError,
    IncorrectParameterError,
    StreamNotFoundError,
    Unsupported,
)
from ..metadata.tree import Operation, RecordTree
from .dlsn import DLSN
from .formats.keyed import Codec
from .formats.records import END_TXID
from .formats.segment import SegmentMetadata, decode_segment
from .ledgers import Replication, StreamLedgers
from .named_segments import NamedSegments
from .names.federation import Federation
from .names.lock import LogLock
from .names.logs import Logs
from .names.namespaces import NamespaceSettings, unbind, watch_names
from .policy import WritePolicy
from .publishing.collecting import Collected, Collector
from .publishing.drafts import SegmentDraft
from .publishing.marker import Marker, PublishKey
from .publishing.publisher import Published, Publisher
from .publishing.staged import Staging
from .publishing.staging import SINKS, begin_run, join_run, open_run, run_path, sink_path
from .reading.queries import count_records, first_record, last_record
from .reading.reader import EARLIEST, Latest, Record, StreamReader, TxId
from .reading.right import ReadRight
from .reading.subscriptions import Subscriptions
from .reading.verify import CheckedSegment, verify_stream
from .recovery import recover_stream
from .retention.choice import RetentionPolicy
from .retention.maintenance import Maintained, lead, maintain
from .retention.offloaded import OffloadIndex
from .retention.policies import StreamPolicy, decode_policy, encode_policy
from .retention.truncation import Retained, Truncation
from .segments import SegmentStore
from .writer import StreamWriter, open_writer

log = logging.getLogger(__name__)

LEADER = ".config/leader"
"""Below the namespace: the lock of who maintains it."""

LOST_AFTER = 24 * 3600.0
"""Seconds after which a run that nobody has heard of counts as dead."""

Position = DLSN
"""Where a record is in a stream. `str(position)` is text to store, `Position.parse(text)` the way back."""


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream as its metadata has it."""

    name: str
    """Its name in the namespace."""
    segments: Sequence[SegmentMetadata]
    """In order; only the last ones can be open."""
    last_txid: int
    """The highest transaction id of completed segments; 0 if there is none."""
    owner: str | None
    """Who writes it, or is about to; None: nobody."""

    @property
    def sealed(self) -> bool:
        """Whether nothing can be appended any more."""
        return self.last_txid == END_TXID

    @property
    def records(self) -> int:
        """Records of completed segments; what is in the open one is not known here."""
        return sum(segment.records for segment in self.segments)


@dataclass(frozen=True, slots=True)
class _Owned:
    """Streams as a publisher wants them."""

    lock: Callable[[str, float | None], Awaitable[LogLock]]
    segments: Callable[[str, LogLock], NamedSegments]
    supersede: Callable[[str, int], Awaitable[Sequence[Operation]]]


class Namespace:
    """The streams of one namespace. See the module; made by `open_namespace`. An async context manager."""

    def __init__(
        self,
        client: BookKeeper,
        tree: RecordTree,
        path: str,
        replication: Replication | None,
        client_id: str | None,
        opened: AsyncExitStack,
        *,
        federated: bool = False,
    ) -> None:
        self.path = path
        """The record of the namespace in its metadata store."""
        self._client = client
        self._runtime = client.context.runtime
        self._tree = tree
        self._logs = Logs(tree, path)
        self._federation = Federation(tree, path) if federated else None
        self._settings = NamespaceSettings(tree, path)
        self._ledgers = StreamLedgers(client, replication or Replication())
        self._obeys_policies = replication is None
        self._client_id = client_id or self._runtime.hostname()
        self._opened = opened

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the session and the client, unless that was handed in. Writers are not closed. Idempotent."""
        await self._opened.aclose()

    def __repr__(self) -> str:
        return f"<Namespace {self.path}>"

    @property
    def client(self) -> BookKeeper:
        """Of the cluster that has the ledgers."""
        return self._client

    # --- streams ---

    async def create(self, name: str, *, exist_ok: bool = False) -> None:
        """Make a stream. Raises `StreamExistsError` (unless `exist_ok`), `InvalidStreamNameError`."""
        await self._changeable().create(name, exist_ok=exist_ok)

    async def exists(self, name: str) -> bool:
        """Whether there is a stream of this name. Raises `InvalidStreamNameError`."""
        return await (await self._home(name)).exists(name)

    async def delete(self, name: str, *, missing_ok: bool = False, lock_timeout: float | None = 30.0) -> None:
        """Delete a stream and its ledgers, once nobody writes it: waits for that as `open_writer` does.

        Raises `StreamNotFoundError` (unless `missing_ok`), `NotOwnerError`, `LockError`.
        """
        try:
            lock = await self._locked(name, lock_timeout)
        except StreamNotFoundError:
            if missing_ok:
                return
            raise
        try:
            await self.offloads(name).clear()
            await self._logs.delete(
                name,
                lock.member,
                ledger_of=lambda data: decode_segment(data).ledger_id,
                delete_ledger=self._ledgers.delete,
            )
        finally:
            await lock.release()
        await self._settings.remove(self._logs.paths(name).name)

    async def rename(self, old: str, new: str, *, lock_timeout: float | None = 30.0) -> None:
        """Give a stream another name, once nobody writes it.

        Raises `StreamNotFoundError`, `StreamExistsError`, `NotOwnerError`, `LockError`, `Unsupported` for one of which
        segments were offloaded.
        """
        lock = await self._locked(old, lock_timeout)
        try:
            if await self.offloads(old).load():
                raise Unsupported(f"stream {old} has segments in Parquet files, which would be lost to readers")
            await self._logs.rename(old, new, lock.member)
        finally:
            await lock.release()
        former = self._logs.paths(old).name
        own = await self._settings.get(former)
        if own is not None:
            await self._settings.put(own.value, stream=self._logs.paths(new).name)
            await self._settings.remove(former)

    async def info(self, name: str) -> StreamInfo:
        """What the metadata says of a stream. Raises `StreamNotFoundError`."""
        logs = await self._home(name)
        state = await NamedSegments(self._tree, logs, name, self._ledgers).load()
        owner = await self._lock_in(logs.paths(name).lock).owner()
        return StreamInfo(logs.paths(name).name, state.segments, state.max_txid, owner)

    # --- what is in a stream ---

    async def first(self, name: str) -> Record:
        """Its first record that is left. Raises `StreamEmptyError`, `StreamNotFoundError`."""
        return await first_record(await self._existing(name))

    async def last(self, name: str) -> Record:
        """Its last record that readers can see. Raises `StreamEmptyError`, `StreamNotFoundError`."""
        return await last_record(await self._existing(name))

    async def count(self, name: str, start: DLSN | str = EARLIEST, until: DLSN | str | None = None) -> int:
        """How many records there are from a position to before another; without `until` to what readers can see now.

        What is truncated is not counted. Reads at most one entry for each end, and one for a segment that is written.
        Raises `StreamNotFoundError`; `SegmentFormatError` for a text that is no position.
        """
        end = None if until is None else _position(until)
        return await count_records(await self._existing(name), _position(start), end)

    async def position_for(self, name: str, *, txid: int | None = None, time: datetime | None = None) -> DLSN:
        """Where the first record with this transaction id or a higher one is; behind the last record, if there is none.

        - `time`: in place of `txid`, where transaction ids are times, as they are if writers are given none. Without
          a time zone: local time.

        A position may be that of a record which is not there yet. Raises `StreamNotFoundError`.
        """
        if txid is not None and time is None:
            wanted = TxId(txid)
        elif time is not None and txid is None:
            wanted = at_time(time)
        else:
            raise IncorrectParameterError("give txid or time, one of them")
        return await StreamReader(await self._existing(name), wanted, tail=False).locate()

    async def verify(self, name: str) -> AsyncGenerator[CheckedSegment, None]:
        """Read all of a stream and compare it with its metadata; what was seen of each segment, oldest first.

        Nothing is changed. What is wrong is among the `findings` of a segment, also what cannot be read. Raises
        `StreamNotFoundError`.
        """
        async with aclosing(verify_stream(await self._existing(name))) as segments:
            async for checked in segments:
                yield checked

    async def recover(self, name: str, *, lock_timeout: float | None = 30.0) -> None:
        """End what a writer that has died left open, once nobody writes the stream. `open_writer` does it by itself.

        Raises as `open_writer`.
        """
        lock = await self._locked(name, lock_timeout)
        store = self._segments(name, lock)
        try:
            await recover_stream(store, self._runtime.wall_ms())
        finally:
            await store.release()

    async def segment_store(self, name: str) -> SegmentStore:
        """A view of a stream's segments that remembers what it has read: for those who look again and again.

        Nothing can be changed by it. Raises `StreamNotFoundError`; so does `load` once the stream is gone.
        """
        return await self._existing(name)

    async def _existing(self, name: str) -> NamedSegments:
        logs = await self._home(name)
        if not await logs.exists(name):
            raise StreamNotFoundError(f"there is no stream {name} in {self.path}")
        return NamedSegments(self._tree, logs, name, self._ledgers)

    async def _home(self, name: str) -> Logs:
        """Where a stream is to be read."""
        found = None if self._federation is None else await self._federation.home(name)
        return found or self._logs

    def _changeable(self) -> Logs:
        """Where streams are to be changed. Raises `Unsupported`."""
        if self._federation is not None:
            raise Unsupported(f"namespace {self.path} is federated: its streams can be read here, and nothing else")
        return self._logs

    # --- the old end, and the new one ---

    async def truncate(self, name: str, before: DLSN | str, *, delete: bool = False) -> Retained:
        """Let a stream begin at this position: what is before is not read any more. What was done.

        A segment that is still written is not truncated; what it is truncated before may be called again later. Nobody
        is disturbed, neither the writer nor readers behind the position. If the caller dies in between, the next one
        who truncates or purges the stream goes on.

        - `before`: a position or its text, such as that of the first record to keep.
        - `delete`: delete what is truncated at once, if it is whole segments. False: `purge` does, if a policy says so.
          The newest completed segment stays in any case.

        Raises `StreamNotFoundError`; `SegmentFormatError` for a text that is no position.
        """
        truncation = self._truncation(name)
        begins = await truncation.truncate(_position(before))
        return Retained(begins, await truncation.delete_truncated() if delete else ())

    async def purge(self, name: str, policy: RetentionPolicy | None = None) -> Retained:
        """Delete what a retention policy does not keep; what was done. To be called now and then, by anybody.

        - `policy`: None: what `set_policy` has stored for the stream or the namespace. Nothing is deleted by default.

        The age of a segment is this machine's time less that of its writer's. Raises `StreamNotFoundError`,
        `StreamMetadataError`.
        """
        if policy is None:
            policy = (await self._effective(name)).retention or RetentionPolicy()
        return await self._truncation(name).apply(policy, self._runtime.wall_ms())

    async def seal(self, name: str, *, lock_timeout: float | None = 30.0) -> None:
        """End a stream for ever, once nobody writes it: its readers get `EndOfStreamError` behind the last record, and
        so does who appends. Idempotent. Raises as `open_writer`.
        """
        if (await self.info(name)).sealed:
            return
        async with self.open_writer(name, lock_timeout=lock_timeout) as writer:
            if writer.last_txid != END_TXID:
                await writer.mark_end()

    async def maintain(self) -> Maintained:
        """Apply the policies of all streams, finish what publishers began, and collect what they left; what was done.

        To be called now and then, by anybody; `run_maintenance` does.
        """
        return await maintain(self.list(recursive=True), self.purge, lambda: self.collect_staged(lock_timeout=0))

    async def run_maintenance(self, *, interval: float = 60.0) -> None:
        """Call `maintain` every `interval` seconds, until cancelled, as long as no other client of the namespace does.

        Any number of processes may run it: one of them works, and another takes over when that one is gone.
        """
        leader = f"{self.path}/{LEADER}"
        await self._tree.make(leader)
        await lead(partial(self._lock_in, leader), self.maintain, interval)

    def _truncation(self, name: str) -> Truncation:
        return Truncation(self._tree, self._changeable().paths(name), self._ledgers)

    # --- segments that were written elsewhere ---

    async def stage(self, sink: str, epoch: int, *, query: str | None = None, run: str | None = None) -> Staging:
        """Begin a run: a place for ledgers that are to be published together as an epoch of a sink.

        - `query`: as in `PublishKey`.
        - `run`: a name for the run, letters and digits that nobody else takes; who gives the same one joins it. None:
          one of its own.

        Raises `StagingLostError` if the run of this name is over.
        """
        path, now_ms = sink_path(self.path, sink), self._runtime.wall_ms()
        if run is not None:
            return await self.join_staging((await join_run(self._tree, path, epoch, run, query, now_ms)).path)
        begun = await begin_run(self._tree, path, epoch, self._publisher().new_run(), query, now_ms)
        return await self.join_staging(begun.path)

    async def give_up_staging(self, sink: str, path: str) -> None:
        """End a run, which is not published then unless it was before; delete what nobody wants of it. Idempotent."""
        await self._collector(self._publisher()).end_run(sink, path)

    async def last_published(self, sink: str) -> Marker | None:
        """What a sink has published last, or begun to; None: nothing. Raises `StreamMetadataError`."""
        marker, _ = await self._publisher().load(sink)
        return marker

    async def sinks(self) -> AsyncGenerator[str, None]:
        """Names of all that publish to this namespace, ascending; of some nothing may be published yet."""
        listing = await self._tree.children(f"{self.path}/{SINKS}", fresh=True)
        for name in sorted(map(unquote, listing.names)) if listing is not None else ():
            yield name

    async def join_staging(self, path: str) -> Staging:
        """A run that was begun elsewhere. Raises `StagingLostError` if it is over."""
        await open_run(self._tree, path)
        return Staging(self._tree, self._runtime, path, self._ledgers_of)

    async def publish_segments(
        self,
        drafts: Mapping[str, Sequence[SegmentDraft]],
        key: PublishKey | None = None,
        *,
        staging: Staging | str | None = None,
        reset: bool = False,
        supersede: bool = False,
        lock_timeout: float | None = 30.0,
    ) -> Published:
        """Make closed ledgers, which were written elsewhere, the next segments of streams: all or none, and once only.

        - `drafts`: by the names of the streams, in order. With a key there may be none: then only the epoch counts.
        - `key`: what makes it happen once only. The same key again does nothing, and the result says so. None: without;
          then a call whose answer was lost can be repeated as long as its segments are in the stream.
        - `staging`: the run that the ledgers belong to, or its path. Those that are not published are deleted.
        - `reset`: another query takes the sink over, with epochs of its own.
        - `supersede`: truncate all that the streams have, at the same moment: readers see what was there or what is
          published. Its ledgers go as those of other truncated segments do, by `purge` or `truncate`.
        - `lock_timeout`: seconds to wait for each stream that is written; None: for ever.

        Segments without transaction ids get the time, or the highest id that is there, if that is higher. What is more
        than one transaction of the metadata store bears is published in parts; if the caller dies in between, the next
        publisher of the sink goes on, or `collect_staged`.

        After `ServiceUnavailable` it is not known what happened: call again with the same key. Raises
        `EpochConflictError`, `TxidOrderError`, `EndOfStreamError`, `NotOwnerError` (a stream is written),
        `StagingLostError`, `StreamNotFoundError`, `IncorrectParameterError` (a ledger is not as its draft says),
        `RecordTooLarge` (too many without a key, or too many to be superseded), `Unsupported` (segments of a version
        that cannot be truncated); nothing is published then.
        """
        by_name = {self._logs.paths(name).name: tuple(some) for name, some in drafts.items()}
        run = self._run_of(by_name, key, staging)
        publisher = self._publisher()
        done = await publisher.publish(by_name, key, run, reset=reset, lock_timeout=lock_timeout, supersede=supersede)
        if key is not None:
            try:
                await self._collector(publisher).collect_sink(key.sink, self._runtime.wall_ms())
            except BookKeeperError as error:
                log.warning("sink %s: what was not published could not be deleted: %s", key.sink, error)
        return done

    def _run_of(
        self, drafts: Mapping[str, Sequence[SegmentDraft]], key: PublishKey | None, staging: Staging | str | None
    ) -> str | None:
        """The path of the run. Raises `IncorrectParameterError` if it is not the one that the drafts and key want."""
        if staging is None:
            if any(draft.staged for some in drafts.values() for draft in some):
                raise IncorrectParameterError("these drafts belong to a run: give it as staging")
            return None
        expected = run_path(sink_path(self.path, key.sink), key.epoch, "") if key is not None else ""
        path = staging if isinstance(staging, str) else staging.path
        if not path.startswith(expected):
            raise IncorrectParameterError(f"run {path} is not of the sink and epoch that are published")
        return path

    async def collect_staged(self, *, lost_after: float = LOST_AFTER, lock_timeout: float | None = 30.0) -> Collected:
        """Finish what publishers began to publish, and delete ledgers that were staged and will not be published. To
        be called now and then, by anybody.

        - `lost_after`: seconds after which a run that nobody has heard of counts as dead.

        Raises `NotOwnerError` if a stream that is to be published to is written for longer than `lock_timeout` seconds.
        """
        return await self._collector(self._publisher(), lost_after).collect(self._runtime.wall_ms(), lock_timeout)

    def _publisher(self) -> Publisher:
        owned = _Owned(self._locked, self._segments, lambda name, first: self._truncation(name).supersede(first))
        return Publisher(self._tree, self.path, owned, self._ledgers, self._runtime)

    def _collector(self, publisher: Publisher, lost_after: float = LOST_AFTER) -> Collector:
        return Collector(self._tree, self.path, publisher, self._ledgers.delete, lost_after)

    # --- policies ---

    async def policy(self, name: str | None = None) -> StreamPolicy:
        """What a stream says for itself; without a name, what the namespace says for all. Raises
        `StreamMetadataError`."""
        found = await self._settings.get(name and self._logs.paths(name).name)
        return decode_policy(found.value, name or self.path) if found is not None else StreamPolicy()

    async def set_policy(self, policy: StreamPolicy, name: str | None = None) -> None:
        """Replace what a stream, or the namespace, says of itself; what else its record has stays.

        It holds for writers that are opened from now on, and for the next `purge`. Raises `StreamNotFoundError`;
        `StreamConflictError` if another client sets it, too.
        """
        logs = self._changeable()
        if name is not None:
            name = (await logs.load(name)).paths.name
        found = await self._settings.get(name)
        known = found.value if found is not None else {}
        expected = found.version if found is not None else None
        await self._settings.put(encode_policy(policy, known), stream=name, expected=expected)

    async def codec(self, name: str) -> Codec:
        """What the payloads of a stream are, by its policy and that of the namespace; `raw` if they do not say.

        `KeyedRecord` makes and reads those that are `kv1`. The stream need not be there. Raises `StreamMetadataError`.
        """
        return (await self._effective(name)).codec or Codec.RAW

    async def _effective(self, name: str) -> StreamPolicy:
        stream = self._logs.paths(name).name
        return decode_policy(await self._settings.effective(stream), stream)

    async def _ledgers_of(self, name: str) -> StreamLedgers:
        """Those of a stream's new segments."""
        if not self._obeys_policies:
            return self._ledgers
        return self._ledgers.like((await self._effective(name)).applied_to(self._ledgers.replication))

    # --- inside ---

    async def _locked(self, name: str, timeout: float | None) -> LogLock:
        await self._changeable().load(name)  # a lock of what is no stream would be its first record
        lock = self._lock_in(self._logs.paths(name).lock)
        await lock.acquire(timeout)
        return lock

    def _lock_in(self, directory: str) -> LogLock:
        return LogLock(self._tree, self._runtime, directory, self._client_id)

    def _segments(self, name: str, lock: LogLock | None = None, ledgers: StreamLedgers | None = None) -> NamedSegments:
        return NamedSegments(self._tree, self._logs, name, ledgers or self._ledgers, lock)

    # --- writing and reading ---

    def open_writer(
        self,
        name: str,
        *,
        policy: WritePolicy | None = None,
        create: bool = False,
        lock_timeout: float | None = 30.0,
    ) -> Opening[StreamWriter]:
        """Become the one writer of a stream; await it, or enter it with `async with`.

        - `policy`: when entries leave, when readers see them, when a segment is rolled. None: what `set_policy` has
          stored for the stream or the namespace, or the defaults.
        - `create`: make the stream if it is not there.
        - `lock_timeout`: seconds to wait for another writer to go; None: for ever, 0: not at all.

        What a former writer left is ended first: what it had acknowledged is in the stream, and it can append no more.
        Raises `NotOwnerError`, whose `owner` says who writes it; `StreamNotFoundError`.
        """

        async def opened() -> StreamWriter:
            if create:
                await self._changeable().create(name, exist_ok=True)
            ledgers = await self._ledgers_of(name)
            wanted = policy or (await self._effective(name)).write
            lock = await self._locked(name, lock_timeout)
            return await open_writer(self._runtime, self._segments(name, lock, ledgers), wanted)

        return Opening(opened(), "Namespace.open_writer")

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
    ) -> Opening[StreamReader]:
        """Read a stream; await it, or enter it with `async with`.

        - `start`: `EARLIEST`, `LATEST` (what comes from now on), a position or its text, or `TxId`: the first record
          with this transaction id or a higher one, or a time, where transaction ids are times. None: where the
          subscriber stopped, or else the first record that is left: nothing is missed.
        - `until`: end before this position.
        - `tail`: wait for more at the end. False: end there.
        - `idle_timeout`: raise `IdleReaderError` when nothing came for so many seconds. None: wait for ever.
        - `ignore_truncation`: also read what is marked truncated, as long as it is there.
        - `subscriber`: a name under which the reader's `ack` stores how far it has come. One reader at a time reads
          for a subscriber; retention keeps what it has not read.
        - `exclusive`: be the only reader of all that ask for it.
        - `lock_timeout`: seconds to wait for another reader to go; None: for ever, 0: not at all.

        Raises `StreamNotFoundError`; `SegmentFormatError` for a text that is no position; `NotOwnerError`, whose
        `owner` says who reads in its place.
        """

        async def opened() -> StreamReader:
            store = await self._existing(name)
            begin = None if start is None else _start(start)
            end = None if until is None else _position(until)
            right = await self._right_to_read(name, subscriber, exclusive, lock_timeout)
            if begin is None and subscriber is not None:
                begin = await self.subscriptions(name).get(subscriber)
            return StreamReader(
                store,
                EARLIEST if begin is None else begin,
                until=end,
                tail=tail,
                idle_timeout=idle_timeout,
                ignore_truncation=ignore_truncation,
                right=right,
            )

        return Opening(opened(), "Namespace.open_reader")

    async def _right_to_read(
        self, name: str, subscriber: str | None, exclusive: bool, timeout: float | None
    ) -> ReadRight | None:
        """None: anybody may. Raises `NotOwnerError`."""
        if subscriber is None and not exclusive:
            return None
        paths = self._changeable().paths(name)
        right = ReadRight(self.subscriptions(name), subscriber)
        directories = [paths.read_lock] if exclusive else []
        if subscriber is not None:
            directories.append(paths.subscriber_lock(subscriber))
        for directory in directories:
            await right.take(self._tree, directory, partial(self._lock_in, directory), timeout)
        return right

    def subscriptions(self, name: str) -> Subscriptions:
        """The subscribers of a stream, and how far they have come. Raises `InvalidStreamNameError`."""
        return Subscriptions(self._tree, self._changeable().paths(name))

    def offloads(self, name: str) -> OffloadIndex:
        """Where copies of a stream's segments are outside the cluster. Raises `InvalidStreamNameError`."""
        return OffloadIndex(self._tree, self._logs.paths(name))

    def list(self, prefix: str = "", *, recursive: bool = False) -> AsyncGenerator[str, None]:
        """Names of streams, ascending: those directly below `prefix`; with `recursive` all below it. A federated
        namespace gives all that begin with the prefix, by part.
        """
        if self._federation is None:
            return self._logs.names(prefix, recursive=recursive)
        return self._names_below(self._federation, f"{prefix}/" if prefix else "")

    async def _names_below(self, federation: Federation, prefix: str) -> AsyncGenerator[str, None]:
        async with aclosing(federation.names()) as names:
            async for name in names:
                if name.startswith(prefix):
                    yield name

    async def watch(self) -> AsyncGenerator[frozenset[str], None]:
        """The names of the streams directly below the namespace: now, and again whenever one comes or goes."""
        before: frozenset[str] | None = None
        logs = self._changeable()
        async with aclosing(watch_names(self._tree, self.path)) as changes:
            async for _ in changes:
                names = frozenset([name async for name in logs.names()])
                if names != before:
                    before = names
                    yield names

    async def watch_segments(self, name: str) -> AsyncGenerator[Sequence[SegmentMetadata], None]:
        """The segments of a stream, in order: now, and again whenever they change. Raises `StreamNotFoundError`."""
        async with aclosing((await self._existing(name)).watch()) as lists:
            async for segments in lists:
                yield segments

    async def unbind(self, *, force: bool = False) -> None:
        """Take the binding away: there is no namespace here any more. Settings stay, streams as well.

        Raises `NamespaceNotEmptyError` if there are streams, unless forced; they are out of reach until it is made
        again.
        """
        self._changeable()
        await unbind(self._tree, self.path, force=force)


def at_time(time: datetime) -> TxId:
    """Where a time begins in a stream whose transaction ids are milliseconds since 1970, as writers give them."""
    return TxId(max(int(time.timestamp() * 1000), 0))


def _position(given: DLSN | str) -> DLSN:
    """Raises `SegmentFormatError` for a text that is none."""
    return DLSN.parse(given) if isinstance(given, str) else given


def _start(given: DLSN | TxId | Latest | datetime | str) -> DLSN | TxId | Latest:
    if isinstance(given, datetime):
        return at_time(given)
    return DLSN.parse(given) if isinstance(given, str) else given
