"""`bookkeeper demo-heal`: a cluster that makes up for what it loses, with nobody's help.

What happens, in order:

1. Five bookie processes with autorecovery start on the embedded metadata store, in a temporary folder.
2. The input, a line an entry, is written to ledgers with three copies. A writer begins one more, and goes on.
3. A bookie is killed with SIGKILL, and never comes back. The others make its copies again; that is shown as it happens.
4. Every copy of every entry is read from the bookie that must have it, and compared with the input.
5. Repair is switched off, another bookie is stopped, and all its files are deleted: a new disk. It starts again, takes
   its place by itself, and copies back what it must have from its peers. Then every copy is compared once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

import bookkeeper

from ...autorecovery.checker import digest_of
from ...autorecovery.fragments import fragments_of
from ...autorecovery.manual import ledgers_of
from ...client.client import BookKeeper
from ...client.reads.replicas import Copy, Replicas
from ...client.writer import LedgerWriter
from ...errors import DataUnknownError
from ...metadata import open_driver
from ...metadata.api import MetadataDriver
from ...runtime import Runtime
from ...types import BookieId
from ..latency import Histogram
from ..output import console, execute, fail, human_bytes, print_table
from .cluster import BookieProcess, LocalCluster
from .demo import DemoFailure, default_input, lines

LEDGERS = 24
LOOK_SECONDS = 0.2
PATIENCE_SECONDS = 180.0
"""After which something that should happen by itself counts as not happening."""

SETTINGS = {
    "autoRecoveryDaemonEnabled": "true",
    "dataIntegrityChecking": "true",
    "dataIntegrityStampMissingCookies": "true",
    "rwRereplicateBackoffMs": 200,
}


def demo_heal(
    file: Annotated[
        Path | None, typer.Argument(help="Input, a line an entry. Default: the sources of Python's standard library.")
    ] = None,
    keep: Annotated[Path | None, typer.Option("--dir", help="Work here and keep what was written.")] = None,
) -> None:
    """Kill a bookie for good, wipe another one, and watch the cluster become whole again by itself."""
    if file is not None and not file.is_file():
        fail(f"{file} is not a file")
    with contextlib.ExitStack() as stack:
        directory = keep
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bookkeeper-demo-")))
        chosen = directory
        execute(lambda runtime: _demo(runtime, chosen, file))


@dataclass
class _Writer:
    """Appends to a ledger of its own until it is stopped."""

    writer: LedgerWriter
    latency: Histogram = field(default_factory=Histogram)
    written: int = 0
    slowest: float = 0.0

    async def run(self, runtime: Runtime) -> None:
        while True:
            began = runtime.now()
            await self.writer.append(b"%d" % self.written)
            took = runtime.now() - began
            self.latency.record(took)
            self.slowest = max(self.slowest, took)
            self.written += 1
            await asyncio.sleep(0.002)


@dataclass
class _Stage:
    """The cluster, and what was written to it."""

    runtime: Runtime
    cluster: LocalCluster
    client: BookKeeper
    driver: MetadataDriver
    contents: dict[int, list[bytes]] = field(default_factory=dict)
    """Ledger -> its entries."""

    async def ingest(self, source: Path) -> None:
        """Spread the input over ledgers."""
        total = sum(1 for _ in lines(source))
        share = max(1, total // LEDGERS)
        rest = lines(source)
        while part := [*islice(rest, share)]:
            async with self.client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2) as writer:
                await asyncio.gather(*[await writer.append_soon(line) for line in part])
            self.contents[writer.id] = part

    async def naming(self, bookie: BookieId) -> int:
        """How many ledgers name a bookie."""
        return len([record async for record in ledgers_of(self.driver, (bookie,))])

    async def marked(self) -> int:
        return len([mark async for mark in self.driver.underreplication.list()])

    async def compare_all_copies(self) -> int:
        """Read every copy of every entry of the closed ledgers; returns how many. Raises `DemoFailure`."""
        copies = 0
        for ledger_id, expected in self.contents.items():
            metadata = (await self.driver.ledgers.read(ledger_id)).value
            if metadata.last_entry_id != len(expected) - 1:
                raise DemoFailure(f"ledger {ledger_id} ends at {metadata.last_entry_id}, not at {len(expected) - 1}")
            replicas = Replicas(self.client.context, metadata, digest_of(metadata))
            for fragment in fragments_of(metadata, metadata.last_entry_id):
                for index, bookie in enumerate(fragment.ensemble):
                    copies += await _compare(replicas, bookie, [*fragment.holds(index)], expected)
        return copies


async def _compare(replicas: Replicas, bookie: BookieId, entries: Sequence[int], expected: Sequence[bytes]) -> int:
    async for entry_id, reply in replicas.each(bookie, entries):
        found = replicas.examine(entry_id, reply)
        if not isinstance(found, Copy):
            raise DemoFailure(f"entry {entry_id} of ledger {replicas.metadata.ledger_id} on {bookie}: {found.detail}")
        if found.payload != expected[entry_id]:
            raise DemoFailure(f"entry {entry_id} of ledger {replicas.metadata.ledger_id} on {bookie} is another one")
    return len(entries)


@contextlib.asynccontextmanager
async def _stage(runtime: Runtime, directory: Path) -> AsyncIterator[_Stage]:
    async with LocalCluster(runtime, directory / "cluster", 5, settings=SETTINGS) as cluster:
        driver = open_driver(cluster.uri, runtime)
        async with bookkeeper.connect(runtime=runtime, driver=driver) as client:
            yield _Stage(runtime, cluster, client, driver)


async def _demo(runtime: Runtime, directory: Path, file: Path | None) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    source = file if file is not None else default_input(directory)
    async with _stage(runtime, directory) as stage:
        console.print(
            f"cluster   {', '.join(b.id for b in stage.cluster.bookies)} on {stage.cluster.uri}", markup=False
        )
        await stage.ingest(source)
        console.print(
            f"input     {human_bytes(source.stat().st_size)} in {len(stage.contents)} ledgers, three copies each"
        )
        live = _Writer(await stage.client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2))
        writing = asyncio.ensure_future(live.run(runtime))
        try:
            lost, healed = await _lose_one(stage, live)
        finally:
            writing.cancel()
            await asyncio.wait([writing])
        if not writing.cancelled() and (error := writing.exception()) is not None:
            raise error
        await live.writer.close()
        first = await stage.compare_all_copies()
        wiped, repaired, own = await _wipe_one(stage, lost)
        second = await stage.compare_all_copies()
    print_table(
        None,
        ["what", "result"],
        [
            ("lost for good", f"{lost.id}: its copies were made again in {healed:.1f} s"),
            ("compared then", f"{first:,} copies, byte for byte"),
            ("wiped", f"{wiped.id}: it had its {own:,} entries again after {repaired:.1f} s"),
            ("compared then", f"{second:,} copies, byte for byte"),
            ("a writer meanwhile", f"{live.written:,} appends, p99 {live.latency.quantile(0.99) * 1000:.1f} ms, "
             f"the slowest {live.slowest * 1000:.0f} ms"),
            ("lost", "0"),
        ],
    )  # fmt: skip
    console.print("lost = 0")


async def _lose_one(stage: _Stage, live: _Writer) -> tuple[BookieProcess, float]:
    """Kill a bookie, and wait until no ledger names it; returns it and how long that took."""
    victim = stage.cluster.bookies[0]
    await stage.cluster.kill(victim)
    began = stage.runtime.now()
    console.print(f"killed    {victim.id}, which {await stage.naming(victim.id)} ledgers name", markup=False)

    async def left() -> str:
        names, marks = await stage.naming(victim.id), await stage.marked()
        if not names and not marks:
            return ""
        return f"{names} ledgers name it, {marks} are marked"

    await _watch(stage.runtime, left, lambda: f"; {live.written:,} appends meanwhile")
    return victim, stage.runtime.now() - began


async def _wipe_one(stage: _Stage, lost: BookieProcess) -> tuple[BookieProcess, float, int]:
    """Stop another bookie and take its files away; wait until it has its entries again. Returns it, how long that
    took, and its entries."""
    victim = next(bookie for bookie in stage.cluster.bookies if bookie is not lost)
    await stage.driver.underreplication.disable()  # as for any maintenance: it comes back
    await stage.cluster.terminate(victim)
    for name in ("journal", "ledgers"):
        shutil.rmtree(victim.directory / name)
    console.print(f"wiped     {victim.id}: journal and ledgers deleted", markup=False)
    began = stage.runtime.now()
    await stage.cluster.restart(victim)
    expected = {}
    for ledger_id in stage.contents:
        metadata = (await stage.driver.ledgers.read(ledger_id)).value
        expected[ledger_id] = sum(
            len([*fragment.holds(index)])
            for fragment in fragments_of(metadata, metadata.last_entry_id)
            for index, bookie in enumerate(fragment.ensemble)
            if bookie == victim.id
        )

    async def left() -> str:
        missing = 0
        for ledger_id, count in expected.items():
            try:
                has = (await stage.client.list_entries_of(ledger_id, victim.id)).count if count else 0
            except DataUnknownError:  # it denies nothing until it knows what it has lost
                has = 0
            missing += count - has
        return f"{missing:,} entries are missing" if missing else ""

    await _watch(stage.runtime, left)
    took = stage.runtime.now() - began
    await stage.driver.underreplication.enable()
    return victim, took, sum(expected.values())


async def _watch(runtime: Runtime, left: Callable[[], Awaitable[str]], beside: Callable[[], str] = str) -> None:
    """Print what is left, whenever that changes, until nothing is, and what goes on beside.

    Raises `DemoFailure` if that takes too long.
    """
    began = runtime.now()
    said = ""
    while True:
        text = await left()
        if text != said and text:
            console.print(f"{runtime.now() - began:6.1f} s  {text}{beside()}", markup=False)
            said = text
        if not text:
            console.print(f"{runtime.now() - began:6.1f} s  whole again", markup=False)
            return
        if runtime.now() - began > PATIENCE_SECONDS:
            raise DemoFailure(f"after {PATIENCE_SECONDS:.0f} s it is not whole again: {text}")
        await asyncio.sleep(LOOK_SECONDS)
