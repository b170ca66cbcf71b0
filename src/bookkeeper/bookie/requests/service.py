"""What the connections of a bookie share: where each kind of request is served, and which connections there are.

Theory of operation

Adds are served by `adds`, reads by `reads`, WRITE_LAC and FORCE_LEDGER by `journaled`; `handlers` has a row for each
kind of request.

Connections are refused until the bookie serves, and when there are too many (`admission`). What all of them share is
here: the budget of memory, the room for large frames, the turns of the loop.

Now and then the connections are looked over (`_look_at`). A connection is closed whose frame began long ago and was
never completed, or that never asked for anything. What counts is how often it was found so, and only while its socket
was read: a bookie that stood still, or did not read on, does not blame its peers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from ...runtime import TaskScope
from ..ground import Ground
from ..sharing.admission import Admission, Connected
from ..sharing.log_rate import LogRate
from ..sharing.memory import Account, Holder, Peer, RequestMemory, largest_message, read_slots, request_memory
from ..sharing.shares import Shares
from ..sharing.turns import Turns
from .adds import AddPath
from .incoming import Incoming
from .journaled import JournalPath
from .reads import ReadPath

log = logging.getLogger(__name__)
log.addFilter(LogRate())

CONNECTION_SECONDS = 0.0003
"""Of the loop's time, for a connection from its acceptance to its end."""

ACCEPT_PAUSE_SECONDS = 0.002
"""After a connection of a peer that wants much. All that connect wait then: so it is short."""

COLLECTED_TOGETHER = 16
"""Connections that have ended. Each leaves some fifty objects that refer to each other."""

LONGEST_LOOK_SECONDS = 1.0
"""Pause between two looks at all connections, at most."""


class ServedConnection(Connected, Holder, Protocol):
    """A connection, as seen from here."""

    incoming: Incoming
    """The frame that is incomplete now."""

    @property
    def peer(self) -> str:
        """Where it comes from, for logs."""

    @property
    def paused(self) -> bool:
        """Its socket is not read."""

    def close(self) -> None:
        """Close after what was sent has gone out."""


class RequestService:
    """Serves the requests of all connections."""

    def __init__(
        self, ground: Ground, adds: AddPath, reads: ReadPath, flush_storage: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        runtime, config = ground.runtime, ground.config
        self.runtime = runtime
        self.config = config
        self.state = ground.state
        self.stats = ground.stats
        self.adds = adds
        self.reads = reads
        self._scope = TaskScope(runtime, "requests", lambda _, error: ground.on_error(error))
        self._closed = False
        self._ended = 0  # connections
        self.journaled = JournalPath(ground, flush_storage, self.spawn)
        self.serving = False
        """Connections are accepted."""
        self._admission: Admission[ServedConnection] = Admission(config, runtime.open_files_limit())
        total = request_memory(runtime, config)
        self.memory = RequestMemory(total, sum(read_slots(runtime, config)) * largest_message(config), self.connections)
        """What requests and answers of all connections may take."""
        self.frames = Shares(self.memory.limit // 2, max(self.memory.limit // 4, config.nettyMaxFrameSizeBytes))
        """Bytes of large frames that are on their way."""
        self.turns: Turns = Turns(runtime, config.peerLoopSharePercent / 100)
        self.nobody: Peer = Peer("")
        """The peer of a connection that is not made yet."""

    # --- connections -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Accept connections from now on."""
        self.serving = True
        self.spawn(self._watch_connections(), name="connection deadlines")

    def new_account(self, peer: Peer) -> Account:
        return Account(self.memory, peer)

    def peer_at(self, address: str) -> Peer:
        """The peer with this address."""
        return self._admission.peer_at(address)

    def admit(self, connection: ServedConnection) -> bool:
        """Whether a new connection may stay. May close one that has been idle for long to make room."""
        if not self.serving or not self._admission.admit(connection):
            self.stats.connections_refused += 1
            return False
        return True

    def pause_after(self, address: str) -> float:
        """Seconds for which no connection is accepted after one from this address."""
        peer, now = self.peer_at(address), self.runtime.now()
        self.turns.charge(peer, CONNECTION_SECONDS, now)
        return ACCEPT_PAUSE_SECONDS if now < peer.rests_until and self.turns.must_spare(peer, now) else 0.0

    def connections(self) -> list[ServedConnection]:
        return list(self._admission.connections)

    def left(self, connection: ServedConnection) -> None:
        self._admission.left(connection)
        self._ended += 1
        if self._ended % COLLECTED_TOGETHER == 0:
            self.runtime.collect_young()

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run a task that ends with the service; after that it does not begin."""
        if self._closed:
            work.close()
        else:
            self._scope.spawn(work, name=name)

    async def drain(self, timeout: float) -> None:
        """Take no new connections, wait up to `timeout` seconds for adds in flight to be answered, then close all."""
        self.serving = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self.adds.permits.wait_until_idle()
        for connection in self.connections():
            connection.close()

    def drop_connections(self) -> None:
        """Drop all connections at once, and take no new ones."""
        self.serving = False
        self._closed = True
        for connection in self.connections():
            connection.abort()

    async def close(self) -> None:
        """Drop all connections and end all tasks."""
        self.drop_connections()
        await self._scope.close()
        await self.reads.close()

    async def _watch_connections(self) -> None:
        frame = self.config.frameCompletionTimeoutMs / 1000
        first = self.config.firstRequestTimeoutMs / 1000
        pause = min(frame / 4, first / 4, LONGEST_LOOK_SECONDS)
        while True:
            await asyncio.sleep(pause)
            self._admission.looks_begin(pause)
            for connection in self.connections():
                problem = self._look_at(connection, pause, frame / pause, first / pause)
                if problem:
                    log.info("closing the connection of %s: %s", connection.peer, problem)
                    connection.abort()

    def _look_at(self, connection: ServedConnection, pause: float, frame_looks: float, first_looks: float) -> str:
        """Why a connection must end now, if it must. `pause`: seconds between two looks."""
        connection.quiet_ticks += 1
        incoming = connection.incoming
        if not incoming.asked and connection.quiet_ticks > first_looks:
            return "it does not ask for anything"
        if incoming.begun and not connection.paused:
            incoming.frame_ticks += 1
            if incoming.frame_ticks > frame_looks:
                return "its frame is not completed"
            if self.frames.awaited and incoming.slow(incoming.frame_ticks * pause):
                return "its frame is too slow, and others wait for memory"
        return ""
