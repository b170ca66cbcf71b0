"""Three brokers of Apache Kafka in one directory, controllers included, as Kafka's own documentation sets them up.

Topics are replicated three times, and an append is acknowledged when two replicas have it. With `sync` each of them
writes it to disk first (`log.flush.interval.messages=1`), which is what a bookie does; without, it is in their page
caches.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bookkeeper.runtime.ports import free_port

VERSION = "4.1.1"
BROKERS = 3
HEAP = "512m"
START_SECONDS = 90.0
CLUSTER_ID = "bm9ib2R5LWtub3dzLWlpZA"
POM = Path(__file__).with_name("pom.xml")


def jars() -> Path:
    """Where Kafka's jars are; fetched with Maven the first time. Raises `RuntimeError`."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "bookkeeper-interop" / f"kafka-{VERSION}"
    if not (cache / ".complete").exists():
        command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={cache}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise RuntimeError("Maven is needed to fetch Kafka: install `mvn`") from None
        if done.returncode:
            raise RuntimeError(f"Kafka could not be fetched: {(done.stdout + done.stderr)[-2000:]}")
        (cache / ".complete").touch()
    return cache


@contextlib.contextmanager
def running(directory: Path, *, sync: bool, partitions: int = 1) -> Iterator[str]:
    """Brokers that serve; their addresses, as clients take them. They end with the context.

    - `partitions`: of a topic that nobody has made.
    """
    lib = jars()
    first = free_port(2 * BROKERS)
    ports = list(range(first, first + 2 * BROKERS))
    files = [_configure(directory, number, ports, sync, partitions) for number in range(BROKERS)]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for file in files:
            _java(lib, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file)).wait()
        processes += [_java(lib, "kafka.Kafka", str(file)) for file in files]
        _wait(ports[:BROKERS], processes)
        yield ",".join(f"127.0.0.1:{port}" for port in ports[:BROKERS])
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _configure(directory: Path, number: int, ports: list[int], sync: bool, partitions: int = 1) -> Path:
    voters = ",".join(f"{n}@127.0.0.1:{ports[BROKERS + n]}" for n in range(BROKERS))
    settings = {
        "process.roles": "broker,controller",
        "node.id": number,
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[number]},CONTROLLER://127.0.0.1:{ports[BROKERS + number]}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{ports[number]}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": directory / f"data-{number}",
        "default.replication.factor": BROKERS,
        "num.partitions": partitions,
        "min.insync.replicas": 2,
        "offsets.topic.replication.factor": BROKERS,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": BROKERS,
        "transaction.state.log.min.isr": 2,
        "group.initial.rebalance.delay.ms": 0,
        **({"log.flush.interval.messages": 1} if sync else {}),
    }
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{number}.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file


def _java(lib: Path, *words: str) -> subprocess.Popen[bytes]:
    command = ["java", f"-Xmx{HEAP}", "-cp", f"{lib}/*", *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _wait(ports: list[int], processes: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + START_SECONDS
    for port in ports:
        while True:
            if any(process.poll() is not None for process in processes):
                raise RuntimeError("a broker of Kafka ended while it started")
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"Kafka does not serve within {START_SECONDS:g} s") from None
                time.sleep(0.2)
