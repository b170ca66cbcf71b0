"""What all connections of a client share, and how one is made (spec client §12.4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...config import ClientConfiguration
from ...errors import BookieUnavailableError
from ...metadata.api import BookieDirectory
from ...metadata.formats.service_info import legacy_service_info
from ...runtime import Runtime, SocketOptions, TaskScope
from ...runtime.awake import AwakeClock
from ...types import BookieId
from .arrivals import Arrivals
from .departures import Departures

DEFAULT_TICK_SECONDS = 1.0
"""How often overdue requests are looked for when `timeoutMonitorIntervalSec` does not say."""

OnFailure = Callable[[BookieId, int, int], None]
"""Is told that so many requests to a bookie failed: bookie, result code, count. Not of requests that were lost together
with a connection."""


def ignore_failure(_bookie: BookieId, _code: int, _count: int) -> None:
    """For clients that do not count failures."""


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
    of all timeouts, when frames leave, and who is told of failures."""

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
        self.departures = Departures()
        self.arrivals = Arrivals(runtime, self.departures)
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
        """Connect `protocol` to the bookie's `bookie-rpc` endpoint. The caller limits the time that takes.

        Raises `OSError`, `BookKeeperError`, and what others raise for a name that cannot be resolved.
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
