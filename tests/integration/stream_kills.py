"""One stream, whose writer, reader and bookies are killed in turn: `make stream-kills ROUNDS=20 RECORDS=1000000`.

The writer says how many of its records are acknowledged. The reader notes what it was given together with where it goes
on, a line at a time in one file, and begins there when it is started again. Kills are timed by what the writer has
said, not by the clock. At the end the stream is sealed, and the reader must have been given every acknowledged record
once, in order, and what a fresh reader finds.

    python -m tests.integration.stream_kills --rounds 20 --records 1000000
    python -m tests.integration.stream_kills write URI LIFE        as its own process; so with `read URI FILE`
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterable, Iterator
from itertools import cycle
from pathlib import Path

import bookkeeper
from bookkeeper.cli.local.cluster import LocalCluster
from bookkeeper.runtime import Runtime
from bookkeeper.runtime.real import RealRuntime, run
from bookkeeper.streams.errors import EndOfStreamError

NAME = "killed"
BATCH = 200
UNDER_WAY = 4
POLICY = bookkeeper.WritePolicy(roll_bytes=2 << 20)
WAIT_SECONDS = 120.0
"""For a process to say what it must say."""

Run = tuple[int, int, int]
"""Life of the writer, its first record and its last one."""


def payload(life: int, number: int) -> bytes:
    return b"%d/%d/" % (life, number) + bytes(number % 120)


def runs(payloads: Iterable[bytes]) -> Iterator[Run]:
    """What was given, in short."""
    current: Run | None = None
    for data in payloads:
        life, number = map(int, data.split(b"/", 2)[:2])
        assert data == payload(life, number), "a record is not what was written"
        if current is not None and current[0] == life and current[2] + 1 == number:
            current = (life, current[1], number)
            continue
        if current is not None:
            yield current
        current = (life, number, number)
    if current is not None:
        yield current


# --- the processes ---


async def write(runtime: Runtime, uri: str, life: int) -> None:
    """Append for ever, in batches and by single records in turn; say what is acknowledged."""
    async with (
        bookkeeper.connect(uri, runtime=runtime) as bk,
        bookkeeper.open_namespace("/streams", client=bk, create=True, runtime=runtime) as namespace,
    ):
        writer = await namespace.open_writer(NAME, policy=POLICY, create=True, lock_timeout=None)
        print("owner", flush=True)
        count = 0
        while True:
            for _ in range(UNDER_WAY):
                futures = [writer.append_nowait(payload(life, count + n)) for n in range(BATCH)]
                count += BATCH
                await writer.append_batch([payload(life, count + n) for n in range(BATCH)])
                count += BATCH
                await futures[-1]
            print(f"acked {count}", flush=True)


async def read(runtime: Runtime, uri: str, file: Path) -> None:
    """Follow to the end of the stream, from where the file says."""
    lines = _whole_lines(file)
    start = json.loads(lines[-1])["next"] if lines else bookkeeper.EARLIEST
    out = os.open(file, os.O_WRONLY | os.O_CREAT)
    os.ftruncate(out, sum(map(len, lines)))
    os.lseek(out, 0, os.SEEK_END)
    async with (
        bookkeeper.connect(uri, runtime=runtime) as bk,
        bookkeeper.open_namespace("/streams", client=bk, create=True, runtime=runtime) as namespace,
    ):
        reader = await namespace.open_reader(NAME, start)
        print("reading", flush=True)
        with contextlib.suppress(EndOfStreamError):
            while records := await reader.read(5000):
                got = list(runs(record.payload for record in records))
                line = json.dumps({"next": str(records[-1].position.next()), "got": got}) + "\n"
                os.write(out, line.encode())


def _whole_lines(file: Path) -> list[bytes]:
    """The last one may have been cut by a kill."""
    if not file.exists():
        return []
    return [line for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


# --- the campaign ---


class Campaign:
    """Kills, and what is known of the records."""

    def __init__(self, cluster: LocalCluster, directory: Path, seed: int) -> None:
        self.cluster = cluster
        self.notes = directory / "given"
        self.dice = random.Random(seed)
        self.acknowledged: dict[int, int] = {}
        """By life of the writer: how many records, from its first on."""
        self.life = 0
        self.writer: Process | None = None
        self.reader: Process | None = None

    @property
    def total(self) -> int:
        return sum(self.acknowledged.values())

    async def play(self, rounds: int, records: int) -> None:
        await self.start_writer()
        await self.start_reader()
        kinds = cycle((self.kill_writer, self.kill_reader, self.kill_bookie))
        for number in range(rounds):
            await self.write_until(records * (number + self.dice.uniform(0.2, 1.0)) / rounds)
            await next(kinds)()
        await self.write_until(records)
        await self.end_writer()
        await self.check()

    async def _start(self, *words: str) -> Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.integration.stream_kills", *words, stdout=PIPE
        )

    async def start_writer(self) -> None:
        self.life += 1
        self.acknowledged[self.life] = 0
        self.writer = await self._start("write", self.cluster.uri, str(self.life))
        assert await self._said(self.writer) == b"owner"

    async def start_reader(self) -> None:
        self.reader = await self._start("read", self.cluster.uri, str(self.notes))
        assert await self._said(self.reader) == b"reading"

    async def _said(self, process: Process) -> bytes:
        assert process.stdout is not None
        async with asyncio.timeout(WAIT_SECONDS):
            line = await process.stdout.readline()
        assert line, f"a process ended by itself with {await process.wait()}"
        return line.strip()

    async def write_until(self, total: float) -> None:
        while self.total < total:
            assert self.writer is not None
            self._heard(await self._said(self.writer))

    def _heard(self, line: bytes) -> None:
        self.acknowledged[self.life] = int(line.removeprefix(b"acked "))

    async def end_writer(self) -> None:
        assert self.writer is not None
        assert self.writer.stdout is not None
        self.writer.send_signal(signal.SIGKILL)
        for line in (await self.writer.stdout.read()).split(b"\n")[:-1]:
            self._heard(line)
        await self.writer.wait()

    async def kill_writer(self) -> None:
        await self.end_writer()
        await self.start_writer()

    async def kill_reader(self) -> None:
        assert self.reader is not None
        self.reader.send_signal(signal.SIGKILL)
        await self.reader.wait()
        await self.start_reader()

    async def kill_bookie(self) -> None:
        bookie = self.dice.choice(self.cluster.bookies)
        await self.cluster.kill(bookie)
        await self.write_until(self.total + 2 * BATCH * UNDER_WAY)  # it goes on without it
        await self.cluster.restart(bookie)

    async def check(self) -> None:
        """Each acknowledged record once, in order; what the reader was given is what is there."""
        assert self.reader is not None
        runtime = self.cluster.runtime
        async with (
            bookkeeper.connect(self.cluster.uri, runtime=runtime) as bk,
            bookkeeper.open_namespace("/streams", client=bk, runtime=runtime) as namespace,
        ):
            await namespace.seal(NAME, lock_timeout=None)
            async with asyncio.timeout(10 * WAIT_SECONDS):
                assert await self.reader.wait() == 0
            found: list[Run] = []
            with contextlib.suppress(EndOfStreamError):
                async with namespace.open_reader(NAME) as fresh:
                    async for batch in fresh.batches():
                        found += runs(batch.payloads())
            findings = [text async for segment in namespace.verify(NAME) for text in segment.findings]
        assert not findings, findings
        stream = joined(found)
        assert [life for life, _, _ in stream] == sorted(self.acknowledged), "lives are mixed, or records are missing"
        for life, first, last in stream:
            assert first == 0
            assert last + 1 >= self.acknowledged[life], f"life {life}: acknowledged records are lost"
        given = joined(tuple(each) for line in _whole_lines(self.notes) for each in json.loads(line)["got"])
        assert given == stream, "the reader was not given what is there"


def joined(found: Iterable[Run]) -> list[Run]:
    """Consecutive ones put together."""
    whole: list[Run] = []
    for life, first, last in found:
        if whole and whole[-1][0] == life and whole[-1][2] + 1 == first:
            whole[-1] = (life, whole[-1][1], last)
        else:
            whole.append((life, first, last))
    return whole


async def campaign(runtime: Runtime, directory: Path, rounds: int, records: int, seed: int) -> int:
    """Play it on a cluster of its own; how many records were acknowledged. Raises `AssertionError`."""
    async with LocalCluster(runtime, directory / "cluster", 4) as cluster:
        played = Campaign(cluster, directory, seed)
        try:
            await played.play(rounds, records)
        finally:
            for process in (played.writer, played.reader):
                if process is not None and process.returncode is None:
                    process.kill()
                    await process.wait()
    return played.total


def main() -> None:
    if sys.argv[1:2] == ["write"]:
        run(lambda runtime: write(runtime, sys.argv[2], int(sys.argv[3])))
        return
    if sys.argv[1:2] == ["read"]:
        run(lambda runtime: read(runtime, sys.argv[2], Path(sys.argv[3])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        total = asyncio.run(campaign(RealRuntime(), Path(directory), given.rounds, given.records, given.seed))
    print(f"{total:,} acknowledged records, {given.rounds} kills: all there, once, in order")


if __name__ == "__main__":
    main()
