"""TCP through the running event loop (see `api.Network`)."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import socket
import struct
from collections.abc import Callable
from typing import Any

from .api import (
    DEFAULT_OPTIONS,
    Network,
    PauseAfter,
    ServiceListener,
    SocketOptions,
    no_pause,
)

log = logging.getLogger(__name__)

EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""`errno` of a failure to accept that the next connection would meet too."""

ACCEPT_PAUSE_SECONDS = 1.0
"""After such a failure no connection is accepted for so long."""

_SIOCGIFADDR = 0x8915


class Listener(ServiceListener):
    """Accepts connections, one in a turn of the loop: those that are served already do not wait for a thousand new
    ones. The rest stay in the backlog of the socket."""

    def __init__(
        self, sock: socket.socket, protocol_factory: Callable[[], asyncio.Protocol], pause_after: PauseAfter
    ) -> None:
        self._sock = sock
        self._protocol_factory = protocol_factory
        self._pause_after = pause_after
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[Any]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self.host, self.port = sock.getsockname()[:2]
        self._loop.add_reader(sock, self._accept_one)

    def _accept_one(self) -> None:
        try:
            connection, address = self._sock.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in EXHAUSTED:
                log.warning("no connections are accepted for %g s: %s", ACCEPT_PAUSE_SECONDS, error.strerror or error)
                self._rest(ACCEPT_PAUSE_SECONDS)
            else:  # this one only: its peer has gone, or its network has failed
                log.debug("a connection ended before it was accepted: %s", error)
            return
        connection.setblocking(False)
        begin = self._loop.create_task(self._begin(connection), name="accepted connection")
        self._beginning.add(begin)
        begin.add_done_callback(self._beginning.discard)
        if (seconds := self._pause_after(address[0])) > 0:
            self._rest(seconds)

    def _rest(self, seconds: float) -> None:
        self._loop.remove_reader(self._sock)
        self._pause = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        self._loop.add_reader(self._sock, self._accept_one)

    async def _begin(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._protocol_factory, connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError):  # the peer is gone already
                log.debug("a connection ended before it began: %s", error)
            elif isinstance(error, Exception):
                log.exception("a connection that was accepted cannot begin")
            else:
                raise

    async def close(self) -> None:
        if self._sock.fileno() < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()
        if self._beginning:
            await asyncio.wait(self._beginning)


def _apply(sock: socket.socket, options: SocketOptions) -> None:
    choices = [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, int(options.nodelay)),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(options.keepalive)),
        (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", None), options.keep_idle),
        (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPINTVL", None), options.keep_interval),
        (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPCNT", None), options.keep_count),
        (socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer),
        (socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer),
        (socket.IPPROTO_TCP, getattr(socket, "TCP_USER_TIMEOUT", None), options.user_timeout_ms),
    ]
    for level, name, value in choices:
        if name is not None and value is not None and value >= 0:
            sock.setsockopt(level, name, value)


class RealNetwork(Network):
    """TCP through the running event loop."""

    async def connect(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.Protocol],
        *,
        timeout: float | None,
        options: SocketOptions = DEFAULT_OPTIONS,
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout):
            transport, protocol = await loop.create_connection(protocol_factory, host, port)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            _apply(sock, options)
        return transport, protocol

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
        family = socket.AF_INET if host is None or ":" not in host else socket.AF_INET6
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _apply(sock, options)  # accepted connections inherit them
            sock.bind((host or "0.0.0.0", port))
            sock.setblocking(False)
            sock.listen(backlog)
            return Listener(sock, protocol_factory, pause_after)
        except BaseException:
            sock.close()
            raise

    async def resolve(self, host: str) -> str:
        infos = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return str(infos[0][4][0])

    async def host_name(self, address: str) -> str:
        name, _ = await asyncio.get_running_loop().getnameinfo((address, 0))
        return name

    def interface_address(self, name: str) -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        return socket.inet_ntoa(answer[20:24])
