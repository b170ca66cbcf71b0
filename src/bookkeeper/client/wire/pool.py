"""Connections to all bookies of a client.

Theory of operation

- Per bookie and protocol version there are `numChannelsPerBookie` connections, opened at first use; a ledger uses
  number `ledger id mod n`. So one bookie gets one ledger's adds in order (spec client §12.4).
- A request finds its version by what it is. What v2 can say goes out as v2 unless `protocol=v3`; the rest always as
  v3, on connections of its own. A fencing read is v3 in every mode: v2 answers carry no transaction id, so a plain
  read's answer could be taken for a fence (spec wire-protocol §2.7).
- A second writer of one ledger in one client (recovery beside a writer, for example) gets a connection of its own,
  because the answers to adds are told apart by ledger and entry id only.
- A request that may cost the connection goes *apart*: on one that carries nothing but such requests, and ends when it
  has nothing to carry.
- One sweep with every tick of one clock (`runtime.awake`) expires requests on all connections; no request has a timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...config import ClientConfiguration
from ...errors import BKError, ClientClosedError, IllegalOpError, from_code
from ...metadata.api import BookieDirectory
from ...protocol.messages import (
    V2,
    V3,
    BatchReadRequest,
    Flags,
    ForceLedgerRequest,
    GetBookieInfoRequest,
    ReadRequest,
    Request,
    Response,
)
from ...runtime import Runtime, guarded
from ...types import BookieId, WriteFlag
from .add_channel import AddChannel, AddRoute, AddSink, ChannelOwner
from .calls import OnReply, ReadCall
from .connection import Connection
from .connection_v2 import V2Connection
from .connection_v3 import V3Connection
from .departures import Departures
from .dialer import Dialer, OnFailure, ignore_failure

APART = -1
"""The number of a bookie's connection for requests that go apart."""

CONGESTED = 2**31 - 1
"""Requests that a bookie counts as having while a connection to it takes nothing."""


