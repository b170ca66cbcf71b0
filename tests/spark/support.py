"""A live cluster and a Spark cluster for tests without an event loop, ledgers to read, and damage to find."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import pyspark
from typer.testing import CliRunner

import bookkeeper
import bookkeeper.sync
from bookkeeper.bookie.storage.index.locations import LocationIndex
from bookkeeper.cli.app import app
from bookkeeper.cli.local.cluster import BookieProcess, LocalCluster
from bookkeeper.metadata import open_driver
from bookkeeper.metadata.api import MetadataDriver
from bookkeeper.runtime.loop_thread import LoopThread
from bookkeeper.runtime.ports import free_port
from bookkeeper.runtime.real import RealRuntime
from tests.support.waiting import wait_until

T = TypeVar("T")

FULL = os.environ.get("SPARK_FULL", "") == "1"
"""`make test-spark`: the long list in its full size."""


def spark_command(*arguments: str, uri: str = "") -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `bookkeeper spark ...` in this process: on the session that it has, if any."""
    result = CliRunner().invoke(app, ["spark", *arguments], env={"BOOKKEEPER_URI": uri} if uri else {})
    return result.exit_code, result.stdout, result.stderr


class LiveCluster:
    """Bookie processes on the embedded metadata store, driven from plain code."""

    def __init__(self, directory: Path, count: int, settings: Mapping[str, object] | None = None) -> None:
        self._thread = LoopThread("test-cluster")
        self._cluster = LocalCluster(RealRuntime(), directory, count, settings=settings or {})
        self._run(self._cluster.start())
        self.uri = self._cluster.uri

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.submit(work).result()

    @property
    def bookies(self) -> list[BookieProcess]:
        return self._cluster.bookies

    def bookie(self, name: str) -> BookieProcess:
        """By bookie id."""
        return next(one for one in self.bookies if one.id == name)

    def kill(self, bookie: BookieProcess) -> None:
        self._run(self._cluster.kill(bookie))

    def restart(self, bookie: BookieProcess) -> None:
        self._run(self._cluster.restart(bookie))

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """All bookies are down, their data complete on disk; up again afterwards."""
        for bookie in self.bookies:
            self._run(self._cluster.terminate(bookie))
        try:
            yield
        finally:
            for bookie in self.bookies:
                self.restart(bookie)

    def close(self) -> None:
        self._run(self._cluster.stop())
        self._thread.stop()

    def with_store(self, work: Callable[[MetadataDriver], Coroutine[Any, Any, T]]) -> T:
        """What `work` makes of the metadata store, in a session of its own."""

        async def run() -> T:
            runtime = RealRuntime()
            driver = open_driver(self.uri, runtime, bookkeeper.ClientConfiguration())
            await driver.open()
            try:
                return await work(driver)
            finally:
                await driver.close()

        return self._run(run())

    # --- ledgers ---

    def write(self, payloads: Iterator[bytes] | list[bytes], **shape: Any) -> int:
        """A closed ledger with these entries; `shape` as for `create_ledger`."""
        # A bookie lists millions of entries in seconds, and has a flush to do beside it.
        patient = bookkeeper.ClientConfiguration.from_mapping({"readEntryTimeoutSec": 120})
        with bookkeeper.sync.connect(self.uri, config=patient) as bk:
            shape = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2, **shape}
            writer = bk.create_ledger(**shape)
            writer.append_many(payloads)
            writer.close(drain=True)
            settle(bk, writer.id, shape["ensemble_size"] == shape["write_quorum"])
            return writer.id

    def metadata(self, ledger_id: int) -> bookkeeper.LedgerMetadata:
        with bookkeeper.sync.connect(self.uri) as bk:
            return bk.get_ledger_metadata(ledger_id)


def settle(bk: bookkeeper.sync.BookKeeper, ledger_id: int, whole: bool) -> None:
    """Wait until every bookie of a ledger has all it should: a writer is done before its slowest bookie is."""
    metadata = bk.get_ledger_metadata(ledger_id)
    if not whole or metadata.last_entry_id < 0 or len(metadata.ensembles) > 1:
        return
    for bookie in metadata.last_ensemble[1]:
        wait_until(
            lambda bookie=bookie: bk.list_entries_of(ledger_id, bookie).count == metadata.last_entry_id + 1,
            f"{bookie} has all of ledger {ledger_id}",
        )


def checksum(payloads: Iterator[bytes] | list[bytes]) -> int:
    """Order-independent: the sum of a 60-bit hash of each entry's id and payload (what `query_checksum` computes)."""
    return sum(_hash(entry_id, payload) for entry_id, payload in enumerate(payloads)) & (1 << 63) - 1


def _hash(entry_id: int, payload: bytes) -> int:
    return int(hashlib.md5(b"%d:" % entry_id + payload).hexdigest()[:15], 16)


CHECKSUM_SQL = (
    "cast(sum(cast(conv(substring(md5(concat(cast(concat(entry_id, ':') as binary), payload)), 1, 15), 16, 10)"
    " as decimal(38, 0))) % cast(9223372036854775808 as decimal(38, 0)) as bigint)"
)
"""The same in Spark."""


# --- damage --------------------------------------------------------------------------------------


