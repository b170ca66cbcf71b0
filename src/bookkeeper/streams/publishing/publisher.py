"""Publishes drafts, in one transaction or by an intent that anybody can finish (spec streams §15.7).

Theory of operation

The publisher owns the streams while it publishes: it has their locks, and has ended what former writers left. One
transaction then holds all that makes the publish: the segments, the highest numbers of the streams at the versions
that were read, the sink's marker, and the state of the run with the tokens of its ledgers. Whatever was changed by
others since refuses all of it, and everything is looked at anew. So it does not matter who dies when, nor whether the
lock kept anybody out.

What is more than a transaction bears is published by *intent*: the drafts are stored with the run, in parts; one
transaction makes the run taken and lets the marker say that its parts are to be published. That decides. Then each part
is published by a transaction that also counts it in the marker. Who finds such a marker goes on with it before
anything else: the next publisher of the sink, or who cleans up. Segments become visible part by part.

An answer that was lost: the marker tells. Without a key there is none, and the ledgers tell: a ledger that is a segment
already was published.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from ...errors import (
    BookKeeperError,
    IncorrectParameterError,
    LockError,
    NoSuchLedgerOnMetadataError,
    NotOwnerError,
    RecordRefused,
    RecordTooLarge,
    StreamConflictError,
    StreamMetadataError,
    StreamStateError,
)
from ...metadata.tree import Create, Delete, Operation, RecordTree, Write
from ...metadata.versions import Version
from ...runtime.api import Runtime
from ..errors import StagingLostError
from ..ledgers import StreamLedgers
from ..named_segments import NamedSegments
from ..names.lock import LogLock
from ..recovery import recover_stream
from .drafts import Drafts, SegmentDraft, already_there, check_drafts, place
from .marker import Decision, Marker, PublishKey, State, decide, decode_marker, encode_marker
from .staging import Run, RunState, begin_run, open_run, part_path, run_path, sink_path, token_path

MOST_ATTEMPTS = 100
"""How often in a row a publish is tried again because another client was faster."""

MOST_AT_ONCE = 1000
"""Segments that one transaction publishes, where the store would take more."""

CHECKED_AT_ONCE = 50
"""Ledgers whose records are asked for at the same time."""

MOST_DRAFTS = 20_000
"""Of one publish: lists of children end at 1 MB on ZooKeeper."""


REFUSALS = (RecordRefused, NotOwnerError, LockError, StreamStateError)
"""Another client was faster, or this one's session has ended: all is to be looked at anew."""


@dataclass(frozen=True, slots=True)
class Published:
    """What became of a publish."""

    already: bool
    """It was published before: nothing was done."""
    streams: Mapping[str, tuple[int, int]]
    """First and last segment of each stream. If others wrote between the parts of an intent, there are segments of
    theirs in between."""


class Streams(Protocol):
    """What a publisher needs of a namespace."""

    @property
    def lock(self) -> Callable[[str, float | None], Awaitable[LogLock]]:
        """Takes the lock of a stream; seconds to wait for it."""

    @property
    def segments(self) -> Callable[[str, LogLock], NamedSegments]:
        """Its segments, as their owner sees them from now on."""

    @property
    def supersede(self) -> Callable[[str, int], Awaitable[Sequence[Operation]]]:
        """What truncates all that it has before a segment, in the transaction that adds that segment."""


@dataclass(frozen=True, slots=True)
class _Order:
    """What one attempt is to publish."""

    drafts: Drafts
    key: PublishKey | None
    version: Version | None
    """Of the marker that the decision to publish was made by."""
    run: str | None
    supersede: bool
    """What the streams have is truncated."""


@dataclass(frozen=True, slots=True)
class _Intent:
    """A publish that was decided, as it was found."""

    sink: str
    path: str
    """Of the marker."""
    marker: Marker
    version: Version

    @property
    def parts(self) -> str:
        """The run that has its parts."""
        return run_path(self.path, self.marker.epoch, self.marker.run)


