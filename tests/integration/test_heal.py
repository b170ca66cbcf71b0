"""Real processes: lost copies come back by themselves. What operators do: `workflows`."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from bookkeeper.autorecovery.checker import digest_of
from bookkeeper.autorecovery.fragments import fragments_of
from bookkeeper.client.client import BookKeeper
from bookkeeper.client.reads.replicas import Copy, Replicas


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


async def test_the_demo_of_healing_loses_nothing(tmp_path: Path) -> None:
    source = tmp_path / "input.txt"
    source.write_text("".join(f"line {number}\n" for number in range(4800)))
    code, out, err = await bookkeeper_command("demo-heal", str(source))
    assert code == 0, out + err
    assert out.splitlines()[-1] == "lost = 0"
    assert out.count("14,400 copies, byte for byte") == 2
