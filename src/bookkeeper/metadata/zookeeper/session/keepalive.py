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

The same place is where a client with many requests spends its time: kazoo waits before each read and each write, reads
the size of an answer by itself, and makes a selector each time. So what has arrived is read at once (`Line`), waiting
is one `poll`, and whoever waits for an answer hears of it from kazoo's connection thread, without another in between.
What lies in the line's buffer was heard of when it came in: taking it from there says nothing new about the server.

A server may take a connection and say nothing on it, or half of an answer: one that is just starting does. kazoo would
wait for it as long as a session lives without being heard of, and so lose the session to a server that has long been
there. So a new connection that brings no answer is given up after `patience`, and another is tried. It is new until
kazoo waits for requests beside it.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler

from ....runtime import guarded

READ_AT_ONCE = 64 << 10
"""Bytes of answers that are taken from the system at once."""

_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL
_WRITABLE = select.POLLOUT | select.POLLHUP | select.POLLERR | select.POLLNVAL


class Line:
    """A connection to a server, for kazoo's thread: a socket that reads ahead."""

    def __init__(self, line: Any) -> None:
        self._line = line
        self._read = b""
        self._at = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._line, name)

    def pending(self) -> int:
        """Bytes that can be had without waiting: then kazoo does not wait for more."""
        here = len(self._read) - self._at
        return here or (self._line.pending() if hasattr(self._line, "pending") else 0)

    def recv(self, size: int) -> bytes:
        if self._at >= len(self._read):
            self._read, self._at = self._line.recv(max(size, READ_AT_ONCE)), 0
        data: bytes = self._read[self._at : self._at + size]
        self._at += len(data)
        return data


class _Result(AsyncResult):  # type: ignore[misc]  # kazoo has no types
    """The result of a request, of which is told at once: who hears of it hands it to the loop, and never blocks."""

    def _do_callbacks(self) -> None:
        for callback in self._callbacks:
            with guarded("a result of ZooKeeper"):  # an error would end kazoo's thread
                callback(self)


class KeepAliveHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's thread handler, taking note of the traffic. Written by kazoo's connection thread, read by the loop."""

    def __init__(self, clock: Callable[[], float], patience: float) -> None:
        """`patience`: seconds until a new connection is given up that is not made, or brings no answer."""
        super().__init__()
        self._clock = clock
        self._patience = patience
        self._wake_sockets: tuple[Any, ...] = ()
        self._socket: Line | None = None
        self._in_service = False  # the connection is not new any more
        self._given_up = False
        self._sent: float | None = None
        """When the oldest request without an answer was sent."""
        self.heard = clock()
        """Seconds on the runtime's clock: the server heard from us at this time or later."""
        self.write_limit: float | None = None
        """kazoo's time limit of its last write, in seconds."""

    def create_connection(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        """A connection to a server, for kazoo."""
        if self._given_up:
            raise ConnectionAbortedError("closing")
        self._in_service = False
        timeout = self._patience if timeout is None else min(timeout, self._patience)
        self._socket = Line(super().create_connection(*args, timeout=timeout, **kwargs))
        return self._socket

    def async_result(self) -> Any:
        return _Result(self)

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

    def select(self, rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None) -> Any:  # noqa: ARG002
        ahead = [sock for sock in rlist if isinstance(sock, Line) and sock.pending()]
        if rlist and not self._in_service:
            self._in_service = any(sock in self._wake_sockets for sock in rlist)
            if not self._in_service:
                timeout = self._patience if timeout is None else min(timeout, self._patience)
        readable, writable = _poll(rlist, wlist, 0.0 if ahead else timeout)
        if wlist:
            self.write_limit = timeout
            if writable and self._sent is None:
                self._sent = self._clock()
        elif self._sent is not None and any(sock not in self._wake_sockets for sock in readable):
            self.heard = self._sent
            self._sent = None
        return [*readable, *(sock for sock in ahead if sock not in readable)], writable, []


def _poll(rlist: Sequence[Any], wlist: Sequence[Any], timeout: float | None) -> tuple[list[Any], list[Any]]:
    """Those that can be read, and written, within so many seconds. Raises `ValueError` for one that is closed, and for
    less than no time, which `poll` takes for ever."""
    if timeout is not None and timeout < 0:
        raise ValueError(f"a wait of {timeout} seconds")
    events: dict[int, int] = {}
    for socks, wanted in ((rlist, select.POLLIN), (wlist, select.POLLOUT)):
        for sock in socks:
            fd = sock.fileno()
            if fd < 0:
                raise ValueError("a closed socket cannot be waited for")
            events[fd] = events.get(fd, 0) | wanted
    poll = select.poll()
    for fd, wanted in events.items():
        poll.register(fd, wanted)
    found = dict(poll.poll(None if timeout is None else math.ceil(timeout * 1000)))
    return (
        [sock for sock in rlist if found.get(sock.fileno(), 0) & _READABLE],
        [sock for sock in wlist if found.get(sock.fileno(), 0) & _WRITABLE],
    )
