"""`bookkeeper demo`: real data through a real cluster, with a bookie and the writer killed on the way.

What happens, in order:

1. Four bookie processes start on the embedded metadata store, in a temporary folder.
2. A writer process appends the input, a line an entry, to a ledger with three copies of which two must acknowledge.
   It reports on its stdout how many entries are acknowledged.
3. Half-way one bookie of the ledger is killed with SIGKILL; the writer replaces it and goes on.
4. Near the end the writer itself is killed with SIGKILL.
5. This process opens the ledger, which recovers it, and compares every entry with the input. At least everything
   that was acknowledged must be there.
6. The dead bookie is started again and replays its journal; another bookie of the ledger is stopped, and everything is
   read and compared once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

import bookkeeper

from ...client.client import BookKeeper
from ...client.reader import LedgerReader
from ...errors import BookKeeperError
from ...runtime import Runtime
from ..latency import Histogram, sparkline
from ..output import console, execute, fail, human_bytes, notes, print_table
from ..session import open_reader
from .cluster import BookieProcess, LocalCluster

DEFAULT_INPUT_BYTES = 32_000_000
BOOKIE_DIES_AT = 0.5
WRITER_DIES_AT = 0.93
WINDOW = 4000
REPORT_SECONDS = 0.05
PASSWORD = b"demo"


class DemoFailure(BookKeeperError):
    """Something was lost or changed."""


@dataclass
class DemoRun:
    """What was seen, for the table and the chart."""

    acknowledged: list[tuple[float, int]] = field(default_factory=list)
    """(seconds since the start, entries acknowledged so far)."""
    events: list[tuple[float, str]] = field(default_factory=list)
    p99_ms: float = 0.0


def demo(
    file: Annotated[
        Path | None, typer.Argument(help="Input, a line an entry. Default: the sources of Python's standard library.")
    ] = None,
    keep: Annotated[Path | None, typer.Option("--dir", help="Work here and keep what was written.")] = None,
    corrupt: Annotated[bool, typer.Option("--corrupt", hidden=True, help="Damage one entry on every replica.")] = False,
    write_to: Annotated[str | None, typer.Option("--write-to", hidden=True, help="Be the writer process.")] = None,
) -> None:
    """Ingest real data, kill a bookie and the writer on the way, and prove that nothing was lost."""
    if file is not None and not file.is_file():
        fail(f"{file} is not a file")
    if write_to is not None:
        assert file is not None
        source, uri = file, write_to
        execute(lambda runtime: _write(runtime, uri, source))
        return
    if keep is not None:
        directory = keep
        execute(lambda runtime: _demo(runtime, directory, file, corrupt))
    else:
        with tempfile.TemporaryDirectory(prefix="bookkeeper-demo-") as temporary:
            execute(lambda runtime: _demo(runtime, Path(temporary), file, corrupt))


def lines(path: Path) -> Iterator[bytes]:
    """The input's entries: its lines, newlines included, so that their concatenation is the input."""
    with path.open("rb") as stream:
        yield from stream


def default_input(directory: Path) -> Path:
    """The standard library's sources, one after the other, until there is enough."""
    target = directory / "input.txt"
    size = 0
    roots = [Path(sysconfig.get_paths()["stdlib"]), Path(sysconfig.get_paths()["purelib"])]
    with target.open("wb") as out:
        while size < DEFAULT_INPUT_BYTES:
            before = size
            for source in sorted(path for root in roots for path in root.rglob("*.py")):
                with contextlib.suppress(OSError):
                    size += out.write(source.read_bytes())
                if size >= DEFAULT_INPUT_BYTES:
                    break
            if size == before:
                raise BookKeeperError("Python's standard library has no sources here: say FILE=/path/to/a/large/file")
    return target


# --- the writer process --------------------------------------------------------------------------


async def _write(runtime: Runtime, uri: str, source: Path) -> None:
    """Append the input; report on stdout `ledger ID`, then `acked N P99_MS` now and then."""
    latency = Histogram()
    async with bookkeeper.connect(uri, runtime=runtime) as bk:
        writer = await bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2, password=PASSWORD)
        print(f"ledger {writer.id}", flush=True)
        reported = runtime.now()
        under_way: list[tuple[asyncio.Future[int], float]] = []
        for number, line in enumerate(lines(source)):
            future = await writer.append_soon(line)
            if number % 100:
                continue
            under_way.append((future, runtime.now()))
            if len(under_way) * 100 > WINDOW:
                oldest, started = under_way.pop(0)
                await oldest
                now = runtime.now()
                latency.record(now - started)
                if now - reported > REPORT_SECONDS:
                    reported = now
                    print(f"acked {writer.last_add_confirmed + 1} {latency.quantile(0.99) * 1000:.3f}", flush=True)
        await writer.flush()
        print(f"acked {writer.last_add_confirmed + 1} {latency.quantile(0.99) * 1000:.3f}", flush=True)
        await asyncio.Event().wait()  # the ledger stays open: this process is meant to be killed


