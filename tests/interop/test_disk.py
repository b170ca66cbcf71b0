"""Disk both ways: Java directories under our bookie and the other way round; Java's offline tools on our files."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop.support import peer
from tests.interop.support.clients import Client, Handle, expected
from tests.interop.support.cluster import JAVA, OURS, Cluster
from tests.interop.support.report import verifies
from tests.support.waiting import wait_until

AREA = "Disk"

Connect = Callable[..., Any]
MakeCluster = Callable[..., Cluster]

OTHER = {JAVA: OURS, OURS: JAVA}
NO_CHECKPOINT = {"flushInterval": 3600_000}

ONE: dict[str, Any] = {"e": 1, "qw": 1, "qa": 1}
"""A ledger on the one bookie."""

both_ways = pytest.mark.parametrize("cluster", [JAVA, OURS])
"""Who writes first. The parameter is the column of the report."""


async def write_some(client: Client) -> list[tuple[Handle, list[int]]]:
    """Ledgers of several kinds, left open; each with the sizes of its entries."""
    made: list[tuple[Handle, list[int]]] = []
    for digest in ("CRC32C", "MAC"):
        writer = await client.create(**ONE, digest=digest, password="disk")
        await writer.fill(300, 10, step=7)
        made.append((writer, [10 + n * 7 for n in range(300)]))
    writer = await client.create(**ONE, password="disk", adv=True, ledger=3_000_000_000)
    await writer.write(range(20), 5000)
    made.append((writer, [5000] * 20))
    return made


async def check(client: Client, made: list[tuple[int, list[int]]], *, recovery: bool = True) -> None:
    for ledger, sizes in made:
        reader = await client.open(ledger, password="disk", recovery=recovery)
        assert await reader.read() == expected(sizes)


def ids(made: list[tuple[Handle, list[int]]]) -> list[tuple[int, list[int]]]:
    return [(handle.ledger, sizes) for handle, sizes in made]


async def swap(cluster: Cluster, *clients: Client) -> None:
    """Start every bookie as what it was not; these clients, that saw it go, see it again."""
    for bookie in cluster.bookies:
        bookie.kind = OTHER[bookie.kind]
    await asyncio.to_thread(cluster.start)
    for client in clients:
        await client.sees(*(bookie.id for bookie in cluster.bookies))


def prepare(new_cluster: MakeCluster, kind: str, **settings: object) -> Cluster:
    """One bookie, that holds everything. Blocks."""
    cluster = new_cluster(kind, **settings)
    cluster.init_by_us()
    cluster.start()
    return cluster


@both_ways
@verifies(AREA, "killed (SIGKILL) with everything in the journal only: the other kind replays it")
async def test_unreplayed_journal(new_cluster: MakeCluster, connect: Connect, cluster: str) -> None:
    """RT-28."""
    running = await asyncio.to_thread(prepare, new_cluster, cluster, **NO_CHECKPOINT)
    client = await connect(running, "java-v3")
    made = await write_some(client)
    running.stop(peer.KILL)
    await swap(running, client)
    ours = await connect(running, "ours-auto")
    await check(ours, ids(made))
    await check(client, ids(made))


@both_ways
@verifies(AREA, "stopped in an orderly way: the other kind serves entry logs and RocksDB indexes; and back again")
async def test_flushed_and_back(new_cluster: MakeCluster, connect: Connect, cluster: str) -> None:
    """FX-47, FX-65: from 4.17.3."""
    running = await asyncio.to_thread(prepare, new_cluster, cluster)
    client = await connect(running, "ours-auto")
    made = await write_some(client)
    for handle, _ in made:
        await handle.close()
    running.stop()
    await swap(running)
    java = await connect(running, "java-v3")
    await check(java, ids(made))
    more = await write_some_more(java)
    running.stop()
    await swap(running, java)
    await check(java, [*ids(made), *more])
    await check(await connect(running, "ours-auto"), [*ids(made), *more])


async def write_some_more(client: Client) -> list[tuple[int, list[int]]]:
    writer = await client.create(**ONE, password="disk")
    await writer.fill(200, 1000)
    await writer.close()
    return [(writer.ledger, [1000] * 200)]


@both_ways
@verifies(AREA, "half flushed, half in the journal, killed; small entry logs and journals that roll")
async def test_half_flushed(new_cluster: MakeCluster, connect: Connect, cluster: str) -> None:
    """RT-28."""
    settings = {"logSizeLimit": 1 << 20, "journalMaxSizeMB": 1, "flushInterval": 500}
    running = await asyncio.to_thread(prepare, new_cluster, cluster, **settings)
    client = await connect(running, "java-v3")
    made = await write_some(client)
    for _ in range(3):
        writer = await client.create(**ONE, password="disk")
        await writer.fill(600, 2000)
        made.append((writer, [2000] * 600))
    for bookie in running.bookies:
        logs = bookie.directory / "ledgers" / "current"
        await asyncio.to_thread(wait_until, lambda logs=logs: len(list(logs.glob("*.log"))) > 1, "several entry logs")
    await made[-1][0].fill(50, 10)
    made[-1][1].extend([10] * 50)
    running.stop(peer.KILL)
    await swap(running, client)
    await check(await connect(running, "ours-auto"), ids(made))
    await check(client, ids(made))


@both_ways
@verifies(AREA, "two journal, three ledger and three index directories: half flushed, killed, under the other kind")
async def test_many_directories(new_cluster: MakeCluster, connect: Connect, tmp_path: Path, cluster: str) -> None:
    """RT-28, FX-30."""

    def several(kind: str, count: int) -> str:
        return ",".join(str(tmp_path / f"{kind}{number}") for number in range(count))

    directories = {
        "journalDirectories": several("journal", 2),
        "ledgerDirectories": several("ledgers", 3),
        "indexDirectories": several("index", 3),
    }
    running = new_cluster(cluster, flushInterval=500, **directories)
    await asyncio.to_thread(running.init_by_us)
    await asyncio.to_thread(running.start)
    client = await connect(running, "java-v3")
    made: list[tuple[Handle, list[int]]] = []

    def flushed() -> bool:
        return all(list((tmp_path / f"ledgers{number}" / "current").glob("*.log")) for number in range(3))

    for _ in range(2):
        for _ in range(8):
            writer = await client.create(**ONE, password="disk")
            await writer.fill(50, 100)
            made.append((writer, [100] * 50))
        await asyncio.to_thread(wait_until, flushed, "entry logs in all directories")
    running.stop(peer.KILL)
    await swap(running, client)
    await check(await connect(running, "ours-auto"), ids(made))
    await check(client, ids(made))


@both_ways
@verifies(AREA, "a fence and the master key survive the change of kind")
async def test_fence_survives(new_cluster: MakeCluster, connect: Connect, cluster: str) -> None:
    """RT-28, BI-2."""
    running = await asyncio.to_thread(prepare, new_cluster, cluster, **NO_CHECKPOINT)
    writing, recovering = await connect(running, "java-v3"), await connect(running, "ours-auto")
    writer = await writing.create(**ONE, password="disk")
    await writer.fill(10)
    await recovering.open(writer.ledger, password="disk")
    running.stop(peer.KILL)
    await swap(running, writing)
    with pytest.raises(peer.Refused, match=r"^-101:"):
        await writer.append(10)


@verifies(AREA, "Java's offline tools accept our files")
async def test_tools(new_cluster: MakeCluster, connect: Connect, tools: peer.Tools) -> None:
    running = await asyncio.to_thread(prepare, new_cluster, OURS)
    client = await connect(running, "ours-auto")
    made = await write_some(client)
    ledger = made[0][0].ledger
    for handle, _ in made:
        await handle.close()
    conf = running.bookies[0].conf
    problems: list[tuple[object, str]] = []

    def check_tool(answer: peer.Answer, words: tuple[str, ...], wanted: str) -> None:
        if answer.code != 0 or not re.search(wanted, answer.text):
            problems.append((words, answer.text[-3000:]))

    def tools_that_need_the_bookie() -> None:
        for words, wanted in (
            (("listbookies", "-rw"), running.bookies[0].id),
            (("ledgermetadata", "-ledgerid", str(ledger)), "CLOSED"),
            (("bookieinfo",), running.bookies[0].id),
            (("bookiesanity", "-e", "5", "-t", "10"), "succeeded"),
            (("readledger", "-ledgerid", str(ledger), "-fe", "0", "-le", "2", "-msg"), "ntry.*2"),
            (("cookie_get", running.bookies[0].id), str(running.bookies[0].directory)),
            (("whatisinstanceid",), "nstance"),
            (("listledgers",), str(ledger)),
        ):
            check_tool(tools.run(conf, *words), words, wanted)

    await asyncio.to_thread(tools_that_need_the_bookie)
    assert problems == []
    running.stop()

    def offline_tools() -> None:
        current = running.bookies[0].directory / "ledgers" / "current"
        generated = running.bookies[0].directory / "generated"
        journals = sorted((running.bookies[0].directory / "journal" / "current").glob("*.txn"))
        log = sorted(current.glob("*.log"))[0].stem
        entry = rf"(Lid|ledgerId)={ledger}\b"  # 4.17, 4.18
        directories = ("-j", str(running.bookies[0].directory / "journal"), "-l", str(current.parent))
        for words, wanted in (
            (("lastmark",), "LastLogMark"),
            (("listfilesondisc", "-txn"), journals[0].name),
            (("readjournal", str(journals[0])), entry),
            (("readlog", log), entry),
            (("readlog", log, "-msg", "-ledgerid", str(ledger), "-entryid", "1"), entry),
            (("readlogmetadata", log), str(ledger)),
            (("ledger", str(ledger)), "entry 299"),
            (("localconsistencycheck",), "Check passed"),
            (("cookie_generate", *directories, "-o", str(generated), running.bookies[0].id), ""),
        ):
            check_tool(tools.run(conf, *words), words, wanted)
        assert problems == []
        assert generated.read_bytes() == (current / "VERSION").read_bytes()

    await asyncio.to_thread(offline_tools)


@verifies(AREA, "Java's tools rebuild the indexes of our bookie from its entry logs")
async def test_rebuilds(new_cluster: MakeCluster, connect: Connect, tools: peer.Tools) -> None:
    running = await asyncio.to_thread(prepare, new_cluster, OURS)
    client = await connect(running, "ours-auto")
    made = await write_some(client)
    for handle, _ in made:
        await handle.close()
    running.stop()

    def rebuild() -> None:
        for bookie in running.bookies:
            answer = tools.run(bookie.conf, "rebuild-db-ledger-locations-index")
            assert answer.code == 0, answer.text
            answer = tools.run(bookie.conf, "rebuild-db-ledgers-index")
            assert answer.code == 0, answer.text
        running.start()

    await asyncio.to_thread(rebuild)
    await client.sees(*(bookie.id for bookie in running.bookies))
    await check(client, ids(made))


@verifies(AREA, "our shell rebuilds the indexes of a bookie, and it goes on as Java's")
async def test_our_rebuilds(new_cluster: MakeCluster, connect: Connect) -> None:
    running = await asyncio.to_thread(prepare, new_cluster, OURS)
    client = await connect(running, "ours-auto")
    made = await write_some(client)
    for handle, _ in made:
        await handle.close()
    running.stop()

    def rebuild() -> None:
        for bookie in running.bookies:
            for verb in ("rebuild-db-ledger-locations-index", "rebuild-db-ledgers-index", "check-db-ledgers-index"):
                words = [sys.executable, "-m", "bookkeeper", "shell", verb, "--conf", str(bookie.conf)]
                done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
                assert done.returncode == 0, done.stderr
            bookie.start(JAVA)

    await asyncio.to_thread(rebuild)
    await client.sees(*(bookie.id for bookie in running.bookies))
    await check(client, ids(made))


def listing(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@both_ways
@verifies(AREA, "cookies (VERSION) written by one kind are accepted by the other, byte for byte the same")
async def test_cookies(new_cluster: MakeCluster, cluster: str) -> None:
    running = await asyncio.to_thread(prepare, new_cluster, cluster)
    running.stop()
    bookie = running.bookies[0]
    before = (bookie.directory / "ledgers" / "current" / "VERSION").read_bytes()
    stored, _ = running.zk.get(f"{running.root}/cookies/{bookie.id}")
    assert stored == before
    # What the other kind writes for the same bookie: everything removed, then started anew.
    running.zk.delete(f"{running.root}/cookies/{bookie.id}")
    for kind in ("journal", "ledgers"):
        await asyncio.to_thread(_remove, bookie.directory / kind)
    await asyncio.to_thread(bookie.start, OTHER[cluster])
    assert (bookie.directory / "ledgers" / "current" / "VERSION").read_bytes() == before
    assert (bookie.directory / "journal" / "current" / "VERSION").read_bytes() == before
    assert running.zk.get(f"{running.root}/cookies/{bookie.id}")[0] == before


def _remove(directory: Path) -> None:
    import shutil

    shutil.rmtree(directory)
