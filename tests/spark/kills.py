"""Two streaming queries on one stream, whose driver, Python workers and bookies are killed in turn: `make spark-kills`.

The campaign appends numbered records to the stream `in`. One query copies them to the stream `copy`, the other counts
them by key and window of event time into the stream `counts`. Both run in a driver of its own, with checkpoints. Kills
are timed by what the sinks have published or begun to stage, not by the clock; whoever was killed is started again. At
the end every record is in `copy` once, and was counted once, and nothing that was staged is left. With `--zookeeper`
the metadata store is a ZooKeeper server, which is killed and started again in its turn: all lose their connections.

    python -m tests.spark.kills --rounds 50
    python -m tests.spark.kills --rounds 50 --zookeeper
    python -m tests.spark.kills drive URI DIRECTORY            the driver, as its own process
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import count, cycle
from pathlib import Path

from pyspark.sql.functions import window

import bookkeeper
from bookkeeper.cli.local.cluster import LocalCluster
from bookkeeper.metadata.zookeeper.local_server import LocalZooKeeper
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.spark.launch import spark_session
from bookkeeper.streams.namespace import Namespace
from bookkeeper.streams.writer import StreamWriter

SINKS = ("copied", "counted")
KEYS = 7
WINDOW_SECONDS = 10
RECORDS_A_SECOND = 50
"""Of event time."""
APPENDED_AT_ONCE = 10
MOST_AHEAD = 4000
"""Records that are appended before they are copied: what is left to do at the end is the same on a slow machine."""
PAUSE_SECONDS = 0.05
PATIENCE_SECONDS = 180.0
"""For what must happen."""
LAST_KEY = "end"
"""Of the record that closes all windows."""


# --- the driver ---


def drive(uri: str, directory: Path) -> None:
    """Both queries, until it is killed or one of them ends."""
    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    with spark_session("kills", "local[2,8]", settings) as spark:
        source = (
            spark.readStream.format("bookkeeper")
            .options(uri=uri, stream="in", startingOffsets="earliest", maxRecordsPerTrigger=2000)
            .load()
            .selectExpr("cast(payload as string) as text")
        )
        copied = source.selectExpr("text as payload").repartition(2)
        numbered = source.selectExpr("split(text, ' ') as parts").selectExpr(
            "parts[1] as key", "timestamp_seconds(cast(parts[2] as bigint)) as at"
        )
        windows = numbered.withWatermark("at", "1 second").groupBy("key", window("at", f"{WINDOW_SECONDS} seconds"))
        counted = windows.count().selectExpr("concat_ws(' ', key, unix_timestamp(window.start), count) as payload")
        for frame, stream, sink in ((copied, "copy", SINKS[0]), (counted, "counts", SINKS[1])):
            written = frame.writeStream.format("bookkeeper").options(uri=uri, stream=stream, sinkId=sink)
            written.options(commitTimeout="60", checkpointLocation=str(directory / sink)).start()
        print("driving", flush=True)
        spark.streams.awaitAnyTermination()


# --- the campaign ---


def payload(number: int) -> bytes:
    """Number, key, and second of event time."""
    return b"%d %d %d" % (number, number % KEYS, number // RECORDS_A_SECOND)


class Campaign:
    """Kills, and what must come of the records."""

    def __init__(self, cluster: LocalCluster, store: LocalZooKeeper | None, directory: Path, seed: int) -> None:
        self.cluster = cluster
        self.store = store
        self.directory = directory
        self.dice = random.Random(seed)
        self.driver: Process | None = None
        self.appended = 0
        self.copied = 0
        self.fed = False
        self.deaths: Counter[str] = Counter()

    @property
    def where(self) -> str:
        if self.store is not None:
            return f"distributedlog://{self.store.address}/kills"
        return f"distributedlog-{self.cluster.uri}?namespace=/kills"

    async def play(self, namespace: Namespace, rounds: int) -> None:
        kinds = cycle((self.kill_driver, self.kill_bookie, self.kill_store, self.kill_worker))
        if self.store is None:
            kinds = cycle((self.kill_driver, self.kill_bookie, self.kill_worker))
        async with namespace.open_writer("in", create=True) as writer:
            feeding = asyncio.ensure_future(self.feed(namespace, writer))
            try:
                await self.start_driver()
                for _ in range(rounds):
                    await self.progress(namespace, self.dice.randrange(1, 3))
                    if self.dice.random() < 0.5:
                        await self.staging(namespace, self.dice.choice(SINKS))
                    await next(kinds)()
                    await self.keep_driver()
            finally:
                self.fed = True
                await feeding
            await writer.append(b"%d %s %d" % (self.appended, LAST_KEY.encode(), self.appended + 1_000_000))
        await self.until(lambda: self.is_whole(namespace), "all is copied and counted")
        await self.end_driver()
        await self.check(namespace)

    async def feed(self, namespace: Namespace, writer: StreamWriter) -> None:
        """Append until told to stop; never cancelled, for what was cancelled may be stored all the same."""
        for start in count(0, APPENDED_AT_ONCE):
            while not self.fed and start - self.copied >= MOST_AHEAD:
                await asyncio.sleep(PAUSE_SECONDS)
                self.copied = await records(namespace, "copy")
            if self.fed:
                return
            await writer.append_batch([payload(number) for number in range(start, start + APPENDED_AT_ONCE)])
            self.appended = start + APPENDED_AT_ONCE
            await asyncio.sleep(PAUSE_SECONDS)

    # --- the driver's life ---

    async def start_driver(self) -> None:
        with (self.directory / "driver.txt").open("ab") as log:
            self.driver = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.spark.kills", "drive", self.where, str(self.directory)),
                stdout=log,
                stderr=log,
                start_new_session=True,  # the JVM dies with it
            )

    async def keep_driver(self) -> None:
        """A query may end with what was killed: then its driver is started again, as a cluster manager does."""
        assert self.driver is not None
        if self.driver.returncode is not None:
            self.deaths["driver, by itself"] += 1
            await self.end_driver()
            await self.start_driver()

    async def end_driver(self) -> None:
        assert self.driver is not None
        try:
            os.killpg(self.driver.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        finally:
            await self.driver.wait()

    # --- kills ---

    async def kill_driver(self) -> None:
        self.deaths["driver"] += 1
        await self.end_driver()
        await self.start_driver()

    async def kill_worker(self) -> None:
        """One of the Python processes in which tasks run."""
        assert self.driver is not None
        found = [pid for pid in _session(self.driver.pid) if b"pyspark.daemon" in _words(pid)]
        if found:
            self.deaths["worker"] += 1
            os.kill(self.dice.choice(found), signal.SIGKILL)

    async def kill_bookie(self) -> None:
        self.deaths["bookie"] += 1
        bookie = self.dice.choice(self.cluster.bookies)
        await self.cluster.kill(bookie)
        await self.cluster.restart(bookie)

    async def kill_store(self) -> None:
        assert self.store is not None
        self.deaths["store"] += 1
        await self.store.kill()
        await self.store.restart()

    # --- progress ---

    async def until(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait; a driver that ends by itself is started again."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await condition():
                    await self.keep_driver()
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            said = (self.directory / "driver.txt").read_text(errors="replace")[-2000:]
            raise AssertionError(f"it does not happen that {what}; the driver said: {said}") from None

    async def epochs(self, namespace: Namespace) -> int:
        """Published by both sinks together."""
        markers = [await namespace.last_published(sink) for sink in SINKS]
        return sum(marker.epoch + 1 for marker in markers if marker is not None)

    async def progress(self, namespace: Namespace, epochs: int) -> None:
        wanted = await self.epochs(namespace) + epochs

        async def made() -> bool:
            return await self.epochs(namespace) >= wanted

        await self.until(made, "batches are published")

    async def staging(self, namespace: Namespace, sink: str) -> None:
        """In the midst of a batch: a run is there that was not."""
        before = set(await runs(namespace, sink))

        async def begun() -> bool:
            return not set(await runs(namespace, sink)) <= before

        await self.until(begun, "a batch has begun")

    # --- what must hold ---

    async def is_whole(self, namespace: Namespace) -> bool:
        if await records(namespace, "copy") <= self.appended:
            return False
        await asyncio.sleep(1.0)  # it reads all of it
        counted = sum(int(row.split()[2]) for row in await contents(namespace, "counts"))
        return counted >= self.appended

    async def check(self, namespace: Namespace) -> None:
        numbers = [int(row.split()[0]) for row in await contents(namespace, "copy")]
        twice = [number for number, times in Counter(numbers).items() if times > 1]
        assert not twice, f"copied twice: {twice[:10]}"
        assert sorted(numbers) == list(range(self.appended + 1)), "records are lost"
        expected = Counter(
            (str(number % KEYS), number // RECORDS_A_SECOND // WINDOW_SECONDS * WINDOW_SECONDS)
            for number in range(self.appended)
        )
        rows = [row.decode().split() for row in await contents(namespace, "counts")]
        found = {(key, int(start)): int(times) for key, start, times in rows}
        assert len(found) == len(rows), "a window was written twice"
        assert found == dict(expected)
        await namespace.collect_staged(lost_after=-1)
        for sink in SINKS:
            assert await runs(namespace, sink) == [], f"{sink}: runs are left"
        segments = {
            segment.ledger_id for name in ("in", "copy", "counts") for segment in (await namespace.info(name)).segments
        }
        ledgers = {ledger async for ledger in namespace.client.list_ledgers()}
        pooled = len(ledgers - segments)
        assert pooled <= 1, f"{pooled} ledgers are no segments; a writer keeps one in store"


async def contents(namespace: Namespace, name: str) -> list[bytes]:
    if not await namespace.exists(name):
        return []
    async with namespace.open_reader(name, tail=False) as reader:
        return [record.payload async for record in reader]


async def records(namespace: Namespace, name: str) -> int:
    """How many a stream has, by its segments."""
    if not await namespace.exists(name):
        return 0
    return (await namespace.info(name)).records


async def runs(namespace: Namespace, sink: str) -> list[str]:
    """What the tasks of a sink have staged."""
    found = await namespace._tree.children(f"{namespace.path}/.sinks/{sink}/staging", fresh=True)
    return list(found.names) if found is not None else []


def _session(leader: int) -> list[int]:
    """The processes of a session."""
    every = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in every if _is_of(pid, leader)]


def _is_of(pid: int, leader: int) -> bool:
    try:
        return os.getsid(pid) == leader
    except ProcessLookupError:
        return False


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def campaign(directory: Path, rounds: int, seed: int, *, zookeeper: bool = False) -> Campaign:
    """Play it on a cluster of its own. Raises `AssertionError`."""
    runtime = RealRuntime()
    async with AsyncExitStack() as held:
        store = LocalZooKeeper(directory / "zookeeper") if zookeeper else None
        if store is not None:
            await store.start()
            held.push_async_callback(store.stop)
        uri = store.uri if store is not None else ""
        cluster = await held.enter_async_context(LocalCluster(runtime, directory / "cluster", 4, uri=uri))
        played = Campaign(cluster, store, directory, seed)
        async with (
            bookkeeper.connect(cluster.uri, runtime=runtime) as bk,
            bookkeeper.open_namespace("/kills", client=bk, create=True, runtime=runtime) as namespace,
        ):
            try:
                await played.play(namespace, rounds)
            finally:
                if played.driver is not None:
                    await played.end_driver()
    return played


def main() -> None:
    if sys.argv[1:2] == ["drive"]:
        drive(sys.argv[2], Path(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--zookeeper", action="store_true", help="metadata in a ZooKeeper server, which is killed, too")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        played = asyncio.run(campaign(Path(directory), given.rounds, given.seed, zookeeper=given.zookeeper))
    deaths = ", ".join(f"{what} {times}" for what, times in sorted(played.deaths.items()))
    print(f"{played.appended:,} records, killed: {deaths}. duplicates = 0, lost = 0")


if __name__ == "__main__":
    main()
