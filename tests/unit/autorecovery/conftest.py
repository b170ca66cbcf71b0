"""A cluster of six fake bookies; a bookie that hangs up is not asked again at leisure."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bookkeeper.client.reads import replicas
from tests.support.fake_bookie import FakeCluster, fake_cluster


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeCluster]:
    monkeypatch.setattr(replicas, "RETRY_SECONDS", 0.0)
    async with fake_cluster(6) as running:
        yield running
