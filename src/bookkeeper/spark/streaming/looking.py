"""Looks at streams and ledgers in the cluster: what can be read of them now (spec streams §17.4).

What is closed cannot change, so it is looked up once. Of what is still written a quorum of its bookies is asked for the
last entry confirmed; its writer is not disturbed.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter

from ...client.client import BookKeeper
from ...errors import BookKeeperError, NoSuchLedgerOnMetadataError, StreamNotFoundError
from ...streams.dlsn import DLSN
from ...streams.formats.keyed import Codec
from ...streams.formats.segment import SegmentMetadata, Truncation
from ...streams.namespace import Namespace
from ...streams.reading.cursor import numbered
from ...streams.retention.offloaded import Offloaded, OffloadIndex
from ...streams.segments import SegmentStore
from ..archive.segment_file import first_from
from ..errors import OptionError, StreamLossError
from ..options import ReadOptions
from ..planning import AT_ONCE, Snapshot, gather_bounded, snapshot_of
from .spans import Log, Place, Span

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a span is made of."""

    snapshot: Snapshot | None
    """Of its ledger; None: it is read from the archive."""
    segment: SegmentMetadata | None
    """None: a raw ledger."""
    copy: Offloaded | None = None
    """In the archive."""


class Sight:
    """What is known of the logs of one query. The same ledgers are not looked up twice, once they are closed."""

    def __init__(
        self, client: BookKeeper, namespace: Namespace | None, reads: ReadOptions, read_from: str = "auto"
    ) -> None:
        """`namespace`: None for raw ledgers. `read_from`: as in `StreamOptions`."""
        self._client = client
        self._namespace = namespace
        self._reads = reads
        self._read_from = read_from
        self._stores: dict[str, SegmentStore] = {}
        self._indexes: dict[str, OffloadIndex] = {}
        self._closed: dict[int, Snapshot] = {}
        self.seen: dict[int, Seen] = {}
        """By ledger; of the last look at each log."""

    async def look(self, name: str, since: Place | None) -> Log | None:
        """A log as it is now. `since`: what is before was read, and is not looked at.

        Raises `StreamNotFoundError`, `NoSuchLedgerOnMetadataError` for what is not there, unless something of it was
        read before; then `StreamLossError` or, with failOnDataLoss=false, None.
        """
        try:
            if self._namespace is None:
                return await self._look_at_ledger(name)
            return await self._look_at_stream(self._namespace, name, since)
        except (StreamNotFoundError, NoSuchLedgerOnMetadataError) as error:
            if since is None:
                raise
            self.lose(name, f"it is gone: {error}")
            return None

    def lose(self, name: str, why: str) -> None:
        """Something that was to be read is not there. Raises `StreamLossError` unless that is allowed."""
        if self._reads.fail_on_data_loss:
            raise StreamLossError(name, why)
        log.warning("%s: %s; reading goes on with what is left", name, why)

    def forget(self, names: Collection[str], kept: set[int]) -> None:
        """Keep only these streams and ledgers in mind."""
        self._stores = {name: store for name, store in self._stores.items() if name in names}
        self._indexes = {name: index for name, index in self._indexes.items() if name in names}
        self._closed = {ledger: snapshot for ledger, snapshot in self._closed.items() if ledger in kept}
        self.seen = {ledger: seen for ledger, seen in self.seen.items() if ledger in kept}

    async def wait_for(self, names: Iterable[str], timeout: float, pause: float) -> None:
        """Until there are streams of these names, or the time is over; who looks at them then says what is missing.

        - `pause`: seconds between two looks.
        """
        assert self._namespace is not None  # ledgers are not waited for
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                for name in names:
                    while not await self._namespace.exists(name):
                        log.info("stream %s is not there yet", name)
                        await asyncio.sleep(pause)

    async def names(self) -> list[str]:
        """All streams of the namespace."""
        assert self._namespace is not None  # only streams can have a pattern
        return [name async for name in self._namespace.list(recursive=True)]

    async def keyed(self, name: str) -> bool:
        """Whether the records of a stream have keys; those of a ledger have none."""
        return self._namespace is not None and await self._namespace.codec(name) is Codec.KV1

    async def subscribe(self, subscriber: str, name: str, position: DLSN) -> None:
        """Store where a subscriber of a stream is; what fails is told in the log."""
        assert self._namespace is not None  # ledgers have no subscribers
        try:
            await self._namespace.subscriptions(name).commit(subscriber, position)
        except BookKeeperError as error:
            log.warning("%s: how far %s has come could not be stored: %s", name, subscriber, error)

    async def find(self, name: str, txid: int) -> DLSN:
        """Where the first record of a stream is with this transaction id or a higher one, or would be. Raises
        `StreamNotFoundError`, `ArchiveError`."""
        assert self._namespace is not None  # ledgers have no transaction ids
        segments = await self._segments(self._namespace, name)
        copies = await self._copies(self._namespace, name)
        for segment in _merged(segments, copies):
            copy = copies.get(segment.number)
            if copy is not None and segment.last_txid >= txid and self._in_archive(segment, copy, segments):
                found = first_from(copy.uri, copy.rows, txid)
                if found is not None:
                    return DLSN(segment.number, *found)
        return await self._namespace.position_for(name, txid=txid)

    async def _segments(self, namespace: Namespace, name: str) -> Sequence[SegmentMetadata]:
        """Of a stream. Only those that are new are read, if it was looked at before."""
        store = self._stores.get(name)
        if store is None:
            store = self._stores[name] = await namespace.segment_store(name)
        return (await store.load()).segments

    async def _copies(self, namespace: Namespace, name: str) -> Mapping[int, Offloaded]:
        """In the archive, by the segments' numbers."""
        if self._read_from == "ledger":
            return {}
        index = self._indexes.get(name)
        if index is None:
            index = self._indexes[name] = namespace.offloads(name)
        return await index.load()

    def _in_archive(self, segment: SegmentMetadata, copy: Offloaded | None, live: Sequence[SegmentMetadata]) -> bool:
        """Whether a segment is read there. If its ledger is gone, it is in any case. `live`: in order."""
        if copy is None:
            return False
        if self._read_from == "archive" or not _is_among(segment, live):
            return True
        return segment.truncation is Truncation.TRUNCATED or segment.first > copy.segment.first

    async def _look_at_ledger(self, name: str) -> Log:
        snapshot = await self._snapshot(int(name))
        self.seen[int(name)] = Seen(snapshot, None)
        return Log(name, (_span(0, snapshot),))

    async def _look_at_stream(self, namespace: Namespace, name: str, since: Place | None) -> Log:
        live = await self._segments(namespace, name)
        copies = await self._copies(namespace, name)
        segments = _merged(live, copies)
        if any(segment.number == 0 for segment in segments):
            raise OptionError(f"stream {name} has segments without numbers, as DistributedLog wrote long ago")
        least = since.number if since is not None else 0
        archived = {s.number for s in segments if self._in_archive(s, copies.get(s.number), live)}
        wanted = [
            s
            for s in segments
            if s.number >= least and s.number not in archived and s.truncation is not Truncation.TRUNCATED
        ]
        found = await self._snapshots(wanted)
        spans = []
        for segment in segments:
            snapshot, copy = found.get(segment.ledger_id), copies.get(segment.number)
            gone = segment.ledger_id in found and snapshot is None and segment.completed
            if snapshot is not None:
                self.seen[segment.ledger_id] = Seen(snapshot, numbered(segments, segment))
                spans.append(_span(segment.number, snapshot, segment))
            elif copy is not None and segment.number >= least and (gone or segment.number in archived):
                self.seen[segment.ledger_id] = Seen(None, segment, copy)
                spans.append(_archived(copy))
            elif gone:
                self.lose(name, f"ledger {segment.ledger_id} of segment {segment.number} is gone")
                own = since is not None and since.number == segment.number
                spans.append(Span(segment.number, segment.ledger_id, since.entry if own and since else 0, final=True))
            else:
                truncated = segment.truncation is Truncation.TRUNCATED and segment.number not in archived
                spans.append(Span(segment.number, segment.ledger_id, truncated=truncated))
        return Log(name, tuple(spans))

    async def _snapshots(self, segments: Sequence[SegmentMetadata]) -> dict[int, Snapshot | None]:
        """By ledger; None: it is not there."""

        async def take(segment: SegmentMetadata) -> Snapshot | None:
            try:
                return await self._snapshot(segment.ledger_id)
            except NoSuchLedgerOnMetadataError:
                return None

        taken = await gather_bounded(take, segments, AT_ONCE)
        return dict(zip((segment.ledger_id for segment in segments), taken, strict=True))

    async def _snapshot(self, ledger_id: int) -> Snapshot:
        known = self._closed.get(ledger_id)
        if known is not None:
            return known
        metadata = await self._client.get_ledger_metadata(ledger_id)
        snapshot = await snapshot_of(self._client, metadata, self._reads)
        assert snapshot is not None  # openLedgers is lac
        if snapshot.metadata.closed:
            self._closed[ledger_id] = snapshot
        return snapshot


