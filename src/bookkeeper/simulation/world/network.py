"""TCP between simulated machines: latency, fragments, back-pressure, partitions, resets, half-open connections.

Bytes of one connection arrive in order, once and unchanged (but in worlds that corrupt them on purpose), after a
latency drawn per write; a write may arrive in several pieces.
A blocked link delivers nothing until it is unblocked (TCP would retransmit), and neither side notices. A killed process
closes its connections, a machine without power leaves them half-open: the peer finds out when its own timer runs out,
or when the machine is back and answers with a reset.

The receiver's window is modelled: what the receiving protocol has not taken (`pause_reading`) counts against the
sender, whose `pause_writing` is then called. Without that no back-pressure bug could be found.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ...runtime.api import DEFAULT_OPTIONS, Network, PauseAfter, ServiceListener, SocketOptions, no_pause
from .loop import QUANTUM, SimulatedLoop, from_outside
from .odds import NetworkOptions, Odds

WINDOW = 256 * 1024
"""Bytes that may be under way or unread on one connection before the sender's buffer grows."""

SEGMENT = 16 * 1024
"""Bytes of one connection that a narrow link takes in one piece, before those of another."""


class Tap(Protocol):
    """Listens to all connections."""

    def sent(self, transport: SimulatedTransport, data: bytes) -> None:
        """The transport's owner has written this."""

    def received(self, transport: SimulatedTransport, data: bytes) -> None:
        """The transport's owner is about to be given this."""


@dataclass
class Link:
    """What happens to bytes from one machine to another. Directed."""

    blocked: bool = False
    latency: float = NetworkOptions.latency
    spread: float = NetworkOptions.spread
    tail_chance: float = NetworkOptions.tail_chance
    tail: float = NetworkOptions.tail
    """These four as in `NetworkOptions`."""
    bandwidth: float = math.inf
    """Bytes per second, of all connections together."""
    _free_at: float = 0.0

    @property
    def narrow(self) -> bool:
        return self.bandwidth != math.inf

    def sent_at(self, now: float, size: int) -> float:
        """When the last of so many bytes, handed over now, has left."""
        if not self.narrow:
            return now
        self._free_at = max(self._free_at, now) + size / self.bandwidth
        return self._free_at

    def draw(self, dice: random.Random) -> float:
        delay = self.latency + dice.random() * self.spread
        if dice.random() < self.tail_chance:
            delay += dice.random() * self.tail
        return delay


class Station(Protocol):
    """A machine, as the network sees it."""

    @property
    def name(self) -> str: ...


class Owner(Protocol):
    """Whose end of a connection it is: what runs on a machine between a start and a crash."""

    @property
    def machine(self) -> Station: ...
    @property
    def alive(self) -> bool: ...
    @property
    def context(self) -> contextvars.Context: ...


class Wires(Protocol):
    """The world, as the network sees it."""

    loop: SimulatedLoop
    dice: random.Random
    odds: Odds
    tap: Tap | None
    on_buffered: Callable[[SimulatedTransport], None] | None
    listeners: dict[tuple[str, int], SimulatedListener]

    def has_power(self, machine: str) -> bool | None:
        """Whether a machine has power; None if there is none of that name."""

    def sometimes(self, name: str) -> None: ...
    def link(self, source: str, target: str) -> Link: ...
    async def passable(self, *links: Link) -> None: ...
    def remember(self, transport: SimulatedTransport) -> None: ...
    def forget(self, transport: SimulatedTransport) -> None: ...
    def listen(self, owner: Owner, port: int, factory: Callable[[], asyncio.Protocol]) -> SimulatedListener: ...
    def stop_listening(self, listener: SimulatedListener) -> None: ...


class SimulatedTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, world: Wires, owner: Owner, peer_machine: str, *, accepted: bool) -> None:
        super().__init__()
        self.accepted = accepted
        """Whether this is the listener's end."""
        self._world = world
        self.owner = owner
        self.peer_machine = peer_machine
        self.peer: SimulatedTransport | None = None
        self.protocol: asyncio.BaseProtocol | None = None
        self._high = 64 * 1024
        self._low = 16 * 1024
        self._paused_writing = False
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._under_way = 0
        """Bytes sent and not yet taken by the peer's protocol."""
        self._unread: list[bytes] = []
        self._reading_paused = False
        self._eof_pending = False
        self._closing = False
        self._closed = False
        self._last_arrival = 0.0
        # Sent and not delivered. Each has an arrival scheduled, whichever of them it then delivers, or is stalled.
        self._wire: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._stalled = 0  # arrivals that a blocked link holds back
        """Deliveries that wait for a blocked link, in order."""

    # --- asyncio.Transport ---

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return (self.peer_machine, 0)
        if name == "sockname":
            return (self.owner.machine.name, 0)
        return default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self.protocol is not None
        return self.protocol

    def is_closing(self) -> bool:
        return self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else 64 * 1024
        self._low = low if low is not None else self._high // 4

    def get_write_buffer_size(self) -> int:
        return self._outgoing_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self._world.loop.call_soon(self._hand_over, context=self.owner.context)

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not data:
            return
        if self._world.tap is not None:
            self._world.tap.sent(self, bytes(data))
        self._outgoing.append(bytes(data))
        self._outgoing_bytes += len(data)
        self._pump()
        if self._outgoing_bytes > self._high and self._world.on_buffered is not None:
            self._world.on_buffered(self)
        if self._outgoing_bytes > self._high and not self._paused_writing:
            self._paused_writing = True
            assert self.protocol is not None
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """Send what is buffered, then tell both ends."""
        if self._closing:
            return
        self._closing = True
        if not self._outgoing:
            self._finish()

    def abort(self) -> None:
        """Drop what is buffered, reset the peer."""
        self._closing = True
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._finish(ConnectionResetError("connection reset (simulated)"))

    # --- sending ---

    def _pump(self) -> None:
        """Put buffered bytes on the wire as far as the window allows."""
        dice, odds = self._world.dice, self._world.odds.network
        narrow = self._world.link(self.owner.machine.name, self.peer_machine).narrow
        while self._outgoing and self._under_way < WINDOW:
            piece = self._outgoing.pop(0)
            self._outgoing_bytes -= len(piece)
            if narrow and len(piece) > SEGMENT:
                self._outgoing.insert(0, piece[SEGMENT:])
                self._outgoing_bytes += len(piece) - SEGMENT
                piece = piece[:SEGMENT]
            if len(piece) > 1 and dice.random() < odds.fragment_chance:
                cut = dice.randrange(1, len(piece))
                self._outgoing.insert(0, piece[cut:])
                self._outgoing_bytes += len(piece) - cut
                piece = piece[:cut]
            self._under_way += len(piece)
            if odds.corrupt_chance and dice.random() < odds.corrupt_chance:
                self._world.sometimes("network: a bit was flipped")
                damaged = bytearray(piece)
                damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
                piece = bytes(damaged)
            assert self.peer is not None
            self._deliver(self.peer._arrived, piece)
        if self._paused_writing and self._outgoing_bytes <= self._low:
            self._paused_writing = False
            assert self.protocol is not None
            self.protocol.resume_writing()
        if self._closing and not self._outgoing and not self._closed:
            self._finish()

    def _deliver(self, call: Callable[..., None], *args: Any) -> None:
        """Run `call` at the peer after the link's latency; never before an earlier delivery."""
        self._wire.append((call, args))
        if self._world.link(self.owner.machine.name, self.peer_machine).blocked or self._stalled:
            self._stalled += 1
        else:
            self._schedule_arrival(args)

    def _schedule_arrival(self, args: tuple[Any, ...]) -> None:
        link = self._world.link(self.owner.machine.name, self.peer_machine)
        loop = self._world.loop
        # A whole step later than the one before: timers of one instant fire in no particular order.
        left = link.sent_at(loop.time(), len(args[0]) if args and isinstance(args[0], bytes) else 0)
        at = max(self._last_arrival + 2 * QUANTUM, left + link.draw(self._world.dice))
        self._last_arrival = at
        assert self.peer is not None
        loop.call_at(at, self._arrive, context=self.peer.owner.context)

    @from_outside
    def _arrive(self) -> None:
        """The first that is under way arrives."""
        if self._world.link(self.owner.machine.name, self.peer_machine).blocked:
            self._stalled += 1  # the link went down while the bytes were under way
        else:
            call, args = self._wire.popleft()
            call(*args)

    def link_restored(self) -> None:
        """Deliver what a blocked link has held back."""
        stalled, self._stalled = self._stalled, 0
        for _, args in list(self._wire)[len(self._wire) - stalled :]:
            self._schedule_arrival(args)

    # --- receiving; these run on the receiving machine ---

    def _arrived(self, data: bytes) -> None:
        if self._closed:
            return
        self._unread.append(data)
        self._hand_over()

    def _hand_over(self) -> None:
        while self._unread and not self._reading_paused and not self._closed:
            data = self._unread.pop(0)
            self._world.loop.note(self.owner.machine.name, "received", data)
            if self._world.tap is not None:
                self._world.tap.received(self, data)
            assert isinstance(self.protocol, asyncio.Protocol)
            self.protocol.data_received(data)
            if self.peer is not None:
                self.peer._taken(len(data))
        if self._eof_pending and not self._unread and not self._closed:
            self._lost(None)

    def _taken(self, size: int) -> None:
        self._under_way -= size
        if not self._closed and self.owner.alive:
            self._world.loop.call_soon(self._pump, context=self.owner.context)

    # --- ending ---

    def _finish(self, error: Exception | None = None) -> None:
        """This end closes: the peer learns of it, and the own protocol is told."""
        if self._closed:
            return
        self._closed = True
        self._world.forget(self)
        if self.peer is not None:
            self._deliver(self.peer._peer_closed, error)
        self._world.loop.call_soon(self._tell, None, context=self.owner.context)

    def _peer_closed(self, error: Exception | None) -> None:
        if self._closed:
            return
        if error is None and self._unread:
            self._eof_pending = True
        else:
            self._lost(error)

    def _lost(self, error: Exception | None) -> None:
        if self._closed:
            return
        self._closed = True
        self._closing = True
        self._world.forget(self)
        self._tell(error)

    def _tell(self, error: Exception | None) -> None:
        assert self.protocol is not None
        self.protocol.connection_lost(error)

    def process_died(self) -> None:
        """The owner is gone; its operating system closes the connection."""
        if not self._closed:
            self._closed = True
            self._world.forget(self)
            if self.peer is not None:
                self._deliver(self.peer._peer_closed, ConnectionResetError("peer's process died (simulated)"))

    def machine_back(self) -> None:
        """The peer's machine was without power and is back: it does not know this connection."""
        self._lost(ConnectionResetError("connection reset by peer (simulated)"))


