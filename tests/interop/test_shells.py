"""Java's shell and ours say the same of one cluster."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bookkeeper.cli.session import driver_of
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.runtime.real import RealRuntime
from tests.interop.support import peer
from tests.interop.support.cluster import JAVA, OURS, Cluster
from tests.interop.support.report import verifies
from tests.support import commands

AREA = "Repair"

Connect = Callable[..., Any]
MakeCluster = Callable[..., Cluster]

BOOKIE = r"BookieID:(\S+?), IP:(\S+?), Port:(\d+), Hostname:([\w.-]+)"
RECORD = r"LedgerMetadata\{.*?customMetadata=\{.*?\}\}"
COMMANDS: dict[str, str] = {
    "whatisinstanceid": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "listbookies -rw": BOOKIE,
    "listbookies -a": BOOKIE,
    "listbookies -ro": r"No bookie exists!",
    "bookieinfo": r"(?:Total: |total=|capacity in the cluster:\t)(\d+\([\d.]+\w\w\))",
    "clusterinfo": r'"(\w+)" ?: ([^,\s}]+)',
    "endpointinfo -b BOOKIE": r"(?:host=|Address: )(\S+?)(?:, port=| : )(\d+)",
    "listledgers": r"ledgerI[dD](?:=|: )(\d+)",
    "listledgers -m": RECORD,
    "listledgers -bookieid BOOKIE": r"ledgerI[dD](?:=|: )(\d+)",
    "ledgermetadata -l LEDGER": RECORD,
    "readledger -l LEDGER": r"entryId=(\d+), entrySize=(\d+)|Eid=(\d+), EntrySize=(\d+)",
    "readledger -l LEDGER -fe 1 -le 2": r"entryId=(\d+), entrySize=(\d+)|Eid=(\d+), EntrySize=(\d+)",
    "listunderreplicated -pmr": r"(?:MissingReplica : |missingReplica=|replica=)([\d.]+:\d+)",
    "listunderreplicated -c": r"(?i)count(?:=|: )(\d+)",
    "whoisauditor": r"No auditor elected",
    "autorecovery": r"(?:Autorecovery is |status=)(enabled|disabled)",
    "queryautorecoverystatus": r"No Ledger is being recovered",
    "lostbookierecoverydelay -g": r"(?:in ZK: |delay=)(\d+)",
    "cookie_get BOOKIE": r'(bookieHost|journalDir|ledgerDirs|instanceId): "([^"\n]*)"',
}
"""By command, what is taken from both answers and compared."""


def facts(pattern: str, text: str) -> list[tuple[str, ...]]:
    """All that the answer says, in no order; passwords are nobody's business."""
    text = re.sub(r"password=base64:[^,]*", "password=OMITTED", text)
    return sorted({tuple(filter(None, found.groups())) or (found[0],) for found in re.finditer(pattern, text)})


def our_shell(cluster: Cluster, *words: str) -> str:
    done = our_answer(cluster, *words)
    return done.stdout + done.stderr


@pytest.fixture
async def shown(new_cluster: MakeCluster, connect: Connect) -> tuple[Cluster, str, int]:
    """A cluster with a closed and an open ledger, a mark and a delay; one of its bookies, and the closed ledger."""
    cluster = new_cluster(OURS, JAVA, OURS)
    await asyncio.to_thread(cluster.init_by_us)
    await asyncio.to_thread(cluster.start)
    ours = await connect(cluster, "ours-auto")
    closed = await ours.create(e=3, qw=2, qa=2)
    await closed.fill(5)
    await closed.close()
    left_open = await ours.create(e=2, qw=2, qa=2)
    await left_open.fill(3)
    bookie = cluster.bookies[0].id
    async with driver_of(cluster.uri, RealRuntime()) as driver:
        await driver.underreplication.mark(closed.ledger, [bookie])
    await asyncio.to_thread(our_shell, cluster, "lostbookierecoverydelay", "-s", "7")
    cluster.zk.ensure_path(f"{cluster.root}/underreplication/auditorelection")  # without it Java's shell gives up
    return cluster, bookie, closed.ledger


@verifies(AREA, "Java's shell and ours say the same of a cluster, its bookies, ledgers, marks and cookies")
async def test_the_shells_agree(shown: tuple[Cluster, str, int], tools: peer.Tools) -> None:
    cluster, bookie, ledger = shown
    differing = {}
    for command, pattern in COMMANDS.items():
        words = [{"BOOKIE": bookie, "LEDGER": str(ledger)}.get(word, word) for word in command.split()]
        java, ours = await asyncio.gather(
            asyncio.to_thread(tools.run, cluster.bookies[0].conf, *words),
            asyncio.to_thread(our_shell, cluster, *words),
        )
        theirs = facts(pattern, java.text)
        if not theirs or theirs != facts(pattern, ours):
            differing[command] = (java.text[-2000:], ours)
    assert not differing, "\n".join(
        f"{command}: {java}\n--- ours ---\n{ours}" for command, (java, ours) in differing.items()
    )


