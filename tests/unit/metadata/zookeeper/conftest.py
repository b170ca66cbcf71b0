"""A cluster of its own for each test, in the shared server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.metadata.zookeeper import ZooKeeperDriver
from bookkeeper.types import BookieId
from tests.support.zookeeper import ServerThread, zookeeper_driver


class Cluster:
    """A root in the server, and the drivers a test opened on it."""

    def __init__(self, server: ServerThread) -> None:
        self.server = server
        self.root = server.new_root()
        self._drivers: list[ZooKeeperDriver] = []

    async def open(self, *, scheme: str = "zk", address: str | None = None, **conf: Any) -> ZooKeeperDriver:
        driver = zookeeper_driver(self.server.uri(self.root, scheme=scheme, address=address), **conf)
        await driver.open()
        self._drivers.append(driver)
        return driver

    async def init(self, *, scheme: str = "zk", **conf: Any) -> ZooKeeperDriver:
        """Initialise the cluster; the driver that did it."""
        driver = await self.open(scheme=scheme, **conf)
        assert await driver.admin.init_new_cluster()
        return driver

    async def close(self) -> None:
        for driver in self._drivers:
            await driver.close()


@pytest.fixture
async def cluster(zookeeper_server: ServerThread) -> AsyncIterator[Cluster]:
    found = Cluster(zookeeper_server)
    yield found
    await found.close()


def ledger(ledger_id: int, **changes: Any) -> LedgerMetadata:
    """A small open ledger."""
    members = tuple(BookieId(f"127.0.0.1:{port}") for port in (3181, 3182, 3183))
    return LedgerMetadata(ledger_id, 3, 2, 2, {0: members}, **changes)