def _span(number: int, snapshot: Snapshot, segment: SegmentMetadata | None = None) -> Span:
    closed = snapshot.metadata.closed
    return Span(
        number,
        snapshot.ledger_id,
        snapshot.last + 1,
        closed and (segment is None or segment.completed or snapshot.last >= 0),
        snapshot.bytes,
        segment.records if segment is not None and segment.completed else None,
        first_entry=segment.first.entry if segment is not None else 0,
        first_slot=segment.first.slot if segment is not None else 0,
    )


def _archived(copy: Offloaded) -> Span:
    segment = copy.segment
    first = segment.first
    return Span(
        segment.number,
        segment.ledger_id,
        copy.entries,
        final=True,
        bytes=copy.bytes,
        records=copy.rows,
        first_entry=first.entry,
        first_slot=first.slot,
    )


def _merged(live: Sequence[SegmentMetadata], copies: Mapping[int, Offloaded]) -> Sequence[SegmentMetadata]:
    """The segments that there are, and before them those of which there are only copies."""
    numbers = {segment.number for segment in live}
    gone = [copy.segment for number, copy in copies.items() if number not in numbers]
    return sorted([*live, *gone], key=lambda segment: segment.order) if gone else live


def _is_among(segment: SegmentMetadata, live: Sequence[SegmentMetadata]) -> bool:
    """Whether it is one of these, which are in order."""
    place = bisect_left(live, segment.order, key=attrgetter("order"))
    return place < len(live) and live[place] == segment
