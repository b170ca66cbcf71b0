"""Bookies without connections, and a client without bookies: for tests of writers and recovery at handle level.

`FakeBookies` stands in for the connection layer: frames are decoded and given to a `FakeBookie`, answers come back when
the loop turns. A test stops, fails or withholds them as it needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bookkeeper.client.adds.pipeline import AddPipeline
from bookkeeper.client.context import AddSink, ChannelOwner, ClientContext
from bookkeeper.client.recovery import recover_ledger
from bookkeeper.client.wire.departures import Departures
from bookkeeper.client.wire.results import default_code, operation_of, result_code
from bookkeeper.client.writer import LedgerAdvWriter, LedgerWriter
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import (
    BKError,
    BookieUnavailableError,
    IllegalOpError,
    NotEnoughBookiesError,
    RequestTimeoutError,
    from_code,
)
from bookkeeper.metadata.api import Versioned
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.metadata.memory import MemoryDriver, MemoryStore, StoreFaults
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.digest import Crc32cDigest, master_key
from bookkeeper.protocol.frames import FrameSplitter, frame
from bookkeeper.protocol.messages import (
    V2,
    V3,
    AddRequest,
    Flags,
    ForceLedgerRequest,
    ForceLedgerResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
    WriteLacRequest,
    WriteLacResponse,
)
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.runtime.tasks import TaskScope
from bookkeeper.types import BookieId, Quorums, WriteFlag

HEADER = 4  # length of a frame


@dataclass
class FakeBookie:
    """One bookie's memory, and how it misbehaves."""

    name: BookieId
    entries: dict[tuple[int, int], bytes] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    explicit_lac: dict[int, int] = field(default_factory=dict)
    down: bool = False
    """Connections are refused and lost."""
    silent: bool = False
    """Requests other than adds are never answered."""
    hold: bool = False
    """Adds are kept, unprocessed, until `release`."""
    add_status: Status | None = None
    """What adds are answered with, nothing stored."""
    other_status: Status | None = None
    """What everything else is answered with."""
    held: list[tuple[FakeChannel, AddRequest]] = field(default_factory=list)
    log: list[Request] = field(default_factory=list)
    on_read: Callable[[ReadRequest], None] = lambda _request: None

    def add(self, request: AddRequest) -> Status:
        self.log.append(request)
        if self.add_status is not None:
            return self.add_status
        if request.ledger_id in self.fenced and not request.flags & Flags.RECOVERY_ADD:
            return Status.EFENCED
        self.entries[request.ledger_id, request.entry_id] = request.entry
        return Status.EOK

    def ids(self, ledger_id: int = 0) -> list[int]:
        return sorted(entry for ledger, entry in self.entries if ledger == ledger_id)

    def added(self) -> list[int]:
        """Ids of all adds that arrived, in order."""
        return [request.entry_id for request in self.log if isinstance(request, AddRequest)]

    def release(self) -> None:
        """Process what was held, and hold no more."""
        self.hold = False
        held, self.held = self.held, []
        for channel, request in held:
            channel.answer([request])

    def time_out(self) -> None:
        """What was held is overdue: each channel is lost with it, once."""
        held, self.held = self.held, []
        for channel in dict.fromkeys(channel for channel, _ in held):
            channel.lose(RequestTimeoutError(bookie=self.name))

    def refuse_held(self, status: Status) -> None:
        """Answer what was held with an error."""
        held, self.held = self.held, []
        for channel, request in held:
            channel.deliver([], [(request.entry_id, result_code(status, -12))])

    def other(self, request: Request) -> Response:
        self.log.append(request)
        if isinstance(request, ReadRequest):
            return self._read(request)
        status = self.other_status or Status.EOK
        if isinstance(request, ForceLedgerRequest):
            return ForceLedgerResponse(status, request.ledger_id)
        assert isinstance(request, WriteLacRequest)
        if status == Status.EOK:
            self.explicit_lac[request.ledger_id] = request.lac
        return WriteLacResponse(status, request.ledger_id)

    def _read(self, request: ReadRequest) -> ReadResponse:
        self.on_read(request)
        if self.other_status is not None:
            return ReadResponse(self.other_status, request.ledger_id, request.entry_id)
        if request.flags & Flags.DO_FENCING:
            self.fenced.add(request.ledger_id)
        ids = self.ids(request.ledger_id)
        entry_id = (ids[-1] if ids else -1) if request.entry_id == -1 else request.entry_id
        entry = self.entries.get((request.ledger_id, entry_id))
        if entry is None:
            status = Status.ENOENTRY if ids else Status.ENOLEDGER
            return ReadResponse(status, request.ledger_id, request.entry_id)
        return ReadResponse(Status.EOK, request.ledger_id, entry_id, entry)


