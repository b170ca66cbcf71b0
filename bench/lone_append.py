"""What an append costs that waits alone, beside the least that it could cost on this machine.

    python -m bench.lone_append [--seconds 5] [--size 128] [--rounds 3]

The least: three processes that do nothing but receive a frame, write it to a file whose blocks are there, sync the file
and answer, and a client that sends a frame to each of them and waits for two answers; blocking calls, no event loop, no
checksum, nothing checked. Ours: three bookies and a client, 3/3/2, protocol v2. In turn, on the same disk.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import bookkeeper
from bookkeeper.cli.latency import Histogram
from bookkeeper.cli.local.cluster import LocalCluster
from bookkeeper.config import ClientConfiguration
from bookkeeper.runtime import Runtime
from bookkeeper.runtime.real import run

COPIES, NEEDED = 3, 2
ANSWER_BYTES = 24
SECTOR = 512
"""A journal writes whole sectors."""
FILE_BYTES = 16 << 20
"""The file is written from its start again when it is full."""
WARM = 0.2
"""Of the time, before anything counts."""


def serve(path: str, size: int) -> None:
    """One of the processes: prints its port, and ends with its connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        connection, _ = listener.accept()
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(file, 0, FILE_BYTES)
    os.fsync(file)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(ConnectionResetError):  # the client ends when it has seen enough
        _store_all(connection, file, size)


def _store_all(connection: socket.socket, file: int, size: int) -> None:
    at = 0
    while data := connection.recv(size, socket.MSG_WAITALL):
        record = data.ljust(-(-len(data) // SECTOR) * SECTOR, b"\0")
        if at + len(record) > FILE_BYTES:
            at = 0
        at += os.pwrite(file, record, at)
        os.fdatasync(file)
        connection.sendall(data[:ANSWER_BYTES])


@contextlib.contextmanager
def connections(directory: Path, size: int) -> Iterator[list[socket.socket]]:
    """To `COPIES` such processes."""
    with contextlib.ExitStack() as stack:
        sockets = []
        for number in range(COPIES):
            file = str(directory / f"file-{number}")
            words = [sys.executable, "-m", "bench.lone_append", "--serve", file, "--size", str(size)]
            process = stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
            assert process.stdout is not None
            connection = socket.create_connection(("127.0.0.1", int(process.stdout.readline())))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stack.callback(connection.close)
            sockets.append(connection)
        yield sockets


def least(directory: Path, size: int, seconds: float) -> Histogram:
    """How long a frame takes until two of three have it."""
    found = Histogram()
    with connections(directory, size) as sockets:
        poller = select.epoll()
        by_number = {connection.fileno(): connection for connection in sockets}
        for number in by_number:
            poller.register(number, select.EPOLLIN)
        behind = dict.fromkeys(by_number, 0)  # bytes of answers to come
        began = time.perf_counter()
        while (sent := time.perf_counter()) < began + seconds:
            frame = os.urandom(size)
            for number, connection in by_number.items():
                connection.sendall(frame)
                behind[number] += ANSWER_BYTES
            while sum(count == 0 for count in behind.values()) < NEEDED:
                for number, _ in poller.poll():
                    behind[number] -= len(by_number[number].recv(1 << 16))
            if sent > began + seconds * WARM:
                found.record(time.perf_counter() - sent)
    return found


async def ours(runtime: Runtime, uri: str, size: int, seconds: float) -> Histogram:
    """How long an append takes."""
    found = Histogram()
    async with (
        bookkeeper.connect(uri, config=ClientConfiguration(protocol="v2"), runtime=runtime) as bk,
        bk.create_ledger(ensemble_size=COPIES, write_quorum=COPIES, ack_quorum=NEEDED) as ledger,
    ):
        began = runtime.now()
        while (sent := runtime.now()) < began + seconds:
            await ledger.append(os.urandom(size))
            if sent > began + seconds * WARM:
                found.record(runtime.now() - sent)
    return found


async def main(runtime: Runtime, arguments: argparse.Namespace) -> None:
    shares = (0.5, 0.99)
    milliseconds: dict[tuple[str, float], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="bookkeeper-lone-", dir=arguments.directory) as name:
        directory = Path(name)
        async with LocalCluster(runtime, directory / "cluster", COPIES) as cluster:
            for _ in range(arguments.rounds):
                found = {
                    "least": await asyncio.to_thread(least, directory, arguments.size, arguments.seconds),
                    "ours": await ours(runtime, cluster.uri, arguments.size, arguments.seconds),
                }
                for who, share in itertools.product(found, shares):
                    milliseconds.setdefault((who, share), []).append(found[who].quantile(share) * 1000)
                print(
                    *(f"{who} p{share * 100:g} {times[-1]:.2f} ms" for (who, share), times in milliseconds.items()),
                    sep="   ",
                    flush=True,
                )
    for share in shares:
        ratios = [
            mine / its for mine, its in zip(milliseconds["ours", share], milliseconds["least", share], strict=True)
        ]
        print(f"p{share * 100:g}: ours takes {statistics.median(ratios):.2f} times the least")


def arguments_of(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (5)")
    parser.add_argument("--size", type=int, default=128, help="bytes of an entry (128)")
    parser.add_argument("--rounds", type=int, default=3, help="how often both in turn (3)")
    parser.add_argument("--directory", type=Path, help="on the disk to be measured")
    parser.add_argument("--serve", metavar="FILE", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    given = arguments_of(sys.argv[1:])
    if given.serve:
        serve(given.serve, given.size)
    else:
        run(lambda runtime: main(runtime, given))
