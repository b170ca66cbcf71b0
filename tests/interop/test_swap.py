"""A live cluster changes its kind, bookie by bookie, under load, and back again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.support.clients import Client, expected
from tests.interop.support.cluster import JAVA, OURS, Cluster
from tests.interop.support.peer import Tools
from tests.interop.support.report import verifies

AREA = "Rolling swap"

Connect = Callable[..., Any]
MakeCluster = Callable[..., Cluster]


@pytest.mark.parametrize("client", ["java-v3", "ours-auto"])
@verifies(AREA, "4 live Java bookies become ours one by one under load, and Java's again: no append fails, all is read")
async def test_rolling_swap(new_cluster: MakeCluster, connect: Connect, tools: Tools, client: str) -> None:
    """RT-29."""
    cluster = new_cluster(JAVA, JAVA, JAVA, JAVA)
    await asyncio.to_thread(cluster.init_by_java, tools)
    await asyncio.to_thread(cluster.start)
    writing: Client = await connect(cluster, client)
    other: Client = await connect(cluster, "ours-auto" if client == "java-v3" else "java-v3")
    old = await writing.create(password="s")
    await old.fill(300)
    await old.close()
    writer = await writing.create(password="s", qa=2)
    await writer.start_load(window=20, size=300)
    swaps = 0
    for kind in (OURS, JAVA):
        for bookie in cluster.bookies:
            acked, _ = await writer.acked()
            await writer.load_reaches(acked + 200)
            await asyncio.to_thread(bookie.stop)
            await asyncio.to_thread(bookie.start, kind)
            await writing.sees(bookie.id)
            swaps += 1
            assert await (await other.open(old.ledger, password="s")).read() == expected([100] * 300)
    acked, running = await writer.acked()
    assert running
    await writer.load_reaches(acked + 200)
    stopped = await writer.stop_load()
    assert (stopped.failure, swaps) == (0, 8)
    assert len((await writer.state()).ensembles) > 1
    await writer.close()
    for reading in (writing, other):
        reader = await reading.open(writer.ledger, password="s")
        total = (await reader.state()).lac + 1
        assert total == stopped.acked
        step = 5000
        for first in range(0, total, step):
            count = min(step, total - first)
            assert await reader.read(first, first + count - 1) == expected([300] * count, first=first)
