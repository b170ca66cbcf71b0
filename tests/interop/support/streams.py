"""One face for DistributedLog's library and for ours, so that one test runs with either: `JavaStreams`, `OurStreams`.

Both are on the same namespace. What a log has is told as `Seen`: record by record, with positions and numbers.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

import bookkeeper
from bookkeeper import Position, WritePolicy
from bookkeeper.streams.errors import EndOfStreamError
from bookkeeper.streams.formats.codec import Compression
from bookkeeper.streams.formats.segment import SegmentMetadata, Truncation
from bookkeeper.streams.namespace import Namespace
from bookkeeper.streams.reading.reader import Record, StreamReader, TxId
from bookkeeper.streams.writer import StreamWriter
from tests.interop.support.peer import JavaSession, Refused

JAVA_STREAMS = "java-streams"
OUR_STREAMS = "our-streams"


class Seen(NamedTuple):
    """A record as a reader has it."""

    position: Position
    txid: int
    sequence_id: int
    payload: bytes


class Contents(NamedTuple):
    """What a reader found."""

    records: list[Seen]
    sealed: bool


class Segment(NamedTuple):
    """A segment as a library reads its record; what Java does not tell is left out."""

    number: int
    ledger: int
    completed: bool
    truncated: str
    records: int
    first_txid: int
    last_txid: int
    start_sequence_id: int
    last: Position
    first_left: Position


class Writer(abc.ABC):
    """Writes one log. Every record gets an entry of its own, but for those of `write_together` and `write_set`."""

    @abc.abstractmethod
    async def write(self, records: Sequence[tuple[int, bytes]]) -> list[Position]:
        """One after the other; where they are."""

    @abc.abstractmethod
    async def write_together(self, records: Sequence[tuple[int, bytes]]) -> list[Position]:
        """In one entry."""

    @abc.abstractmethod
    async def write_set(self, txid: int, payloads: Sequence[bytes], *, lz4: bool = False) -> list[Position]:
        """As a record set. Ours compress all or nothing: `lz4` is what the writer was opened with."""

    @abc.abstractmethod
    async def end(self) -> None:
        """Seal the log."""

    @abc.abstractmethod
    async def close(self) -> None: ...

    @abc.abstractmethod
    async def abort(self) -> None:
        """Leave the segment in progress, and let the lock go."""


class Streams(abc.ABC):
    """A namespace, as one of the two libraries has it."""

    name: str
    """`java-streams` or `our-streams`."""

    @abc.abstractmethod
    async def create(self, log: str) -> None: ...

    @abc.abstractmethod
    async def list(self) -> list[str]: ...

    @abc.abstractmethod
    async def delete(self, log: str) -> None: ...

    @abc.abstractmethod
    async def writer(
        self, log: str, *, lz4: bool = False, seen_at_once: bool = False, small_segments: bool = False, wait: int = 30
    ) -> Writer:
        """- `seen_at_once`: a control record after each record.
        - `small_segments`: of a few records.
        - `wait`: seconds for the lock.
        """

    @abc.abstractmethod
    async def read(self, log: str, start: Position | int = bookkeeper.EARLIEST) -> Contents:
        """From a position or a transaction id to what can be read now.

        Of a position inside an entry Java's synchronous reader, which this is, begins with the entry's first record.
        """

    @abc.abstractmethod
    async def follow(self, log: str, start: Position, count: int) -> list[Seen]:
        """So many records, waiting for them, from a position. Raises `LeftWaiting`."""

    @abc.abstractmethod
    async def segments(self, log: str) -> Sequence[Segment]: ...

    @abc.abstractmethod
    async def truncate(self, log: str, before: Position) -> None: ...


# --- Java ------------------------------------------------------------------------------------------


CONFIGURATION: Mapping[str, object] = {
    "writerOutputBufferSize": 0,  # a record leaves at once; the default keeps small ones for ever
    "logSegmentCacheEnabled": False,  # it would show truncated segments as they were
    "zkSessionTimeoutSeconds": 30,
    "bkcWriteTimeoutSeconds": 30,
    "bkcReadTimeoutSeconds": 30,
}


class LeftWaiting(Exception):
    """A reader of Java's got nothing more, though all is there: asked for entries in the moment in which it finds that
    nobody waits for any, it may forget who asked (spec streams 13.5)."""


READ_CANCELLED = 1002
UNEXPECTED = 600
NO_ANSWER = "-999: TimeoutException null"

MOST_READERS = 20
"""One after the other, where Java's reader ends for no fault of the stream's."""


class JavaWriter(Writer):
    def __init__(self, session: JavaSession, handle: str) -> None:
        self._session = session
        self._handle = handle

    async def _ask(self, command: str, **arguments: object) -> dict[str, Any]:
        return await self._session.ask(command, handle=self._handle, **arguments)

    async def _write(self, records: Sequence[tuple[int, bytes]], **how: object) -> list[Position]:
        txids = ",".join(str(txid) for txid, _ in records)
        answer = await self._ask("write", txids=txids, data=_hex([payload for _, payload in records]), **how)
        return [Position(*found) for found in answer["positions"]]

    async def write(self, records: Sequence[tuple[int, bytes]]) -> list[Position]:
        return await self._write(records, each=True)

    async def write_together(self, records: Sequence[tuple[int, bytes]]) -> list[Position]:
        return await self._write(records, bulk=True)

    async def write_set(self, txid: int, payloads: Sequence[bytes], *, lz4: bool = False) -> list[Position]:
        answer = await self._ask("write-set", txid=txid, codec="LZ4" if lz4 else "NONE", data=_hex(payloads))
        return [Position(*found) for found in answer["positions"]]

    async def end(self) -> None:
        await self._ask("end")
        await self._ask("close")

    async def close(self) -> None:
        await self._ask("close")

    async def abort(self) -> None:
        await self._ask("abort")


class JavaStreams(Streams):
    name = JAVA_STREAMS

    def __init__(self, session: JavaSession, uri: str, **conf: object) -> None:
        self._session = session
        self._uri = uri
        self._conf = conf
        self._connected: dict[str, str] = {}

    async def _namespace(self, **conf: object) -> str:
        """A connection with this configuration."""
        wanted = {**CONFIGURATION, **self._conf, **conf}
        name = f"{self._uri} {wanted}"
        if name not in self._connected:
            settings = {f"conf__{key}": value for key, value in wanted.items()}
            await self._session.ask("connect", namespace=name, uri=self._uri, **settings)
            self._connected[name] = name
        return name

    async def ask(self, command: str, **arguments: object) -> dict[str, Any]:
        """A command on the namespace."""
        return await self._session.ask(command, namespace=await self._namespace(), **arguments)

    async def close(self) -> None:
        for name in self._connected:
            await self._session.ask("disconnect", namespace=name)

    async def create(self, log: str) -> None:
        await self.ask("create", log=log)

    async def list(self) -> list[str]:
        found: list[str] = (await self.ask("list"))["logs"]
        return found

    async def delete(self, log: str) -> None:
        await self.ask("drop", log=log)

    async def writer(
        self, log: str, *, lz4: bool = False, seen_at_once: bool = False, small_segments: bool = False, wait: int = 30
    ) -> Writer:
        conf: dict[str, object] = {"lockTimeoutSeconds": wait}
        if lz4:
            conf["compressionType"] = "lz4"
        if seen_at_once:
            conf["enableImmediateFlush"] = True
        if small_segments:
            conf |= {"logSegmentRollingMinutes": 0, "maxLogSegmentBytes": 100, "logSegmentRollingConcurrency": 1000}
        handle = f"writer of {log}"
        await self._session.ask("writer", namespace=await self._namespace(**conf), log=log, handle=handle)
        return JavaWriter(self._session, handle)

    async def read(self, log: str, start: Position | int = bookkeeper.EARLIEST) -> Contents:
        place = {"txid": start} if isinstance(start, int) else {"from": _spell(start)}
        answer = await self._ask_reader("read", log=log, **place)
        return Contents(_records(answer), answer["end"])

    async def follow(self, log: str, start: Position, count: int) -> list[Seen]:
        try:
            return _records(await self._ask_reader("follow", log=log, **{"from": _spell(start)}, count=count))
        except Refused as error:
            if str(error) == NO_ANSWER:
                raise LeftWaiting(log) from error
            raise

    async def _ask_reader(self, command: str, **arguments: object) -> dict[str, Any]:
        """A command that reads, by a reader of its own: again where Java's read-ahead asked a segment that it was
        about to leave, or where one was completed between the list of segments and the look at it, which makes a gap in
        Java's list, and ended with that."""
        for _ in range(MOST_READERS - 1):
            try:
                return await self.ask(command, **arguments)
            except Refused as error:
                gap = error.code == UNEXPECTED and "sequence number gap" in str(error)
                if error.code != READ_CANCELLED and not gap:
                    raise
        return await self.ask(command, **arguments)

    async def subscribed(self, log: str, subscriber: str, read: int) -> list[Seen]:
        """The next records of a subscriber; its position is stored then."""
        return _records(await self.ask("subscribed", log=log, subscriber=subscriber, count=read))

    async def segments(self, log: str) -> Sequence[Segment]:
        return [
            Segment(
                found["number"],
                found["ledger"],
                found["completed"],
                found["truncated"],
                found["records"],
                found["first_txid"],
                found["last_txid"],
                found["start"],
                Position(*found["last"]),
                Position(*found["first_left"]),
            )
            for found in (await self.ask("segments", log=log))["segments"]
        ]

    async def truncate(self, log: str, before: Position) -> None:
        writer = await self.writer(log)
        await self._session.ask("truncate", handle=f"writer of {log}", before=_spell(before))
        await writer.close()