class SimulatedListener(ServiceListener):
    """A listening port of a machine."""

    def __init__(self, world: Wires, owner: Owner, port: int, factory: Callable[[], asyncio.Protocol]) -> None:
        self._world = world
        self.owner = owner
        self.host = owner.machine.name
        self.port = port
        self.factory = factory

    async def close(self) -> None:
        self._world.stop_listening(self)


class SimulatedNetwork(Network):
    """The network as one machine's incarnation sees it. Host names are machine names."""

    def __init__(self, world: Wires, owner: Owner) -> None:
        self._world = world
        self._owner = owner

    async def connect(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.Protocol],
        *,
        timeout: float | None,
        options: SocketOptions = DEFAULT_OPTIONS,
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        world, owner = self._world, self._owner
        async with asyncio.timeout(timeout):
            there = world.link(owner.machine.name, host)
            back = world.link(host, owner.machine.name)
            await world.passable(there, back)
            await asyncio.sleep(there.draw(world.dice) + back.draw(world.dice))
            await world.passable(there, back)
            powered = world.has_power(host)
            if powered is None:
                raise OSError(f"host {host} not found (simulated)")
            if not powered:
                await asyncio.Event().wait()  # no answer comes; the timeout ends this
            listener = world.listeners.get((host, port))
            if listener is None or not listener.owner.alive:
                raise ConnectionRefusedError(f"connection to {host}:{port} refused (simulated)")
        near = SimulatedTransport(world, owner, host, accepted=False)
        far = SimulatedTransport(world, listener.owner, owner.machine.name, accepted=True)
        near.peer, far.peer = far, near
        world.remember(near)
        world.remember(far)
        protocol = protocol_factory()
        near.protocol = protocol
        world.loop.call_soon(_accept, far, listener.factory, context=listener.owner.context)
        protocol.connection_made(near)
        return near, protocol

    async def listen(
        self,
        host: str | None,
        port: int,
        protocol_factory: Callable[[], asyncio.Protocol],
        *,
        backlog: int = 1024,
        options: SocketOptions = DEFAULT_OPTIONS,
        pause_after: PauseAfter = no_pause,
    ) -> ServiceListener:
        return self._world.listen(self._owner, port, protocol_factory)

    async def resolve(self, host: str) -> str:
        return host


@from_outside
def _accept(transport: SimulatedTransport, factory: Callable[[], asyncio.Protocol]) -> None:
    protocol = factory()
    transport.protocol = protocol
    protocol.connection_made(transport)
