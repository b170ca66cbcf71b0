"""The same tests on every kind of metadata store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.metadata_stores import FACTORIES, StoreUnderTest
from tests.support.zookeeper_store import ZooKeeperUnderTest

ZOOKEEPER = "zookeeper"


@pytest.fixture(
    params=[
        *(pytest.param(name, marks=factory.marks) for name, factory in FACTORIES.items()),
        pytest.param(ZOOKEEPER, marks=ZooKeeperUnderTest.marks),
    ]
)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreUnderTest]:
    """An initialised, empty cluster."""
    found: StoreUnderTest
    if request.param == ZOOKEEPER:
        found = ZooKeeperUnderTest(tmp_path, request.getfixturevalue("zookeeper_server"))
    else:
        found = FACTORIES[request.param](tmp_path)
    await found.setup()
    yield found
    await found.teardown()
