"""Everything a client can ask of bookies, with each client on each kind of bookies.

The Java client on Java bookies runs too: what it is told is what the others must be told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.support.clients import Client, expected
from tests.interop.support.cluster import Cluster
from tests.interop.support.peer import Refused
from tests.interop.support.report import verifies

CLIENT, CLUSTER = "client", "cluster"

PAIRS = [
    *((client, "ours") for client in ("java-v2", "java-v3")),
    *((client, "java") for client in ("ours-v2", "ours-v3", "ours-auto")),
    *((client, "mixed") for client in ("java-v2", "java-v3", "ours-v2", "ours-v3", "ours-auto")),
    ("java-v3", "java"),
    ("ours-auto", "ours"),
]
V3 = [pair for pair in PAIRS if not pair[0].endswith("v2")]
"""Pairs for operations that v2 does not have, or that Java's v2 client cannot send."""

Connect = Callable[..., Any]

each_pair = pytest.mark.parametrize((CLIENT, CLUSTER), PAIRS, indirect=True, scope="function")
each_v3_pair = pytest.mark.parametrize((CLIENT, CLUSTER), V3, indirect=True, scope="function")

AREA = "Operations"

FENCED, UNAUTHORIZED, NO_LEDGER, TOO_LARGE = -101, -102, -25, -14


def refuses(*codes: int) -> Any:
    """The operation is refused with one of these codes."""
    return pytest.raises(Refused, match=f"^({'|'.join(map(str, codes))}):")


@each_pair
@verifies(AREA, "create, append one by one, read back, close, reopen")
async def test_append_and_read(client: Client) -> None:
    writer = await client.create(password="secret")
    for n in range(5):
        assert await writer.append(n * 100) == n
    assert await writer.read(0, 4) == expected([0, 100, 200, 300, 400])
    assert await writer.close() == 4
    reader = await client.open(writer.ledger, password="secret")
    state = await reader.state()
    assert (state.lac, state.length, state.closed) == (4, 1000, True)
    assert await reader.read() == expected([0, 100, 200, 300, 400])
    assert await reader.read(2, 3) == expected([200, 300], first=2)


@each_pair
@verifies(AREA, "1,000 appends in flight at once")
async def test_appends_in_flight(client: Client) -> None:
    writer = await client.create()
    assert await writer.fill(1000, 20, step=1) == 999
    await writer.close()
    assert await (await client.open(writer.ledger)).read() == expected([20 + n for n in range(1000)])


@each_pair
@verifies(AREA, "striped ledger (ensemble 4, write quorum 2, ack quorum 2)")
async def test_striped(client: Client) -> None:
    writer = await client.create(e=4, qw=2, qa=2)
    await writer.fill(100)
    await writer.close()
    assert await (await client.open(writer.ledger)).read() == expected([100] * 100)


@each_pair
@pytest.mark.parametrize("digest", ["CRC32", "CRC32C", "MAC", "DUMMY"])
@verifies(AREA, "digests CRC32, CRC32C, MAC, DUMMY")
async def test_digests(client: Client, digest: str) -> None:
    writer = await client.create(digest=digest, password="p")
    await writer.fill(20, 0, step=33)
    await writer.close()
    reader = await client.open(writer.ledger, digest=digest, password="p")
    assert await reader.read() == expected([n * 33 for n in range(20)])


@each_pair
@verifies(AREA, "entries from 0 bytes to just under the frame limit")
async def test_sizes(client: Client) -> None:
    sizes = [0, 1, 511, 512, 513, 4096, 65_535, 65_536, 1 << 20, 5 * (1 << 20) - 200]
    writer = await client.create(digest="MAC")
    for size in sizes:
        await writer.append(size)
    await writer.close()
    assert await (await client.open(writer.ledger, digest="MAC")).read() == expected(sizes)


