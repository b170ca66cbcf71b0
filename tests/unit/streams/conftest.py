"""A stream on three fake bookies: its segments in memory, and by name."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.fake_bookie import fake_cluster
from tests.support.segment_store import MemorySegmentStore, StoreUnderTest, make_stream


@pytest.fixture(params=["memory", "named"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[StoreUnderTest]:
    async with fake_cluster(3) as cluster:
        client = await cluster.connect()
        yield MemorySegmentStore(client) if request.param == "memory" else await make_stream(client)
