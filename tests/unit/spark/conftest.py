"""A cluster of three fake bookies."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.fake_bookie import FakeCluster, fake_cluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with fake_cluster(3) as running:
        yield running