@each_pair
@verifies(AREA, "wrong passwords are refused, right ones (empty, long, not ASCII) are not")
async def test_passwords(client: Client) -> None:
    for password in ("", "x", "p\u00e4ss w\u00f6rt \u2713", "long" * 100):
        writer = await client.create(password=password)
        await writer.append(10)
        with refuses(UNAUTHORIZED):
            await client.open(writer.ledger, password=password + "?")
        reader = await client.open(writer.ledger, password=password)
        assert await reader.read() == expected([10])


@each_pair
@verifies(AREA, "reading an open ledger without recovery; last add confirmed")
async def test_read_without_recovery(client: Client, cluster: Cluster, connect: Connect) -> None:
    silent = await connect(cluster, client.name, explicitLacInterval=0)  # it would tell that there is more
    writer = await silent.create()
    for _ in range(10):
        await writer.append(100)
    reader = await client.open(writer.ledger, recovery=False)
    assert not (await reader.state()).closed
    assert await reader.lac() == 8  # each entry carries the LAC before it
    assert await reader.read(0, 8) == expected([100] * 9)
    assert await reader.read(0, 9, unconfirmed=True) == expected([100] * 10)
    await writer.append(100)
    assert await reader.lac() == 9
    await writer.close()


@pytest.mark.parametrize((CLIENT, CLUSTER), [pair for pair in PAIRS if pair[0] != "java-v3"], indirect=True)
@verifies(AREA, "batch reads, bounded by count and by size (Java's client has them in v2 only)")
async def test_batch_reads(client: Client) -> None:
    writer = await client.create()
    await writer.fill(200, 1000)
    await writer.close()
    reader = await client.open(writer.ledger)
    found = await reader.batch_read(10, 50, 1 << 20)
    assert found == expected([1000] * found.count, first=10)
    assert 1 <= found.count <= 50
    found = await reader.batch_read(0, 100, 5000)
    assert found == expected([1000] * found.count)
    assert 1 <= found.count <= 5


@each_v3_pair
@verifies(AREA, "long poll: answered when the confirmed end moves, and with the entry")
async def test_long_poll(client: Client) -> None:
    writer = await client.create()
    await writer.append(10)
    reader = await client.open(writer.ledger, recovery=False)
    poll = await reader.start_poll(0, 20_000)
    await writer.append(10)
    lac, entry = await reader.poll_result(poll)
    assert lac >= 0
    assert entry in (0, None)
    assert await reader.read(0, 0) == expected([10])
    await writer.close()


@each_v3_pair
@verifies(AREA, "deferred sync: not confirmed until forced")
async def test_deferred_sync(client: Client) -> None:
    writer = await client.create(deferred=True)
    await writer.fill(10)
    assert (await writer.state()).lac == -1
    assert await writer.force() == 9
    await writer.close()
    assert (await (await client.open(writer.ledger)).state()).lac == 9


@each_v3_pair
@verifies(AREA, "explicit last add confirmed")
async def test_explicit_lac(client: Client, cluster: Cluster, connect: Connect) -> None:
    setting = "explicitLacInterval"
    writing = await connect(cluster, client.name, **{setting: 50})
    writer = await writing.create()
    reader = await client.open(writer.ledger, recovery=False)
    # One append at a time: Java's writer may skip a LAC that moves on while it sends the one before.
    for entry in range(3):
        await writer.append(100)
        seen: list[int] = []
        try:
            async with asyncio.timeout(30):
                while not seen or seen[-1] < entry:
                    await asyncio.sleep(0.05)  # there is no telling but by asking
                    seen.append(await reader.explicit_lac())
        except TimeoutError:
            raise AssertionError(f"after entry {entry} the explicit LAC was {seen}") from None
    assert await reader.read(0, 2) == expected([100] * 3)
    await writer.close()


