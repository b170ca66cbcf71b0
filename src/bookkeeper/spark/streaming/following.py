"""Follows streams and ledgers for a query: its offsets, and the work of each batch (spec streams §17.4).

Everything is decided by the offsets that Spark hands over, and by what is in the cluster: a process that is started
anew goes on as the one before it would have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ...client.client import BookKeeper
from ...errors import StreamNotFoundError
from ...runtime.api import Runtime
from ...streams.dlsn import DLSN
from ...streams.namespace import Namespace
from ...streams.retention.offloaded import Offloaded
from ..archive.ranges import ArchivedRange
from ..bounds import ALL
from ..errors import OptionError
from ..planning import EntryRange, Snapshot, counted, cut, into_partitions
from .admission import UNLIMITED, admit, waiting
from .looking import Seen, Sight
from .offsets import Offset
from .spans import Log, Place, Reach, between, resume
from .starting import LATEST, AtTxid, Starting
from .stream_options import StreamOptions, check_count


@dataclass(frozen=True, slots=True)
class Facts:
    """What a task must know of a segment."""

    stream: str
    number: int
    enveloped: bool
    first_txid: int
    sequence_id: int
    """Of its first record."""
    first: tuple[int, int]
    """Records before this entry and slot are left out."""
    stop: tuple[int, int] | None = None
    """And those from this entry and slot on; None: none are."""
    keyed: bool = False
    """Whether the stream's codec is kv1."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a task reads: ranges of entries, in order."""

    ranges: tuple[EntryRange, ...]
    facts: Mapping[int, Facts]
    """Of segments, by ledger; none for raw ledgers."""
    archived: tuple[ArchivedRange, ...] = ()
    """Before all that: entries of segments that are read from files."""


@dataclass(frozen=True, slots=True)
class _View:
    """Logs as they were at one moment, and where reading goes on in each."""

    logs: Mapping[str, Log]
    """Those that are there."""
    starts: Mapping[str, Place]
    """Of all."""

    @property
    def ends(self) -> dict[str, Place]:
        return {name: self.logs[name].end(start) if name in self.logs else start for name, start in self.starts.items()}