class FakeChannel:
    """An `AddChannel`, its route and its connection."""

    def __init__(self, bookie: FakeBookie, sink: AddSink, version: int, departures: Departures) -> None:
        self.bookie = bookie.name
        self._departures = departures
        self.closed = False
        self._bookie = bookie
        self._sink = sink
        self._version = version
        self._out: list[bytes] = []
        self.sent = self.answered = 0  # of a route

    @property
    def connection(self) -> FakeChannel:
        return self

    @property
    def writable(self) -> bool:
        return self not in self._departures.blocked

    @writable.setter
    def writable(self, writable: bool) -> None:
        if writable:
            self._departures.blocked.discard(self)
        else:
            self._departures.blocked.add(self)

    def use(self) -> FakeChannel:
        return self

    def send(self, frames: bytes) -> None:
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out += [frame(body) for body in FrameSplitter().feed(frames)]

    def _flush(self) -> None:
        frames, self._out = self._out, []
        if self._bookie.down:
            self.lose(BookieUnavailableError(bookie=self.bookie))
            return
        codec = v2 if self._version == V2 else v3
        requests = [codec.decode_request(frame[HEADER:]) for frame in frames]
        adds = [request for request in requests if isinstance(request, AddRequest)]
        assert len(adds) == len(requests)
        if self._bookie.hold:
            self._bookie.held += [(self, request) for request in adds]
        else:
            self.answer(adds)

    def answer(self, requests: Sequence[AddRequest]) -> None:
        acked, failed = [], []
        for request in requests:
            status = self._bookie.add(request)
            if status == Status.EOK:
                acked.append(request.entry_id)
            else:
                failed.append((request.entry_id, result_code(status, -12)))
        self.deliver(acked, failed)

    def deliver(self, acked: list[int], failed: list[tuple[int, int]]) -> None:
        asyncio.get_running_loop().call_soon(self._deliver, acked, failed)

    def _deliver(self, acked: list[int], failed: list[tuple[int, int]]) -> None:
        if not self.closed:
            self._sink.on_add_responses(self.bookie, acked, failed)

    def lose(self, error: BKError) -> None:
        if not self.closed:
            self._sink.on_channel_lost(self.bookie, error)

    def close(self) -> None:
        self.closed = True


class FakeBookies:
    """A `BookieClient`."""

    def __init__(self, bookies: Mapping[BookieId, FakeBookie]) -> None:
        self.bookies = bookies
        self.channels: list[FakeChannel] = []
        self.protocol = "auto"
        self.departures = Departures()

    def open_add_channel(
        self, bookie: BookieId, ledger_id: int, sink: AddSink, *, version: int, owner: ChannelOwner | None = None
    ) -> FakeChannel:
        channel = FakeChannel(self.bookies[bookie], sink, version, self.departures)
        self.channels.append(channel)
        return channel

    async def request(self, bookie: BookieId, message: Request, *, timeout: float | None = None) -> Response:
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def done(code: int, response: Response | None) -> None:
            if response is None:
                future.set_exception(from_code(code, bookie=bookie))
            else:
                future.set_result(response)

        self.call(bookie, message, timeout, done)
        return await future

    def call(
        self,
        bookie: BookieId,
        message: Request,
        timeout: float | None,
        done: Callable[[int, Response | None], None],
        *,
        apart: bool = False,
    ) -> None:
        target = self.bookies[bookie]
        loop = asyncio.get_running_loop()
        if target.down:
            loop.call_soon(done, BookieUnavailableError.code, None)
        elif not target.silent:
            response = target.other(message)
            code = result_code(response.status, default_code(operation_of(message)))
            loop.call_soon(done, code, response)

    def add_version(self, write_flags: WriteFlag) -> int:
        if self.protocol == "v2" and write_flags:
            raise IllegalOpError("write flags do not exist in protocol v2")
        return V3 if write_flags or self.protocol == "v3" else V2


class FakePlacement:
    """Takes the first bookie that may be taken."""

    def __init__(self, bookies: Sequence[BookieId]) -> None:
        self.available = list(bookies)
        self.late: list[BookieId] = []
        """Writable bookies that the watch has not told of yet."""
        self.spans = lambda _acked: True

    def new_ensemble(
        self,
        quorums: Quorums,
        custom_metadata: Mapping[str, bytes],
        excluded: Sequence[BookieId] = (),
    ) -> list[BookieId]:
        return [b for b in self.available if b not in excluded][: quorums.ensemble_size]

    def replace(
        self,
        quorums: Quorums,
        custom_metadata: Mapping[str, bytes],
        ensemble: Sequence[BookieId],
        index: int,
        excluded: Sequence[BookieId] = (),
    ) -> BookieId:
        for bookie in self.available:
            if bookie not in excluded and bookie not in ensemble:
                return bookie
        raise NotEnoughBookiesError

    @property
    def writable(self) -> tuple[BookieId, ...]:
        return tuple(self.available)

    async def refresh(self, known: tuple[BookieId, ...] | None = None) -> bool:
        known = self.writable if known is None else known
        self.available += self.late
        self.late = []
        return self.writable != known

    def acks_span_domains(self, acked: Sequence[BookieId], write_quorum: int, ack_quorum: int) -> bool:
        return self.spans(acked)

    def reorder_read(self, ensemble: Sequence[BookieId], write_set: Sequence[int]) -> tuple[int, ...]:
        return tuple(write_set)

    def note_failed(self, bookie: BookieId) -> None: ...

    version = 0