@each_pair
@verifies(AREA, "advanced ledgers: ids of one's own, in any order; a ledger id of one's own above 2^31")
async def test_advanced(client: Client) -> None:
    writer = await client.create(adv=True)
    assert await writer.write([2, 1, 0], 50) == 2
    assert await writer.write([4, 3], 50) == 4
    with pytest.raises(Refused):
        await writer.write([3], 50)
    await writer.close()
    assert await (await client.open(writer.ledger)).read() == expected([50] * 5)
    big = 2**31 + 7 + max([0, *(ledger for ledger in await client.list() if ledger > 2**31)])
    writer = await client.create(adv=True, ledger=big)
    assert writer.ledger == big
    await writer.write([0, 1], 10)
    await writer.close()
    assert await (await client.open(big)).read() == expected([10, 10])
    with refuses(-20):
        await client.create(adv=True, ledger=big)


@each_pair
@verifies(AREA, "opening with recovery fences a living writer and loses nothing acknowledged")
async def test_recovery_fences(client: Client, cluster: Cluster, connect: Connect) -> None:
    writer = await client.create(password="p")
    await writer.start_load(window=50, size=64)
    await writer.load_reaches(500)
    reader = await (await connect(cluster, client.name)).open(writer.ledger, password="p")
    stopped = await writer.stop_load()
    assert stopped.failure in (FENCED, -11)
    state = await reader.state()
    assert state.closed
    assert state.lac + 1 >= stopped.acked >= 500
    assert await reader.read() == expected([64] * (state.lac + 1))
    with pytest.raises(Refused):
        await writer.append(64)


@each_pair
@verifies(AREA, "list and delete ledgers; custom metadata")
async def test_list_and_delete(client: Client) -> None:
    writer = await client.create(custom={"app": "interop", "k\u00e9y": "v"})
    await writer.append(1)
    await writer.close()
    assert writer.ledger in await client.list()
    state = await (await client.open(writer.ledger)).state()
    assert state.custom == {"app": b"interop", "k\u00e9y": b"v"}
    await client.delete(writer.ledger)
    assert writer.ledger not in await client.list()
    with refuses(NO_LEDGER):
        await client.open(writer.ledger)


@pytest.mark.parametrize((CLIENT, CLUSTER), [pair for pair in V3 if pair[1] != "java"], indirect=True)
@verifies(AREA, "which entries a bookie holds (not answered by a Java bookie with DbLedgerStorage)")
async def test_entries_held(client: Client, cluster: Cluster) -> None:
    writer = await client.create(e=3, qw=2, qa=2)
    await writer.fill(9)
    members = (await writer.state()).ensembles[0]
    await writer.close()
    for place, member in enumerate(members):
        if cluster.bookie(member).kind == "ours":
            held = [entry for entry in range(9) if place in (entry % 3, (entry + 1) % 3)]
            assert await client.held(member, writer.ledger, 12) == held


@each_v3_pair
@verifies(AREA, "the cluster's bookies, their published addresses and disk space")
async def test_bookies(client: Client, cluster: Cluster) -> None:
    ids = {bookie.id for bookie in cluster.bookies}
    assert await client.bookies() == {name: f"bookie-rpc {name}" for name in ids}
    assert set(await client.bookies("all")) == ids
    info = await client.bookie_info()
    assert set(info) == ids
    assert all(0 < free <= total for free, total in info.values())


@each_pair
@verifies(AREA, "ensemble change when a bookie is killed under load; everything acknowledged is read")
async def test_ensemble_change(client: Client, cluster: Cluster) -> None:
    writer = await client.create(qa=3)  # each entry needs the lost bookie: the change cannot be put off
    await writer.start_load(window=50)
    await writer.load_reaches(200)
    victim = cluster.bookie((await writer.state()).ensembles[0][1])
    await asyncio.to_thread(victim.kill)
    before, _ = await writer.acked()
    await writer.load_reaches(before + 500)
    stopped = await writer.stop_load()
    assert stopped.failure == 0
    state = await writer.state()
    assert len(state.ensembles) >= 2
    assert victim.id not in state.ensembles[max(state.ensembles)]
    assert await writer.close() == stopped.acked - 1
    reader = await client.open(writer.ledger)
    assert await reader.read() == expected([100] * stopped.acked)
    await asyncio.to_thread(victim.start)
