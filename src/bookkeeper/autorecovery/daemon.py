"""Autorecovery: an auditor that waits to be elected, and a replication worker (spec autorecovery-admin §1, §6).

Any number of processes run it, beside bookies or in them. They share the work by the locks in the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ..client.client import BookKeeper, connect
from ..config import ServerConfiguration
from ..errors import BKError, MetadataError
from ..metadata import configured_service_uri, open_driver
from ..metadata.api import MetadataDriver
from ..runtime import Runtime, TaskScope
from ..runtime.tasks import guarded
from ..types import BookieId
from .auditor import RETRY_SECONDS, Auditor
from .checker import LedgerChecker
from .copying.pace import Pace
from .repair import Repair
from .worker import ReplicationWorker

log = logging.getLogger(__name__)


def repair_with(
    runtime: Runtime, config: ServerConfiguration, driver: MetadataDriver, client: BookKeeper, time_share: float = 1.0
) -> Repair:
    """Repair by these settings. What somebody waits for needs not yield to clients: `time_share`, see `pace`."""
    context = client.context
    return Repair(
        driver,
        context,
        LedgerChecker(runtime, context, in_flight=config.inFlightReadEntryNumInLedgerChecker),
        pace=Pace(runtime, config.replicationRateByBytes, time_share),
        first_stretch=config.rereplicationEntryBatchSize,
    )


class AutoRecovery:
    """One process's part of it. `driver` and `client` are open, and stay the caller's."""

    def __init__(
        self,
        runtime: Runtime,
        config: ServerConfiguration,
        own: BookieId,
        driver: MetadataDriver,
        client: BookKeeper,
    ) -> None:
        """`own`: under which name it stands for election."""
        self._runtime = runtime
        self._config = config
        self._own = own
        self._driver = driver
        self._client = client
        self.repair = repair_with(runtime, config, driver, client, config.replicationTimeShare)
        self.worker = ReplicationWorker(runtime, config, driver, client, self.repair)
        self.auditor: Auditor | None = None
        """While it is elected."""

    async def run(self) -> None:
        """Take part, until cancelled."""
        tasks = TaskScope(self._runtime, "autorecovery")
        try:
            tasks.spawn(self._stand_for_election(), name="election")
            await self.worker.run()
        finally:
            await tasks.close()

    async def _stand_for_election(self) -> None:
        while True:
            with guarded("election of the auditor"):
                try:
                    await self._serve_a_term()
                except MetadataError as error:
                    log.warning("election of the auditor: %s; trying again", error)
            await asyncio.sleep(RETRY_SECONDS)

    async def _serve_a_term(self) -> None:
        """Be elected, and be the auditor until that is lost."""
        leadership = await self._driver.auditor.campaign(self._own)
        log.info("%s is the auditor", self._own)
        self.auditor = Auditor(self._runtime, self._config, self._driver, self._client, self.repair)
        tasks = TaskScope(self._runtime, "term")
        try:
            tasks.spawn(self.auditor.run(), name="auditor")
            await leadership.lost.wait()
            log.warning("%s is the auditor no more", self._own)
        finally:
            self.auditor = None
            await tasks.close()
            await leadership.resign()


@asynccontextmanager
async def connected(
    runtime: Runtime, config: ServerConfiguration, uri: str = ""
) -> AsyncIterator[tuple[MetadataDriver, BookKeeper]]:
    """A driver and a client of the cluster at `uri`, or at the address in the settings, in one session.

    Raises `MetadataError`, `BKError`, `ConfigurationError`.
    """
    settings = config.client_settings()
    driver = open_driver(uri or configured_service_uri(config), runtime, settings)
    async with connect(config=settings, runtime=runtime, driver=driver) as client:
        yield driver, client


async def run_autorecovery(
    runtime: Runtime,
    config: ServerConfiguration,
    own: BookieId,
    begins: Callable[[AutoRecovery], None] = lambda _: None,
) -> None:
    """Take part until cancelled. While the store cannot be reached it tries again; `begins` hears of each beginning."""
    while True:
        with guarded("autorecovery"):
            try:
                async with connected(runtime, config) as (driver, client):
                    autorecovery = AutoRecovery(runtime, config, own, driver, client)
                    begins(autorecovery)
                    await autorecovery.run()
            except (MetadataError, BKError) as error:
                log.warning("autorecovery cannot begin: %s; trying again", error)
        await asyncio.sleep(RETRY_SECONDS)