# --- the conductor -------------------------------------------------------------------------------


async def _demo(runtime: Runtime, directory: Path, file: Path | None, corrupt: bool) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    source = file if file is not None else default_input(directory)
    total = sum(1 for _ in lines(source))
    if total < 100:
        fail(f"{source} has {total} lines: the demo needs at least 100")
    console.print(f"input     {human_bytes(source.stat().st_size)} in {total:,} lines")
    run = DemoRun()
    async with LocalCluster(runtime, directory / "cluster", 4) as cluster:
        console.print(f"cluster   {', '.join(b.id for b in cluster.bookies)} on {cluster.uri}", markup=False)
        ledger_id, victim = await _ingest(runtime, cluster, source, total, run)
        acknowledged = run.acknowledged[-1][1]
        if corrupt:
            await _corrupt_everywhere(cluster, source)
        started = runtime.now()
        first_pass = await _verify(runtime, cluster.uri, ledger_id, source, acknowledged)
        run.events.append((started - started, f"recovered and compared {first_pass:,} entries"))
        read_seconds = runtime.now() - started
        if not victim.running:
            await cluster.restart(victim)
        replayed = await _held_by(runtime, cluster.uri, ledger_id, victim)
        helper = await _other_member(runtime, cluster, ledger_id, victim)
        await cluster.kill(helper)
        second_pass = await _verify(runtime, cluster.uri, ledger_id, source, acknowledged)
    if first_pass != second_pass:
        raise DemoFailure(f"the ledger had {first_pass} entries, and {second_pass} after the restart")
    _show(run, source, total, acknowledged, first_pass, read_seconds, victim, replayed, helper)


async def _ingest(
    runtime: Runtime, cluster: LocalCluster, source: Path, total: int, run: DemoRun
) -> tuple[int, BookieProcess]:
    """DemoRun the writer process; kill a bookie and then the writer. Returns the ledger and the killed bookie."""
    writer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bookkeeper", "demo", str(source), "--write-to", cluster.uri),
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert writer.stdout is not None
    ledger_id = -1
    victim: BookieProcess | None = None
    started = runtime.now()
    try:
        async for line in writer.stdout:
            now = runtime.now() - started
            word, *values = line.decode().split()
            if word == "ledger":
                ledger_id = int(values[0])
                continue
            acked = int(values[0])
            run.acknowledged.append((now, acked))
            run.p99_ms = float(values[1])
            if victim is None and acked >= total * BOOKIE_DIES_AT:
                victim = await _member(runtime, cluster, ledger_id)
                await cluster.kill(victim)
                run.events.append((now, f"bookie {victim.id} killed (SIGKILL)"))
            if acked >= total * WRITER_DIES_AT and victim is not None:
                os.kill(writer.pid, signal.SIGKILL)
                run.events.append((now, "writer killed (SIGKILL)"))
                break
    finally:
        if writer.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                writer.kill()
        await writer.wait()
    if victim is None or ledger_id < 0 or len(run.events) < 2:
        raise DemoFailure("the writer ended before its time: see the messages above")
    return ledger_id, victim


async def _member(runtime: Runtime, cluster: LocalCluster, ledger_id: int) -> BookieProcess:
    """A bookie of the ledger's current ensemble."""
    async with bookkeeper.connect(cluster.uri, runtime=runtime) as bk:
        members = (await bk.get_ledger_metadata(ledger_id)).last_ensemble[1]
    return next(bookie for bookie in cluster.bookies if bookie.id == members[0])


async def _other_member(
    runtime: Runtime, cluster: LocalCluster, ledger_id: int, victim: BookieProcess
) -> BookieProcess:
    """A bookie that shared the ledger's first fragment with the victim."""
    async with bookkeeper.connect(cluster.uri, runtime=runtime) as bk:
        members = (await bk.get_ledger_metadata(ledger_id)).ensemble_at(0)
    return next(bookie for bookie in cluster.bookies if bookie.id in members and bookie is not victim)