def _spell(position: Position) -> str:
    return ",".join(map(str, position))


def _records(answer: Mapping[str, Any]) -> list[Seen]:
    return [
        Seen(Position(*position), txid, sequence_id, bytes.fromhex(payload))
        for position, txid, sequence_id, payload in answer["records"]
    ]


def _hex(payloads: Sequence[bytes]) -> str:
    return ",".join(payload.hex() for payload in payloads)


# --- ours ------------------------------------------------------------------------------------------


TRUNCATION = {
    Truncation.ACTIVE: "ACTIVE",
    Truncation.PARTLY: "PARTIALLY_TRUNCATED",
    Truncation.TRUNCATED: "TRUNCATED",
}
"""As Java calls it."""


class OurWriter(Writer):
    def __init__(self, writer: StreamWriter) -> None:
        self._writer = writer

    async def write(self, records: Sequence[tuple[int, bytes]]) -> list[Position]:
        return [await self._writer.append(payload, txid=txid) for txid, payload in records]

    async def write_together(self, records: Sequence[tuple[int, bytes]]) -> list[Position]:
        payloads, txids = [payload for _, payload in records], [txid for txid, _ in records]
        return list(await self._writer.append_batch(payloads, txids=txids))

    async def write_set(self, txid: int, payloads: Sequence[bytes], *, lz4: bool = False) -> list[Position]:
        return list(await self._writer.append_batch(payloads, txid=txid, as_sets=True))

    async def end(self) -> None:
        await self._writer.mark_end()

    async def close(self) -> None:
        await self._writer.close()

    async def abort(self) -> None:
        await self._writer.abort()


