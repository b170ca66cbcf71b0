"""Java's autorecovery repairs ledgers that lie on our bookies, and ours those that lie on Java's."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tests.interop.support import peer
from tests.interop.support.clients import expected
from tests.interop.support.cluster import JAVA, OURS, Cluster
from tests.interop.support.report import verifies
from tests.support.scrub import bad_copies
from tests.support.waiting import wait_until

AREA = "Repair"

Connect = Callable[..., Any]
MakeCluster = Callable[..., Cluster]


def start_autorecovery(cluster: Cluster, kind: str = JAVA) -> subprocess.Popen[bytes]:
    conf = str(cluster.bookies[1].conf)
    with (cluster.directory / f"autorecovery-{kind}.txt").open("ab") as log:
        return subprocess.Popen(
            [str(peer.SCRIPT), "autorecovery", conf]
            if kind == JAVA
            else [sys.executable, "-m", "bookkeeper", "autorecovery", "--conf", conf],
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
        await until_moved(ours, [*(ledger for ledger, _ in ledgers), left_open.ledger], lost.id, daemon)
    finally:
        daemon.terminate()
        daemon.wait()
    assert await bad_copies(ours.bk) == []
    # The copies are good: they are all there is, once another of the old members is away as well.
    other = cluster.bookies[1]
    await asyncio.to_thread(other.kill)
    for client in (ours, java):
        for ledger, digest in ledgers:
            reader = await client.open(ledger, password="a", digest=digest)
            assert await reader.read() == expected([10 + n * 3 for n in range(200)])


async def until_moved(connection: Any, ledgers: list[int], lost: str, daemon: subprocess.Popen[bytes]) -> None:
    """Wait until no record of these ledgers names a bookie any more."""
    async with asyncio.timeout(90):
        for ledger in ledgers:
            while any(
                lost in ensemble for ensemble in (await connection.bk.get_ledger_metadata(ledger)).ensembles.values()
            ):
                assert daemon.poll() is None
                await asyncio.sleep(0.1)


@verifies(AREA, "our auditor and replication worker copy what a lost bookie held; Java's client reads the copies")
async def test_our_autorecovery(new_cluster: MakeCluster, connect: Connect) -> None:
    cluster = new_cluster(JAVA, OURS, JAVA, OURS, openLedgerRereplicationGracePeriod=1000, lostBookieRecoveryDelay=0)
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
    daemon = start_autorecovery(cluster, OURS)
    try:
        await until_moved(ours, [*(ledger for ledger, _ in ledgers), left_open.ledger], lost.id, daemon)
    finally:
        daemon.terminate()
        daemon.wait()
    assert await bad_copies(ours.bk) == []
    # The copies are good: they are all there is, once another of the old members is away as well.
    await asyncio.to_thread(cluster.bookies[1].kill)
    for client in (ours, java):
        for ledger, digest in ledgers:
            reader = await client.open(ledger, password="a", digest=digest)
            assert await reader.read() == expected([10 + n * 3 for n in range(200)])


@verifies(AREA, "Java's auditor marks what a lost bookie held, and our replication worker makes it whole")
async def test_java_auditor_and_our_worker(new_cluster: MakeCluster, connect: Connect) -> None:
    await marked_by_one_and_repaired_by_the_other(new_cluster, connect, JAVA, OURS)


@verifies(AREA, "our auditor marks what a lost bookie held, and Java's replication worker makes it whole")
async def test_our_auditor_and_java_worker(new_cluster: MakeCluster, connect: Connect) -> None:
    await marked_by_one_and_repaired_by_the_other(new_cluster, connect, OURS, JAVA)


async def marked_by_one_and_repaired_by_the_other(
    new_cluster: MakeCluster, connect: Connect, auditing: str, working: str
) -> None:
    cluster = new_cluster(OURS, OURS, OURS, OURS, openLedgerRereplicationGracePeriod=1000, lostBookieRecoveryDelay=0)
    await asyncio.to_thread(cluster.init_by_us)
    await asyncio.to_thread(cluster.start)
    client = await connect(cluster, "java-v3")
    ours = await connect(cluster, "ours-auto")
    writer = await client.create(password="a", digest="CRC32C")
    await writer.fill(200, 10, step=3)
    await writer.close()
    (ensemble,) = (await ours.bk.get_ledger_metadata(writer.ledger)).ensembles.values()
    lost = next(bookie for bookie in cluster.bookies if bookie.id == ensemble[0])
    zk, marks, leaf = cluster.zk, f"{cluster.root}/underreplication", f"urL{writer.ledger:010d}"
    mark = f"{marks}/ledgers/0000/0000/{writer.ledger >> 16:04x}/{writer.ledger & 0xFFFF:04x}/{leaf}"
    votes, lock = f"{marks}/auditorelection", f"{marks}/locks/{leaf}"
    auditor = start_autorecovery(cluster, auditing)
    try:
        await asyncio.to_thread(wait_until, lambda: zk.exists(votes) and zk.get_children(votes), "there is an auditor")
        await asyncio.to_thread(zk.create, lock, ephemeral=True, makepath=True)  # its own worker leaves it alone
        await asyncio.to_thread(lost.kill)
        await asyncio.to_thread(wait_until, lambda: zk.exists(mark) is not None, "the ledger is marked")
    finally:
        auditor.kill()
        auditor.wait()
    await asyncio.to_thread(zk.delete, lock)
    daemon = start_autorecovery(cluster, working)
    try:
        await until_moved(ours, [writer.ledger], lost.id, daemon)
        await asyncio.to_thread(wait_until, lambda: zk.exists(mark) is None, "the mark is taken away")
    finally:
        daemon.terminate()
        daemon.wait()
    assert await bad_copies(ours.bk) == []
    reader = await client.open(writer.ledger, password="a", digest="CRC32C")
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
    assert await bad_copies(client.bk) == []
    await asyncio.to_thread(wait_until, lambda: not lost.running, "the bookie is gone")
    assert await (await client.open(writer.ledger)).read() == expected([100] * 300)
