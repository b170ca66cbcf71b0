"""A ledger begun by one client and recovered, read on or deleted by the other, on bookies of both kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop.support.clients import Client, Handle, JavaClient, expected
from tests.interop.support.cluster import Cluster
from tests.interop.support.peer import JavaSession, Refused
from tests.interop.support.report import verifies

AREA = "Recovery"

Connect = Callable[..., Any]

CLUSTERS = pytest.mark.parametrize("cluster", ["java", "ours", "mixed"], indirect=True)
PAIRS = pytest.mark.parametrize(
    ("begins", "recovers"),
    [("java-v3", "ours-auto"), ("java-v2", "ours-v3"), ("ours-auto", "java-v3"), ("ours-v3", "java-v2")],
)


@CLUSTERS
@PAIRS
@verifies(AREA, "begun by one client under load, fenced and recovered by the other; closed metadata agree")
async def test_recovery_of_a_living_writer(cluster: Cluster, connect: Connect, begins: str, recovers: str) -> None:
    """RT-27."""
    writing, recovering = await connect(cluster, begins), await connect(cluster, recovers)
    writer = await writing.create(password="r", digest="MAC")
    await writer.start_load(window=200)
    await writer.load_reaches(500)
    reader = await recovering.open(writer.ledger, password="r", digest="MAC")
    stopped = await writer.stop_load()
    assert stopped.failure in (-101, -11)
    state = await reader.state()
    assert state.closed
    assert state.lac + 1 >= stopped.acked
    assert await reader.read() == expected([100] * (state.lac + 1))
    again = await (await writing.open(writer.ledger, password="r", digest="MAC")).state()
    assert again == state


@CLUSTERS
@verifies(AREA, "the Java writer's process is killed; our client recovers")
async def test_java_writer_killed(cluster: Cluster, connect: Connect, tmp_path: Path) -> None:
    """RT-27."""
    victim = JavaSession(tmp_path / "log.txt")
    dying = await JavaClient.connect(victim, cluster.uri, "v3")
    writer = await dying.create(e=4, qw=3, qa=2)
    await writer.start_load(window=500, size=1000)
    await writer.load_reaches(1000)
    acked, _ = await writer.acked()
    await asyncio.to_thread(victim.kill)
    reader = await (await connect(cluster, "ours-auto")).open(writer.ledger)
    state = await reader.state()
    assert state.lac + 1 >= acked
    assert await reader.read() == expected([1000] * (state.lac + 1))
    assert await (await (await connect(cluster, "java-v3")).open(writer.ledger)).read() == expected(
        [1000] * (state.lac + 1)
    )


@pytest.mark.parametrize("cluster", ["mixed"], indirect=True)
@PAIRS
@verifies(AREA, "begun by one, a bookie dies, recovered by the other with an ensemble change; ids above 2^31")
async def test_recovery_with_a_lost_bookie(cluster: Cluster, connect: Connect, begins: str, recovers: str) -> None:
    """RT-27."""
    writing, recovering = await connect(cluster, begins), await connect(cluster, recovers)
    big = 2**40 + (await highest(writing)) % 2**40 + 1
    writer = await writing.create(adv=True, ledger=big, qa=2)
    await writer.write(range(50), 200)
    victim = cluster.bookie((await writer.state()).ensembles[0][0])
    await asyncio.to_thread(victim.kill)
    reader = await recovering.open(big)
    assert await reader.read() == expected([200] * 50)
    with pytest.raises(Refused):
        await writer.write([50], 200)
    await asyncio.to_thread(victim.start)


async def highest(client: Client) -> int:
    return max([0, *await client.list()])


@CLUSTERS
@pytest.mark.parametrize(("writes", "follows"), [("java-v3", "ours-auto"), ("ours-auto", "java-v3")])
@verifies(AREA, "one client writes, the other follows by long polls until the ledger is closed")
async def test_following(cluster: Cluster, connect: Connect, writes: str, follows: str) -> None:
    writing, following = await connect(cluster, writes), await connect(cluster, follows)
    writer = await writing.create()
    await writer.append(100)
    reader = await following.open(writer.ledger, recovery=False)
    await writer.start_load(window=10, limit=299)
    closing = asyncio.ensure_future(close_when_done(writer))
    seen = 0
    async with asyncio.timeout(60):
        while seen < 300:
            lac, _ = await reader.poll_result(await reader.start_poll(seen, 1000))
            if lac >= seen:
                assert await reader.read(seen, lac) == expected([100] * (lac - seen + 1), first=seen)
                seen = lac + 1
    await closing
    assert await (await following.open(writer.ledger)).read() == expected([100] * 300)


async def close_when_done(writer: Handle) -> None:
    await writer.load_reaches(300)
    assert (await writer.stop_load()).acked == 300
    await writer.close()


@CLUSTERS
@pytest.mark.parametrize(("writes", "deletes"), [("java-v3", "ours-auto"), ("ours-auto", "java-v3")])
@verifies(AREA, "listed and deleted by the other client")
async def test_deleted_by_the_other(cluster: Cluster, connect: Connect, writes: str, deletes: str) -> None:
    """FX-26."""
    writing, deleting = await connect(cluster, writes), await connect(cluster, deletes)
    writer = await writing.create()
    await writer.append(10)
    await writer.close()
    assert writer.ledger in await deleting.list()
    await deleting.delete(writer.ledger)
    assert writer.ledger not in await writing.list()
    with pytest.raises(Refused, match=r"^-25:"):
        await writing.open(writer.ledger)
