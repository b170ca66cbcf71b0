"""`bookkeeper spark demo-pipeline`: files to Parquet through two streams, while all that can die is killed.

What happens, in order:

1. Four bookies start on the embedded metadata store, in a temporary folder; the input is cut into files.
2. A driver of its own process runs the pipeline (`pipeline.py`): ingest, windowed aggregation, Parquet.
3. A Python worker of Spark, a bookie and the driver with its Java are killed with SIGKILL, each when the sinks have
   published so many batches. Bookie and driver are started again.
4. Both streams and the Parquet files are read, and compared with what was computed from the input without Spark.
5. A chart is saved.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path

import bookkeeper

from ...errors import StreamNotFoundError
from ...runtime import Runtime
from ...streams.namespace import Namespace
from ..output import console, human_bytes, print_table
from .cluster import LocalCluster
from .demo import DemoFailure, default_input, lines
from .pipeline import COUNTS, LINES, OTHER, PipelineInput, WindowCount, archived, window_count

LOOK_SECONDS = 0.25
PATIENCE_SECONDS = 300.0
"""After which a pipeline that does not go on counts as stuck."""
MOST_STARTS = 10
"""Of the driver: a query may end with a bookie or a worker that was killed, and is begun again."""
KILL_WORKER_AT, KILL_BOOKIE_AT, KILL_DRIVER_AT = 2, 4, 7
"""Batches that the sinks have published by then."""


@dataclass
class PipelineRun:
    """What was seen, for the table and the chart."""

    began: float
    progress: list[tuple[float, int, int]] = field(default_factory=list)
    """Seconds, records in `lines`, records in `counts`."""
    events: list[tuple[float, str]] = field(default_factory=list)
    duplicates: int = 0
    lost: int = 0

    def compare(self, what: str, found: Counter[Hashable], expected: Counter[Hashable]) -> str:
        """Count what is there too often, and what is missing."""
        twice, missing = (found - expected).total(), (expected - found).total()
        self.duplicates += twice
        self.lost += missing
        return f"{found.total():,} {what}, {twice} too many, {missing} missing"


async def demo(runtime: Runtime, directory: Path, file: Path | None, chart: Path) -> None:
    """Run the whole. Raises `DemoFailure` when anything differs."""
    source = file if file is not None else default_input(directory)
    made = PipelineInput.of(lines(source), directory)
    if not made.count:
        raise DemoFailure(f"{source} is empty")
    console.print(f"input     {made.count:,} lines, {len(made.windows)} counts of windows to come")
    async with (
        LocalCluster(runtime, directory / "cluster", 4) as cluster,
        bookkeeper.connect(cluster.uri, runtime=runtime) as bk,
        bookkeeper.open_namespace("/pipeline", client=bk, create=True, runtime=runtime) as namespace,
    ):
        await namespace.create(LINES)
        await namespace.create(COUNTS)
        stage = _Stage(runtime, directory, cluster, namespace, PipelineRun(runtime.now()))
        try:
            await stage.play(made)
        finally:
            await stage.end_driver()
        rows = await stage.compare(made)
    run = stage.run
    _draw(run, made, source.name, chart)
    print_table(None, ["what", "result"], rows)
    console.print(f"chart     {chart}", markup=False, soft_wrap=True)
    console.print(f"duplicates = {run.duplicates}, lost = {run.lost}")
    if run.duplicates or run.lost:
        raise DemoFailure("the pipeline gave something else than its input")


@dataclass
class _Stage:
    """The cluster, the driver, and what is known of them."""

    runtime: Runtime
    directory: Path
    cluster: LocalCluster
    namespace: Namespace
    run: PipelineRun
    driver: Process | None = None
    starts: int = 0

    async def play(self, made: PipelineInput) -> None:
        """Run the pipeline to its end, with the kills on the way."""
        await self.start_driver()
        for batches, kill in (
            (KILL_WORKER_AT, self.kill_worker),
            (KILL_BOOKIE_AT, self.kill_bookie),
            (KILL_DRIVER_AT, self.kill_driver),
        ):
            await self.until(lambda batches=batches: self.has_published(batches))  # type: ignore[misc]
            await kill()
        await self.until(lambda: self.has_archived(made))

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait, show what happens meanwhile, and start a driver again that ends by itself."""
        moved = self.runtime.now()
        while not await condition():
            if await self.look():
                moved = self.runtime.now()
            if self.driver is not None and self.driver.returncode is not None:
                self.say("the driver ended by itself, and is started again")
                await self.start_driver()
            if self.runtime.now() - moved > PATIENCE_SECONDS:
                raise DemoFailure(f"for {PATIENCE_SECONDS:.0f} s nothing has moved; the driver said: {self.said()}")
            await asyncio.sleep(LOOK_SECONDS)

    # --- progress ---

    async def look(self) -> bool:
        """Whether there are more records than at the last look."""
        counts = [await _records(self.namespace, name) for name in (LINES, COUNTS)]
        if self.run.progress and [*self.run.progress[-1][1:]] == counts:
            return False
        at = self.runtime.now() - self.run.began
        self.run.progress.append((at, counts[0], counts[1]))
        console.print(f"{at:6.1f} s  {counts[0]:9,} lines, {counts[1]:5,} counts of windows", markup=False)
        return True

    async def has_published(self, batches: int) -> bool:
        markers = [await self.namespace.last_published(sink) for sink in ("input", COUNTS)]
        return sum(marker.epoch + 1 for marker in markers if marker is not None) >= batches

    async def has_archived(self, made: PipelineInput) -> bool:
        counted = self.run.progress[-1][2] if self.run.progress else 0
        if counted < len(made.windows):
            return False
        rows = await asyncio.to_thread(archived, self.directory)
        return rows.total() >= len(made.windows)

    def say(self, what: str) -> None:
        at = self.runtime.now() - self.run.began
        self.run.events.append((at, what))
        console.print(f"{at:6.1f} s  {what}", markup=False)

    # --- the driver's life ---

    @property
    def log(self) -> Path:
        return self.directory / "driver.txt"

    def said(self) -> str:
        """The last line of the driver."""
        spoken = self.log.read_text(errors="replace").strip().splitlines()
        return spoken[-1] if spoken else "nothing"

    async def start_driver(self) -> None:
        """It does not outlive this process. Raises `DemoFailure` if it was started too often."""
        self.starts += 1
        if self.starts > MOST_STARTS:
            raise DemoFailure(f"the driver was started {MOST_STARTS} times, and said: {self.said()}")
        uri = f"distributedlog-{self.cluster.uri}?namespace=/pipeline"
        words = ("spark", "demo-pipeline", str(self.directory), "--drive", uri)
        with self.log.open("ab") as log:
            self.driver = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bookkeeper.cli.local.child", str(os.getpid()), *words),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # its Java and its Python workers die with it
            )

    async def end_driver(self) -> None:
        if self.driver is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.driver.pid, signal.SIGKILL)
        await self.driver.wait()

    # --- kills ---

    async def kill_worker(self) -> None:
        """One of the processes in which Spark runs Python; waits until there is one."""
        assert self.driver is not None
        leader = self.driver.pid
        await self.until(lambda: _there(leader))
        with contextlib.suppress(ProcessLookupError):
            os.kill(max(_workers(leader)), signal.SIGKILL)
        self.say("a Python worker killed (SIGKILL)")

    async def kill_bookie(self) -> None:
        victim = self.cluster.bookies[0]
        await self.cluster.kill(victim)
        self.say(f"bookie {victim.id} killed (SIGKILL)")

    async def kill_driver(self) -> None:
        """The bookie comes back together with the driver."""
        await self.end_driver()
        self.say("the driver and its Java killed (SIGKILL)")
        await self.cluster.restart(self.cluster.bookies[0])
        await self.start_driver()

    # --- the end ---

    async def compare(self, made: PipelineInput) -> list[tuple[str, str]]:
        """Everything that was written with everything that should have been."""
        records = Counter[Hashable](await _contents(self.namespace, LINES))
        counted = Counter[Hashable](window_count(payload) for payload in await _contents(self.namespace, COUNTS))
        kept = Counter[Hashable](archived(self.directory))
        windows = Counter[Hashable](made.windows)
        size = human_bytes(sum(len(record) * times for record, times in made.records.items()))
        took = self.run.progress[-1][0]
        return [
            (f"stream {LINES}", self.run.compare(f"records ({size})", records, Counter[Hashable](made.records))),
            (f"stream {COUNTS}", self.run.compare("counts of windows", counted, windows)),
            ("Parquet", self.run.compare("rows", kept, windows)),
            *((f"after {at:.0f} s", what) for at, what in self.run.events),
            ("took", f"{took:.0f} s, {self.starts} starts of the driver"),
        ]


