"""docs/spark.md, run from top to bottom: its Python in one session, and with `make test-spark` its commands, too.

The addresses and places that the page names stand for those of the tests; what it reads is there before.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import bookkeeper
import bookkeeper.spark
import bookkeeper.sync
from tests.support.waiting import wait_until

from .support import FULL, LiveCluster
from .test_streams import Streams

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
BLOCK = re.compile(r"(?ms)^```(\w*)\n(.*?)^```$")
LEFT_OUT = ("-f jdbc", "--apply", "localbookie", "MASTER=", "bench write")
"""Commands that other tests run: they need a database, change what others read, or go on."""
LEDGERS = 21
CLICKS = 3000


def blocks(language: str, places: dict[str, str]) -> list[str]:
    """The page's blocks of one language, with the places of the tests. Raises `AssertionError` if one is not named."""
    text = PAGE.read_text()
    for name, place in places.items():
        assert name in text, f"the page does not speak of {name} any more"
        text = text.replace(name, place)
    return [body for found, body in BLOCK.findall(text) if found == language]


class Orders:
    """What the page takes for granted: ledgers 5 and 10 to 20, a stream `clicks`, and files."""

    def __init__(self, cluster: LiveCluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        with bookkeeper.sync.connect(cluster.uri) as bk:
            for ledger_id in range(LEDGERS):
                with bk.create_ledger(password=b"s", ensemble_size=3, write_quorum=3, ack_quorum=2) as ledger:
                    assert ledger.id == ledger_id
                    ledger.append_many(b"%d: ERROR %d" % (ledger_id, n) for n in range(300))
        self.streams = Streams(cluster, "/orders")
        self.streams.append("clicks", [b'{"user": %d, "at": %d}' % (n % 7, n) for n in range(CLICKS)], roll=1000)
        self.streams.do(lambda namespace: namespace.create("counts"))  # its windows end when the test is long over
        for name in ("clicks", "input"):
            (directory / "data" / name).mkdir(parents=True)
            (directory / "data" / name / "1.txt").write_text("".join(f"line {n}\n" for n in range(500)))

    @property
    def places(self) -> dict[str, str]:
        return {
            "zk+hierarchical://zk1:2181/ledgers": self.cluster.uri,
            "zk://zk1:2181/ledgers": self.cluster.uri,
            "sqlite:///tmp/tour/meta.db": self.cluster.uri,
            "distributedlog://zk1:2181/orders": self.streams.where,
            '"/data/': f'"{self.directory}/data/',
            '"/state/': f'"{self.directory}/state/',
            "s3://archive/": f"{self.directory}/archive/",
        }


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orders]:
    """On a cluster of its own, whose first ledgers have the numbers that the page names."""
    directory = tmp_path_factory.mktemp("orders")
    cluster = LiveCluster(directory / "cluster", 3)
    yield Orders(cluster, directory)
    cluster.close()


def run_block(code: str, names: dict[str, Any], spark: SparkSession) -> None:
    """One of Python, as in a notebook: with `await`. Queries that it begins are ended when they have read something."""
    compiled = compile(code, "a block of the page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    found = eval(compiled, names)
    if inspect.iscoroutine(found):
        raise AssertionError("blocks with await are run in a loop of their own")
    for query in spark.streams.active:
        wait_until(lambda query=query: not query.isActive or query.lastProgress is not None, "a batch is read")
        assert query.exception() is None, str(query.exception())
        query.stop()


async def run_async_block(code: str, orders: Orders) -> dict[str, Any]:
    """One with `await`: it has a namespace, and the writer and reader of a new stream."""
    async with (
        bookkeeper.open_namespace(orders.streams.where) as namespace,
        namespace.open_writer("keyed", create=True) as writer,
        namespace.open_reader("keyed") as reader,
    ):
        names = {"bookkeeper": bookkeeper, "namespace": namespace, "writer": writer, "reader": reader}
        await eval(compile(code, "a block of the page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        return names


@pytest.mark.timeout(600)
def test_the_python_of_the_page(spark: SparkSession, orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_PASSWORD", "s")
    names: dict[str, Any] = {"bookkeeper": bookkeeper, "spark": spark}
    for code in blocks("python", orders.places):
        if "await " in code:
            keyed = asyncio.run(run_async_block(code, orders))
            assert keyed["record"].key == b"user 7"
            continue
        names["uri"] = orders.streams.where if "stream=" in code else orders.cluster.uri
        run_block(code, names, spark)
    assert names["report"].clean
    assert names["df"].count() == 12 * 300
    assert names["records"].count() >= CLICKS
    assert len(orders.streams.payloads("lines")) == 500


@pytest.mark.skipif(not FULL, reason="`make test-spark`: each command starts a JVM")
@pytest.mark.timeout(1800)
def test_the_commands_of_the_page(orders: Orders) -> None:
    (orders.directory / "passwords.txt").write_text("s\n")
    places = {**orders.places, " /data/": f" {orders.directory}/data/", " /archive": f" {orders.directory}/archive"}
    lost = orders.cluster.bookies[0].id
    stands = {
        "b7:3181,b9:3181": lost,
        "--bookies 12": f"--bookies {len(orders.cluster.bookies)}",
        "passwords.txt": str(orders.directory / "passwords.txt"),
    }
    script = "".join(
        line + "\n"
        for body in blocks("", {**places, **stands})
        for line in body.splitlines()
        if line.startswith(("bookkeeper ", "export ")) and not any(word in line for word in LEFT_OUT)
    )
    assert script.count("bookkeeper spark") > 8
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-exc", script],
        env=environ,
        cwd=orders.directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