@verifies(AREA, "what one shell saves of a ledger's metadata the other restores")
async def test_metadata_is_saved_and_restored(
    shown: tuple[Cluster, str, int], tools: peer.Tools, connect: Connect
) -> None:
    cluster, _, ledger = shown
    conf, ours = cluster.bookies[0].conf, await connect(cluster, "ours-auto")

    async def record() -> LedgerMetadata:
        """But for what each creation gives anew."""
        return replace(await ours.bk.get_ledger_metadata(ledger), ctime=0, ctoken=0)

    before = await record()
    by_us, by_java = cluster.directory / "by-us", cluster.directory / "by-java"
    await asyncio.to_thread(our_shell, cluster, "ledgermetadata", "-l", str(ledger), "-dumptofile", str(by_us))
    saved = await asyncio.to_thread(tools.run, conf, "ledgermetadata", "-l", str(ledger), "-dumptofile", str(by_java))
    assert saved.code == 0, saved.text
    assert by_us.read_bytes() == by_java.read_bytes()
    await ours.bk.delete_ledger(ledger)
    await asyncio.to_thread(our_shell, cluster, "ledgermetadata", "-l", str(ledger), "-restorefromfile", str(by_java))
    assert await record() == before
    await ours.bk.delete_ledger(ledger)
    put = await asyncio.to_thread(tools.run, conf, "ledgermetadata", "-l", str(ledger), "-restorefromfile", str(by_us))
    assert put.code == 0, put.text
    assert await record() == before


@verifies(AREA, "each shell writes, reads and deletes a ledger on the other's bookies")
async def test_trials(shown: tuple[Cluster, str, int], tools: peer.Tools) -> None:
    cluster, _, _ = shown
    before = facts(COMMANDS["listledgers"], await asyncio.to_thread(our_shell, cluster, "listledgers"))
    java = await asyncio.to_thread(tools.run, cluster.bookies[0].conf, "simpletest", "-n", "10")
    assert java.code == 0, java.text
    ours = await asyncio.to_thread(our_shell, cluster, "simpletest", "-n", "10")
    assert "10 entries written to ledger" in ours, ours
    assert "succeeded" in await asyncio.to_thread(our_shell, cluster, "bookiesanity")
    assert facts(COMMANDS["listledgers"], await asyncio.to_thread(our_shell, cluster, "listledgers")) == before


@verifies(AREA, "both shells see the same files of a stopped bookie, and when it may begin anew")
async def test_the_shells_agree_about_a_stopped_bookie(new_cluster: MakeCluster, tools: peer.Tools) -> None:
    cluster = new_cluster(OURS, OURS)
    await asyncio.to_thread(cluster.init_by_us)
    await asyncio.to_thread(cluster.start)
    bookie = cluster.bookies[0]
    await asyncio.to_thread(bookie.stop)

    def files(text: str) -> list[str]:
        return re.findall(r"/\S+/current/[0-9a-f]+\.(?:txn|log)\b", text)

    def both(*words: str) -> bool:
        """Whether it was done, or is so; Java's shell and ours must agree."""
        java, ours = tools.run(bookie.conf, *words), our_answer(cluster, *words)
        assert (java.code == 0) == (ours.returncode == 0), f"{words}: {java.text}\n--- ours ---\n{ours.stderr}"
        return java.code == 0

    def compare() -> None:
        for kind in ("-txn", "-log"):
            java = tools.run(bookie.conf, "listfilesondisc", kind)
            assert files(java.text) == files(our_shell(cluster, "listfilesondisc", kind)), java.text
        assert files(our_shell(cluster, "listfilesondisc", "-txn"))
        assert our_answer(cluster, "localconsistencycheck").returncode == 0  # Java's would keep the index open
        assert not both("initbookie")
        assert not both("bookieformat", "-nonInteractive")
        assert our_answer(cluster, "bookieformat", "-nonInteractive", "-force").returncode == 0
        assert not both("initbookie")  # its cookie is there
        assert our_answer(cluster, "bookieformat", "-nonInteractive", "-force", "-deleteCookie").returncode == 0
        assert both("initbookie")
        bookie.start(JAVA)

    await asyncio.to_thread(compare)


def our_answer(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["shell", *words, "--conf", str(cluster.bookies[0].conf)]
    code, out, err = commands.COMMANDS.run(command, os.environ)
    return subprocess.CompletedProcess(command, code, out.decode(), err.decode())
