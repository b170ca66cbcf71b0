"""`bookkeeper spark demo`: real data into a ledger, and Spark on it, with a bookie killed while it reads.

What happens, in order:

1. Four bookies start on the embedded metadata store, in a temporary folder; the input is appended, a line an entry.
2. Spark reads the ledger and compares rows, bytes and a checksum over all lines with the input.
3. An aggregation over the lines counts words. While it runs, a bookie of the ledger is killed with SIGKILL.
4. The ledger is exported to Parquet, and Spark gets the same counts from there.
5. The bookie is started again, and a scrub reads every copy of every entry.
6. A chart is saved.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import bookkeeper
import bookkeeper.spark

from ...client.client import BookKeeper
from ...protocol.messages import ReadRequest, Status
from ...runtime import Runtime
from ...spark.launch import spark_session
from ...types import BookieId
from ..output import console, human_bytes, print_table
from .cluster import BookieProcess, LocalCluster
from .demo import DemoFailure, default_input, lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

PASSWORD = "demo"
WORDS = 15
KILL_AFTER_SECONDS = 0.3
APPEND_WINDOW = 4000

CHECKSUM = "sum(cast(crc32(payload) as decimal(38, 0)) * (entry_id + 1))"
"""Depends on every line and on its place."""


@dataclass
class DemoInput:
    """What is appended, and what must come back."""

    path: Path
    count: int = 0
    bytes: int = 0
    checksum: int = 0

    def __post_init__(self) -> None:
        for line in lines(self.path):
            self.count += 1
            self.bytes += len(line)
            self.checksum += zlib.crc32(line) * self.count


@dataclass
class SparkDemoRun:
    """What was seen, for the table and the chart."""

    steps: list[tuple[str, float, str]] = field(default_factory=list)
    """What, seconds, result."""
    words: list[tuple[str, int]] = field(default_factory=list)
    lengths: list[tuple[int, int]] = field(default_factory=list)


async def demo(runtime: Runtime, directory: Path, file: Path | None, chart: Path, master: str | None) -> None:
    """Run the whole. Raises `DemoFailure` when anything differs."""
    directory.mkdir(parents=True, exist_ok=True)
    source = DemoInput(file if file is not None else default_input(directory))
    if not source.count:
        raise DemoFailure(f"{source.path} is empty")
    console.print(f"input     {human_bytes(source.bytes)} in {source.count:,} lines")
    run = SparkDemoRun()
    async with LocalCluster(runtime, directory / "cluster", 4) as cluster:
        console.print(f"cluster   {', '.join(b.id for b in cluster.bookies)} on {cluster.uri}", markup=False)
        started = runtime.now()
        ledger_id, members = await _ingest(runtime, cluster, source)
        _done(
            run, runtime, started, "appended, three copies", f"{source.count:,} entries in ledger {ledger_id}", source
        )
        started = runtime.now()
        with spark_session("bookkeeper demo", master) as spark:
            _done(run, runtime, started, "Spark started", f"version {spark.version} on {spark.sparkContext.master}")
            ledger = bookkeeper.spark.read_ledgers(spark, cluster.uri, ledger_id, password=PASSWORD, minPartitions=8)
            steps = _OnSpark(runtime, spark, cluster, source, run)
            await _with_spark(steps, ledger, ledger_id, members[0], directory / "parquet")
    _draw(run, source, chart)
    print_table(
        None, ["what", "seconds", "result"], [(what, f"{took:.1f}", result) for what, took, result in run.steps]
    )
    console.print(f"chart     {chart}", markup=False, soft_wrap=True)
    console.print("lost = 0")


async def _ingest(runtime: Runtime, cluster: LocalCluster, source: DemoInput) -> tuple[int, list[BookieProcess]]:
    """Append all lines. Returns the ledger, and its bookies, each of which has every entry."""
    async with bookkeeper.connect(cluster.uri, runtime=runtime) as bk:
        writer = await bk.create_ledger(
            ensemble_size=3, write_quorum=3, ack_quorum=2, password=PASSWORD.encode(), custom_metadata={"app": b"demo"}
        )
        for number, line in enumerate(lines(source.path)):
            future = await writer.append_soon(line)
            if number % APPEND_WINDOW == 0:
                await future
        await writer.close(drain=True)
        names = writer.metadata.last_ensemble[1]
        for name in names:
            await _has_last(bk, writer.id, source.count - 1, name)
    return writer.id, [bookie for name in names for bookie in cluster.bookies if bookie.id == name]


async def _has_last(bk: BookKeeper, ledger_id: int, entry_id: int, bookie: BookieId) -> None:
    """Wait until a bookie has the last entry, and so all: two copies acknowledge an entry, the third follows."""
    for _ in range(300):
        answer = await bk.context.bookies.request(bookie, ReadRequest(ledger_id, entry_id))
        if answer.status == Status.EOK:
            return
        await asyncio.sleep(0.2)
    raise DemoFailure(f"{bookie} does not get its copies")


class _OnSpark:
    """What Spark does with the ledger, a step a method."""

    def __init__(
        self, runtime: Runtime, spark: SparkSession, cluster: LocalCluster, source: DemoInput, run: SparkDemoRun
    ) -> None:
        self._runtime = runtime
        self._spark = spark
        self._cluster = cluster
        self._source = source
        self._run = run

    async def read(self, ledger: DataFrame) -> None:
        """Rows, bytes and checksum are those of the input."""
        started = self._runtime.now()
        _compare(await _aside(_totals, ledger), self._source)
        self._done(started, "read by Spark", "rows, bytes and checksum as appended", rate=True)

    async def count_words(self, ledger: DataFrame, victim: BookieProcess) -> None:
        """While Spark counts, a bookie of the ledger is killed."""
        started = self._runtime.now()
        counting = asyncio.ensure_future(_aside(_words, ledger))
        await asyncio.sleep(KILL_AFTER_SECONDS)
        await self._cluster.kill(victim)
        self._run.words = await counting
        most = ", ".join(f"{word} {count:,}" for word, count in self._run.words[:3])
        self._done(started, "words counted, a bookie killed", f"{victim.id} by SIGKILL; {most}", rate=True)

    async def export(self, ledger_id: int, parquet: Path) -> None:
        """The Parquet files give the same rows and counts."""
        started = self._runtime.now()
        spark, uri, output = self._spark, self._cluster.uri, str(parquet)
        report = await _aside(
            lambda: bookkeeper.spark.export(spark, uri, ledger_id, output, password=PASSWORD, targetPartitionBytes="8m")
        )
        files = f"{report.files} Parquet files, {human_bytes(report.file_bytes)}, read back"
        self._done(started, "exported, one bookie down", files, rate=True)
        exported = self._spark.read.parquet(str(parquet))
        _compare(await _aside(_totals, exported), self._source)
        if await _aside(_words, exported) != self._run.words:
            raise DemoFailure("the Parquet files give other word counts than the ledger")
        self._run.lengths = await _aside(_lengths, exported)

    async def restart(self, victim: BookieProcess) -> None:
        """The bookie that was killed starts again."""
        started = self._runtime.now()
        await self._cluster.restart(victim)
        self._done(started, "bookie restarted", f"{victim.id} replays its journal")

    async def scrub(self) -> None:
        """Every copy of every entry is there and good."""
        started = self._runtime.now()
        scrubbed = await _aside(lambda: bookkeeper.spark.scrub(self._spark, self._cluster.uri))
        if not scrubbed.clean:
            raise DemoFailure(f"the scrub found {scrubbed.statuses}: {scrubbed.problems[0]}")
        self._done(started, "scrubbed", f"{scrubbed.copies:,} copies, clean")

    def _done(self, started: float, what: str, result: str, *, rate: bool = False) -> None:
        _done(self._run, self._runtime, started, what, result, self._source if rate else None)


async def _with_spark(steps: _OnSpark, ledger: DataFrame, ledger_id: int, victim: BookieProcess, parquet: Path) -> None:
    await steps.read(ledger)
    await steps.count_words(ledger, victim)
    await steps.export(ledger_id, parquet)
    await steps.restart(victim)
    await steps.scrub()


async def _aside(call: Callable[..., T], *arguments: Any) -> T:
    """Run something that blocks while the cluster goes on."""
    return await asyncio.to_thread(call, *arguments)


def _done(
    run: SparkDemoRun, runtime: Runtime, started: float, what: str, result: str, source: DemoInput | None = None
) -> None:
    seconds = runtime.now() - started
    if source is not None:
        result += f"; {source.count / seconds:,.0f} lines/s"
    run.steps.append((what, seconds, result))
    console.print(f"{seconds:6.1f} s  {what}: {result}", markup=False, soft_wrap=True)


def _totals(frame: DataFrame) -> tuple[int, int, int]:
    count, size, checksum = frame.selectExpr("count(*)", "sum(length(payload))", CHECKSUM).collect()[0]
    return count, size, int(checksum)


def _compare(totals: tuple[int, int, int], source: DemoInput) -> None:
    expected = (source.count, source.bytes, source.checksum)
    if totals != expected:
        raise DemoFailure(f"rows, bytes and checksum are {totals}, and were {expected}")


def _words(frame: DataFrame) -> list[tuple[str, int]]:
    """The most frequent words of at least two letters."""
    words = frame.selectExpr("explode(regexp_extract_all(cast(payload as string), '[A-Za-z_]{2,}', 0)) as word")
    top = words.groupBy("word").count().orderBy("count", "word", ascending=[False, True]).limit(WORDS)
    return [(row["word"], row["count"]) for row in top.collect()]


def _lengths(frame: DataFrame) -> list[tuple[int, int]]:
    """How many lines are that long."""
    rows = frame.selectExpr("least(length(payload), 160) as length").groupBy("length").count().collect()
    return sorted((row["length"], row["count"]) for row in rows)


def _draw(run: SparkDemoRun, source: DemoInput, target: Path) -> None:
    """Three panels: words, lengths of lines, and how long each step took."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(13, 5), layout="constrained")
    FigureCanvasAgg(figure)
    words, lengths, steps = figure.subplots(1, 3, width_ratios=(1, 1, 1.2))
    words.barh([word for word, _ in reversed(run.words)], [count for _, count in reversed(run.words)], color="#2a6f97")
    words.xaxis.set_major_locator(MaxNLocator(4))
    words.set_title("most frequent words")
    lengths.bar([size for size, _ in run.lengths], [count for _, count in run.lengths], width=1.0, color="#61a5c2")
    lengths.set_title("lines by length (bytes)")
    names = [what.partition(",")[0] for what, _, _ in reversed(run.steps)]
    bars = steps.barh(names, [seconds for _, seconds, _ in reversed(run.steps)], color="#468faf")
    steps.bar_label(bars, fmt="%.1f s", padding=3)
    steps.margins(x=0.15)
    steps.set_title("seconds by step")
    for panel in (words, lengths, steps):
        panel.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"{source.path.name}: {source.count:,} lines, {human_bytes(source.bytes)}, read from a ledger by Spark"
    )
    figure.savefig(target, dpi=110)
