"""One TCP connection to one bookie, speaking one version of the protocol.

Theory of operation

- A connection lives once: CONNECTING, CONNECTED, CLOSED. There is no reconnect timer: the pool makes a new connection
  at the next use. Which version it speaks never changes, because a Java bookie fixes a connection to v2 at its first
  v2 frame (spec wire-protocol §1.2).
- Outgoing frames are gathered in `out`. The first one schedules one call for when the loop turns; that call joins
  them and writes them at once. While connecting, the joined pieces wait. Past the high water mark, waiting or in the
  transport, `writable` is False.
- Everything but adds is registered until its answer comes: by transaction id, in v2 by what the answer echoes (see
  the subclasses). One sweep at regular intervals, made by the pool, expires what is overdue; its late answer finds
  nothing and is dropped. How many may be registered is bounded.
- Adds go through routes (see `add_channel`).
- When the connection ends, everything registered and every route with unanswered adds fails with one error. Callbacks
  run from the loop only, never inside the call that sends.
"""

from __future__ import annotations

import asyncio
import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol, cast

from ..config import ClientConfiguration
from ..errors import (
    BKError,
    BookieUnavailableError,
    BookKeeperError,
    ClientClosedError,
    ProtocolError,
    TooManyRequestsError,
)
from ..metadata.api import BookieDirectory
from ..metadata.service_info import legacy_service_info
from ..protocol.frames import ResponseStream
from ..protocol.messages import Request, Response
from ..runtime import Runtime, SocketOptions, TaskScope
from ..types import BookieId
from .add_channel import AddAnswers, AddRoute, by_ledger
from .results import OK, TIMEOUT

log = logging.getLogger(__name__)

OnReply = Callable[[int, Response | None], None]
"""Hears the outcome of a request: result code, and the response if one came."""

OnFailure = Callable[[BookieId, int, int], None]
"""Hears that so many requests to a bookie failed: bookie, result code, count. Not of requests that were lost together
with a connection."""


def ignore_failure(_bookie: BookieId, _code: int, _count: int) -> None:
    """Nobody wants to know."""


Answer = tuple[int, int, bytes | None, int | None]
"""Outcome of one entry read: entry id, result code, the packaged entry if the code is 0, and the LAC the bookie
knows if it said."""


class ConnectionState(Enum):
    CONNECTING = 1
    CONNECTED = 2
    CLOSED = 3


class ReadSink(Protocol):
    """Who hears about reads of entries."""

    def on_answers(self, call: ReadCall, answers: list[Answer], /) -> None:
        """What one socket read brought for this call (or what failed)."""


class ReadCall:
    """Reads of entries that share a bookie, a sink and a deadline. One object for many entries."""

    __slots__ = ("answers", "bookie", "deadline", "index", "sink")

    def __init__(self, bookie: BookieId, index: int, sink: ReadSink, deadline: float) -> None:
        self.bookie = bookie
        self.index = index
        """The caller's: which replica this is."""
        self.sink = sink
        self.deadline = deadline
        self.answers: list[Answer] = []
        """Collected during one socket read, then delivered together."""

    def deliver(self) -> None:
        answers, self.answers = self.answers, []
        if answers:
            self.sink.on_answers(self, answers)


class Registered:
    """A request that waits for its answer."""

    __slots__ = ("deadline", "done", "operation")

    def __init__(self, operation: int, deadline: float, done: OnReply) -> None:
        self.operation = operation
        self.deadline = deadline
        self.done = done


def deadline_after(now: float, timeout: float | None) -> float:
    """When a request made now expires; no timeout, or none above zero: never (spec wire-protocol §8.3)."""
    return now + timeout if timeout is not None and timeout > 0 else math.inf


