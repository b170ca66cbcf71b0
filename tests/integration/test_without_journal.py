"""kill -9 of a bookie that journals no entries: it comes back without them, denies none, and gets them back (BP-46)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import bookkeeper
from bookkeeper.cli.local.cluster import BookieProcess, LocalCluster
from bookkeeper.client.client import BookKeeper
from bookkeeper.errors import DataUnknownError, LedgerClosedError, LedgerFencedError
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId
from tests.support.scrub import bad_copies

from .processes import PASSWORD, payload

UNJOURNALED = {
    "journalWriteData": "false",
    "dataIntegrityChecking": "true",
    "dataIntegrityStampMissingCookies": "true",
    "dbStorage_writeCacheMaxSizeMb": 16,
    "dbStorage_readAheadCacheMaxSizeMb": 8,
    "flushInterval": 3_600_000,
}
ENTRIES = 500
SECONDS = 60.0


@pytest.fixture
async def unjournaled(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(RealRuntime(), tmp_path, 3, settings=UNJOURNALED) as running:
        yield running


async def write(bk: BookKeeper, *, close: bool) -> bookkeeper.LedgerWriter:
    writer = await bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2, password=PASSWORD)
    await asyncio.gather(*[writer.append(payload(writer.id, number)) for number in range(ENTRIES)])
    if close:
        await writer.close()
    return writer


async def whole(bk: BookKeeper, ledger_id: int, bookie: BookieProcess) -> None:
    """Wait until a bookie has every entry of a ledger."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                held = await bk.list_entries_of(ledger_id, BookieId(bookie.id))
            except DataUnknownError:  # in limbo
                await asyncio.sleep(0.2)
                continue
            assert list(held) == list(range(ENTRIES))
            return


@pytest.mark.parametrize("disk", [True, False], ids=["killed", "killed, and its disks lost"])
async def test_a_killed_bookie_gets_back_what_it_had_acknowledged(unjournaled: LocalCluster, disk: bool) -> None:
    victim = unjournaled.bookies[0]
    async with bookkeeper.connect(unjournaled.uri, runtime=unjournaled.runtime) as bk:
        closed, left = await write(bk, close=True), await write(bk, close=False)
        await unjournaled.kill(victim)
        if not disk:
            for current in victim.configuration.parent.rglob("current"):
                shutil.rmtree(current)
        await unjournaled.restart(victim)
        for ledger_id in (closed.id, left.id):
            await whole(bk, ledger_id, victim)
        with pytest.raises((LedgerFencedError, LedgerClosedError)):
            await left.append(b"the bookie has recovered the ledger")
        for ledger_id in (closed.id, left.id):
            async with await bk.open_ledger(ledger_id, password=PASSWORD) as reader:
                entries = [entry.data async for entry in reader.entries()]
            assert entries == [payload(ledger_id, number) for number in range(ENTRIES)]
        assert await bad_copies(bk) == []
