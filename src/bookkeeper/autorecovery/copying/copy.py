"""Copying entries of a ledger from bookies that have them to bookies that need them (spec autorecovery-admin §5.3).

Theory of operation

- Entries go in *stretches*. A stretch is read from the bookies that should have it, those of one bookie together; what
  one does not give, or gives damaged, is asked of the others. It has as many entries as are expected to fit in a piece
  (`pace`), beginning with `rereplicationEntryBatchSize`.
- What is written is what was read: the stored bytes, with their digest, once that has been verified. The recovery flag
  lets it pass fences. Java packages entries anew; readers cannot tell.
- While one stretch is written the next is read: no more than two are held.
- How many bytes are read in a second: see `pace`.
- An entry is copied when all that need it have acknowledged it. The first failure ends the copy. What was written stays
  and harms nobody: no record names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...client.adds.encoding import RECOVERY_FLAGS, packaged_add_encoder
from ...client.context import ClientContext
from ...client.reads.replicas import Copy, Replicas
from ...client.wire.add_channel import AddChannel
from ...errors import BKError, ReadError, from_code
from ...types import BookieId, WriteFlag
from ..fragments import Fragment
from ..moves import copies
from ..stats import WorkerStats
from .pace import Pace

MOST_ENTRIES = 256
"""Of a stretch, however small they are: what follows may be larger."""


@dataclass(slots=True)
class Progress:
    """What was copied: entries and bytes as they are stored, each counted once however many bookies needed it."""

    entries: int = 0
    bytes: int = 0

    @property
    def entry_size(self) -> int:
        """On average, at least 1."""
        return max(1, self.bytes // max(1, self.entries))


@dataclass(slots=True)
class Stretch:
    """Entries, and who needs each of them."""

    needed: Mapping[int, Sequence[BookieId]]
    entries: dict[int, bytes] = field(default_factory=dict)
    """As they are stored."""
    read_seconds: float = 0.0
    """How long it took to read them."""


class Copier:
    """Copies entries of one ledger."""

    def __init__(
        self,
        context: ClientContext,
        replicas: Replicas,
        master_key: bytes,
        pace: Pace,
        first_stretch: int,
        stats: WorkerStats,
    ) -> None:
        """`first_stretch`: entries that are copied together before anything is known of their size. `stats`: where it
        is counted."""
        self._context = context
        self._replicas = replicas
        self._master_key = master_key
        self._pace = pace
        self._first_stretch = first_stretch
        self._stats = stats
        self.progress = Progress()

    async def copy(self, fragment: Fragment, chosen: Mapping[int, BookieId], avoided: Sequence[BookieId] = ()) -> None:
        """Copy what these indexes of a fragment must hold to the bookies chosen for them.

        `avoided` are asked last. Raises `ReadError` for an entry that no bookie gives, and the `BKError` of a bookie
        that does not take its copy.
        """
        targets = _Targets(self._context, fragment.ledger_id, self._master_key)
        writing: asyncio.Task[None] | None = None
        try:
            async for stretch in self._stretches(fragment, chosen, frozenset(avoided)):
                if writing is not None:
                    await writing
                writing = self._context.tasks.spawn(self._write(targets, stretch), name="copies")
            if writing is not None:
                await writing
        finally:
            if writing is not None:
                writing.cancel()
                await asyncio.wait([writing])
            targets.close()

    async def _stretches(
        self, fragment: Fragment, chosen: Mapping[int, BookieId], avoided: frozenset[BookieId]
    ) -> AsyncIterator[Stretch]:
        """Read the fragment, stretch by stretch."""
        at = fragment.first
        while at <= fragment.last:
            count = self._next_count()
            needed = copies(fragment, chosen, at, at + count - 1)
            at += count
            if needed:
                stretch = Stretch(needed)
                await self._read(stretch, avoided)
                yield stretch

    def _next_count(self) -> int:
        if not self.progress.entries:
            return min(self._first_stretch, MOST_ENTRIES)
        return max(1, min(MOST_ENTRIES, self._pace.piece // self.progress.entry_size))

    async def _read(self, stretch: Stretch, avoided: frozenset[BookieId]) -> None:
        missing: list[int] = [*stretch.needed]
        attempt = 0
        started = self._context.runtime.now()
        while missing:
            missing = await self._read_from(stretch, self._sources(missing, attempt, avoided))
            attempt += 1
        sizes = [*map(len, stretch.entries.values())]
        self.progress.entries += len(sizes)
        self.progress.bytes += sum(sizes)
        stretch.read_seconds = self._context.runtime.now() - started
        self._stats.read(sizes, stretch.read_seconds)
        await self._pace.spend(sum(sizes))

    async def _write(self, targets: _Targets, stretch: Stretch) -> None:
        started = self._context.runtime.now()
        await targets.write(stretch)
        sizes = [len(stretch.entries[entry]) for entry, bookies in stretch.needed.items() for _ in bookies]
        seconds = self._context.runtime.now() - started
        self._stats.written(sizes, seconds)
        self._pace.took(stretch.read_seconds + seconds)

    def _sources(self, entries: Sequence[int], attempt: int, avoided: frozenset[BookieId]) -> dict[BookieId, list[int]]:
        """Whom to ask for which entries, at this attempt. Raises `ReadError`."""
        sources: dict[BookieId, list[int]] = {}
        for entry_id in entries:
            bookies = sorted(self._replicas.bookies(entry_id), key=avoided.__contains__)
            if attempt >= len(bookies):
                self._stats.NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION += 1
                raise ReadError(
                    f"no bookie gives entry {entry_id}", ledger_id=self._replicas.metadata.ledger_id, entry_id=entry_id
                )
            sources.setdefault(bookies[attempt], []).append(entry_id)
        return sources

    async def _read_from(self, stretch: Stretch, sources: Mapping[BookieId, Sequence[int]]) -> list[int]:
        """Ask all of them side by side; returns the entries that are still missing, ascending."""

        async def ask(bookie: BookieId, entries: Sequence[int]) -> list[int]:
            missing = []
            async for entry_id, reply in self._replicas.each(bookie, entries):
                if isinstance(self._replicas.examine(entry_id, reply), Copy):
                    stretch.entries[entry_id] = reply.body
                else:
                    missing.append(entry_id)
            return missing

        answers = await asyncio.gather(*(ask(bookie, entries) for bookie, entries in sources.items()))
        return sorted(entry_id for missing in answers for entry_id in missing)


class _Targets:
    """The bookies that are written to. An `AddSink`."""

    def __init__(self, context: ClientContext, ledger_id: int, master_key: bytes) -> None:
        self._context = context
        self._ledger_id = ledger_id
        self._version = context.bookies.add_version(WriteFlag.NONE)
        self._encode = packaged_add_encoder(self._version, ledger_id, master_key, RECOVERY_FLAGS)
        self._channels: dict[BookieId, AddChannel] = {}
        self._unanswered: dict[BookieId, set[int]] = {}
        self._done: asyncio.Future[None] | None = None

    async def write(self, stretch: Stretch) -> None:
        """Returns when every entry is acknowledged by every bookie that needs it. Raises the `BKError` of the first
        that does not take one."""
        assert self._done is None or self._done.done(), "one stretch at a time"
        frames: dict[BookieId, list[bytes]] = {}
        for entry_id, bookies in stretch.needed.items():
            frame = self._encode(entry_id, stretch.entries[entry_id])
            for bookie in bookies:
                frames.setdefault(bookie, []).append(frame)
                self._unanswered.setdefault(bookie, set()).add(entry_id)
        self._done = asyncio.get_running_loop().create_future()
        for bookie, parts in frames.items():
            self._channel(bookie).send(b"".join(parts), len(parts))
        await self._done

    def _channel(self, bookie: BookieId) -> AddChannel:
        channel = self._channels.get(bookie)
        if channel is None:
            channel = self._context.bookies.open_add_channel(bookie, self._ledger_id, self, version=self._version)
            self._channels[bookie] = channel
        return channel

    def close(self) -> None:
        """Hear no more."""
        for channel in self._channels.values():
            channel.close()

    def on_add_responses(self, bookie: BookieId, acked: list[int], failed: list[tuple[int, int]]) -> None:
        if failed:
            entry_id, code = failed[0]
            self._fail(
                from_code(code, f"{bookie} does not take its copy", ledger_id=self._ledger_id, entry_id=entry_id)
            )
            return
        unanswered = self._unanswered.get(bookie, set())
        unanswered.difference_update(acked)
        if not unanswered:
            self._unanswered.pop(bookie, None)
        if not self._unanswered and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def on_add_stored(self, bookie: BookieId, entry_id: int) -> None:
        self.on_add_responses(bookie, [entry_id], [])

    def on_channel_lost(self, _bookie: BookieId, error: BKError) -> None:
        self._fail(error)

    def on_writable(self, bookie: BookieId) -> None:
        """A stretch is sent whatever is on its way: it is small."""

    def _fail(self, error: BKError) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)
