"""Bookies that are not the usual: read-only ones, ones with a name of their own, ones that reclaim space."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.interop.support.clients import ASKING_SECONDS, Client, Handle, expected
from tests.interop.support.cluster import JAVA, OURS, Cluster
from tests.interop.support.peer import Refused
from tests.interop.support.report import verifies
from tests.support.waiting import until

AREA = "Bookies"

Connect = Callable[..., Any]
MakeCluster = Callable[..., Cluster]

NO_LEDGER = -7

NAMES = ("java-v3", "ours-auto")


@verifies(AREA, "read-only bookies of either kind: seen as such by both clients, read from, not written to")
async def test_read_only(new_cluster: MakeCluster, connect: Connect) -> None:
    cluster = new_cluster(JAVA, OURS, JAVA, OURS, OURS)
    await asyncio.to_thread(cluster.init_by_us)
    await asyncio.to_thread(cluster.start)
    clients = [await connect(cluster, name) for name in NAMES]
    ledgers = []
    for client in clients:
        writer = await client.create(e=5, qw=3, qa=2)
        await writer.fill(50)
        await writer.close()
        ledgers.append(writer.ledger)
    read_only = cluster.bookies[:2]
    for bookie in read_only:
        bookie.configure({"forceReadOnlyBookie": "true", "readOnlyModeEnabled": "true"})
        await asyncio.to_thread(bookie.stop)
        bookie.spawn()
    others = {bookie.id for bookie in cluster.bookies[2:]}
    for client in clients:

        async def seen(client: Client = client) -> bool:
            return set(await client.bookies("readonly")) == {bookie.id for bookie in read_only}

        await until(seen, f"{client.name} sees the read-only bookies", 60, pause=ASKING_SECONDS)
        assert set(await client.bookies()) == others
    for client in clients:
        for ledger in ledgers:
            assert await (await client.open(ledger)).read() == expected([100] * 50)
        writer = await client.create(e=3)
        assert set((await writer.state()).ensembles[0]) == others
        await writer.append(10)
        await writer.close()


@verifies(AREA, "bookies whose id is a name (bookieId): found by their published address")
async def test_named_bookies(new_cluster: MakeCluster, connect: Connect) -> None:
    """FX-66."""
    cluster = new_cluster(JAVA, OURS)
    await asyncio.to_thread(cluster.init_by_us)
    for number, bookie in enumerate(cluster.bookies):
        bookie.name = f"bookie-{number}.rack"
        bookie.configure({"bookieId": bookie.name})
    await asyncio.to_thread(cluster.start)
    for name in NAMES:
        client = await connect(cluster, name)
        writer = await client.create(e=2, qw=2, qa=2)
        assert set((await writer.state()).ensembles[0]) == {"bookie-0.rack", "bookie-1.rack"}
        await writer.fill(20)
        await writer.close()
        for other in NAMES:
            assert await (await (await connect(cluster, other)).open(writer.ledger)).read() == expected([100] * 20)


@verifies(AREA, "ledgers deleted by the Java client are garbage for our bookie: it forgets them, and keeps the others")
async def test_garbage(new_cluster: MakeCluster, connect: Connect) -> None:
    cluster = new_cluster(OURS, gcWaitTime=500, flushInterval=500, zkTimeout=3000)  # deletes after two of the latter
    await asyncio.to_thread(cluster.init_by_us)
    await asyncio.to_thread(cluster.start)
    client = await connect(cluster, "java-v3")
    writers: list[Handle] = [await client.create(e=1, qw=1, qa=1) for _ in range(3)]
    for writer in writers:
        await writer.fill(100)
        await writer.close()
    await client.delete(writers[1].ledger)

    async def collected() -> bool:
        return not await holds(client, cluster, writers[1].ledger)

    await until(collected, "a deleted ledger is collected", 60, pause=ASKING_SECONDS)
    for writer in (writers[0], writers[2]):
        assert await (await client.open(writer.ledger)).read() == expected([100] * 100)


async def holds(client: Client, cluster: Cluster, ledger: int) -> bool:
    try:
        return bool(await client.held(cluster.bookies[0].id, ledger, 99))
    except Refused as error:
        if error.code != NO_LEDGER:
            raise
        return False