class OurStreams(Streams):
    name = OUR_STREAMS

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace

    async def create(self, log: str) -> None:
        await self.namespace.create(log)

    async def list(self) -> list[str]:
        return [name async for name in self.namespace.list()]

    async def delete(self, log: str) -> None:
        await self.namespace.delete(log)

    async def writer(
        self, log: str, *, lz4: bool = False, seen_at_once: bool = False, small_segments: bool = False, wait: int = 30
    ) -> Writer:
        policy = WritePolicy(
            buffer_bytes=4096,  # what is appended in one call shares an entry; alone it waits for nothing
            linger=0.0,
            visibility=bookkeeper.Visibility.ACK if seen_at_once else bookkeeper.Visibility.MANUAL,
            compression=Compression.LZ4 if lz4 else Compression.NONE,
            roll_records=3 if small_segments else None,
        )
        return OurWriter(await self.namespace.open_writer(log, policy=policy, create=True, lock_timeout=wait))

    async def read(self, log: str, start: Position | int = bookkeeper.EARLIEST) -> Contents:
        found: list[Seen] = []
        where = TxId(start) if isinstance(start, int) else start
        async with self.namespace.open_reader(log, where, tail=False) as reader:
            try:
                await _collect(reader, found)
            except EndOfStreamError:
                return Contents(found, sealed=True)
        return Contents(found, sealed=False)

    async def follow(self, log: str, start: Position, count: int) -> list[Seen]:
        found: list[Seen] = []
        async with self.namespace.open_reader(log, start) as reader, aclosing(aiter(reader)) as records:
            while len(found) < count:
                found.append(_seen(await anext(records)))
        return found

    async def segments(self, log: str) -> Sequence[Segment]:
        return [_told(segment) for segment in (await self.namespace.info(log)).segments]

    async def truncate(self, log: str, before: Position) -> None:
        await self.namespace.truncate(log, before)


async def _collect(reader: StreamReader, found: list[Seen]) -> None:
    async with aclosing(aiter(reader)) as records:
        async for record in records:
            found.append(_seen(record))  # noqa: PERF401 (what was read before an error counts)


def _seen(record: Record) -> Seen:
    return Seen(record.position, record.txid, record.sequence_id, record.payload)


def _told(segment: SegmentMetadata) -> Segment:
    return Segment(
        segment.number,
        segment.ledger_id,
        segment.completed,
        TRUNCATION[segment.truncation],
        segment.records,
        segment.first_txid,
        segment.last_txid,
        segment.sequence_id,
        Position(segment.number, segment.last_entry, segment.last_slot),
        Position(segment.number, segment.min_entry, segment.min_slot),
    )
