"""One TCP connection to one bookie, speaking one version of the protocol.

Theory of operation

- A connection lives once: CONNECTING, CONNECTED, CLOSED. There is no reconnect timer: the pool makes a new connection
  at the next use. Which version it speaks never changes, because a Java bookie fixes a connection to v2 at its first
  v2 frame (spec wire-protocol §1.2).
- Outgoing frames are gathered in `out`. The first one schedules one call for when the loop turns; that call joins
  them and writes them at once. While connecting, the joined pieces wait. Past the high water mark, waiting or in the
  transport, `writable` is False.
- Everything but adds is registered until its answer comes: by transaction id, in v2 by what the answer echoes (see
  the subclasses). How many may be registered is bounded.
- Adds go through routes (see `add_channel`).
- One sweep with every tick of the client's clock (`runtime.awake`), made by the pool, expires what is overdue; a late
  answer finds nothing and is dropped. Whatever waited for something else than the bookie (`progress`) begins to wait
  anew. Connecting has its timeout there too: it takes its time from the same clock as the rest.
- When the connection ends, everything registered and every route with unanswered adds fails with one error. Callbacks
  run from the loop only, never inside the call that sends. An error in one of them is logged, and keeps nothing from
  the others.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import cast

from ...config import ClientConfiguration
from ...errors import (
    BKError,
    BookieUnavailableError,
    BookKeeperError,
    ClientClosedError,
    ProtocolError,
    RequestTimeoutError,
    TooManyRequestsError,
)
from ...metadata.api import BookieDirectory
from ...metadata.formats.service_info import legacy_service_info
from ...protocol.frames import ResponseStream
from ...protocol.messages import Request, Response
from ...runtime import Runtime, SocketOptions, TaskScope, guarded
from ...runtime.awake import AwakeClock
from ...types import BookieId
from .add_channel import AddAnswers, AddRoute, by_ledger
from .calls import OnReply, ReadCall
from .progress import Progress
from .results import OK, TIMEOUT

log = logging.getLogger(__name__)

DEFAULT_TICK_SECONDS = 1.0
"""How often overdue requests are looked for when `timeoutMonitorIntervalSec` does not say."""

OnFailure = Callable[[BookieId, int, int], None]
"""Hears that so many requests to a bookie failed: bookie, result code, count. Not of requests that were lost together
with a connection."""


def ignore_failure(_bookie: BookieId, _code: int, _count: int) -> None:
    """Nobody wants to know."""


class ConnectionState(Enum):
    CONNECTING = 1
    CONNECTED = 2
    CLOSED = 3


class Registered:
    """A request that waits for its answer. Times are ticks, as those of `ReadCall`."""

    __slots__ = ("deadline", "done", "operation", "patience", "sent")

    def __init__(self, operation: int, sent: int, deadline: float, done: OnReply) -> None:
        self.operation = operation
        self.sent = sent
        self.deadline = deadline
        self.patience = deadline - sent
        self.done = done


def tick_seconds(config: ClientConfiguration) -> float:
    """How often to look for what is overdue (spec client §12.4)."""
    if config.timeoutMonitorIntervalSec:
        return config.timeoutMonitorIntervalSec
    base = config.readTimeout
    timeouts = [
        base if config.addEntryTimeoutSec is None else config.addEntryTimeoutSec,
        base if config.readEntryTimeoutSec is None else config.readEntryTimeoutSec,
        config.getBookieInfoTimeoutSecs,
        config.clientConnectTimeoutMillis / 1000,
    ]
    return min([DEFAULT_TICK_SECONDS, *(timeout / 2 for timeout in timeouts if timeout > 0)])


class Dialer:
    """What all connections of a client share: where bookies are, limits and socket options, transaction ids, the clock
    of all timeouts, who hears of failures."""

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
        self.clock = AwakeClock(runtime, tick_seconds(config), "timeouts of requests to bookies")
        """Runs while there are connections."""
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
        """Connect `protocol` to the bookie's `bookie-rpc` endpoint. The caller looks after the time that takes.

        Raises `OSError`, `BookKeeperError`, and whatever a name that nobody can resolve makes others raise.
        """
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
            timeout=None,
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
        self.written = 0
        """Bytes handed to this connection."""
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
        self._clock = dialer.clock
        self._progress = Progress()
        self._requests: dict[int, Registered] = {}
        """By transaction or request id, in order of sending."""
        self._connect_deadline = self._clock.deadline(dialer.config.clientConnectTimeoutMillis / 1000)
        self._opening = dialer.tasks.spawn(self._open(), name=f"connect {bookie}")

    # --- life ---

    async def _open(self) -> None:
        try:
            await self._dialer.dial(self.bookie, self)
        except Exception as error:  # UnicodeError for a name that cannot be one, for example
            if not isinstance(error, OSError | BookKeeperError):
                log.warning("connecting to bookie %s: unexpected error", self.bookie, exc_info=True)
            self._cannot_connect(str(error) or type(error).__name__)

    def _cannot_connect(self, why: str) -> None:
        self.count_failures(BookieUnavailableError.code)
        self.end(BookieUnavailableError(f"cannot connect: {why}", bookie=self.bookie))

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
        self.end(BookieUnavailableError(reason, bookie=self.bookie))

    def close(self, error: BKError) -> None:
        """End the connection; everything outstanding fails with `error`."""
        self.end(error)

    def end(self, error: BKError) -> None:
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
            with guarded(f"loss of the connection to bookie {self.bookie}"):
                route.detach(error)
        self.routes.clear()
        self._fail_requests(error.code)

    def count_failures(self, code: int, count: int = 1) -> None:
        """The bookie refused so many requests, did not answer them in time, or could not be connected to."""
        self._dialer.on_failure(self.bookie, code, count)

    def _fail_requests(self, code: int) -> None:
        requests = list(self._requests.values())
        self._requests.clear()
        for request in requests:
            with guarded(f"loss of the connection to bookie {self.bookie}"):
                request.done(code, None)

    # --- sending ---

    def send(self, frames: bytes) -> None:
        """Write complete frames: at once, unless others wait for the loop to turn."""
        self.written += len(frames)
        if self.out:
            self.out.append(frames)
        elif self._transport is not None:
            self._transport.write(frames)
        else:
            self._gather(frames)

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
        self.written += len(frame)
        self._gather(frame)

    def _gather(self, frame: bytes) -> None:
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
        self._requests[key] = Registered(operation, self._clock.tick, deadline, done)

    def _sent(self, call: ReadCall) -> None:
        """Entry reads are handed over now."""
        call.sent = self._clock.tick
        call.patience = call.deadline - call.sent

    def _settle(self, request: Registered, code: int, response: Response | None) -> None:
        """The bookie has answered a request."""
        self._progress.answered(request.sent)
        if code != OK:
            self.count_failures(code)
        request.done(code, response)

    def add_route(self, route: AddRoute) -> None:
        assert route.ledger_id not in self.routes
        self.routes[route.ledger_id] = route

    def drop_route(self, route: AddRoute) -> None:
        """All answers of a route without a channel have come."""
        if self.routes.get(route.ledger_id) is route:
            del self.routes[route.ledger_id]
            if self.close_when_idle and not self.out:
                self.end(ClientClosedError(bookie=self.bookie))

    def give_up_route(self, route: AddRoute) -> None:
        """The answers of a route without a channel are overdue."""
        if self.close_when_idle and self.routes.get(route.ledger_id) is route:
            self.end(RequestTimeoutError(ledger_id=route.ledger_id, bookie=self.bookie))

    # --- time ---

    def sweep(self, add_timeout: float) -> None:
        """A tick has passed: expire what is overdue. `add_timeout`: ticks that adds wait."""
        now = self._clock.tick
        if self.state is ConnectionState.CONNECTING and now >= self._connect_deadline:
            self._cannot_connect("no answer in time")
            return
        progress = self._progress
        routes = list(self.routes.values())
        for route in routes:
            progress.answered(route.look(now - 1))
        moving_since = progress.look(now - 1, self.written, self._unsent())
        self._expire_requests(now, moving_since)
        for route in routes:
            with guarded(f"timeouts of adds to bookie {self.bookie}"):
                route.expire(now, moving_since, add_timeout)

    def _unsent(self) -> int:
        """Bytes handed over that are in our buffers still."""
        if self._transport is not None:
            return self._transport.get_write_buffer_size() + sum(map(len, self.out))
        return self.written

    def _expire_requests(self, now: int, moving_since: float) -> None:
        """Requests handed over since `moving_since` begin to wait anew; those past their deadline are answered with a
        timeout."""
        overdue = []
        for key, request in self._requests.items():
            if request.sent >= moving_since:
                request.deadline = max(request.deadline, now + request.patience)
            elif request.deadline <= now:
                overdue.append(key)
        for key in overdue:
            expired = self._requests.pop(key, None)
            if expired is not None:
                self.count_failures(TIMEOUT)
                with guarded(f"timeout of a request to bookie {self.bookie}"):
                    expired.done(TIMEOUT, None)

    # --- receiving ---

    def data_received(self, data: bytes) -> None:
        responses = self._responses
        try:
            acks, bodies = responses.feed(data)
            progress = self._progress
            progress.heard = True
            if acks or bodies:
                progress.understood = True
            adds = by_ledger(acks) if acks else {}
            if bodies:
                self._bodies_received(bodies, adds)
            self._deliver_adds(adds)
            if responses.error is not None:
                raise responses.error
        except ProtocolError as error:
            self.broken(error)
        except Exception as error:
            # Somebody did not take an answer well. What else this read brought may be lost: say so to all.
            log.exception("answers of bookie %s: unexpected error", self.bookie)
            self.end(BookieUnavailableError(f"cannot take an answer: {error!r}", bookie=self.bookie))

    def _deliver_adds(self, adds: AddAnswers) -> None:
        for ledger_id, (acked, failed) in adds.items():
            for _, code in failed:
                self.count_failures(code)
            route = self.routes.get(ledger_id)
            if route is not None:
                route.deliver(acked, failed)

    @abstractmethod
    def _bodies_received(self, bodies: list[bytes], adds: AddAnswers) -> None:
        """Handle all but plain acks. Answers to adds are put into `adds`. Raises `ProtocolError`."""

    def broken(self, error: ProtocolError) -> None:
        """The bookie sent something illegal: the connection cannot go on."""
        log.warning("bookie %s: %s; the connection is closed", self.bookie, error)
        self.end(BookieUnavailableError(f"illegal answer: {error}", bookie=self.bookie))