class ConnectionPool:
    """The pool of connections. Use from one loop."""

    def __init__(
        self,
        runtime: Runtime,
        config: ClientConfiguration,
        discovery: BookieDirectory,
        *,
        on_failure: OnFailure = ignore_failure,
    ) -> None:
        """`on_failure` hears of requests that a bookie refused or did not answer in time."""
        self._config = config
        self._dialer = Dialer(runtime, config, discovery, on_failure)
        self._protocol = "v2" if config.useV2WireProtocol else config.protocol
        self._pool: dict[tuple[BookieId, int, int], Connection] = {}
        """By bookie, version and number; a connection leaves when it closes."""
        self._separate: list[Connection] = []
        """Connections that belong to one add channel."""
        self._channels: dict[AddChannel, None] = {}
        """All that are open, in order of opening."""
        self._closed = False
        self._clock = self._dialer.clock
        self._clock.on_tick = self._sweep
        base = config.readTimeout
        self.add_timeout = float(base if config.addEntryTimeoutSec is None else config.addEntryTimeoutSec)
        """Seconds; zero or less: none."""
        self.read_timeout = float(base if config.readEntryTimeoutSec is None else config.readEntryTimeoutSec)

    @property
    def departures(self) -> Departures:
        """When frames leave."""
        return self._dialer.departures

    # --- versions ---

    def add_version(self, write_flags: WriteFlag) -> int:
        """Protocol version for adds: v2, or v3 where the configuration or the flags need it.

        Raises `IllegalOpError` for flags under `protocol=v2`.
        """
        if self._protocol == "v3":
            return V3
        if not write_flags:
            return V2
        if self._protocol == "v2":
            raise IllegalOpError("write flags do not exist in protocol v2")
        return V3

    @property
    def read_version(self) -> int:
        """Protocol version of plain reads. Only v2 has batch reads."""
        return V3 if self._protocol == "v3" else V2

    @property
    def v2_only(self) -> bool:
        """Whether v3 is for what v2 cannot say at all."""
        return self._protocol == "v2"

    def _version_for(self, message: Request) -> int:
        if isinstance(message, BatchReadRequest):
            return V2
        if isinstance(message, ReadRequest) and self._protocol != "v3":
            plain = not message.flags & (Flags.DO_FENCING | Flags.ENTRY_PIGGYBACK) and message.previous_lac is None
            return V2 if plain else V3
        if isinstance(message, ForceLedgerRequest) and self._protocol == "v2":
            raise IllegalOpError("force does not exist in protocol v2", ledger_id=message.ledger_id)
        return V3

    # --- adds ---

    def open_add_channel(
        self, bookie: BookieId, ledger_id: int, sink: AddSink, *, version: int, owner: ChannelOwner | None = None
    ) -> AddChannel:
        """A way for one writer's adds to one bookie; connects at the first `send` or `use`."""
        channel = AddChannel(bookie, ledger_id, sink, version, self._bind, self._channels.pop, owner)
        self._channels[channel] = None
        return channel

    def _bind(self, channel: AddChannel) -> AddRoute | None:
        """A route on a live connection; None when the client is closed (the sink hears of it when the loop turns)."""
        if self._closed:
            asyncio.get_running_loop().call_soon(channel.lose, ClientClosedError(ledger_id=channel.ledger_id))
            return None
        connection = self._connection(channel.bookie, channel.version, channel.ledger_id)
        if channel.ledger_id in connection.routes:
            connection = self._new_connection(channel.bookie, channel.version)
            self._separate.append(connection)
            connection.close_when_idle = True
        route = AddRoute(connection, channel, channel.ledger_id)
        connection.add_route(route)
        return route

    # --- everything else ---

    async def request(self, bookie: BookieId, message: Request, *, timeout: float | None = None) -> Response:
        """Send anything but an add and wait for its answer, `timeout` seconds at most (None: the configured one).

        Raises the `BKError` of a failed connection, of failed authentication or of an expired timeout; a refusal by
        the bookie is a response with a status.
        """
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def done(code: int, response: Response | None) -> None:
            if future.done():
                return
            if response is not None:
                future.set_result(response)
            else:
                future.set_exception(self._failure(code, bookie, message))

        self.call(bookie, message, timeout, done)
        return await future

    def call(
        self, bookie: BookieId, message: Request, timeout: float | None, done: OnReply, *, apart: bool = False
    ) -> None:
        """Send anything but an add; `done(code, response)` hears the outcome once, later.

        `apart`: see the module. `code` is the client's result code; the response is None when the failure is not the
        bookie's answer. Raises `ClientClosedError`, `TooManyRequestsError`, `IllegalOpError` at once.
        """
        if timeout is None:
            timeout = (
                self._config.getBookieInfoTimeoutSecs
                if isinstance(message, GetBookieInfoRequest)
                else self.read_timeout
            )
        version = self._version_for(message)
        number = APART if apart else self._number(getattr(message, "ledger_id", 0))
        connection = self._numbered(bookie, version, number)
        connection.request(message, self._clock.deadline(timeout), done)

    def read_entries(self, ledger_id: int, entry_ids: Sequence[int], call: ReadCall) -> None:
        """Plain reads of entries from `call.bookie`; the call's sink hears one answer for each.

        Raises `ClientClosedError`, `TooManyRequestsError` at once; then nothing was sent.
        """
        self._connection(call.bookie, self.read_version, ledger_id).read_entries(ledger_id, entry_ids, call)

    def read_deadline(self) -> float:
        """When an entry read sent now expires: for `ReadCall`."""
        return self._clock.deadline(self.read_timeout)

    def _failure(self, code: int, bookie: BookieId, message: Request) -> BKError:
        ledger_id = getattr(message, "ledger_id", None)
        return from_code(code, ledger_id=ledger_id, entry_id=getattr(message, "entry_id", None), bookie=bookie)

    def pending(self, bookie: BookieId) -> int:
        """Requests that a bookie has yet to answer; a great many where a connection to it is congested."""
        mine = [connection for connection in self.connections if connection.bookie == bookie]
        if not all(connection.writable for connection in mine):
            return CONGESTED
        return sum(connection.outstanding for connection in mine)

    # --- the pool ---

    def _connection(self, bookie: BookieId, version: int, ledger_id: int) -> Connection:
        return self._numbered(bookie, version, self._number(ledger_id))

    def _number(self, ledger_id: int) -> int:
        return ledger_id % self._config.numChannelsPerBookie

    def _numbered(self, bookie: BookieId, version: int, number: int) -> Connection:
        if self._closed:
            raise ClientClosedError
        key = (bookie, version, number)
        connection = self._pool.get(key)
        if connection is None:
            connection = self._pool[key] = self._new_connection(bookie, version)
        return connection

    def _new_connection(self, bookie: BookieId, version: int) -> Connection:
        make = V2Connection if version == V2 else V3Connection
        self._clock.start()
        return make(self._dialer, bookie, self._connection_closed)

    def _connection_closed(self, connection: Connection) -> None:
        for key, pooled in self._pool.items():
            if pooled is connection:
                del self._pool[key]
                return
        self._separate.remove(connection)

    @property
    def connections(self) -> list[Connection]:
        """All that are open or opening."""
        return [*self._pool.values(), *self._separate]

    def _sweep(self) -> None:
        connections = self.connections
        if not connections:
            self._clock.stop()
        self._dialer.arrivals.tell()
        self._dialer.departures.look()
        add_timeout = self._clock.ticks(self.add_timeout)
        for connection in connections:
            with guarded(f"timeouts of requests to bookie {connection.bookie}"):
                connection.sweep(add_timeout)
        for (bookie, _, number), connection in list(self._pool.items()):
            if number == APART and not connection.outstanding:
                connection.close(ClientClosedError(bookie=bookie))

    async def close(self) -> None:
        """Close all connections; what is outstanding fails with `ClientClosedError`. Idempotent.

        So do all writers, also those that wait for something else than an answer.
        """
        self._closed = True
        self._dialer.arrivals.tell()
        self._clock.stop()
        for channel in list(self._channels):
            with guarded("end of a writer with its client"):
                channel.end(ClientClosedError(ledger_id=channel.ledger_id, bookie=channel.bookie))
        for connection in self.connections:
            connection.close(ClientClosedError(bookie=connection.bookie))
        await self._dialer.tasks.close()
