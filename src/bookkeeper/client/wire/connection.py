"""One TCP connection to one bookie, speaking one version of the protocol.

Theory of operation

- A connection lives once (see `life`). There is no reconnect timer: the pool makes a new connection at the next use.
  Which version it speaks never changes, because a Java bookie fixes a connection to v2 at its first
  v2 frame (spec wire-protocol §1.2).
- Outgoing frames are gathered in `out`. When the loop turns (`departures`) they are joined and written in one piece,
  those of all writers together. While connecting, the joined pieces wait. Past the high water mark, waiting or in the
  transport, `writable` is False.
- Everything but adds is registered until its answer comes: by transaction id, in v2 by what the answer echoes (see
  the subclasses). How many may be registered is bounded.
- Adds go through routes (see `add_channel`).
- One sweep with every tick of the client's clock (`runtime.awake`), made by the pool, expires what is overdue; a late
  answer finds nothing and is dropped. What waited for something else than the bookie (`progress`) begins to wait
  anew. Connecting has its timeout there too: it takes its time from the same clock as the rest.
- When the connection ends, everything registered and every route with unanswered adds fails with one error. Callbacks
  run from the loop only, never inside the call that sends. An error in one of them is logged, and keeps nothing from
  the others.
"""

from __future__ import annotations

import asyncio
import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import cast

from ...errors import (
    BKError,
    BookieUnavailableError,
    BookKeeperError,
    ClientClosedError,
    ProtocolError,
    RequestTimeoutError,
    TooManyRequestsError,
)
from ...protocol.frames import Acks, PackedAcks, ResponseStream
from ...protocol.messages import Request, Response
from ...runtime import guarded
from ...types import BookieId
from .add_channel import AddAnswers, AddRoute, are_of_many, by_ledger, rows
from .attempt import Attempt
from .calls import LONGEST_ROW, ROW_FROM, OnReply, ReadCall
from .dialer import Dialer
from .life import CONNECTION_LIFE, ConnectionEvent, ConnectionState
from .progress import Progress
from .results import OK, TIMEOUT

log = logging.getLogger(__name__)


class Registered:
    """A request that waits for its answer. Times are ticks, as those of `ReadCall`."""

    __slots__ = ("deadline", "done", "operation", "patience", "sent")

    def __init__(self, operation: int, sent: int, deadline: float, done: OnReply) -> None:
        self.operation = operation
        self.sent = sent
        self.deadline = deadline
        self.patience = deadline - sent
        self.done = done