class Follower:
    """The logs of one query."""

    def __init__(
        self, client: BookKeeper, namespace: Namespace | None, options: StreamOptions, runtime: Runtime
    ) -> None:
        """`namespace`: None for raw ledgers."""
        self._options = options
        self._runtime = runtime
        self._sight = Sight(client, namespace, options.reads, options.read_from)
        self.target: Mapping[str, Place] | None = None
        """Nothing behind it is read: for a query that ends with what is there."""
        self._view: _View | None = None
        self._looked = 0.0
        self._last_batch: float | None = None
        """When one was made last, by this process."""

    async def begin(self) -> Offset:
        """Where a new query starts. Raises `StreamNotFoundError`, `NoSuchLedgerOnMetadataError`."""
        return Offset(self._options.kind, await self.places(self._options.starting), first=True)

    async def places(self, wanted: Starting) -> dict[str, Place]:
        """What the options say, as places.

        Raises `OptionError` for a time that no record is as late as, `StreamNotFoundError`,
        `NoSuchLedgerOnMetadataError`.
        """
        options = self._options
        if options.wait_for_streams:
            await self._sight.wait_for(options.logs, options.wait_for_streams, options.min_poll)
        found: dict[str, Place] = {}
        for name in await self._names():
            try:
                found[name] = await self._place(name, wanted)
            except StreamNotFoundError:
                if self._options.pattern is None:
                    raise  # else it was deleted after it was listed
        return found

    async def _names(self) -> tuple[str, ...]:
        """What is read: with a pattern all streams that fit it now. Raises `OptionError` if they are too many."""
        if self._options.pattern is None:
            return self._options.logs
        names = tuple([name for name in await self._sight.names() if self._options.reads_stream(name)])
        check_count(names)
        return names

    async def _place(self, name: str, wanted: Starting) -> Place:
        begin = wanted.of(name)
        position = await self._sight.find(name, begin.txid) if isinstance(begin, AtTxid) else None
        log = await self._sight.look(name, None)
        assert log is not None
        match begin:
            case AtTxid(txid):
                assert position is not None
                place, end = log.place(position.segment, position.entry, position.slot), log.end(log.earliest)
                if place.where < end.where:
                    return max(place, log.earliest, key=lambda at: at.where)
                if wanted.must_exist:
                    raise OptionError(
                        f"stream {name} has no record with transaction id {txid} or a higher one; with"
                        " startingOffsetsByTimestampStrategy=latest it is read from its end"
                    )
                return end
            case (int(number), int(entry), int(slot)):
                return log.place(number, entry, slot)
        return log.end(log.earliest) if begin == LATEST else log.earliest

    async def fix_target(self) -> None:
        """Read no further than what is there now. Raises `StreamNotFoundError`, `NoSuchLedgerOnMetadataError`."""
        self.target = await self.places(Starting(LATEST, {}))

    async def tails(self) -> Offset:
        """The ends of all logs, as they were seen last; where nobody has looked yet, as they are."""
        ends = self._view.ends if self._view is not None else await self.places(Starting(LATEST, {}))
        return Offset(self._options.kind, ends)

    async def advance(self, start: Offset, *, limited: bool) -> Offset:
        """Where a batch ends that begins at `start`; `start` itself if there is nothing to read.

        Raises `StreamLossError`.
        """
        self._check(start)
        view = await self._looked_at(start)
        ends = view.ends
        if self.target is not None:
            ends = {name: _least(end, self.target.get(name), view.starts[name]) for name, end in ends.items()}
        logs = {name: view.logs.get(name) or Log(name, ()) for name in ends}
        newcomers = {name: place for name, place in view.starts.items() if name not in start.places}
        if limited and self.target is None and not start.first and not self._is_due(view, ends):
            return start
        end = start.to(admit(logs, view.starts, ends, self._options.limits if limited else UNLIMITED), newcomers)
        if end is not start:
            self._last_batch = self._runtime.now()
        return end

    def _is_due(self, view: _View, ends: Mapping[str, Place]) -> bool:
        waited = None if self._last_batch is None else self._runtime.now() - self._last_batch
        return self._options.patience.is_over(waiting(view.logs, view.starts, ends), waited)

    async def remember(self, reached: Offset) -> None:
        """Store how far the query has come, for those who watch it, and so that what follows is kept. What fails is
        told in the log: the checkpoint is what counts."""
        if self._options.source_id is not None:
            for name, place in reached.places.items():
                await self._sight.subscribe(self._options.source_id, name, DLSN(*place.where))

    def _check(self, offset: Offset) -> None:
        """Raises `OptionError` for an offset of another query."""
        options, names = self._options, set(offset.places)
        same = names == set(options.logs) if options.pattern is None else all(map(options.reads_stream, names))
        if offset.kind != options.kind or not same:
            raise OptionError(
                f"the checkpoint is of a query that reads {', '.join(sorted(names))}: to read "
                f"{options.pattern or ', '.join(options.logs)} begin a new one, with another checkpoint"
            )

    async def _looked_at(self, start: Offset) -> _View:
        """The logs behind an offset; looked at once in a while only, if all was read that was seen."""
        now = self._runtime.now()
        view = self._view
        same = view is not None and {n: p.where for n, p in start.places.items()} == {
            n: p.where for n, p in view.ends.items()
        }
        if view is not None and same and now - self._looked < self._options.min_poll:
            return _View(view.logs, {name: view.ends[name] for name in start.places})
        self._view = await self._view_from({**start.places, **await self._newcomers(start.places)})
        self._looked = now
        return self._view

    async def _newcomers(self, known: Mapping[str, Place]) -> dict[str, Place]:
        """Streams that fit the pattern and were not read yet, and where they begin; none for a query that ends with
        what was there when it started."""
        if self._options.pattern is None or self.target is not None:
            return {}
        found: dict[str, Place] = {}
        for name in await self._names():
            with suppress(StreamNotFoundError):  # deleted after it was listed
                if name not in known and (log := await self._sight.look(name, None)) is not None:
                    found[name] = log.earliest
        return found

    async def _view_from(self, places: Mapping[str, Place]) -> _View:
        logs: dict[str, Log] = {}
        starts: dict[str, Place] = {}
        for name, place in places.items():
            log = await self._sight.look(name, place)
            starts[name] = place
            if log is None:
                continue
            resumed = resume(log, place)
            if resumed.lost is not None:
                self._sight.lose(name, resumed.lost)
                log = await self._sight.look(name, resumed.place) or log
            logs[name], starts[name] = log, resumed.place
        self._sight.forget(
            logs, {span.ledger_id for log in logs.values() for span in log.spans if span.end is not None}
        )
        return _View(logs, starts)

    async def work(self, start: Offset, end: Offset) -> list[Work]:
        """The tasks of a batch. Raises `StreamLossError`."""
        self._check(end)
        start = start.start_for(end)
        return await self.work_between(start.places, end.places)

    def _seen(self, starts: Mapping[str, Place], ends: Mapping[str, Place]) -> _View | None:
        """The last view, if a batch begins where it does and ends within it: then nothing is looked at again."""
        view = self._view
        if view is None or any(view.starts.get(name) != place for name, place in starts.items()):
            return None
        reached = view.ends
        within = all(name in reached and end.where <= reached[name].where for name, end in ends.items())
        return view if within else None

    async def work_between(self, starts: Mapping[str, Place], ends: Mapping[str, Place]) -> list[Work]:
        """The tasks that read from one place of each log to another."""
        view = self._seen(starts, ends) or await self._view_from(starts)
        ranges: list[EntryRange] = []
        archived: list[ArchivedRange] = []
        facts: dict[int, Facts] = {}
        for name, log in view.logs.items():
            place, end = view.starts[name], ends[name]
            reached = log.end(place)
            if reached.where < end.where:
                self._sight.lose(name, f"it ends at {reached}, and was to be read to {end}")
            reaches = between(log, place, end)
            keyed = bool(reaches) and await self._sight.keyed(name)
            for reach in reaches:
                seen = self._sight.seen[reach.span.ledger_id]
                if not self._may_hold(seen, keyed):
                    continue
                if seen.copy is not None:
                    archived.append(_archived(seen.copy, reach))
                    continue
                assert seen.snapshot is not None
                ranges += self._cut(seen.snapshot, reach)
                if (segment := seen.segment) is not None:
                    facts[segment.ledger_id] = Facts(
                        name,
                        segment.number,
                        segment.enveloped,
                        segment.first_txid,
                        segment.sequence_id,
                        (reach.first, reach.first_slot),
                        None if reach.stop_slot is None else (reach.last, reach.stop_slot),
                        keyed,
                    )
        reads = self._options.reads
        most = reads.max_partition_records
        first = [Work((), {}, tuple(some)) for some in _packed(archived, reads.target_partition_bytes)]
        return first + [
            Work(some, {piece.ledger_id: facts[piece.ledger_id] for piece in some if piece.ledger_id in facts})
            for some in into_partitions(ranges, reads.target_partition_bytes, reads.min_partitions, most)
        ]

    def _may_hold(self, seen: Seen, keyed: bool) -> bool:
        """Whether a segment may have records that are wanted."""
        options = self._options
        return seen.segment is None or options.where.may_hold(
            seen.segment, keyed=keyed, by_txid=options.txid_as_timestamp
        )

    def _cut(self, snapshot: Snapshot, reach: Reach) -> list[EntryRange]:
        ranges = cut(snapshot, ALL.within(reach.first, reach.last))
        most = self._options.reads.max_partition_records
        if most is None:
            return ranges
        return [part for piece in ranges for part in counted(piece, reach.span.entry_records, most)]


def _archived(copy: Offloaded, reach: Reach) -> ArchivedRange:
    size = int(reach.span.entry_bytes * (reach.last - reach.first + 1))
    return ArchivedRange(copy.uri, copy.rows, reach.first, reach.last, reach.first_slot, reach.stop_slot, size)


def _packed(ranges: Sequence[ArchivedRange], wanted: int) -> Iterator[list[ArchivedRange]]:
    """In parts of about so many bytes, in order: large files in several, small ones together."""
    some: list[ArchivedRange] = []
    size = 0
    for piece in (part for each in ranges for part in each.parts(wanted)):
        if some and size + piece.bytes > wanted:
            yield some
            some, size = [], 0
        some.append(piece)
        size += piece.bytes
    if some:
        yield some


def _least(end: Place, target: Place | None, start: Place) -> Place:
    """As far as the target, but never back."""
    if target is None or end.where <= target.where:
        return end
    return target if target.where > start.where else start
