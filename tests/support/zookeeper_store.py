"""ZooKeeper as a store under test; trouble is made between kazoo and the network."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bookkeeper.metadata.api import MetadataDriver
from bookkeeper.metadata.zookeeper import ZooKeeperDriver
from bookkeeper.metadata.zookeeper.paths import MIXED
from tests.support.metadata_stores import LONG_MS, StoreUnderTest
from tests.support.zookeeper import LossyKazoo, ServerThread, abandon, expire_session, zookeeper_driver

_REQUESTS = {
    "ledgers.create": ("create", "/L"),
    "ledgers.write": ("set", "/L"),
    "auditor.vote": ("create", "/V_"),
    "underreplication.poll": ("create", "/locks/"),
    "tree.commit": ("commit", ""),
    "tree.enter": ("create", "/member_"),
}
"""By operation: the request that does it, and what is in its path."""


class ZooKeeperUnderTest(StoreUnderTest):
    """A root of its own in the shared server."""

    marks: ClassVar[tuple[pytest.MarkDecorator, ...]] = (pytest.mark.zookeeper,)
    many: ClassVar[int] = 3_000
    many_segments: ClassVar[int] = 20_000  # names of all in one answer of at most 1 MB

    def __init__(self, directory: Path, server: ServerThread) -> None:
        super().__init__(directory)
        self.server = server
        self.root = server.new_root()
        self.tree_root = f"{self.root}-streams"

    def new(self, *, session_timeout_ms: int = LONG_MS) -> MetadataDriver:
        # retries end after a few seconds, so that a store that is cut off is reported
        return zookeeper_driver(self.server.uri(self.root), zkTimeout=session_timeout_ms, zkRetryBackoffMaxRetries=6)

    async def kill(self, driver: MetadataDriver) -> None:
        assert isinstance(driver, ZooKeeperDriver)
        await abandon(driver)
        self.drivers.remove(driver)

    async def expire(self, driver: MetadataDriver) -> None:
        assert isinstance(driver, ZooKeeperDriver)
        await expire_session(driver)

    def cut(self, driver: MetadataDriver) -> None:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise ConnectionRefusedError("cut off")

        handler = _handler(driver)
        vars(handler)["create_connection"] = refuse
        if handler._socket is not None:
            handler._socket.shutdown(socket.SHUT_RDWR)

    def heal(self, driver: MetadataDriver) -> None:
        vars(_handler(driver)).pop("create_connection", None)

    def lose_answer(self, driver: MetadataDriver, operation: str) -> None:
        assert isinstance(driver, ZooKeeperDriver)
        method, part = _REQUESTS[operation]
        LossyKazoo(driver).lose(method, applied=True, path=lambda path: part in path)

    async def put_raw(self, ledger_id: int, data: bytes) -> None:
        driver = await self.open()
        assert isinstance(driver, ZooKeeperDriver)
        await driver.zk.set(f"{self.root}/{MIXED.path(ledger_id)}", data)


def _handler(driver: MetadataDriver) -> Any:
    assert isinstance(driver, ZooKeeperDriver)
    return driver.zk._handler
