"""The HTTP server of a bookie or of an autorecovery process (spec autorecovery-admin §9.1).

It has a port of its own and few connections: it is for people, scripts and whoever collects metrics. A bookie is served
by `requests.service`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from ...runtime import Runtime, ServiceListener, TaskScope
from ...runtime.tasks import guarded
from .connection import AdminConnection
from .routes import Routes

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 100
"""At once; more are closed."""
LOOK_SECONDS = 15.0
QUIET_LOOKS = 4
"""A connection on which nothing came for so many looks, and nothing is served, is closed."""


class AdminServer:
    """Listens, from `start` to `close`."""

    def __init__(self, runtime: Runtime, routes: Routes) -> None:
        self._runtime = runtime
        self._routes = routes
        self._scope = TaskScope(runtime, "http")
        self._listener: ServiceListener | None = None
        self._connections: dict[AdminConnection, None] = {}

    @property
    def port(self) -> int:
        assert self._listener is not None, "not started"
        return self._listener.port

    async def start(self, host: str, port: int) -> None:
        """Raises `OSError`, with what to do."""
        address = None if host in ("", "0.0.0.0") else host
        try:
            self._listener = await self._runtime.network.listen(address, port, self._connected)
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot listen for HTTP on {host}:{port} ({error.strerror or error}): set another port, or "
                "httpServerEnabled=false",
            ) from error
        self._scope.spawn(self._look_again(), name="looks")
        log.info("HTTP on %s:%d", host, self.port)

    async def close(self) -> None:
        """Idempotent."""
        if self._listener is not None:
            await self._listener.close()
        for connection in list(self._connections):
            connection.close()
        await self._scope.close()

    def _connected(self) -> asyncio.Protocol:
        if len(self._connections) >= MOST_CONNECTIONS:
            return _Refused()
        connection = AdminConnection(self._routes.answer, self._spawn, self._ended)
        self._connections[connection] = None
        return connection

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._scope.spawn(work, name="request")

    def _ended(self, connection: AdminConnection) -> None:
        self._connections.pop(connection, None)

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            with guarded("silent HTTP connections"):
                self.look()

    def look(self) -> None:
        """Close what has been silent for `QUIET_LOOKS`."""
        for connection in list(self._connections):
            connection.quiet_ticks += 1
            if connection.serving is None and connection.quiet_ticks > QUIET_LOOKS:
                connection.close()


class _Refused(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
