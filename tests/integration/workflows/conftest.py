"""A place for a cluster's metadata, and an operator in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

import bookkeeper
from bookkeeper.cli.local.cluster import LocalCluster
from bookkeeper.runtime.real import RealRuntime

from .operator import Operator, Section

SMALL = {
    "dbStorage_writeCacheMaxSizeMb": 16,
    "dbStorage_readAheadCacheMaxSizeMb": 8,
    "zkTimeout": 2000,
    "rwRereplicateBackoffMs": 200,
    "lockReleaseOfFailedLedgerGracePeriod": 1000,
}
"""Little memory; bookies that are killed are missed soon; what failed is tried again soon."""

Operating = Callable[..., AbstractAsyncContextManager[Operator]]


both_stores = pytest.mark.parametrize("store", ["zookeeper", "sqlite"], indirect=True)
"""For workflows in which the metadata store has a part; the others run on ZooKeeper, to save time."""


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty metadata store."""
    if getattr(request, "param", "zookeeper") == "sqlite":
        return f"sqlite://{tmp_path}/meta.db"
    server = request.getfixturevalue("zookeeper_server")
    return str(server.uri(server.new_root(), scheme="zk+hierarchical"))


@pytest.fixture
def operating(request: pytest.FixtureRequest, store: str, tmp_path: Path) -> Operating:
    """Starts a cluster for the workflow in the test's name. `async with operating(bookies=4, someSetting=1) as op:`"""
    section = Section.of_test(request.node.name)

    @asynccontextmanager
    async def start(bookies: int = 3, **settings: object) -> AsyncIterator[Operator]:
        runtime = RealRuntime()
        async with (
            LocalCluster(runtime, tmp_path, bookies, uri=store, settings={**SMALL, **settings}) as cluster,
            bookkeeper.connect(cluster.uri, runtime=runtime) as bk,
        ):
            yield Operator(cluster, bk, section)
        section.check_all_ran()

    return start
