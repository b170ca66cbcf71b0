"""Stores of segments over the ledgers of a client, in memory and by name: what writers and readers are tested with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from bookkeeper.client.client import BookKeeper
from bookkeeper.client.reader import LedgerReader
from bookkeeper.client.writer import LedgerWriter
from bookkeeper.errors import NotOwnerError
from bookkeeper.streams.formats.segment import SegmentMetadata, decode_segment, encode_segment
from bookkeeper.streams.ledgers import Replication, StreamLedgers
from bookkeeper.streams.named_segments import CODEC, NamedSegments
from bookkeeper.streams.names.head import LogHead
from bookkeeper.streams.names.lock import LogLock
from bookkeeper.streams.names.logs import Logs
from bookkeeper.streams.names.paths import completed_name
from bookkeeper.streams.names.segments import SegmentList
from bookkeeper.streams.segments import SegmentStore, StreamState
from bookkeeper.types import DigestType


class StoreUnderTest(SegmentStore, Protocol):
    """A stream that has one owner after another, and what tests ask of it."""

    def another(self) -> StoreUnderTest:
        """Another client's view of the stream; no lock keeps it out."""

    async def now(self) -> StreamState:
        """As it is, whoever has changed it."""

    async def replace(self, segment: SegmentMetadata) -> None:
        """Give a completed segment other data."""


class Records:
    """What all owners and readers of a stream see. Bytes, so that what is stored is what the format can hold."""

    def __init__(self) -> None:
        self.segments: dict[tuple[int, bool], bytes] = {}
        self.max_segment = 0
        self.max_txid = 0
        self.version = 0
        self.changed = asyncio.Condition()

    def list(self) -> list[SegmentMetadata]:
        return sorted(map(decode_segment, self.segments.values()), key=lambda segment: segment.order)

    async def change(self) -> None:
        self.version += 1
        async with self.changed:
            self.changed.notify_all()


class MemorySegmentStore:
    """One client's view of a stream; another owner's changes make its own fail."""

    def __init__(self, client: BookKeeper, records: Records | None = None) -> None:
        self.records = records or Records()
        self._client = client
        self._seen: int | None = None
        self._begun = 0
        """The number of the last segment that this owner began."""
        self.ledgers: list[LedgerWriter] = []
        """All that were made."""

    def another(self) -> MemorySegmentStore:
        return MemorySegmentStore(self._client, self.records)

    async def now(self) -> StreamState:
        return StreamState(self.records.list(), self.records.max_segment, self.records.max_txid)

    async def load(self) -> StreamState:
        if self._seen is None:
            self._seen = self.records.version
        if self._begun and self.records.max_segment > self._begun:
            raise NotOwnerError("another client has begun a segment")
        return await self.now()

    async def _own(self) -> None:
        if self._seen != self.records.version:
            raise NotOwnerError("another client has taken over")

    async def _changed(self) -> None:
        await self.records.change()
        self._seen = self.records.version

    async def start(self, number: int, first_txid: int) -> tuple[SegmentMetadata, LedgerWriter]:
        await self._own()
        ledger = await self._client.create_ledger(digest=DigestType.CRC32, ensemble_size=3, write_quorum=3)
        self.ledgers.append(ledger)
        segment = SegmentMetadata(ledger_id=ledger.id, first_txid=first_txid, number=number)
        self.records.segments[number, False] = encode_segment(segment)
        self.records.max_segment = self._begun = number
        await self._changed()
        return segment, ledger

    async def complete(self, segment: SegmentMetadata) -> None:
        await self._own()
        del self.records.segments[segment.number, False]
        self.records.segments[segment.number, True] = encode_segment(segment)
        self.records.max_txid = max(segment.last_txid, self.records.max_txid)
        await self._changed()

    async def replace(self, segment: SegmentMetadata) -> None:
        self.records.segments[segment.number, segment.completed] = encode_segment(segment)
        await self._changed()

    async def remove(self, segment: SegmentMetadata) -> None:
        await self._own()
        await self._client.delete_ledger(segment.ledger_id)
        del self.records.segments[segment.number, segment.completed]
        await self._changed()

    async def open(self, segment: SegmentMetadata) -> LedgerReader:
        return await self._client.open_ledger(segment.ledger_id)

    async def recover(self, segment: SegmentMetadata) -> LedgerReader:
        return await self._client.recover_ledger(segment.ledger_id)

    async def release(self) -> None:
        """There is no lock."""

    async def watch(self) -> AsyncGenerator[Sequence[SegmentMetadata], None]:
        seen = -1
        while True:
            async with self.records.changed:
                await self.records.changed.wait_for(lambda seen=seen: self.records.version != seen)  # type: ignore[misc]
            seen = self.records.version
            yield self.records.list()


NAMESPACE = "/streams"
NAME = "a"


class NoLock(LogLock):
    """Lets everybody in."""

    def check(self) -> None:
        """Nothing."""

    async def release(self) -> None:
        """Nothing."""


class NamedStore(NamedSegments):
    """The stream `NAME` as an owner has it whom no lock keeps out; `make_stream` makes it first."""

    def __init__(self, client: BookKeeper) -> None:
        self._client = client
        tree, logs = client.context.driver.tree, Logs(client.context.driver.tree, NAMESPACE)
        lock = NoLock(tree, client.context.runtime, logs.paths(NAME).lock, "test")
        super().__init__(tree, logs, NAME, StreamLedgers(client, Replication()), lock)

    def another(self) -> NamedStore:
        return NamedStore(self._client)

    async def now(self) -> StreamState:
        records = await self._logs.load(NAME)
        segments = await SegmentList(self._tree, records.paths, CODEC).refresh()
        return StreamState(segments, records.max_segment.value, records.max_txid.value)

    async def replace(self, segment: SegmentMetadata) -> None:
        head = LogHead(self._tree, await self._logs.load(NAME))
        await head.replace({completed_name(segment.number): encode_segment(segment)})


async def make_stream(client: BookKeeper) -> NamedStore:
    """The stream, without segments."""
    tree = client.context.driver.tree
    await tree.make(NAMESPACE)
    await Logs(tree, NAMESPACE).create(NAME)
    return NamedStore(client)
