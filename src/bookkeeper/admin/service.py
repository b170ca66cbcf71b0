"""HTTP beside a bookie or beside autorecovery: what is served on which port (spec autorecovery-admin §9.1, §10.1).

httpServerEnabled                          the API and /metrics on httpServerHost:httpServerPort
statsProviderClass, no httpServerEnabled   /metrics alone on prometheusStatsHttpAddress:prometheusStatsHttpPort,
                                           unless prometheusStatsHttpEnable=false
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from ..autorecovery.daemon import AutoRecovery
from ..bookie.bookie import Bookie
from ..config import ServerConfiguration
from ..runtime import Runtime
from .api.access import Access
from .api.bookies import BookieEndpoints
from .api.collection import CollectionEndpoints
from .api.ledgers import LedgerEndpoints
from .api.recovery import Background, RecoveryEndpoints
from .api.this_bookie import ThisBookieEndpoints
from .http.messages import Handler
from .http.routes import Routes
from .http.server import AdminServer
from .metrics.page import Metrics

log = logging.getLogger(__name__)


@asynccontextmanager
async def serving(
    runtime: Runtime, config: ServerConfiguration, bookie: Bookie | None
) -> AsyncIterator[Callable[[AutoRecovery], None]]:
    """Answer what the settings ask for, as long as the body runs. Raises `OSError`.

    Gives who is to be told when this process takes part in autorecovery.
    """
    metrics = Metrics(runtime, config, bookie)
    async with AsyncExitStack() as held:
        metrics.stalls.start()
        held.callback(metrics.stalls.stop)
        if config.httpServerEnabled:
            server = AdminServer(runtime, Routes(_api(runtime, config, metrics, bookie, held)))
            held.push_async_callback(server.close)
            await server.start(config.httpServerHost, config.httpServerPort)
        elif config.statsProviderClass and config.prometheusStatsHttpEnable:
            server = AdminServer(runtime, Routes({"/metrics": metrics.endpoint("GET", "POST")}))
            held.push_async_callback(server.close)
            try:
                await server.start(config.prometheusStatsHttpAddress, config.prometheusStatsHttpPort)
            except OSError as error:
                log.warning("metrics are not published: %s", error.strerror)
        yield metrics.autorecovery_begins


def _api(
    runtime: Runtime, config: ServerConfiguration, metrics: Metrics, bookie: Bookie | None, held: AsyncExitStack
) -> dict[str, Handler]:
    """All endpoints. What they hold is closed with `held`."""
    access, background = Access(runtime, config), Background(runtime)
    held.push_async_callback(access.close)
    held.push_async_callback(background.close)
    found: dict[str, Handler] = {
        "/metrics": metrics.endpoint("GET"),
        **BookieEndpoints(config, access).handlers(),
        **LedgerEndpoints(access).handlers(),
        **RecoveryEndpoints(access, background).handlers(),
    }
    if bookie is not None:
        own = ThisBookieEndpoints(runtime, config, bookie, access)
        held.push_async_callback(own.close)
        found |= {**own.handlers(), **CollectionEndpoints(bookie, own.when_ready).handlers()}
    return found
