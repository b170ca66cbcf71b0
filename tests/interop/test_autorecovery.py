"""Java's autorecovery repairs ledgers that lie on our bookies."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from typing import Any

from tests.interop.support import peer
from tests.interop.support.clients import expected
from tests.interop.support.cluster import JAVA, OURS, Cluster
from tests.interop.support.report import verifies
from tests.support.waiting import wait_until

AREA = "Repair"

Connect = Callable[..., Any]
MakeCluster = Callable[..., Cluster]


def start_autorecovery(cluster: Cluster) -> subprocess.Popen[bytes]:
    with (cluster.directory / "autorecovery.txt").open("ab") as log:
        return subprocess.Popen(
            [peer.SCRIPT, "autorecovery", str(cluster.bookies[1].conf)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=peer.environment(),
        )


@verifies(AREA, "Java's auditor and replication worker copy what a lost bookie held to another bookie of ours")
async def test_java_autorecovery(new_cluster: MakeCluster, connect: Connect) -> None:
    cluster = new_cluster(OURS, OURS, OURS, OURS, openLedgerRereplicationGracePeriod=1000, lostBookieRecoveryDelay=0)
    await asyncio.to_thread(cluster.init_by_us)
    await asyncio.to_thread(cluster.start)
    ours, java = await connect(cluster, "ours-auto"), await connect(cluster, "java-v3")
    ledgers = []
    for client in (ours, java):
        for digest in ("CRC32C", "MAC"):
            writer = await client.create(password="a", digest=digest)
            await writer.fill(200, 10, step=3)
            await writer.close()
            ledgers.append((writer.ledger, digest))
    left_open = await java.create(password="a", digest="CRC32C", qa=3)
    await left_open.fill(50, 10, step=3)
    lost = cluster.bookies[0]
    await asyncio.to_thread(lost.kill)
    daemon = start_autorecovery(cluster)
    try:

        async def members(ledger: int) -> set[str]:
            metadata = await ours.bk.get_ledger_metadata(ledger)
            return {bookie for ensemble in metadata.ensembles.values() for bookie in ensemble}

        async with asyncio.timeout(90):
            for ledger, _ in [*ledgers, (left_open.ledger, "")]:
                while lost.id in await members(ledger):
                    assert daemon.poll() is None
                    await asyncio.sleep(0.1)
    finally:
        daemon.terminate()
        daemon.wait()
    # The copies are good: they are all there is, once another of the old members is away as well.
    other = cluster.bookies[1]
    await asyncio.to_thread(other.kill)
    for client in (ours, java):
        for ledger, digest in ledgers:
            reader = await client.open(ledger, password="a", digest=digest)
            assert await reader.read() == expected([10 + n * 3 for n in range(200)])


@verifies(AREA, "a Java bookie is decommissioned by Java's shell; its ledgers move to our bookies")
async def test_java_recover_command(new_cluster: MakeCluster, connect: Connect, tools: peer.Tools) -> None:
    cluster = new_cluster(JAVA, JAVA, OURS, OURS)
    await asyncio.to_thread(cluster.init_by_us)
    await asyncio.to_thread(cluster.start)
    client = await connect(cluster, "ours-auto")
    writer = await client.create(e=3, qw=3, qa=3)
    await writer.fill(300)
    await writer.close()
    members = (await writer.state()).ensembles[0]
    lost = next(bookie for bookie in cluster.bookies if bookie.id in members and bookie.kind == JAVA)
    await asyncio.to_thread(lost.kill)
    alive = next(bookie for bookie in cluster.bookies if bookie.running)
    answer = await asyncio.to_thread(tools.run, alive.conf, "recover", "-f", lost.id)
    assert answer.code == 0, answer.text
    metadata = await client.bk.get_ledger_metadata(writer.ledger)
    assert lost.id not in metadata.ensembles[0]
    await asyncio.to_thread(wait_until, lambda: not lost.running, "the bookie is gone")
    assert await (await client.open(writer.ledger)).read() == expected([100] * 300)
