"""When did the ZooKeeper server last surely hear from us?

Theory of operation

The server ends a session one session timeout after the last request it heard from the client. A client that is cut
off does not notice at once: kazoo needs up to two thirds of the timeout to miss a heartbeat. A client that holds a lock
must give it up by the earlier clock, so what counts is the moment the last *answered* request was sent, not the
moment the trouble was seen.

kazoo does all its waiting for the network through its handler's `select`, which gives a place to look:

- the socket became writable: a request or heartbeat goes out. The first one since the last answer is remembered.
- the socket became readable: the server is alive. The remembered request counts as heard, at the time it was *sent*.
- the time limit of a write is the session timeout in effect (as the server granted it) divided by the number of
  servers.

An event of the server (a fired watch) that arrives between a heartbeat and its answer counts as an answer. The error
is at most the time that heartbeat was under way before the line broke, which is less than the tolerance between two
clocks.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler


class KeepAliveHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's thread handler, taking note of the traffic. Written by kazoo's connection thread, read by the loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._wake_sockets: tuple[Any, ...] = ()
        self._socket: socket.socket | None = None
        self._given_up = False
        self._sent: float | None = None
        """When the oldest request without an answer was sent."""
        self.heard = clock()
        """Seconds on the runtime's clock: the server heard from us at this time or later."""
        self.write_limit: float | None = None
        """kazoo's time limit of its last write, in seconds."""

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """A connection to a server, for kazoo."""
        if self._given_up:
            raise ConnectionAbortedError("closing")
        self._socket = super().create_connection(*args, **kwargs)
        return self._socket

    def give_up(self) -> None:
        """Wait for the server no more: break the connection, and let there be no other. From any thread."""
        self._given_up = True
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is broken or closed already
                self._socket.shutdown(socket.SHUT_RDWR)

    def create_socket_pair(self) -> tuple[Any, Any]:
        """The pair by which kazoo wakes its own thread: not network traffic."""
        self._wake_sockets = super().create_socket_pair()
        return self._wake_sockets

    def select(self, rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None) -> Any:
        ready = super().select(rlist, wlist, xlist, timeout)
        if wlist:
            self.write_limit = timeout
            if ready[1] and self._sent is None:
                self._sent = self._clock()
        elif self._sent is not None and any(sock not in self._wake_sockets for sock in ready[0]):
            self.heard = self._sent
            self._sent = None
        return ready
