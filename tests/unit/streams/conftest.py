"""A stream on three fake bookies."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.fake_bookie import fake_cluster
from tests.support.segment_store import MemorySegmentStore


@pytest.fixture
async def store() -> AsyncIterator[MemorySegmentStore]:
    async with fake_cluster(3) as cluster:
        yield MemorySegmentStore(await cluster.connect())