class Connection(asyncio.Protocol):
    """What the two versions share: life, gathering, registration, expiry. `on_closed` is called once, at the end."""

    version: int

    def __init__(
        self, dialer: Dialer, bookie: BookieId, on_closed: Callable[[Connection], None], responses: ResponseStream
    ) -> None:
        self.bookie = bookie
        self.state = ConnectionState.CONNECTING
        self.out: list[bytes] = []
        """Frames since the loop last turned; always this same list."""
        self.writable = True
        self.written = 0
        """Bytes handed to this connection."""
        self.routes: dict[int, AddRoute] = {}
        """By ledger id."""
        self._routes_in_use: list[AddRoute] = []  # a tick looks at these; maybe some that have left
        self.close_when_idle = False
        """It serves one add channel: it ends with the channel's last answer."""
        self._dialer = dialer
        self.responses = responses
        self._on_closed = on_closed
        self._departures = dialer.departures
        self._arrivals = dialer.arrivals
        self._transport: asyncio.Transport | None = None  # set while connected
        self._high_water = dialer.config.clientWriteBufferHighWaterMark
        self._limit = dialer.config.maxOutstandingRequestsPerChannel
        self._clock = dialer.clock
        self._progress = Progress()
        self._requests: dict[int, Registered] = {}
        """By transaction or request id, in order of sending."""
        self._attempt: Attempt | None = Attempt(  # set while connecting
            dialer.tasks.spawn(self._open(), name=f"connect {bookie}"),
            self._clock.deadline(dialer.config.clientConnectTimeoutMillis / 1000),
        )

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
        error = BookieUnavailableError(f"cannot connect: {why}", bookie=self.bookie)
        self._end(error, ConnectionEvent.UNREACHABLE)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        attempt, self._attempt = self._attempt, None
        self.state = CONNECTION_LIFE.after(self.state, ConnectionEvent.MADE)
        if attempt is None:  # closed meanwhile
            cast(asyncio.Transport, transport).abort()
            return
        self._transport = cast(asyncio.Transport, transport)
        config = self._dialer.config
        self._transport.set_write_buffer_limits(self._high_water, config.clientWriteBufferLowWaterMark)
        was_full = not self.writable
        self._set_writable(True)
        if attempt.waiting:
            self._transport.write(attempt.take())
        if was_full and self.writable:
            self.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f"connection lost: {exc or type(exc).__name__}" if exc else "the bookie closed the connection"
        self.lose(BookieUnavailableError(reason, bookie=self.bookie))

    def close(self, error: BKError) -> None:
        """This client needs the connection no longer; everything outstanding fails with `error`. Idempotent."""
        self._end(error, ConnectionEvent.DISMISSED)

    def lose(self, error: BKError) -> None:
        """The bookie ended the connection, or made it useless; everything outstanding fails with `error`."""
        self._end(error, ConnectionEvent.LOST)

    def _end(self, error: BKError, event: ConnectionEvent) -> None:
        before = self.state
        self.state = CONNECTION_LIFE.after(before, event)
        if before is ConnectionState.CLOSED:
            return
        self._arrivals.tell()
        if not isinstance(error, ClientClosedError):
            log.info("connection to a bookie ended: %s", error)
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        if self._attempt is not None:
            self._attempt.give_up()
            self._attempt = None
        self.out.clear()
        self._departures.blocked.discard(self)
        self._on_closed(self)
        for route in list(self.routes.values()):
            with guarded(f"loss of the connection to bookie {self.bookie}"):
                route.detach(error)
        self.routes.clear()
        self._routes_in_use.clear()
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
        """Write complete frames, together with all others of this turn of the loop."""
        self.written += len(frames)
        if not self.out:
            self._departures.connection(self._flush)
        self.out.append(frames)

    def _flush(self) -> None:
        out = self.out
        if not out:
            return  # it has ended
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        if self._transport is not None:
            self._transport.write(data)
        elif self._attempt is not None:
            self._attempt.hold(data)
            if self._attempt.waiting > self._high_water:
                self._set_writable(False)

    def _set_writable(self, writable: bool) -> None:
        self.writable = writable
        if writable:
            self._departures.blocked.discard(self)
        else:
            self._departures.blocked.add(self)

    def pause_writing(self) -> None:
        self._set_writable(False)

    def resume_writing(self) -> None:
        self._set_writable(True)
        for route in list(self.routes.values()):
            if route.sink is not None:
                route.sink.on_writable(self.bookie)

    # --- requests ---

    @abstractmethod
    def request(self, message: Request, deadline: float, done: OnReply) -> None:
        """Send a request of a kind that this version has; `done` is called once, with the outcome.

        Raises `TooManyRequestsError` when too many are outstanding, `IllegalOpError` for what the version cannot say.
        """

    @abstractmethod
    def read_entries(self, ledger_id: int, entry_ids: Sequence[int], call: ReadCall) -> None:
        """Read entries; `call` gets an answer for each. Raises `TooManyRequestsError`."""

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

    def uses_route(self, route: AddRoute) -> None:
        """Something is sent on it."""
        self._routes_in_use.append(route)

    def drop_route(self, route: AddRoute) -> None:
        """All answers of a route without a channel have come."""
        if self.routes.get(route.ledger_id) is route:
            del self.routes[route.ledger_id]
            if self.close_when_idle and not self.out:
                self.close(ClientClosedError(bookie=self.bookie))

    def give_up_route(self, route: AddRoute) -> None:
        """The answers of a route without a channel are overdue."""
        if self.close_when_idle and self.routes.get(route.ledger_id) is route:
            self.close(RequestTimeoutError(ledger_id=route.ledger_id, bookie=self.bookie))

    # --- time ---

    def sweep(self, add_timeout: float) -> None:
        """A tick has passed: expire what is overdue. `add_timeout`: ticks that adds wait."""
        now = self._clock.tick
        if self._attempt is not None and self._attempt.overdue(now):
            self._cannot_connect("no answer in time")
            return
        tick = now - 1
        oldest, late, quiet = self._look_at_routes(tick)
        self._progress.answered(oldest)
        moving_since = self._progress.look(tick, self.written, self._unsent())
        self._expire_requests(now, moving_since)
        for route in late:
            if route.overdue(now, moving_since, add_timeout):
                with guarded(f"timeouts of adds to bookie {self.bookie}"):
                    route.expire()
        for route in quiet:
            if route.at_rest:
                route.rest()
        if quiet:
            self._routes_in_use = [route for route in self._routes_in_use if route.in_use]

    def _look_at_routes(self, tick: int) -> tuple[float, list[AddRoute], list[AddRoute]]:
        """Tick `tick` is over. When the oldest of what was answered meanwhile was sent; the routes that wait for longer
        than since this tick; and those where nothing happened."""
        oldest = math.inf
        late, quiet = [], []
        for route in self._routes_in_use:
            answered = route.look(tick)
            if answered < oldest:
                oldest = answered
            waits_since = route.waits_since
            if waits_since < tick:
                late.append(route)
            elif answered > tick and waits_since > tick:
                quiet.append(route)
        return oldest, late, quiet

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
        responses = self.responses
        try:
            acks, bodies = responses.feed(data)
            progress = self._progress
            progress.heard = True
            if acks or bodies:
                progress.understood = True
            if bodies:
                self._arrivals.tell()
                adds = by_ledger([*responses.unpack(acks)])
                self._bodies_received(bodies, adds)
                self._deliver_adds(adds)
            elif acks and self._arrivals.worth_keeping(responses, acks):
                self._arrivals.keep(self, acks)
            elif acks:
                self._arrivals.tell()
                self._deliver_acks([*responses.unpack(acks)])
            if responses.error is not None:
                raise responses.error
        except ProtocolError as error:
            self.broken(error)
        except Exception as error:
            self.failed_on_answer(error)

    def tell(self, acks: PackedAcks) -> None:
        """Adds that succeeded reach their writers now."""
        try:
            self._deliver_acks([*self.responses.unpack(acks)])
        except Exception as error:
            self.failed_on_answer(error)

    def failed_on_answer(self, error: Exception) -> None:
        """A caller failed. What else came with its answer may be lost: all callers are told so."""
        log.error("answers of bookie %s: unexpected error", self.bookie, exc_info=error)
        self.lose(BookieUnavailableError(f"cannot take an answer: {error!r}", bookie=self.bookie))

    def _deliver_acks(self, acks: Acks) -> None:
        """Nothing else came with them, as nearly always: each row goes to its ledger as it stands."""
        route_of = self.routes.get
        if len(acks) == 1 or are_of_many(acks):
            bookie = self.bookie
            for ledger_id, entry_id in acks:
                route = route_of(ledger_id)
                if route is not None:
                    route.answered += 1
                    sink = route.sink
                    if sink is not None:
                        sink.on_add_stored(bookie, entry_id)
                    else:
                        route.dropped()
            return
        for ledger_id, acked in rows(acks):
            route = route_of(ledger_id)
            if route is not None:
                route.deliver(acked, [])

    def _deliver_adds(self, adds: AddAnswers) -> None:
        for ledger_id, (acked, failed) in adds.items():
            for _, code in failed:
                self.count_failures(code)
            route = self.routes.get(ledger_id)
            if route is not None:
                route.deliver(acked, failed)

    def _bodies_received(self, bodies: list[bytes], adds: AddAnswers) -> None:
        """Handle all but plain acks. Answers to adds are put into `adds`. Raises `ProtocolError`."""
        for at in range(0, len(bodies), LONGEST_ROW):
            some = bodies[at : at + LONGEST_ROW]
            is_row = len(some) >= ROW_FROM and self._row_received(some)
            if not is_row and not self._received_by_turns(some, adds):
                return

    @abstractmethod
    def _row_received(self, bodies: list[bytes]) -> bool:
        """Take entries that were asked for by columns, if these bodies are nothing else and those of each call stand
        side by side. If not, all is as it was."""

    @abstractmethod
    def _received_by_turns(self, bodies: list[bytes], adds: AddAnswers) -> bool:
        """Take any bodies one by one; whether the connection goes on. Raises `ProtocolError`."""

    def broken(self, error: ProtocolError) -> None:
        """The bookie sent something illegal: the connection cannot go on."""
        log.warning("bookie %s: %s; the connection is closed", self.bookie, error)
        self.lose(BookieUnavailableError(f"illegal answer: {error}", bookie=self.bookie))