class Dialer:
    """What all connections of a client share: where bookies are, limits and socket options, transaction ids, who
    hears of failures."""

    def __init__(
        self,
        runtime: Runtime,
        config: ClientConfiguration,
        discovery: BookieDirectory,
        on_failure: OnFailure = ignore_failure,
    ) -> None:
        self.runtime = runtime
        self.config = config
        self.on_failure = on_failure
        self.tasks = TaskScope(runtime, "bookie-client")
        self._discovery = discovery
        self._options = SocketOptions(
            nodelay=config.clientTcpNoDelay,
            keepalive=config.clientSockKeepalive,
            keep_idle=config.tcpKeepIdle,
            keep_interval=config.tcpKeepIntvl,
            keep_count=config.tcpKeepCnt,
            send_buffer=config.clientSendBufferSize,
            receive_buffer=config.clientReceiveBufferSize,
            user_timeout_ms=config.clientTcpUserTimeoutMillis,
        )
        self._last_txn_id = 0

    def next_txn_id(self) -> int:
        """A transaction id: unique in this client, so that an answer can never be taken for another request's."""
        return self.take_txn_ids(1)[0]

    def take_txn_ids(self, count: int) -> range:
        """The same of so many requests."""
        first = self._last_txn_id + 1
        self._last_txn_id += count
        return range(first, first + count)

    async def dial(self, bookie: BookieId, protocol: asyncio.Protocol) -> None:
        """Connect `protocol` to the bookie's `bookie-rpc` endpoint. Raises `OSError`, `BookKeeperError`."""
        if self.config.bookieAddressResolverEnabled:
            info = await self._discovery.info(bookie)
        else:
            info = legacy_service_info(bookie)
        endpoint = info.bookie_rpc()
        if endpoint is None:
            raise BookieUnavailableError("the bookie published no bookie-rpc endpoint", bookie=bookie)
        await self.runtime.network.connect(
            endpoint.host,
            endpoint.port,
            lambda: protocol,
            timeout=self.config.clientConnectTimeoutMillis / 1000,
            options=self._options,
        )


