"""kill -9 of every kind of process, many times: every acknowledged entry is readable afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping

import pytest

import bookkeeper
from bookkeeper.cli.local.cluster import LocalCluster
from bookkeeper.client.client import BookKeeper
from bookkeeper.client.writer import LedgerWriter
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import BKError
from tests.support.waiting import until

from .processes import PASSWORD, payload

ROUNDS = int(os.environ.get("KILL_ROUNDS", "6"))
"""Of each kind; `make kills` does fifty."""
ENTRIES = 3000
LEDGERS = 300
"""Of those that are written at once."""


async def create(bk: BookKeeper) -> LedgerWriter:
    return await bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2, password=PASSWORD)


async def check(cluster: LocalCluster, ledger_id: int, acknowledged: int) -> int:
    """Another client opens the ledger and finds at least what was acknowledged, unchanged. Returns the count."""
    (count,) = await check_all(cluster, {ledger_id: acknowledged})
    return count


async def check_all(cluster: LocalCluster, acknowledged: Mapping[int, int]) -> list[int]:
    """The same for many ledgers."""
    async with bookkeeper.connect(cluster.uri, runtime=cluster.runtime) as bk:

        async def found(ledger_id: int) -> int:
            count = 0
            async with await bk.recover_ledger(ledger_id, password=PASSWORD) as reader:
                async for entry in reader.entries():
                    assert entry.entry_id == count
                    assert entry.data == payload(ledger_id, count)
                    count += 1
            assert count >= acknowledged[ledger_id]
            return count

        return [await found(ledger_id) for ledger_id in acknowledged]


async def start(role: str, *arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.processes", role, *arguments, stdout=PIPE
    )


async def end(process: Process) -> None:
    """SIGKILL; a writer that was fenced has ended by itself already."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGKILL)
    await process.wait()


async def test_a_bookie_killed_during_load(cluster: LocalCluster) -> None:
    """RT-1."""
    dice = random.Random(1)
    async with bookkeeper.connect(cluster.uri, runtime=cluster.runtime) as bk:
        for _ in range(ROUNDS):
            writer = await create(bk)
            strike = dice.randrange(ENTRIES)
            futures: list[asyncio.Future[int]] = []
            victim = None
            for number in range(ENTRIES):
                futures.append(await writer.append_soon(payload(writer.id, number)))
                if number == strike:
                    member = dice.choice(writer.metadata.last_ensemble[1])
                    victim = next(bookie for bookie in cluster.bookies if bookie.id == member)
                    await cluster.kill(victim)
            assert [await future for future in futures] == list(range(ENTRIES))
            await writer.close()
            assert await check(cluster, writer.id, ENTRIES) == ENTRIES
            assert victim is not None
            await cluster.restart(victim)
        ids = [ledger_id async for ledger_id in bk.list_ledgers()]
    for ledger_id in ids:
        assert await check(cluster, ledger_id, ENTRIES) == ENTRIES


async def test_all_bookies_killed_at_once_during_load(cluster: LocalCluster) -> None:
    """RT-2."""
    dice = random.Random(2)
    held: dict[int, int] = {}
    for _ in range(ROUNDS):
        async with bookkeeper.connect(cluster.uri, runtime=cluster.runtime) as bk:
            writer = await create(bk)
            strike = dice.randrange(200, ENTRIES)
            futures: list[asyncio.Future[int]] = []
            try:
                futures += [await writer.append_soon(payload(writer.id, number)) for number in range(strike)]
                await asyncio.gather(*(cluster.kill(bookie) for bookie in cluster.bookies))
            finally:
                outcomes = await asyncio.gather(*futures, return_exceptions=True)
            acknowledged = sum(isinstance(outcome, int) for outcome in outcomes)
            assert all(isinstance(outcome, int | BKError) for outcome in outcomes)
            with pytest.raises(BKError):
                await writer.append(b"nobody is there")
        await asyncio.gather(*(cluster.restart(bookie) for bookie in cluster.bookies))
        held[writer.id] = await check(cluster, writer.id, acknowledged)
    for ledger_id, count in held.items():
        assert await check(cluster, ledger_id, count) == count


async def test_all_bookies_killed_while_many_ledgers_are_written(cluster: LocalCluster) -> None:
    """Bookies take what comes of many ledgers by columns: nothing of it is lost, with either protocol."""
    dice = random.Random(5)
    held: dict[int, int] = {}

    async def fill(writer: LedgerWriter) -> int:
        """Append one after the other until the bookies are gone; how many were acknowledged."""
        for number in itertools.count():
            try:
                await writer.append(payload(writer.id, number))
            except BKError:
                return number
        raise AssertionError

    for number in range(ROUNDS):
        config = ClientConfiguration.from_mapping({"useV2WireProtocol": number % 2 == 0})
        async with bookkeeper.connect(cluster.uri, config=config, runtime=cluster.runtime) as bk:
            writers = await asyncio.gather(*(create(bk) for _ in range(LEDGERS)))
            filling = [asyncio.ensure_future(fill(writer)) for writer in writers]
            strike = dice.randrange(2, 40)
            await until(lambda: all(writer.last_add_confirmed >= strike for writer in writers), "all have begun")  # noqa: B023
            await asyncio.gather(*(cluster.kill(bookie) for bookie in cluster.bookies))
            acknowledged = await asyncio.gather(*filling)
        await asyncio.gather(*(cluster.restart(bookie) for bookie in cluster.bookies))
        ids = [writer.id for writer in writers]
        held.update(zip(ids, await check_all(cluster, dict(zip(ids, acknowledged, strict=True))), strict=True))
    assert await check_all(cluster, held) == [*held.values()]


async def test_the_writer_killed(cluster: LocalCluster) -> None:
    """RT-6: of one ledger, not of a chain."""
    dice = random.Random(3)
    for _ in range(ROUNDS):
        process = await start("write", cluster.uri)
        assert process.stdout is not None
        ledger_id = int((await process.stdout.readline()).split()[1])
        strike = dice.randrange(1, ENTRIES)
        acknowledged = 0
        while acknowledged < strike:
            acknowledged = int((await process.stdout.readline()).split()[1])
        await end(process)
        rest = (await process.stdout.read()).split(b"\n")
        acknowledged = max([acknowledged, *(int(line.split()[1]) for line in rest if line.startswith(b"acked "))])
        count = await check(cluster, ledger_id, acknowledged)
        assert await check(cluster, ledger_id, count) == count


async def test_a_reader_killed_while_it_recovers_or_reads(cluster: LocalCluster) -> None:
    dice = random.Random(4)
    for _ in range(ROUNDS):
        writing = await start("write", cluster.uri)
        assert writing.stdout is not None
        ledger_id = int((await writing.stdout.readline()).split()[1])
        acknowledged = 0
        while acknowledged < ENTRIES:
            acknowledged = int((await writing.stdout.readline()).split()[1])
        reading = await start("read", cluster.uri, str(ledger_id))
        assert reading.stdout is not None
        await reading.stdout.readline()
        for _ in range(dice.choice((0, 0, 1, 5))):  # while it opens and fences the writer, or later
            await reading.stdout.readline()
        await end(reading)
        await end(writing)
        count = await check(cluster, ledger_id, acknowledged)
        assert await check(cluster, ledger_id, count) == count
