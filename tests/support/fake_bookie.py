"""A bookie that keeps entries in dicts and speaks v2 and v3 over real sockets; it fails as told.

`FakeBookie.on_request` sees every request first and may return

- None: answer as a bookie does;
- a `Status`: refuse with it;
- `SILENT`: never answer;
- `HOLD`: answer when `release` is called;
- `CLOSE`: close the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, cast

from bookkeeper.client.client import BookKeeper, connect
from bookkeeper.config import ClientConfiguration
from bookkeeper.metadata import open_driver
from bookkeeper.metadata.api import BookieServiceInfo, Endpoint, MetadataDriver, Mode
from bookkeeper.protocol import entry as packaged
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.availability import encode_availability
from bookkeeper.protocol.frames import FrameSplitter, version_of
from bookkeeper.protocol.messages import (
    V2,
    AddRequest,
    AddResponse,
    BatchReadRequest,
    BatchReadResponse,
    Flags,
    ForceLedgerRequest,
    ForceLedgerResponse,
    GetBookieInfoRequest,
    GetBookieInfoResponse,
    GetListOfEntriesRequest,
    GetListOfEntriesResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
    WriteLacRequest,
    WriteLacResponse,
)
from bookkeeper.runtime import Runtime
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId


class Fault(Enum):
    SILENT = 1
    HOLD = 2
    CLOSE = 3


SILENT, HOLD, CLOSE = Fault.SILENT, Fault.HOLD, Fault.CLOSE

OnRequest = Callable[[Request], Status | Fault | None]


class FakeLedger:
    def __init__(self) -> None:
        self.entries: dict[int, bytes] = {}
        self.fenced = False
        self.explicit_lac: bytes | None = None
        self.polls: list[Callable[[], None]] = []

    @property
    def lac(self) -> int:
        lacs = [packaged.lac_of(entry) for entry in self.entries.values()]
        if self.explicit_lac:
            lacs.append(int.from_bytes(self.explicit_lac[8:16], "big", signed=True))
        return max(lacs, default=-1)

    def wake(self) -> None:
        polls, self.polls = self.polls, []
        for poll in polls:
            poll()


class FakeBookie:
    def __init__(self) -> None:
        self.id = BookieId("")
        self.ledgers: dict[int, FakeLedger] = {}
        self.on_request: OnRequest | None = None
        self.requests: list[Request] = []
        self.connections: list[_Connection] = []
        self.accepted = 0
        self.bytes_sent = 0
        self.port = 0
        self._held: list[Callable[[], None]] = []
        self._listener: Any = None

    async def start(self, runtime: Runtime) -> None:
        self._listener = await runtime.network.listen("127.0.0.1", self.port, lambda: _Connection(self))
        self.port = self._listener.port
        self.id = BookieId(f"127.0.0.1:{self.port}")

    async def stop(self) -> None:
        if self._listener is not None:
            await self._listener.close()
            self._listener = None
        for connection in list(self.connections):
            connection.transport.abort()

    def release(self) -> None:
        """Answer everything that was held."""
        held, self._held = self._held, []
        for answer in held:
            answer()

    def count(self, kind: type) -> int:
        return sum(isinstance(request, kind) for request in self.requests)

    def ledger(self, ledger_id: int) -> FakeLedger:
        return self.ledgers.setdefault(ledger_id, FakeLedger())

    def put(self, entry: bytes) -> None:
        ledger_id, entry_id = packaged.ids(entry)
        self.ledger(ledger_id).entries[entry_id] = entry

    def received(self, connection: _Connection, request: Request) -> None:
        self.requests.append(request)
        verdict = self.on_request(request) if self.on_request is not None else None
        if verdict is SILENT:
            return
        if verdict is CLOSE:
            connection.transport.abort()
            return
        if verdict is HOLD:
            self._held.append(lambda: self._answer(connection, request, None))
            return
        self._answer(connection, request, verdict)

    def _answer(self, connection: _Connection, request: Request, status: Status | None) -> None:
        if isinstance(request, ReadRequest) and request.previous_lac is not None and status is None:
            self._long_poll(connection, request)
            return
        connection.send(request, self.respond(request, status))

    def _long_poll(self, connection: _Connection, request: ReadRequest) -> None:
        ledger = self.ledger(request.ledger_id)
        assert request.previous_lac is not None

        def finish() -> None:
            timer.cancel()
            if finish in ledger.polls:
                ledger.polls.remove(finish)
            response = ReadResponse(Status.EOK, request.ledger_id, -1, max_lac=ledger.lac)
            wanted = cast(int, request.previous_lac) + 1
            if ledger.lac >= wanted and wanted in ledger.entries:
                response.entry_id, response.entry = wanted, ledger.entries[wanted]
            connection.send(request, response)

        timer = asyncio.get_running_loop().call_later((request.timeout_ms or 0) / 1000, finish)
        if ledger.lac > request.previous_lac or ledger.fenced:
            finish()
        else:
            ledger.polls.append(finish)

    def respond(self, request: Request, status: Status | None) -> Response:
        known = self.ledgers.get(getattr(request, "ledger_id", -1))
        if isinstance(request, AddRequest):
            return self._add(request, status)
        if isinstance(request, ReadRequest):
            return self._read(request, status)
        if isinstance(request, BatchReadRequest):
            return self._batch(request, status)
        if isinstance(request, ReadLacRequest):
            if known is None or not (known.entries or known.explicit_lac):
                return ReadLacResponse(status or Status.ENOENTRY, request.ledger_id)
            last = known.entries[max(known.entries)] if known.entries else None
            return ReadLacResponse(status or Status.EOK, request.ledger_id, known.explicit_lac, last)
        if isinstance(request, WriteLacRequest):
            self.ledger(request.ledger_id).explicit_lac = request.body
            self.ledger(request.ledger_id).wake()
            return WriteLacResponse(status or Status.EOK, request.ledger_id)
        if isinstance(request, ForceLedgerRequest):
            return ForceLedgerResponse(status or Status.EOK, request.ledger_id)
        if isinstance(request, GetBookieInfoRequest):
            return GetBookieInfoResponse(status or Status.EOK, 1000, 400)
        if isinstance(request, GetListOfEntriesRequest):
            if known is None:
                return GetListOfEntriesResponse(Status.ENOLEDGER, request.ledger_id)
            return GetListOfEntriesResponse(
                status or Status.EOK, request.ledger_id, encode_availability(sorted(known.entries))
            )
        raise AssertionError(request)

    def _add(self, request: AddRequest, status: Status | None) -> Response:
        ledger = self.ledger(request.ledger_id)
        if status is None:
            status = Status.EOK
            if ledger.fenced and not request.flags & Flags.RECOVERY_ADD:
                status = Status.EFENCED
            else:
                self.put(request.entry)
                ledger.wake()
        return AddResponse(status, request.ledger_id, request.entry_id)

    def _read(self, request: ReadRequest, status: Status | None) -> Response:
        ledger = self.ledgers.get(request.ledger_id)
        if request.flags & Flags.DO_FENCING:
            ledger = self.ledger(request.ledger_id)
            ledger.fenced = True
            ledger.wake()
        if status is not None:
            return ReadResponse(status, request.ledger_id, request.entry_id)
        if ledger is None:
            return ReadResponse(Status.ENOLEDGER, request.ledger_id, request.entry_id)
        entry_id = max(ledger.entries, default=-1) if request.entry_id == -1 else request.entry_id
        entry = ledger.entries.get(entry_id)
        if entry is None:
            return ReadResponse(Status.ENOENTRY, request.ledger_id, request.entry_id)
        return ReadResponse(Status.EOK, request.ledger_id, request.entry_id, entry, max_lac=ledger.lac)

    def _batch(self, request: BatchReadRequest, status: Status | None) -> Response:
        response = BatchReadResponse(status or Status.EOK, request.ledger_id, request.entry_id, request.request_id)
        ledger = self.ledgers.get(request.ledger_id)
        if ledger is None or request.entry_id not in ledger.entries:
            response.status = status or (Status.ENOLEDGER if ledger is None else Status.ENOENTRY)
            return response
        pieces: list[bytes] = []
        size = 36
        for entry_id in range(request.entry_id, request.entry_id + request.max_count):
            entry = ledger.entries.get(entry_id)
            size += 4 + len(entry or b"")
            if entry is None or (pieces and size > request.max_size):
                break
            pieces.append(len(entry).to_bytes(4, "big") + entry)
        response.body = b"".join(pieces)
        return response


class _Connection(asyncio.Protocol):
    def __init__(self, bookie: FakeBookie) -> None:
        self.bookie = bookie
        self.splitter = FrameSplitter()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.bookie.connections.append(self)
        self.bookie.accepted += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.bookie.connections.remove(self)

    def data_received(self, data: bytes) -> None:
        for body in self.splitter.feed(data):
            request = (v2 if version_of(body) == V2 else v3).decode_request(body)
            self.bookie.received(self, request)

    def send(self, request: Request, response: Response) -> None:
        response.version = request.version
        if request.version != V2:
            assert not isinstance(response, BatchReadResponse)
            assert not isinstance(request, BatchReadRequest)
            response.txn_id = request.txn_id
        frame = (v2 if request.version == V2 else v3).encode_response(response)
        self.bookie.bytes_sent += len(frame)
        self.transport.write(frame)


class FakeCluster:
    """Fake bookies, registered in a metadata store, and clients of them."""

    def __init__(self, size: int, uri: str = "memory://fake") -> None:
        self.runtime = RealRuntime()
        self.uri = uri
        self.bookies = [FakeBookie() for _ in range(size)]
        self.driver = self._new_driver()
        self._clients: list[BookKeeper] = []

    def _new_driver(self) -> MetadataDriver:
        return open_driver(self.uri, self.runtime)

    async def start(self) -> None:
        await self.driver.open(create=True)
        await self.driver.admin.init_new_cluster()
        for bookie in self.bookies:
            await bookie.start(self.runtime)
            await self.register(bookie, Mode.WRITABLE)

    async def register(self, bookie: FakeBookie, mode: Mode) -> None:
        info = BookieServiceInfo((Endpoint("bookie", "127.0.0.1", bookie.port),))
        await self.driver.registration.register(bookie.id, mode, info)

    async def unregister(self, bookie: FakeBookie, mode: Mode = Mode.WRITABLE) -> None:
        await self.driver.registration.unregister(bookie.id, mode)

    def by_id(self, bookie_id: str) -> FakeBookie:
        return next(bookie for bookie in self.bookies if bookie.id == bookie_id)

    def ensemble(self, members: tuple[BookieId, ...]) -> list[FakeBookie]:
        return [self.by_id(member) for member in members]

    async def connect(self, **settings: Any) -> BookKeeper:
        client = connect(
            config=ClientConfiguration.from_mapping(settings), runtime=self.runtime, driver=self._new_driver()
        )
        await client
        self._clients.append(client)
        return client

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        await self.driver.close()
        for bookie in self.bookies:
            await bookie.stop()


@asynccontextmanager
async def fake_cluster(size: int = 3) -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster(size)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.close()
