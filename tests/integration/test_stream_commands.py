"""`bookkeeper stream`, as people and scripts use it, on a cluster of real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bookkeeper.cli.local.cluster import LocalCluster
from bookkeeper.runtime.real import RealRuntime
from tests.support.commands import run_command


class Shell:
    """Runs commands on one cluster."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    async def start(self, *words: str, group: tuple[str, ...] = ("stream",)) -> Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bookkeeper", *group, *words, "--uri", self.uri),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
        )

    async def ledger(self, *words: str) -> Process:
        return await self.start(*words, group=("ledger",))

    async def bench(self, *words: str) -> tuple[int, str, str]:
        return await self.run(*words, group=("bench", "stream"))

    async def run(self, *words: str, text: bytes = b"", group: tuple[str, ...] = ("stream",)) -> tuple[int, str, str]:
        words = (*group, *words, "--uri", self.uri)
        code, out, err = await run_command(words, os.environ, text)
        return code, out.decode(), err.decode()

    async def good(self, *words: str, text: bytes = b"") -> str:
        code, out, err = await self.run(*words, text=text)
        assert code == 0, err
        return out


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    async with LocalCluster(RealRuntime(), tmp_path, 3) as cluster:
        yield Shell(cluster.uri)


async def test_a_stream_from_its_beginning_to_its_end(shell: Shell) -> None:
    code, _, err = await shell.run("list")
    assert (code, "`bookkeeper stream create NAME` makes it" in err) == (1, True)
    await shell.good("create", "orders")
    code, _, err = await shell.run("create", "orders")
    assert (code, "orders" in err) == (1, True)
    await shell.good("create", "orders", "--exist-ok")
    await shell.good("append", "orders/eu", "--create", text=b"x\n")
    assert (await shell.good("list", "-r")).split() == ["orders", "orders/eu"]

    appended = json.loads(await shell.good("append", "orders", "--json", text=b"a\nb\n\nd"))
    assert appended["records"] == 4
    assert await shell.good("read", "orders") == "a\nb\n\nd\n"
    rows = [json.loads(line) for line in (await shell.good("read", "orders", "--json")).splitlines()]
    assert [(row["sequence"], row["data"]) for row in rows] == [(0, "a"), (1, "b"), (2, ""), (3, "d")]
    assert rows[-1]["position"] == appended["last"]
    assert await shell.good("read", "orders", "--from", rows[1]["position"], "-n", "2") == "b\n\n"
    assert await shell.good("read", "orders", "--from", f"txid:{rows[0]['txid']}", "--raw") == "abd"
    assert await shell.good("read", "orders", "--from", "latest") == ""

    await shell.good("append", "orders", text=b"e\n")
    found = json.loads(await shell.good("info", "orders", "--json"))
    assert (found["records"], found["owner"], found["sealed"], len(found["segments"])) == (5, None, False, 2)
    table = await shell.good("info", "orders")
    assert "5 records" in table
    assert "completed" in table

    second = json.loads((await shell.good("read", "orders", "--json")).splitlines()[-1])["position"]
    done = json.loads(await shell.good("truncate", "orders", second, "--delete", "--json"))
    assert [segment["number"] for segment in done["deleted"]] == [1]
    assert await shell.good("read", "orders") == "e\n"
    assert json.loads(await shell.good("purge", "orders", "--json"))["deleted"] == []

    code, _, err = await shell.run("seal", "orders", text=b"n\n")
    assert (code, "nothing was changed" in err) == (1, True)
    await shell.good("seal", "orders", "--force")
    code, _, err = await shell.run("append", "orders", text=b"f\n")
    assert (code, "0 records in orders" in err) == (1, True)
    await shell.good("rename", "orders/eu", "eu")
    await shell.good("delete", "orders", "--force")
    assert (await shell.good("list", "-r")).split() == ["eu"]