class Connection(asyncio.Protocol):
    """What the two versions share: life, gathering, registration, expiry. `on_closed` is called once, at the end."""

    version: int

    def __init__(
        self, dialer: Dialer, bookie: BookieId, on_closed: Callable[[Connection], None], responses: ResponseStream
    ) -> None:
        self.bookie = bookie
        self.state = ConnectionState.CONNECTING
        self.out: list[bytes] = []
        """Frames since the loop last turned; always this same list. Whoever adds the first one calls
        `schedule_flush`."""
        self.writable = True
        self.routes: dict[int, AddRoute] = {}
        """By ledger id."""
        self.close_when_idle = False
        """It serves one add channel: it ends with the channel's last answer."""
        self._dialer = dialer
        self._responses = responses
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None  # set while CONNECTED
        self._waiting: list[bytes] = []  # frames gathered while CONNECTING
        self._waiting_bytes = 0
        self._high_water = dialer.config.clientWriteBufferHighWaterMark
        self._limit = dialer.config.maxOutstandingRequestsPerChannel
        self._requests: dict[int, Registered] = {}
        """By transaction or request id, in order of sending."""
        self._opening = dialer.tasks.spawn(self._open(), name=f"connect {bookie}")

    # --- life ---

    async def _open(self) -> None:
        try:
            await self._dialer.dial(self.bookie, self)
        except (OSError, BookKeeperError) as error:
            self.failed(BookieUnavailableError.code)
            self.fail(BookieUnavailableError(f"cannot connect: {error or type(error).__name__}", bookie=self.bookie))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.state is ConnectionState.CLOSED:
            cast(asyncio.Transport, transport).abort()
            return
        self.state = ConnectionState.CONNECTED
        self._transport = cast(asyncio.Transport, transport)
        config = self._dialer.config
        self._transport.set_write_buffer_limits(self._high_water, config.clientWriteBufferLowWaterMark)
        was_full, self.writable = not self.writable, True
        if self._waiting:
            self._transport.write(b"".join(self._waiting))
            self._waiting.clear()
            self._waiting_bytes = 0
        if was_full and self.writable:
            self.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f"connection lost: {exc or type(exc).__name__}" if exc else "the bookie closed the connection"
        self.fail(BookieUnavailableError(reason, bookie=self.bookie))

    def close(self, error: BKError) -> None:
        """End the connection; everything outstanding fails with `error`."""
        self.fail(error)

    def fail(self, error: BKError) -> None:
        """End the connection because of `error`. Idempotent."""
        if self.state is ConnectionState.CLOSED:
            return
        self.state = ConnectionState.CLOSED
        if not isinstance(error, ClientClosedError):
            log.info("connection to a bookie ended: %s", error)
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        else:
            self._opening.cancel()
        self.out.clear()
        self._waiting.clear()
        self._on_closed(self)
        for route in list(self.routes.values()):
            route.detach(error)
        self.routes.clear()
        self._fail_requests(error.code)

    def failed(self, code: int, count: int = 1) -> None:
        """The bookie refused so many requests, did not answer them in time, or could not be connected to."""
        self._dialer.on_failure(self.bookie, code, count)

    def _fail_requests(self, code: int) -> None:
        requests = list(self._requests.values())
        self._requests.clear()
        for request in requests:
            request.done(code, None)

    # --- sending ---

    def send(self, frames: bytes) -> None:
        """Write complete frames: at once, unless others wait for the loop to turn."""
        if self.out:
            self.out.append(frames)
        elif self._transport is not None:
            self._transport.write(frames)
        else:
            self._send(frames)

    def _flush(self) -> None:
        out = self.out
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        if self._transport is not None:
            self._transport.write(data)
        elif self.state is ConnectionState.CONNECTING:
            self._waiting.append(data)
            self._waiting_bytes += len(data)
            if self._waiting_bytes > self._high_water:
                self.writable = False

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        for route in list(self.routes.values()):
            if route.channel is not None:
                route.channel.sink.on_writable(self.bookie)

    def _send(self, frame: bytes) -> None:
        """Write a frame together with all others of this turn of the loop."""
        if not self.out:
            self._loop.call_soon(self._flush)
        self.out.append(frame)

    # --- requests ---

    @abstractmethod
    def request(self, message: Request, deadline: float, done: OnReply) -> None:
        """Send a request of a kind that this version has; `done` hears the outcome once.

        Raises `TooManyRequestsError` when too many are outstanding, `IllegalOpError` for what the version cannot say.
        """

    @abstractmethod
    def read_entries(self, ledger_id: int, entry_ids: Sequence[int], call: ReadCall) -> None:
        """Read entries; `call` hears an answer for each. Raises `TooManyRequestsError`."""

    @property
    def outstanding(self) -> int:
        """Requests that wait for an answer."""
        return len(self._requests)

    def _check_room(self, count: int = 1) -> None:
        if self.outstanding + count > self._limit:
            raise TooManyRequestsError(f"{self._limit} requests are outstanding on one connection", bookie=self.bookie)

    def _register(self, key: int, operation: int, deadline: float, done: OnReply) -> None:
        self._requests[key] = Registered(operation, deadline, done)

    def _settle(self, request: Registered, code: int, response: Response | None) -> None:
        """The bookie has answered a request, or not in time."""
        if code != OK:
            self.failed(code)
        request.done(code, response)

    def add_route(self, route: AddRoute) -> None:
        assert route.ledger_id not in self.routes
        self.routes[route.ledger_id] = route

    def drop_route(self, route: AddRoute) -> None:
        """All answers of a route without a channel have come."""
        if self.routes.get(route.ledger_id) is route:
            del self.routes[route.ledger_id]
            if self.close_when_idle and not self.out:
                self.fail(ClientClosedError(bookie=self.bookie))

    def sweep(self, now: float, add_timeout: float) -> None:
        """Expire what is overdue."""
        expired = [key for key, request in self._requests.items() if request.deadline <= now]
        for key in expired:
            request = self._requests.pop(key, None)
            if request is not None:
                self._settle(request, TIMEOUT, None)
        if add_timeout > 0:
            for route in list(self.routes.values()):
                route.sweep(now, add_timeout)

    # --- receiving ---

    def data_received(self, data: bytes) -> None:
        responses = self._responses
        try:
            acks, bodies = responses.feed(data)
            adds = by_ledger(acks) if acks else {}
            if bodies:
                self._bodies_received(bodies, adds)
            self._deliver_adds(adds)
            if responses.error is not None:
                raise responses.error
        except ProtocolError as error:
            self.broken(error)

    def _deliver_adds(self, adds: AddAnswers) -> None:
        for ledger_id, (acked, failed) in adds.items():
            for _, code in failed:
                self.failed(code)
            route = self.routes.get(ledger_id)
            if route is not None:
                route.deliver(acked, failed)

    @abstractmethod
    def _bodies_received(self, bodies: list[bytes], adds: AddAnswers) -> None:
        """Handle all but plain acks. Answers to adds are put into `adds`. Raises `ProtocolError`."""

    def broken(self, error: ProtocolError) -> None:
        """The bookie sent something illegal: the connection cannot go on."""
        log.warning("bookie %s: %s; the connection is closed", self.bookie, error)
        self.fail(BookieUnavailableError(f"illegal answer: {error}", bookie=self.bookie))
