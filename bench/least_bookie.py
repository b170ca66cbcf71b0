"""What Java's client costs a bookie, beside the least that a bookie in Python could do for it.

    python -m bench.least_bookie [--seconds 6] [--warm 30] [--rounds 2] [--ledgers 1] [--peer 4.18.0]

The least: three processes that take adds apart, write what came together to a file, sync it, write it to another file
for later, and answer. They have one thread, no event loop, no cache, no index, no fencing, no limits; nothing can be
read. The files are written from their start again when they are full, so the disk has less to do, too. Ours and Java's
are whole bookies. All under Java's client, 3/3/2, 100 B, v2, in turn, on the same disk; what is printed is processor
time of the three bookies for an append.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from struct import Struct

from kazoo.client import KazooClient

from bookkeeper.metadata import open_driver
from bookkeeper.metadata.api import BookieServiceInfo, Endpoint, Mode
from bookkeeper.metadata.zookeeper.local_server import LocalZooKeeper
from bookkeeper.protocol import v2
from bookkeeper.protocol.frames import FrameSplitter
from bookkeeper.protocol.messages import AddRun, MixedAdds
from bookkeeper.runtime import Runtime
from bookkeeper.runtime.ports import free_port
from bookkeeper.runtime.real import run
from bookkeeper.types import BookieId
from tests.interop.support import peer
from tests.interop.support.cluster import JAVA, OURS, Cluster

from . import processor_time
from .compare.clients import Clients
from .compare.systems import Clusters, System

BOOKIES = 3
SIZE = 100
FILE_BYTES = 256 << 20
RECEIVED_BYTES = 256 << 10
WINDOWS = {1: 2000}
"""Ledgers -> appends under way."""
WINDOW = 5000
LEAST = "least"

_size = Struct(">I").pack


class Files:
    """Journal and log."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._journal = os.open(directory / "journal", os.O_RDWR | os.O_CREAT)
        self._log = os.open(directory / "log", os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(self._journal, 0, FILE_BYTES)
        os.fsync(self._journal)
        self._at = 0

    def store(self, entries: Iterable[bytes]) -> None:
        data = b"".join([piece for entry in entries for piece in (_size(len(entry)), entry)])
        if self._at + len(data) > FILE_BYTES:
            self._at = 0
        os.pwrite(self._journal, data, self._at)
        os.fdatasync(self._journal)
        os.pwrite(self._log, data, self._at)
        self._at += len(data)


def serve(port: int, directory: Path) -> None:
    """One of the processes, until it is killed."""
    files = Files(directory)
    listener = socket.create_server(("127.0.0.1", port))
    poller = select.epoll()
    poller.register(listener.fileno(), select.EPOLLIN)
    connections: dict[int, tuple[socket.socket, FrameSplitter]] = {}
    while True:
        arrived: list[tuple[socket.socket, list[AddRun] | list[MixedAdds]]] = []
        for number, _ in poller.poll():
            if number == listener.fileno():
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connections[connection.fileno()] = connection, FrameSplitter()
                poller.register(connection.fileno(), select.EPOLLIN)
                continue
            connection, splitter = connections[number]
            data = connection.recv(RECEIVED_BYTES)
            if not data:
                poller.unregister(number)
                connections.pop(number)[0].close()
            elif bodies := splitter.feed(data):
                arrived.append((connection, _adds_of(bodies)))
        if arrived:
            files.store([entry for _, adds in arrived for some in adds for entry in some.entries])
            for connection, adds in arrived:
                connection.sendall(v2.encode_adds_stored(adds))


def _adds_of(bodies: list[bytes]) -> list[AddRun] | list[MixedAdds]:
    mixed = v2.decode_mixed_adds(bodies)
    if mixed is not None and len(mixed.entries) == len(bodies):
        return [mixed]
    runs, taken = v2.decode_add_runs(bodies)
    assert taken == len(bodies), f"something else than an add: {bodies[taken][:60]!r}"
    return runs


@contextlib.contextmanager
def processes(ports: Iterable[int], directory: Path) -> Iterator[list[int]]:
    """Their ids."""
    words = [sys.executable, "-m", "bench.least_bookie", "--serve"]
    running = [subprocess.Popen([*words, str(port), str(directory / str(port))]) for port in ports]
    try:
        yield [process.pid for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()


@contextlib.asynccontextmanager
async def registered(runtime: Runtime, uri: str, ports: Iterable[int]) -> AsyncIterator[None]:
    """So that clients find them."""
    driver = open_driver(uri, runtime)
    await driver.open(create=True)
    try:
        for port in ports:
            info = BookieServiceInfo((Endpoint("bookie", "127.0.0.1", port),))
            await driver.registration.register(BookieId(f"127.0.0.1:{port}"), Mode.WRITABLE, info)
        yield
    finally:
        await driver.close()


class Bench:
    """Measures each in turn."""

    def __init__(self, clients: Clients, ledgers: int) -> None:
        self._clients = clients
        self._ledgers = ledgers
        self._window = WINDOWS.get(ledgers, WINDOW)
        self.microseconds: dict[str, list[float]] = {}
        """Of three bookies for an append."""

    def whole(self, name: str, system: System) -> None:
        found = self._clients.write(system, JAVA, "v2", SIZE, self._ledgers, self._window)
        self._found(name, found["rate"], found["bookies_s_per_million"])

    def least(self, system: System, pids: list[int]) -> None:
        before = sum(map(processor_time.of_process, pids))
        shape = {"size": SIZE, "ledgers": self._ledgers, "window": self._window, "rate": 0}
        times = {"warm": self._clients.warm, "seconds": self._clients.seconds}
        last = self._clients.java(system, "write-bench", "v2", **shape, **times).last
        used = sum(map(processor_time.of_process, pids)) - before
        self._found(LEAST, last["adds_per_s"], used / last["total"] * 1e6)

    def _found(self, name: str, rate: float, microseconds: float) -> None:
        self.microseconds.setdefault(name, []).append(microseconds)
        print(f"{name:10} {rate:8,.0f} appends/s   three bookies {microseconds:5.1f} us an append", flush=True)


def _in_turn(bench: Bench, rounds: int, least: System, pids: list[int], ours: System, java: System) -> None:
    for _ in range(rounds):
        bench.least(least, pids)
        bench.whole(OURS, ours)
        bench.whole(JAVA, java)


async def main(runtime: Runtime, arguments: argparse.Namespace) -> None:
    peer.set_up(arguments.peer)
    with tempfile.TemporaryDirectory(prefix="bookkeeper-least-bookie-", dir=arguments.directory) as name:
        directory = Path(name)
        server = LocalZooKeeper(directory / "zookeeper")
        await server.start()
        zk = KazooClient(server.address, timeout=60)
        clusters = Clusters(zk, server.address, directory, {})
        clients = Clients(clusters, arguments.seconds, arguments.warm)
        bench = Bench(clients, arguments.ledgers)
        try:
            await asyncio.to_thread(zk.start)
            cluster = Cluster(zk, server.address, f"/{LEAST}", directory / LEAST, java_version=arguments.peer)
            cluster.directory.mkdir()
            await asyncio.to_thread(cluster.init_by_us)
            ours = await asyncio.to_thread(clusters.start, OURS, arguments.peer)  # that of the client
            java = await asyncio.to_thread(clusters.start, JAVA, arguments.peer)
            first = free_port(BOOKIES)
            ports = range(first, first + BOOKIES)
            with processes(ports, cluster.directory) as pids:
                async with registered(runtime, cluster.uri, ports):
                    least = System(LEAST, cluster)
                    await asyncio.to_thread(_in_turn, bench, arguments.rounds, least, pids, ours, java)
        finally:
            clusters.end()
            await asyncio.to_thread(zk.stop)
            await asyncio.to_thread(zk.close)
            await server.stop()
    for who in (OURS, LEAST):
        ratios = [its / found for its, found in zip(bench.microseconds[JAVA], bench.microseconds[who], strict=True)]
        print(f"Java's bookies take {statistics.median(ratios):.2f} times what {who} take")


def arguments_of(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement (6)")
    parser.add_argument("--warm", type=float, default=30.0, help="before it, for Java's compiler (30)")
    parser.add_argument("--rounds", type=int, default=2, help="how often all in turn (2)")
    parser.add_argument("--ledgers", type=int, default=1, help="written at once (1)")
    parser.add_argument("--peer", default="4.18.0", help="version of Java's (4.18.0)")
    parser.add_argument("--directory", type=Path, help="where everything is made")
    return parser.parse_args(argv)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it ends it
        serve(int(sys.argv[2]), Path(sys.argv[3]))
    else:
        given = arguments_of(sys.argv[1:])
        run(lambda runtime: main(runtime, given))