class StoreHooks(StoreFaults):
    """Counts writes of ledger records and can stop the next ones before they reach the store."""

    def __init__(self) -> None:
        self.writes = 0
        self.blocked = False
        self.waiting = 0
        self._gate = asyncio.Event()
        self._gate.set()

    def block(self) -> None:
        """Let no further write reach the store until `unblock`."""
        self.blocked = True
        self._gate.clear()

    def unblock(self) -> None:
        self.blocked = False
        self._gate.set()

    async def before(self, client: str, operation: str) -> None:
        if operation == "ledgers.write":
            self.writes += 1
            if client == "client" and self.blocked:
                self.waiting += 1
                await self._gate.wait()
                self.waiting -= 1


async def settle(turns: int = 20) -> None:
    """Let everything happen that happens without further events."""
    for _ in range(turns):
        await asyncio.sleep(0)


class World:
    """Bookies b1, b2, ..., a metadata store and one client."""

    KEY = master_key(b"secret")

    def __init__(self, count: int, **settings: object) -> None:
        self.runtime = RealRuntime()
        self.bookies = {BookieId(f"b{i + 1}"): FakeBookie(BookieId(f"b{i + 1}")) for i in range(count)}
        self.hooks = StoreHooks()
        store = MemoryStore(self.runtime, faults=self.hooks)
        self.driver = MemoryDriver(store, self.runtime)
        self.other = MemoryDriver(store, self.runtime, name="somebody else")
        self.tasks = TaskScope(self.runtime, "client")
        self.client = FakeBookies(self.bookies)
        self.placement = FakePlacement(list(self.bookies))
        self.digest = Crc32cDigest()
        self.context = ClientContext(
            runtime=self.runtime,
            config=ClientConfiguration.from_mapping(settings),
            driver=self.driver,
            bookies=self.client,
            placement=self.placement,
            tasks=self.tasks,
            departures=self.client.departures,
        )
        self.created = 0

    async def __aenter__(self) -> World:
        await self.driver.open()
        await self.other.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.tasks.close()
        await self.driver.close()
        await self.other.close()

    def __getitem__(self, name: str) -> FakeBookie:
        return self.bookies[BookieId(name)]

    async def create(self, quorum: tuple[int, int, int]) -> Versioned[LedgerMetadata]:
        ensemble = tuple(self.placement.new_ensemble(Quorums(*quorum), {}))
        record = LedgerMetadata(self.created, *quorum, {0: ensemble}, password=b"secret")
        self.created += 1
        return await self.driver.ledgers.create(record.ledger_id, record)

    async def writer(
        self,
        quorum: tuple[int, int, int] = (3, 3, 2),
        *,
        flags: WriteFlag = WriteFlag.NONE,
    ) -> LedgerWriter:
        return LedgerWriter(self.context, await self.create(quorum), self.digest, self.KEY, write_flags=flags)

    async def adv_writer(
        self, quorum: tuple[int, int, int] = (3, 3, 2), *, flags: WriteFlag = WriteFlag.NONE
    ) -> LedgerAdvWriter:
        return LedgerAdvWriter(self.context, await self.create(quorum), self.digest, self.KEY, write_flags=flags)

    async def stored(self, ledger_id: int = 0) -> LedgerMetadata:
        return (await self.other.ledgers.read(ledger_id)).value

    async def change(self, transform: Callable[[LedgerMetadata], LedgerMetadata], ledger_id: int = 0) -> None:
        """Somebody else changes a record."""
        current = await self.other.ledgers.read(ledger_id)
        await self.other.ledgers.write(ledger_id, transform(current.value), current.version)

    async def recover(self, ledger_id: int = 0) -> LedgerMetadata:
        current = await self.driver.ledgers.read(ledger_id)
        recovered = await recover_ledger(self.context, current, self.digest, self.KEY)
        return recovered.value

    def ensembles(self, metadata: LedgerMetadata) -> dict[int, str]:
        return {first: " ".join(members) for first, members in metadata.ensembles.items()}

    def put(self, bookie: str, entry_id: int, *, lac: int, length: int, payload: bytes, ledger_id: int = 0) -> None:
        """An entry that some writer left on a bookie."""
        entry = self.digest.package(ledger_id, entry_id, lac, length, payload)
        self[bookie].entries[ledger_id, entry_id] = entry

    def payload(self, bookie: str, entry_id: int, ledger_id: int = 0) -> bytes:
        return self.digest.verify(ledger_id, entry_id, self[bookie].entries[ledger_id, entry_id])[2]

    def pipeline(self, writer: LedgerWriter | LedgerAdvWriter) -> AddPipeline:
        return writer._adds
