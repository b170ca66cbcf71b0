"""Which connections there are, and whether there is room for one more.

Theory of operation

Every connection takes a file descriptor, and a bookie that finds none left for its next journal or entry log must
stop. So `reservedFileDescriptors` are kept for files, and there are no more connections than the rest (and than
`maxConnections`); of one address no more than `maxConnectionsPerPeer`.

Clients keep connections open that they do not use, which is fine until the room is needed: then a new connection takes
the place of one that has been idle for `idleConnectionEvictionMs`, the longest idle of those that come from the same
address, or else from the address with the most. Only if there is none, the new one is refused.
"""

from __future__ import annotations

import logging
from typing import Generic, Protocol, TypeVar

from ...config import ServerConfiguration
from .log_rate import LogRate
from .memory import Peer

log = logging.getLogger(__name__)
log.addFilter(LogRate())

RESERVED_SHARE = 2
"""Without `reservedFileDescriptors`: all file descriptors divided by this, but not more than:"""
MAX_RESERVED = 1024


class Connected(Protocol):
    """A connection, as seen from here."""

    source: Peer
    quiet_ticks: int

    @property
    def idle(self) -> bool: ...

    def abort(self) -> None: ...


C = TypeVar("C", bound=Connected)


def connection_limit(config: ServerConfiguration, open_files: int) -> int:
    """How many connections there may be in a process that may have so many open files."""
    reserved = config.reservedFileDescriptors
    if reserved is None:
        reserved = min(open_files // RESERVED_SHARE, MAX_RESERVED)
    return max(1, min(config.maxConnections, open_files - reserved))


class Admission(Generic[C]):
    """The connections."""

    def __init__(self, config: ServerConfiguration, open_files: int) -> None:
        self.limit = connection_limit(config, open_files)
        if self.limit < config.maxConnections:
            log.info(
                "%d connections at most, not maxConnections=%d: the process may have %d open files (ulimit -n)",
                self.limit,
                config.maxConnections,
                open_files,
            )
        per_peer = config.maxConnectionsPerPeer
        self.peer_limit = min(self.limit, per_peer) if per_peer > 0 else max(1, self.limit * 3 // 4)
        if self.limit <= 4:
            self.peer_limit = self.limit
        self.connections: dict[C, None] = {}
        self._peers: dict[str, Peer] = {}  # those with a connection
        self._idle_seconds = config.idleConnectionEvictionMs / 1000
        self._idle_ticks = 1.0
        self._nobody_idle = False  # none was found since the connections were looked over

    def peer_at(self, address: str) -> Peer:
        peer = self._peers.get(address)
        return Peer(address) if peer is None else peer

    def admit(self, connection: C) -> bool:
        """Let a connection in, if there is room for it or can be made."""
        peer = connection.source
        if peer.connections >= self.peer_limit:
            if not self._close_idle(peer):
                return False
        elif len(self.connections) >= self.limit and not self._close_idle(None):
            return False
        self.connections[connection] = None
        peer.connections += 1
        self._peers[peer.address] = peer
        return True

    def left(self, connection: C) -> None:
        if connection not in self.connections:
            return
        del self.connections[connection]
        peer = connection.source
        peer.connections -= 1
        if not peer.connections:
            del self._peers[peer.address]

    def looks_begin(self, pause: float) -> None:
        """The connections are looked over now, as every `pause` seconds, which counts their `quiet_ticks`."""
        self._idle_ticks = self._idle_seconds / pause
        self._nobody_idle = False

    def _close_idle(self, peer: Peer | None) -> bool:
        """Close the longest idle connection, of `peer` if given; False if none has been idle for long enough."""
        if self._nobody_idle:
            return False  # looking at all of them is too much work for each that is refused
        idle = [
            connection
            for connection in self.connections
            if connection.quiet_ticks > self._idle_ticks
            and (peer is None or connection.source is peer)
            and connection.idle
        ]
        if not idle:
            self._nobody_idle = True
            return False
        chosen = max(idle, key=lambda connection: (connection.source.connections, connection.quiet_ticks))
        self.left(chosen)
        chosen.abort()
        return True