async def _records(namespace: Namespace, stream: str) -> int:
    """How many a stream has, by its segments."""
    try:
        return (await namespace.info(stream)).records
    except StreamNotFoundError:
        return 0


async def _contents(namespace: Namespace, stream: str) -> list[bytes]:
    async with namespace.open_reader(stream, tail=False) as reader:
        return [record.payload async for record in reader]


async def _there(leader: int) -> bool:
    return bool(_workers(leader))


def _workers(leader: int) -> list[int]:
    """The Python processes of Spark in a session."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                if os.getsid(int(path.name)) == leader and b"pyspark.daemon" in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
    return found


def _draw(run: PipelineRun, made: PipelineInput, name: str, target: Path) -> None:
    """Two panels: records over time with what was killed, and the windows that came of them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 5), layout="constrained")
    FigureCanvasAgg(figure)
    progress, windows = figure.subplots(1, 2)
    seconds = [at for at, _, _ in run.progress]
    whole = max(1, made.count), max(1, len(made.windows))
    for index, label in enumerate((LINES, COUNTS)):
        share = [100 * each[index + 1] / whole[index] for each in run.progress]
        progress.step(seconds, share, where="post", label=f"stream {label}")
    for at, what in run.events:
        progress.axvline(at, color="#d62828", linestyle=":")
        progress.annotate(what, (at, 4), rotation=90, fontsize=8, ha="right")
    progress.set(title="published", xlabel="seconds", ylabel="% of what must be there")
    progress.legend(loc="upper left")
    _draw_windows(windows, made)
    for panel in (progress, windows):
        panel.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{name}: {made.count:,} lines; duplicates = {run.duplicates}, lost = {run.lost}")
    figure.savefig(target, dpi=110)


def _draw_windows(panel: object, made: PipelineInput) -> None:
    by_kind: dict[str, dict[int, int]] = {}
    row: WindowCount
    for row in made.windows:
        by_kind.setdefault(row[0], {})[row[1]] = row[2]
    by_kind.pop(OTHER, None)
    for kind, found in sorted(by_kind.items()):
        starts = sorted(found)
        panel.plot(starts, [found[start] for start in starts], label=kind)  # type: ignore[attr-defined]
    panel.set(title="lines by first word in each window", xlabel="line")  # type: ignore[attr-defined]
    panel.legend()  # type: ignore[attr-defined]
