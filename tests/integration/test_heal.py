"""Real processes: lost copies come back by themselves (spec autorecovery-admin §11, W4), and by hand (W11)."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import bookkeeper
from bookkeeper.autorecovery.checker import digest_of
from bookkeeper.autorecovery.fragments import bookies_of, fragments_of
from bookkeeper.cli.local.cluster import LocalCluster
from bookkeeper.client.client import BookKeeper
from bookkeeper.client.reads.replicas import Copy, Replicas
from bookkeeper.runtime.real import RealRuntime

from .processes import PASSWORD


async def bookkeeper_command(*words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bookkeeper", *words, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def bad_copies(bk: BookKeeper, ledger_id: int) -> int:
    """How many copies are not where the ledger's record says."""
    metadata = (await bk.get_versioned_metadata(ledger_id)).value
    replicas = Replicas(bk.context, metadata, digest_of(metadata))
    bad = 0
    for fragment in fragments_of(metadata, metadata.last_entry_id):
        for index, bookie in enumerate(fragment.ensemble):
            async for entry_id, reply in replicas.each(bookie, [*fragment.holds(index)]):
                bad += not isinstance(replicas.examine(entry_id, reply), Copy)
    return bad


async def write(bk: BookKeeper, count: int) -> int:
    """A closed ledger, striped, so that bookies hold different entries."""
    writer = await bk.create_ledger(ensemble_size=4, write_quorum=3, ack_quorum=2, password=PASSWORD)
    await asyncio.gather(*[await writer.append_soon(b"%d" % number * 50) for number in range(count)])
    await writer.close()
    return writer.id


async def test_the_demo_of_healing_loses_nothing(tmp_path: Path) -> None:
    source = tmp_path / "input.txt"
    source.write_text("".join(f"line {number}\n" for number in range(4800)))
    code, out, err = await bookkeeper_command("demo-heal", str(source))
    assert code == 0, out + err
    assert out.splitlines()[-1] == "lost = 0"
    assert out.count("14,400 copies, byte for byte") == 2


async def test_a_running_bookie_is_drained_by_hand(tmp_path: Path) -> None:
    """`recover` of a bookie that runs: first looked at, then tried out, then done."""
    async with (
        LocalCluster(RealRuntime(), tmp_path, 5) as cluster,
        bookkeeper.connect(cluster.uri, runtime=cluster.runtime) as bk,
    ):
        ledgers = [await write(bk, 300) for _ in range(3)]
        source = cluster.bookies[0].id
        at = ("-u", cluster.uri)

        async def naming() -> list[int]:
            return [number for number in ledgers if source in bookies_of(await bk.get_ledger_metadata(number))]

        before = await naming()
        code, out, _ = await bookkeeper_command("shell", "recover", source, "-q", "--json", *at)
        assert (code, json.loads(out)) == (0, {"ledgers": before, "of": {source: len(before)}})
        code, out, _ = await bookkeeper_command("shell", "recover", source, "-dr", *at)
        assert code == 0
        assert out.count("Would recover ledger") == len(before)
        assert await naming() == before
        code, out, err = await bookkeeper_command("shell", "recover", source, "-f", *at)
        assert code == 0, err
        assert out.count("Recovered ledger") == len(before)
        assert not await naming()
        for number in ledgers:
            assert await bad_copies(bk, number) == 0


async def test_a_bookie_is_taken_out_of_service(tmp_path: Path) -> None:
    """Stopped for good, `decommissionbookie` waits for a daemon that runs beside the bookies, and takes its cookie."""
    async with (
        LocalCluster(RealRuntime(), tmp_path, 5) as cluster,
        bookkeeper.connect(cluster.uri, runtime=cluster.runtime) as bk,
    ):
        ledgers = [await write(bk, 300) for _ in range(3)]
        daemon = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bookkeeper", "autorecovery", "-c", str(cluster.bookies[4].configuration)),
            stdout=PIPE,
        )
        try:
            assert daemon.stdout is not None
            assert (await daemon.stdout.readline()).startswith(b"autorecovery runs as")
            while "No auditor" in (await bookkeeper_command("shell", "whoisauditor", "-u", cluster.uri))[1]:
                pass
            gone = cluster.bookies[0]
            await cluster.terminate(gone)
            words = ("decommissionbookie", "-bookieid", gone.id, "-u", cluster.uri)
            code, out, err = await bookkeeper_command("shell", *words)
            assert code == 0, err
            assert "are properly replicated" in out
            assert "is deleted successfully" in out
        finally:
            daemon.terminate()
            await daemon.wait()
        for number in ledgers:
            assert gone.id not in bookies_of(await bk.get_ledger_metadata(number))
            assert await bad_copies(bk, number) == 0