def corrupt(bookie: BookieProcess, payload: bytes) -> None:
    """Flip a bit of an entry, found by its payload (which must occur once), in a stopped bookie's entry log."""
    changed = 0
    for log in sorted(bookie.directory.glob("ledgers/current/*.log")):
        data = bytearray(log.read_bytes())
        at = data.find(payload)
        if at >= 0:
            data[at + len(payload) // 2] ^= 0x10
            log.write_bytes(data)
            changed += 1
    assert changed == 1, f"{payload!r} is in {changed} entry logs of {bookie.id}"


def rewrite(bookie: BookieProcess, change: Mapping[bytes, Callable[[bytes], bytes]], overhead: int) -> None:
    """Change entries, found by their payloads (which must occur once), in a stopped bookie's entry logs: each as it is
    stored, of which the first `overhead` bytes are header and digest, becomes another one of its size."""
    left = dict(change)
    for log in sorted(bookie.directory.glob("ledgers/current/*.log")):
        data = bytearray(log.read_bytes())
        for payload in [payload for payload in left if payload in data]:
            at, end = data.find(payload) - overhead, data.find(payload) + len(payload)
            new = left.pop(payload)(bytes(data[at:end]))
            assert len(new) == end - at
            data[at:end] = new
        log.write_bytes(data)
    assert not left, f"not in the entry logs of {bookie.id}: {sorted(left)}"


def lose(bookie: BookieProcess, ledger_id: int, entry_ids: list[int]) -> None:
    """Take entries out of a stopped bookie's index."""
    store = RealRuntime().open_key_value(str(bookie.directory / "ledgers" / "current" / "locations"))
    try:
        index = LocationIndex(store)
        batch = store.batch()
        for entry_id in entry_ids:
            assert index.get(ledger_id, entry_id), f"{bookie.id} has no entry {entry_id} of ledger {ledger_id}"
            batch.delete(ledger_id.to_bytes(8, "big") + entry_id.to_bytes(8, "big"))
        store.write(batch, sync=True)
    finally:
        store.close()


def truncate(bookie: BookieProcess, count: int) -> list[tuple[int, int]]:
    """Cut the last entries off a stopped bookie's newest entry log that has so many. Ledger and id of each."""
    current = bookie.directory / "ledgers" / "current"
    store = RealRuntime().open_key_value(str(current / "locations"))
    try:
        places = sorted((location, ledger_id, entry_id) for ledger_id, entry_id, location in LocationIndex(store).all())
    finally:
        store.close()
    by_log = {number: list(group) for number, group in groupby(places, lambda place: place[0] >> 32)}
    number, mine = next((number, mine) for number, mine in reversed(by_log.items()) if len(mine) >= count)
    os.truncate(current / f"{number:x}.log", (mine[-count][0] & 0xFFFFFFFF) + 2)  # inside of its header
    return [(ledger_id, entry_id) for _, ledger_id, entry_id in mine[-count:]]


# --- Spark ---------------------------------------------------------------------------------------


class SparkCluster:
    """A standalone Spark cluster on the loopback interface: a master, and a worker on each of `hosts`, processes of
    their own."""

    def __init__(self, directory: Path, hosts: Sequence[str] = ("127.0.0.1", "127.0.0.1")) -> None:
        self._directory = directory
        directory.mkdir(parents=True)
        self._processes: list[subprocess.Popen[bytes]] = []
        port, page = free_port(), free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self._environment = {
            **os.environ,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(directory / "work"),
            "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        self._start("master", "Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page))
        wait_until(lambda: _listening(port), f"somebody listens on port {port}")
        for number, host in enumerate(hosts):
            arguments = ("--host", host, "--webui-port", str(free_port()), "--cores", "1", "--memory", "1g")
            self._start(f"worker{number}", "Worker", *arguments, self.url, host=host)
        log = directory / "master.log"
        count = len(hosts)
        wait_until(lambda: log.read_text(errors="replace").count("Registering worker") == count, f"{count} workers")

    def _start(self, name: str, kind: str, *arguments: str, host: str = "127.0.0.1") -> None:
        command = Path(self._environment["SPARK_HOME"], "bin", "spark-class")
        with (self._directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(command), f"org.apache.spark.deploy.{kind.lower()}.{kind}", *arguments],
                env={**self._environment, "SPARK_LOCAL_IP": host},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)

    def executors(self) -> list[int]:
        """Process ids of the executors that run now."""
        workers = {process.pid for process in self._processes[1:]}
        return [pid for pid, parent, command in _processes() if parent in workers and "ExecutorBackend" in command]

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _processes() -> Iterator[tuple[int, int, str]]:
    """(pid, parent's pid, command line) of each process."""
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                parent = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
                command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (OSError, IndexError):
                continue
            yield int(directory.name), parent, command


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Killer:
    """Kills a process of each kind while the body of a `with` runs, at moments that the dice choose."""

    def __init__(self, strikes: list[Callable[[], None]], dice: random.Random, within: float) -> None:
        self._strikes = strikes
        self._delays = sorted(dice.uniform(0.0, within) for _ in strikes)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.done = 0

    def _run(self) -> None:
        started = time.monotonic()
        for strike, delay in zip(self._strikes, self._delays, strict=True):
            if self._over.wait(max(0.0, started + delay - time.monotonic())):
                return
            strike()
            self.done += 1

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()


def kill_one(pids: list[int], dice: random.Random) -> None:
    """SIGKILL for one of these processes, if there is any."""
    if pids:
        with suppress(ProcessLookupError):
            os.kill(dice.choice(sorted(pids)), signal.SIGKILL)
