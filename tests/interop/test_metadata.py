"""Metadata made by either, read by the other; byte for byte the same where there is one way to write it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

from bookkeeper.metadata.formats.ledger import parse, serialize
from tests.interop.support.clients import expected
from tests.interop.support.cluster import JAVA, OURS, Cluster
from tests.interop.support.peer import Tools
from tests.interop.support.report import verifies

AREA = "Metadata"

Connect = Callable[..., Any]
MakeCluster = Callable[..., Cluster]

UUID = re.compile(rb"[0-9a-f-]{36}")


def tree(zk: KazooClient, root: str) -> dict[str, bytes]:
    """Every node below the root with its value."""
    found: dict[str, bytes] = {}

    def walk(path: str) -> None:
        found[path.removeprefix(root)] = zk.get(path)[0] or b""
        for child in zk.get_children(path):
            walk(f"{path}/{child}")

    walk(root)
    return found


def node_of(zk: KazooClient, root: str, ledger: int) -> str:
    """Where the hierarchical manager keeps a ledger's record."""
    if ledger < 2**31 - 1:
        digits = f"{ledger:010d}"
        return f"{root}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger:019d}"
    return f"{root}/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


@verifies(AREA, "a new cluster is initialized alike: nodes, LAYOUT and all other values, but for the instance id")
async def test_new_cluster(new_cluster: MakeCluster, tools: Tools) -> None:
    by_java, by_us = new_cluster(), new_cluster()
    await asyncio.to_thread(by_java.init_by_java, tools)
    await asyncio.to_thread(by_us.init_by_us)
    ours, javas = (
        {path: UUID.sub(b"<uuid>", value) for path, value in tree(made.zk, made.root).items()}
        for made in (by_us, by_java)
    )
    assert ours == javas
    assert "/LAYOUT" in ours


@verifies(AREA, "Java's shell works on a cluster made by us: nukeexistingcluster, initnewcluster, metaformat")
async def test_java_formats_our_cluster(new_cluster: MakeCluster, tools: Tools) -> None:
    cluster = new_cluster()
    await asyncio.to_thread(cluster.init_by_us)
    instance = cluster.zk.get(f"{cluster.root}/INSTANCEID")[0].decode()
    conf = cluster.directory / "tool.conf"
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text(f"metadataServiceUri={cluster.uri}\n")

    def use_tools() -> None:
        answer = tools.run(conf, "metaformat", "-nonInteractive", "-force")
        assert answer.code == 0, answer.text
        renewed = cluster.zk.get(f"{cluster.root}/INSTANCEID")[0].decode()
        assert renewed != instance
        answer = tools.run(conf, "nukeexistingcluster", "-zkledgersrootpath", cluster.root, "-instanceid", renewed)
        assert answer.code == 0, answer.text

    await asyncio.to_thread(use_tools)
    assert cluster.zk.exists(cluster.root) is None
    await asyncio.to_thread(cluster.init_by_us)


@verifies(AREA, "registration with service info: our bookie's and a Java bookie's, but for the port")
async def test_registration(new_cluster: MakeCluster) -> None:
    cluster = new_cluster(JAVA, OURS)
    await asyncio.to_thread(cluster.init_by_us)
    await asyncio.to_thread(cluster.start)
    java, ours = (cluster.zk.get(f"{cluster.root}/available/{bookie.id}") for bookie in cluster.bookies)
    ports = [str(bookie.port).encode() for bookie in cluster.bookies]

    def masked(value: bytes, port: bytes) -> bytes:
        number, size = int(port), b""
        while number > 0x7F:
            size, number = size + bytes([number & 0x7F | 0x80]), number >> 7
        return value.replace(port, b"<port>").replace(size + bytes([number]), b"<port>")

    assert masked(ours[0], ports[1]) == masked(java[0], ports[0])
    assert java[1].ephemeralOwner
    assert ours[1].ephemeralOwner


