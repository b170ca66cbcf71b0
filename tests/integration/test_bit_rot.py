"""Bits of a running bookie's entry log flip: readers notice nothing, and the bookie mends itself, without a restart."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import bookkeeper
from bookkeeper.cli.local.cluster import BookieProcess, LocalCluster
from bookkeeper.runtime.real import RealRuntime
from tests.support.scrub import bad_copies

from .processes import PASSWORD, payload
from .test_heal import bookkeeper_command

SETTINGS = {
    "dbStorage_writeCacheMaxSizeMb": 16,
    "dbStorage_readAheadCacheMaxSizeMb": 8,
    "flushInterval": 200,
    "localScrubInterval": 2,
    "localScrubRateLimit": 0,
}
ENTRIES = 300
SECONDS = 60.0

ROTTEN = {7: 4, 100: 15, 250: 60}
"""Entries, and which byte of their records changes: the ledger id, the entry id, the payload."""


@pytest.fixture
async def scrubbing(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(RealRuntime(), tmp_path, 3, settings=SETTINGS) as running:
        yield running


def logs(bookie: BookieProcess) -> list[Path]:
    """The entry logs."""
    return [path for path in bookie.configuration.parent.rglob("current/*.log") if path.stat().st_size]


def records(bookie: BookieProcess, ledger_id: int, entry_id: int) -> list[tuple[Path, int]]:
    """Where a bookie has whole copies of an entry."""
    ids, data = struct.pack(">qq", ledger_id, entry_id), payload(ledger_id, entry_id)
    found = []
    for path in logs(bookie):
        content = path.read_bytes()
        at = content.find(ids)
        while at >= 0:
            if content[at + 36 : at + 36 + len(data)] == data:
                found.append((path, at - 4))
            at = content.find(ids, at + 1)
    return found


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


async def test_what_rots_in_a_running_bookie_is_mended(scrubbing: LocalCluster) -> None:
    """RT-16, as far as it is about entry logs."""
    victim = scrubbing.bookies[0]
    async with bookkeeper.connect(scrubbing.uri, runtime=scrubbing.runtime) as bk, asyncio.timeout(SECONDS):
        writer = await bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2, password=PASSWORD)
        await asyncio.gather(*[writer.append(payload(writer.id, number)) for number in range(ENTRIES)])
        await writer.close()
        while not all(records(victim, writer.id, entry_id) for entry_id in range(ENTRIES)):
            await asyncio.sleep(0.1)  # not flushed yet
        for entry_id, byte in ROTTEN.items():
            (place,) = records(victim, writer.id, entry_id)
            flip(place[0], place[1] + byte)
        async with await bk.open_ledger(writer.id, password=PASSWORD) as reader:
            entries = [entry.data async for entry in reader.entries()]
        assert entries == [payload(writer.id, number) for number in range(ENTRIES)]
        while not all(records(victim, writer.id, entry_id) for entry_id in ROTTEN):
            await asyncio.sleep(0.1)
        while await bad_copies(bk, [writer.id]):
            await asyncio.sleep(0.1)
        for entry_id in ROTTEN:
            words = ("shell", "why", str(writer.id), str(entry_id), "--uri", scrubbing.uri, "--json")
            code, out, err = await bookkeeper_command(*words)
            assert code == 0, err
            assert [copy["status"] for copy in json.loads(out)["copies"]] == ["good"] * 3
        assert await bad_copies(bk) == []
    assert victim.log.read_text().count("was damaged here, and is mended") == len(ROTTEN)
