"""The way from the HTTP API to the cluster: a driver and a client, in a session of their own.

It is opened by the first request that needs it: most bookies are only asked for metrics.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from ...autorecovery.daemon import connected, repair_with
from ...autorecovery.repair import Repair
from ...client.client import BookKeeper
from ...config import ServerConfiguration
from ...metadata.api import MetadataDriver
from ...runtime import Runtime


class Access:
    """Until `close`."""

    def __init__(self, runtime: Runtime, config: ServerConfiguration) -> None:
        self._runtime = runtime
        self._config = config
        self._held = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._found: tuple[MetadataDriver, BookKeeper] | None = None

    async def open(self) -> tuple[MetadataDriver, BookKeeper]:
        """Both are this object's. Raises `MetadataError`, `BKError`."""
        async with self._opening:
            if self._found is None:
                self._found = await self._held.enter_async_context(connected(self._runtime, self._config))
            return self._found

    async def driver(self) -> MetadataDriver:
        """Raises `MetadataError`, `BKError`."""
        return (await self.open())[0]

    async def client(self) -> BookKeeper:
        """Raises `MetadataError`, `BKError`."""
        return (await self.open())[1]

    async def repair(self) -> Repair:
        """Repair by the settings of this process. Raises `MetadataError`, `BKError`."""
        driver, client = await self.open()
        return repair_with(self._runtime, self._config, driver, client)

    async def close(self) -> None:
        await self._held.aclose()