@pytest.mark.parametrize("version", [1, 2, 3])
@verifies(AREA, "ledger metadata v1, v2, v3, open, changed and closed: written by Java as we would write it")
async def test_ledger_metadata_by_java(long_lived: Callable[[str], Cluster], connect: Connect, version: int) -> None:
    cluster = long_lived("mixed")
    client = await connect(cluster, "java-v3", ledgerMetadataVersion=version)
    custom = {} if version == 1 else {"app": "interop", "other": "value"}
    for digest in ("CRC32", "MAC", "CRC32C", "DUMMY"):
        writer = await client.create(password="m\u00e4", digest=digest, custom=custom, qa=3 if version == 1 else 2)
        node = node_of(cluster.zk, cluster.root, writer.ledger)
        check_bytes(cluster.zk, node, writer.ledger, version)
        await writer.append(10)
        await writer.close()
        check_bytes(cluster.zk, node, writer.ledger, version)
    ours = await connect(cluster, "ours-auto")
    if version > 1:  # version 1 does not keep digest and password
        assert await (await ours.open(writer.ledger, password="m\u00e4", digest="DUMMY")).read() == expected([10])


def check_bytes(zk: KazooClient, node: str, ledger: int, version: int) -> None:
    stored, stat = zk.get(node)
    assert stored.startswith(b"BookieMetadataFormatVersion\t%d\n" % version)
    parsed = parse(stored, ledger, stat.ctime)
    if len(parsed.custom_metadata) < 2:  # more are written in the order of a hash table
        assert serialize(parsed) == stored
    assert parse(serialize(parsed), ledger, stat.ctime) == parsed


@pytest.mark.parametrize("version", [1, 2, 3])
@verifies(AREA, "ledger metadata v1, v2, v3 written by us: opened, recovered and closed by Java, and then read by us")
async def test_ledger_metadata_by_us(long_lived: Callable[[str], Cluster], connect: Connect, version: int) -> None:
    cluster = long_lived("mixed")
    ours = await connect(cluster, "ours-auto", ledgerMetadataVersion=version)
    java = await connect(cluster, "java-v3")
    digest = "CRC32" if version == 1 else "MAC"
    writer = await ours.create(password="", digest=digest, qa=3, custom={} if version == 1 else {"a": "b"})
    await writer.fill(20)
    reader = await java.open(writer.ledger, digest=digest)
    assert await reader.read() == expected([100] * 20)
    stored, stat = cluster.zk.get(node_of(cluster.zk, cluster.root, writer.ledger))
    assert stored.startswith(b"BookieMetadataFormatVersion\t%d\n" % version)
    assert parse(stored, writer.ledger, stat.ctime).closed
    assert await (await ours.open(writer.ledger, digest=digest)).state() == await reader.state()


@verifies(AREA, "ids handed out to both clients at the same time are different")
async def test_ids(long_lived: Callable[[str], Cluster], connect: Connect) -> None:
    cluster = long_lived("mixed")
    clients = [await connect(cluster, name) for name in ("java-v3", "ours-auto")]
    made = await asyncio.gather(*(client.create() for client in clients for _ in range(15)))
    ids = [writer.ledger for writer in made]
    assert len(set(ids)) == 30
    for writer in made:
        await writer.close()
    assert set(ids) <= set(await clients[0].list())
    assert await clients[0].list() == await clients[1].list()


@verifies(AREA, "Java's tools tell our bookies' state: listbookies, endpointinfo, cookie_get, listledgers")
async def test_tools(long_lived: Callable[[str], Cluster], tools: Tools) -> None:
    cluster = long_lived("ours")
    bookie = cluster.bookies[0]

    def use_tools() -> None:
        answer = tools.run(bookie.conf, "listbookies", "-rw")
        assert all(each.id in answer.text for each in cluster.bookies), answer.text
        answer = tools.run(bookie.conf, "endpointinfo", "-b", bookie.id)
        assert answer.code == 0, answer.text
        assert str(bookie.port) in answer.text
        assert "bookie-rpc" in answer.text
        answer = tools.run(bookie.conf, "cookie_get", bookie.id)
        assert answer.code == 0, answer.text
        assert str(bookie.directory / "journal") in answer.text

    await asyncio.to_thread(use_tools)