async def test_a_subscriber_reads_on_where_it_stopped(shell: Shell) -> None:
    await shell.good("append", "orders", "--create", text=b"a\nb\nc\n")
    assert "no subscribers" in (await shell.run("subscribers", "orders"))[2]
    assert await shell.good("read", "orders", "--subscriber", "billing", "-n", "2") == "a\nb\n"
    assert await shell.good("read", "orders", "--subscriber", "billing") == "c\n"
    assert await shell.good("read", "orders", "--subscriber", "billing") == ""
    assert await shell.good("read", "orders", "--subscriber", "billing", "--from", "earliest", "-n", "1") == "a\n"
    known = json.loads(await shell.good("subscribers", "orders", "--json"))
    assert await shell.good("read", "orders", "--from", known["billing"], "-n", "1") == "b\n"
    assert "billing" in await shell.good("subscribers", "orders")
    assert json.loads(await shell.good("subscribers", "orders", "--delete", "billing", "--json")) == {}
    assert (await shell.run("subscribers", "orders", "--delete", "billing"))[0] == 1
    assert (await shell.run("read", "orders", "--subscriber", "a/b"))[0] != 0


async def test_a_tail_hears_what_a_pipe_says(shell: Shell) -> None:
    await shell.good("create", "live")
    tail = await shell.start("tail", "live", "--from", "earliest")
    writer = await shell.start("append", "live")
    assert tail.stdout is not None
    assert writer.stdin is not None
    for number in range(3):
        writer.stdin.write(b"line %d\n" % number)
        await writer.stdin.drain()
        assert await tail.stdout.readline() == b"line %d\n" % number
    writer.send_signal(signal.SIGINT)
    _, err = await writer.communicate()
    assert writer.returncode == 130
    assert b"interrupted; stored: 3 records in live" in err
    tail.send_signal(signal.SIGINT)
    await tail.communicate()
    assert tail.returncode == 0


WRONG: list[tuple[tuple[str, ...], str]] = [
    (("read", "none"), "there is no stream none"),
    (("append", "none"), "none"),
    (("read", "good", "--from", "nowhere"), "'nowhere' is no position"),
    (("truncate", "good", "1/x/2"), "is no position"),
    (("create", "a//b"), "a//b"),
    (("append", "good", "/no/such/file"), "/no/such/file is not a file"),
    (("list", "-N", "no-address"), "no-address"),
]


async def test_what_is_wrong_is_said_in_a_line(shell: Shell) -> None:
    await shell.good("create", "good")
    for words, message in WRONG:
        code, out, err = await shell.run(*words)
        assert code in (1, 2), words
        assert out == ""
        assert message in err
        assert "Traceback" not in err


async def test_streams_are_verified_and_maintained(shell: Shell) -> None:
    await shell.good("append", "a/b", "--create", text=b"1\n2\n3\n")
    await shell.good("append", "a/b", text=b"4\n")
    rows = json.loads(await shell.good("verify", "--json"))
    assert [(row["stream"], row["segment"], row["records"], row["findings"]) for row in rows] == [
        ("a/b", 1, 3, []),
        ("a/b", 2, 1, []),
    ]
    code, _, err = await shell.run("read", "a/b", "--from", "time:yesterday")
    assert (code, "is no time" in err) == (2, True)
    assert (await shell.good("read", "a/b", "--from", "time:2001-01-01")).split() == ["1", "2", "3", "4"]
    done = json.loads(await shell.good("maintain", "--json"))
    assert done == {"streams": 1, "deleted": {}, "failed": {}, "collected_ledgers": []}
    process = await shell.ledger("delete", str(rows[0]["ledger"]), "--force")
    assert await process.wait() == 0
    code, out, err = await shell.run("verify", "a/b")
    assert (code, "does not exist" in out, "1 finding" in err) == (1, True, True)
    going_on = await shell.start("maintain", "--every", "0.1")
    assert going_on.stderr is not None
    assert b"until Ctrl-C" in await going_on.stderr.readline()
    going_on.send_signal(signal.SIGINT)
    assert await going_on.wait() == 0


async def test_streams_are_measured(shell: Shell) -> None:
    for name, *how in (("each", "--batch", "1"), ("alone", "--batch", "1", "--window", "1"), ("sets", "--sets")):
        code, out, err = await shell.bench("write", name, "--seconds", "0.3", "--json", *how)
        assert code == 0, err
        written = json.loads(out)["entries"]
        code, out, err = await shell.bench("read", name, "--json")
        assert (code, json.loads(out)["entries"]) == (0, written), err
    code, out, err = await shell.bench("write", "each", "--seconds", "0.3")
    assert (code, "there is a stream each already" in err) == (1, True)
    code, out, err = await shell.bench("tail", "t", "--seconds", "0.5", "--json")
    assert (code, json.loads(out)["entries"] > 0) == (0, True), err
