"""The shell's verbs for the files of a stopped bookie, on those of a real one that goes on with them afterwards."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import bookkeeper
from bookkeeper.cli.local.cluster import BookieProcess, LocalCluster
from bookkeeper.client.client import BookKeeper
from bookkeeper.errors import LedgerFencedError
from bookkeeper.runtime.real import RealRuntime
from tests.support.scrub import bad_copies

from .processes import PASSWORD, payload
from .test_bit_rot import flip, logs, records
from .test_heal import bookkeeper_command

SETTINGS = {"dbStorage_writeCacheMaxSizeMb": 16, "dbStorage_readAheadCacheMaxSizeMb": 8}
ENTRIES = 200


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(RealRuntime(), tmp_path, 3, settings=SETTINGS) as running:
        yield running


async def shell(bookie: BookieProcess, *words: str) -> tuple[int, str, str]:
    return await bookkeeper_command("shell", *words, "--conf", str(bookie.configuration))


async def write(bk: BookKeeper, *, close: bool = True) -> bookkeeper.LedgerWriter:
    writer = await bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3, password=PASSWORD)
    await asyncio.gather(*[writer.append(payload(writer.id, number)) for number in range(ENTRIES)])
    if close:
        await writer.close()
    return writer


def index_of(bookie: BookieProcess, name: str) -> Path:
    (path,) = bookie.directory.rglob(f"current/{name}/CURRENT")
    return path.parent


async def read(bk: BookKeeper, ledger_id: int) -> None:
    async with await bk.open_ledger(ledger_id, password=PASSWORD) as reader:
        entries = [entry.data async for entry in reader.entries()]
    assert entries == [payload(ledger_id, number) for number in range(ENTRIES)]


async def test_what_rots_in_a_stopped_bookie_is_found(cluster: LocalCluster) -> None:
    victim = cluster.bookies[0]
    async with bookkeeper.connect(cluster.uri, runtime=cluster.runtime) as bk:
        writer = await write(bk)
    code, _, err = await shell(victim, "localconsistencycheck")
    assert (code, err) == (
        1,
        f"error: {victim.id} is running: stop it first (a killed one is missed after zkTimeout)\n",
    )
    await cluster.terminate(victim)
    code, out, err = await shell(victim, "localconsistencycheck")
    assert (code, err) == (0, "")
    assert out == f"=== Check passed === (1 ledger, {ENTRIES} entries)\n"
    ((path, at),) = records(victim, writer.id, 150)
    flip(path, at + 60)
    code, out, err = await shell(victim, "localconsistencycheck", "--json")
    found = json.loads(out)
    assert (code, found["entries"], found["digests"]) == (1, ENTRIES, True)
    assert [(each["ledger"], each["entry"]) for each in found["damaged"]] == [(writer.id, 150)]
    assert (await shell(victim, "localconsistencycheck", "--ids-only"))[0] == 0  # a payload is no id
    flip(path, at + 60)
    flip(path, at + 15)
    code, out, err = await shell(victim, "localconsistencycheck", "--ids-only")
    assert (code, out.startswith("=== Check returned errors ===")) == (1, True)
    assert "entry 150" in err


async def test_a_location_index_is_built_anew(cluster: LocalCluster) -> None:
    victim = cluster.bookies[0]
    async with bookkeeper.connect(cluster.uri, runtime=cluster.runtime) as bk:
        writer = await write(bk)
        code, _, err = await shell(victim, "rebuild-db-ledger-locations-index")
        assert (code, "is running: stop it first" in err) == (1, True)
        await cluster.terminate(victim)
        path = index_of(victim, "locations")
        for table in path.glob("*.sst"):
            table.write_bytes(b"")
        code, out, err = await shell(victim, "rebuild-db-ledger-locations-index")
        assert (code, err) == (0, "")
        assert out == f"{path.parent}: the location index was built anew with {ENTRIES} entries\n"
        assert (path.parent / "locations.damaged").is_dir()
        assert (await shell(victim, "localconsistencycheck"))[0] == 0
        await cluster.restart(victim)
        await read(bk, writer.id)
        assert await bad_copies(bk) == []


async def test_a_ledgers_index_is_built_anew_and_fences_all(cluster: LocalCluster) -> None:
    victim = cluster.bookies[0]
    async with bookkeeper.connect(cluster.uri, runtime=cluster.runtime) as bk:
        closed, left_open = await write(bk), await write(bk, close=False)
        empty = await bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3, password=PASSWORD)
        await cluster.terminate(victim)
        path = index_of(victim, "ledgers")
        shutil.rmtree(path)
        code, out, err = await shell(victim, "rebuild-db-ledgers-index", "-v", "--force")
        assert (code, err) == (0, "")
        ids = sorted([closed.id, left_open.id, empty.id])
        assert out.splitlines() == [
            *(f"ledger {ledger_id}" for ledger_id in ids),
            f"{path.parent}: the ledgers index was built anew with 3 ledgers, all of them fenced",
        ]
        assert (await shell(victim, "check-db-ledgers-index"))[1] == "Ledgers index check is done: all is well\n"
        shown = json.loads((await shell(victim, "ledger", str(closed.id), "-m", "--json"))[1].splitlines()[0])
        assert (shown["fenced"], shown["limbo"]) == (True, False)
        await cluster.restart(victim)
        for writer in (left_open, empty):  # of the latter only the metadata told
            with pytest.raises(LedgerFencedError):
                await writer.append(b"to a bookie that has fenced it")
            async with await bk.recover_ledger(writer.id, password=PASSWORD):
                pass
        for ledger_id in (closed.id, left_open.id):
            await read(bk, ledger_id)
        assert await bad_copies(bk) == []


async def test_a_bookie_is_formatted_and_begins_anew(cluster: LocalCluster) -> None:
    victim = cluster.bookies[0]
    async with bookkeeper.connect(cluster.uri, runtime=cluster.runtime) as bk:
        writer = await write(bk)
    code, _, err = await shell(victim, "bookieformat", "-n", "-f")
    assert (code, "is running" in err) == (1, True)
    await cluster.terminate(victim)
    assert "not empty" in (await shell(victim, "initbookie"))[2]
    code, _, err = await shell(victim, "bookieformat", "-nonInteractive")
    assert (code, "only with --force" in err) == (1, True)
    assert logs(victim)
    code, _, err = await shell(victim, "bookieformat")  # nobody answers
    assert (code, err) == (1, "error: nothing was changed\n")
    code, out, err = await shell(victim, "bookieformat", "-nonInteractive", "-force")
    assert (code, out, err) == (0, f"Bookie {victim.id} is formatted\n", "")
    assert not logs(victim)
    assert f"cookie_delete {victim.id}" in (await shell(victim, "initbookie"))[2]
    code, out, _ = await shell(victim, "bookieformat", "-n", "-f", "-deleteCookie", "--json")
    assert (code, json.loads(out)) == (0, {"bookie": victim.id, "emptied": [], "cookie_deleted": True})
    code, out, _ = await shell(victim, "bookieformat", "-d")
    assert code == 1  # the cookie is gone
    code, out, _ = await shell(victim, "initbookie")
    assert (code, out) == (0, f"Bookie {victim.id} may be started for the first time\n")
    await cluster.restart(victim)
    async with bookkeeper.connect(cluster.uri, runtime=cluster.runtime) as bk:
        await read(bk, writer.id)


async def test_files_and_ledgers_of_a_stopped_bookie_are_listed(cluster: LocalCluster) -> None:
    victim = cluster.bookies[0]
    async with bookkeeper.connect(cluster.uri, runtime=cluster.runtime) as bk:
        kept, deleted = await write(bk), await write(bk)
        await cluster.terminate(victim)
        await bk.delete_ledger(deleted.id)
    (log,) = logs(victim)
    code, out, _ = await shell(victim, "listfilesondisc", "-txn", "-log", "--json")
    assert (code, json.loads(out)["EntryLog"]) == (0, [str(log)])
    listed = json.loads((await shell(victim, "listfilesondisc", "-idx", "--json"))[1])
    assert {Path(path).parent.name for path in listed["Index"]} == {"ledgers", "locations"}
    out = (await shell(victim, "listfilesondisc"))[1]
    assert f"--------- Printing the list of EntryLog Files ---------\n{log}\n" in out
    code, out, _ = await shell(victim, "activeledgers", "-l", str(int(log.stem, 16)))
    assert (code, out.splitlines()[0]) == (0, f"Active ledgers on entry log {int(log.stem, 16)} as follow:")
    assert [line.split()[0] for line in out.splitlines()[1:]] == [str(kept.id)]
    assert (await shell(victim, "activeledgers", "-l", "999"))[0] == 1