class Publisher:
    """Publishes into the streams of one namespace."""

    def __init__(
        self, tree: RecordTree, namespace: str, streams: Streams, ledgers: StreamLedgers, runtime: Runtime
    ) -> None:
        self._tree = tree
        self._namespace = namespace
        self._streams = streams
        self._ledgers = ledgers
        self._runtime = runtime

    async def publish(
        self,
        drafts: Drafts,
        key: PublishKey | None,
        run: str | None,
        *,
        reset: bool,
        lock_timeout: float | None,
        supersede: bool = False,
    ) -> Published:
        """See `Namespace.publish_segments`."""
        check_drafts(drafts)
        if not drafts and key is None:
            raise IncorrectParameterError("there is nothing to publish, and no epoch that would count without")
        count = sum(map(len, drafts.values()))
        if count > MOST_DRAFTS:
            raise IncorrectParameterError(f"{count} segments at once are too many: {MOST_DRAFTS} at most")
        refused: BookKeeperError | None = None
        for attempt in range(MOST_ATTEMPTS):
            marker, version = await self.load(key.sink) if key is not None else (None, None)
            decision = Decision.PUBLISH if key is None else decide(marker, key, reset=reset)
            if decision is Decision.FINISH_FIRST and key is not None:
                await self.finish(key.sink, lock_timeout)
                continue
            if decision is Decision.DONE and marker is not None:
                return Published(True, marker.streams)
            if attempt == 0:
                await self._check_ledgers(drafts)
            async with self._locked(drafts, lock_timeout) as locks:
                try:
                    done = await self._publish(_Order(drafts, key, version, run, supersede), locks)
                except REFUSALS as error:
                    refused = error
                    continue
            if done is not None:
                return done
        raise StreamConflictError(f"{', '.join(drafts)}: other clients are faster all the time: {refused}")

    async def load(self, sink: str) -> tuple[Marker | None, Version | None]:
        """A sink's marker and its version. Raises `StreamMetadataError`."""
        path = sink_path(self._namespace, sink)
        node = await self._tree.get(path, fresh=True)
        if node is None:
            return None, None
        return (decode_marker(node.data, path) if node.data else None), node.version

    @asynccontextmanager
    async def _locked(self, names: Iterable[str], timeout: float | None) -> AsyncIterator[dict[str, LogLock]]:
        """In the order of their names, so that no two publishers wait for each other."""
        async with AsyncExitStack() as held:
            locks = {}
            for name in sorted(names):
                locks[name] = await self._streams.lock(name, timeout)
                held.push_async_callback(locks[name].release)
            yield locks

    async def _check_ledgers(self, drafts: Drafts) -> None:
        """Raises `IncorrectParameterError` for ledgers that are not as their drafts say, `StagingLostError` for those
        that were collected."""

        async def check(draft: SegmentDraft) -> None:
            try:
                found = await self._ledgers.metadata(draft.ledger_id)
            except NoSuchLedgerOnMetadataError:
                if not draft.staged:
                    raise
                raise StagingLostError(f"ledger {draft.ledger_id} was deleted, for its run was given up") from None
            if not found.closed or found.last_entry_id != draft.last_entry:
                end = f"closed with entry {found.last_entry_id}" if found.closed else "not closed"
                raise IncorrectParameterError(f"ledger {draft.ledger_id} is {end}, its draft says {draft.last_entry}")

        every = [draft for some in drafts.values() for draft in some]
        for start in range(0, len(every), CHECKED_AT_ONCE):
            await asyncio.gather(*map(check, every[start : start + CHECKED_AT_ONCE]))

    # --- one publish, by the owner of its streams ---

    async def _publish(self, order: _Order, locks: Mapping[str, LogLock]) -> Published | None:
        """None: look again. Raises `RecordRefused` if another client changed anything."""
        now_ms = self._runtime.wall_ms()
        operations, streams = await self._attach(order.drafts, locks, now_ms, decided=False)
        if operations is None and order.key is None:
            return Published(True, streams)
        if operations is None:
            raise IncorrectParameterError("these ledgers are segments already, of another epoch")
        if order.supersede:
            for name, (first, _) in sorted(streams.items()):
                operations += await self._streams.supersede(name, first)
        run = await open_run(self._tree, order.run) if order.run is not None else None
        if order.key is not None and order.version is None:
            await self._tree.make(sink_path(self._namespace, order.key.sink))
            return None
        marker = self._marker(order.key, run, streams, now_ms)
        operations += self._closing(order, marker, run)
        if len(operations) <= 3 * MOST_AT_ONCE and self._tree.limits.hold(operations):
            await self._tree.commit(operations)
            return Published(False, streams)
        if order.supersede:
            raise RecordTooLarge(
                f"{', '.join(streams)}: what is there cannot be truncated in the transaction that publishes: with "
                f"{len(operations)} changes it is too large. Truncate and purge first, then append"
            )
        if order.key is None or marker is None:
            raise RecordTooLarge("more segments than one transaction bears: give a sink and an epoch")
        await self._intend(order, marker, run)
        await self.finish(order.key.sink, None, locks)
        done, _ = await self.load(order.key.sink)
        return Published(False, done.streams) if done is not None else None

    async def _attach(
        self, drafts: Drafts, locks: Mapping[str, LogLock], now_ms: int, *, decided: bool
    ) -> tuple[list[Operation] | None, dict[str, tuple[int, int]]]:
        """What makes drafts segments of their streams, and which they are then. None: they are already."""
        operations: list[Operation] = []
        placed: dict[str, tuple[int, int]] = {}
        before: dict[str, tuple[int, int]] = {}
        for name, some in sorted(drafts.items()):
            store = self._streams.segments(name, locks[name])
            await recover_stream(store, now_ms)
            state = await store.load()
            if (there := already_there(state, some)) is not None:
                before[name] = there
                continue
            segments = place(state, some, now_ms, decided=decided)
            operations += await store.attach(segments)
            placed[name] = segments[0].number, segments[-1].number
        if before and placed:
            raise IncorrectParameterError(f"the ledgers for {', '.join(before)} are segments already, the others not")
        return (None, before) if before else (operations, placed)

    def _marker(
        self, key: PublishKey | None, run: Run | None, streams: Mapping[str, tuple[int, int]], now_ms: int
    ) -> Marker | None:
        if key is None:
            return None
        staged = run.name if run is not None else None
        return Marker(key.epoch, self.new_run(), staged, key.fingerprint, key.query, streams=streams, time=now_ms)

    def new_run(self) -> str:
        """A name that no other run has."""
        return f"{self._runtime.random('publish').getrandbits(64):016x}"

    def _closing(self, order: _Order, marker: Marker | None, run: Run | None) -> list[Operation]:
        """What the publishing transaction does besides."""
        closing: list[Operation] = []
        if order.key is not None and marker is not None and order.version is not None:
            closing.append(Write(sink_path(self._namespace, order.key.sink), encode_marker(marker), order.version))
        if run is not None:
            closing.append(run.becoming(RunState.TAKEN))
            closing += _token_ends(order.drafts, run.path)
        return closing

    # --- more than one transaction bears ---

    async def _intend(self, order: _Order, marker: Marker, run: Run | None) -> None:
        """Decide that all drafts are published. Raises `RecordRefused` if another client changed anything."""
        assert order.key is not None
        assert order.version is not None
        sink = sink_path(self._namespace, order.key.sink)
        own = await begin_run(self._tree, sink, marker.epoch, marker.run, marker.query, marker.time)
        parts = self._parts(order.drafts, own.path)
        for number, part in enumerate(parts):
            await self._tree.create(part_path(own.path, number), part)
        intent = replace(marker, state=State.PUBLISHING, streams={}, parts=len(parts))
        taken = [each.becoming(RunState.TAKEN) for each in (own, run) if each is not None]
        await self._tree.commit([Write(sink, encode_marker(intent), order.version), *taken])

    def _parts(self, drafts: Drafts, run: str) -> list[bytes]:
        """The drafts, in portions that one transaction bears."""
        pairs = [(name, draft) for name, some in sorted(drafts.items()) for draft in some]
        size = next(size for size in (MOST_AT_ONCE, 300, 100, 30, 10, 3, 1) if self._bears(pairs[:size], run))
        portions = [pairs[start : start + size] for start in range(0, len(pairs), size)]
        return [json.dumps([[name, draft.to_json()] for name, draft in portion]).encode() for portion in portions]

    def _bears(self, pairs: Sequence[tuple[str, SegmentDraft]], run: str) -> bool:
        """Whether a transaction is surely large enough for so many drafts."""
        longest = max(len(name) for name, _ in pairs)
        path = f"{self._namespace}/{'x' * longest}/<default>/ledgers/logrecs_{0:018d}"
        each: list[Operation] = [Create(path, bytes(200)), Delete(token_path(run, 0))]
        spare: list[Operation] = [Write(path, bytes(30)), Write(path, bytes(30)), Write(path, bytes(4096))]
        return self._tree.limits.hold(each * len(pairs) + spare * len({name for name, _ in pairs}))

    async def finish(self, sink: str, lock_timeout: float | None, locks: Mapping[str, LogLock] | None = None) -> bool:
        """Publish what was decided to be published; whether there was anything.

        - `locks`: those of the streams, if the caller has them.

        Raises `NotOwnerError` if one of the streams is written for longer than `lock_timeout` seconds.
        """
        worked, refusals = False, 0
        while refusals < MOST_ATTEMPTS:
            marker, version = await self.load(sink)
            if marker is None or version is None or marker.state is State.DONE:
                return worked
            worked = True
            found = _Intent(sink, sink_path(self._namespace, sink), marker, version)
            drafts = await self._part(found.parts, marker.next)
            if drafts is None:
                refusals += 1
                continue
            async with AsyncExitStack() as held:
                own = locks if locks is not None else await held.enter_async_context(self._locked(drafts, lock_timeout))
                try:
                    refusals = 0 if await self._publish_part(found, drafts, own) else refusals + 1
                except REFUSALS:
                    if locks is not None:
                        raise
                    refusals += 1
        raise StreamConflictError(f"sink {sink}: other clients are faster all the time, or its intent has lost a part")

    async def _part(self, run: str, number: int) -> dict[str, list[SegmentDraft]] | None:
        """None: it is gone, for somebody else has finished it."""
        path = part_path(run, number)
        node = await self._tree.get(path, fresh=True)
        if node is None:
            return None
        drafts: dict[str, list[SegmentDraft]] = {}
        try:
            for name, draft in json.loads(node.data):
                drafts.setdefault(name, []).append(SegmentDraft.from_json(draft))
        except (ValueError, TypeError) as error:
            raise StreamMetadataError(f"{path} has no drafts: {error}") from None
        return drafts

    async def _publish_part(self, intent: _Intent, drafts: Drafts, locks: Mapping[str, LogLock]) -> bool:
        """False: somebody else did. Raises `RecordRefused` if another client changed anything."""
        operations, streams = await self._attach(drafts, locks, self._runtime.wall_ms(), decided=True)
        if operations is None:
            return False
        marker = intent.marker
        following = marker.next + 1
        reached = {name: (marker.streams.get(name, span)[0], span[1]) for name, span in streams.items()}
        counted = replace(
            marker,
            next=following,
            state=State.DONE if following == marker.parts else State.PUBLISHING,
            streams={**marker.streams, **reached},
        )
        operations.append(Write(intent.path, encode_marker(counted), intent.version))
        if marker.staged is not None:
            operations += _token_ends(drafts, run_path(intent.path, marker.epoch, marker.staged))
        await self._tree.commit(operations)
        return True


def _token_ends(drafts: Drafts, run: str) -> list[Operation]:
    """The tokens go, for the ledgers are segments now."""
    return [Delete(token_path(run, draft.ledger_id)) for some in drafts.values() for draft in some if draft.staged]