async def _held_by(runtime: Runtime, uri: str, ledger_id: int, bookie: BookieProcess) -> int:
    """How many entries of the ledger a bookie has."""
    async with bookkeeper.connect(uri, runtime=runtime) as bk:
        return (await bk.list_entries_of(ledger_id, bookie.id)).count


async def _verify(runtime: Runtime, uri: str, ledger_id: int, source: Path, acknowledged: int) -> int:
    """Read the ledger and compare it with the input; returns the number of entries.

    Raises `DemoFailure` when an acknowledged entry is missing or any entry differs.
    """
    count = 0
    async with _open(runtime, uri, ledger_id) as (_, reader):
        expected = lines(source)
        async for entry in reader.entries():
            if entry.data != next(expected, None):
                raise DemoFailure(f"entry {entry.entry_id} of ledger {ledger_id} differs from line {count + 1}")
            count += 1
    if count < acknowledged:
        raise DemoFailure(f"{acknowledged - count} of {acknowledged} acknowledged entries are lost")
    return count


@contextlib.asynccontextmanager
async def _open(runtime: Runtime, uri: str, ledger_id: int) -> AsyncIterator[tuple[BookKeeper, LedgerReader]]:
    async with (
        bookkeeper.connect(uri, runtime=runtime) as bk,
        await open_reader(bk, ledger_id, PASSWORD, recover=True) as reader,
    ):
        yield bk, reader


async def _corrupt_everywhere(cluster: LocalCluster, source: Path) -> None:
    """Flip a bit of one entry in every replica's entry log, to see that it is noticed."""
    target = next(line for line in lines(source) if len(line) > 30)
    running = [bookie for bookie in cluster.bookies if bookie.running]
    for bookie in running:
        await cluster.terminate(bookie)  # a clean stop flushes everything to the entry logs
    damaged = 0
    for bookie in cluster.bookies:
        for log in bookie.directory.glob("ledgers/current/*.log"):
            data = bytearray(log.read_bytes())
            for match in re.finditer(re.escape(target), data):
                data[match.start()] ^= 1
                damaged += 1
            log.write_bytes(data)
    notes.print(f"damaged {damaged} copies of {target[:40]!r}", markup=False)
    for bookie in running:
        await cluster.restart(bookie)


def _show(
    run: DemoRun,
    source: Path,
    total: int,
    acknowledged: int,
    recovered: int,
    read_seconds: float,
    victim: BookieProcess,
    replayed: int,
    helper: BookieProcess,
) -> None:
    seconds = run.acknowledged[-1][0]
    data = sum(len(line) for _, line in zip(range(recovered), lines(source), strict=False))
    print_table(
        None,
        ["what", "result"],
        [
            ("appended and acknowledged", f"{acknowledged:,} of {total:,} entries"),
            ("rate", f"{acknowledged / seconds:,.0f} entries/s, p99 {run.p99_ms:.1f} ms"),
            *((f"at {when:.1f} s", what) for when, what in run.events[:2]),
            ("recovered by another process", f"{recovered:,} entries, {human_bytes(data)}, in {read_seconds:.1f} s"),
            ("back from its journal", f"{victim.id}: {replayed:,} entries"),
            ("read again", f"with {victim.id} serving and {helper.id} killed"),
            ("compared with the input", "byte for byte"),
            ("lost", "0"),
        ],
    )
    for row in _chart(run):
        console.print(row, markup=False)
    console.print("lost = 0")


def _chart(run: DemoRun) -> list[str]:
    """Acknowledged entries a second over time; the kills are marked below."""
    width = max(20, min(72, console.width - 14))
    end = run.acknowledged[-1][0]
    step = end / width
    rates = []
    samples = iter(run.acknowledged)
    previous = 0
    acked = 0
    upcoming = next(samples, None)
    for column in range(width):
        while upcoming is not None and upcoming[0] <= (column + 1) * step:
            acked = upcoming[1]
            upcoming = next(samples, None)
        rates.append((acked - previous) / step)
        previous = acked
    marks = {min(width - 1, int(when / step)): mark for (when, _), mark in zip(run.events[:2], "BW", strict=False)}
    return [
        "",
        "acknowledged entries a second (B: bookie killed, W: writer killed)",
        *sparkline(rates, mark=marks),
        f"{'':11} 0 s{f'{end:.1f} s':>{width - 3}}",
    ]
