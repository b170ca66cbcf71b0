"""Hostile connections beside one good writer and one good reader: what these notice, and the memory it takes.

    python -m bench.hostile [--seconds 120] [--connections 200] [--kinds name,...] [--json FILE]

One bookie process. For each kind of hostile connection the good client, a process of its own, writes and reads for
`--seconds` beside so many connections of it. Before each `PIECE` of that it does so alone for half as long, so that
what else goes on on the machine meets both. The hostile ones come from another process and from another address of
loopback (peers take turns, and a peer is an address); one that the bookie closes is opened again. They take what
processor time the others leave. The table says for each kind:

    failed    appends and reads of the good client that were not successful: there must be none
    add, read 99 % within so many ms, without and beside: beside should be at most twice as much
    memory    the most that was resident, of what the settings allow (`stated_memory`)

Exit code 1 if something failed or memory was beyond what is stated; with --strict also for latencies.
The machine must have a core for each of the three processes, or latencies say more about its scheduler.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import itertools
import json
import os
import random
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import bookkeeper
from bookkeeper.bookie.storage.db_storage import MIB
from bookkeeper.cli.local.cluster import LocalCluster
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import BookKeeperError
from bookkeeper.protocol import messages as m
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.digest import digest_for, master_key
from bookkeeper.runtime import Runtime
from bookkeeper.runtime.real import run
from bookkeeper.types import DigestType

PASSWORD = b"good"
KEY = master_key(b"hostile")
DIGEST = digest_for(DigestType.CRC32C, b"hostile")
SOURCE = "127.0.0.2"

SETTINGS = {
    "dbStorage_writeCacheMaxSizeMb": 128,
    "dbStorage_readAheadCacheMaxSizeMb": 64,
    "dbStorage_rocksDB_blockCacheSize": 16 * MIB,
    "dbStorage_rocksDB_writeBufferSizeMB": 8,
    "journalMaxMemorySizeMb": 64,
    "requestMemoryMaxSizeMb": 128,
    "flushInterval": 500,
}

OBJECTS = 1.5
"""What is cached and queued takes more than its bytes: objects, and what the allocator keeps of what was freed."""
SPARE = 100 * MIB

ROWS, SCATTERED = 1 << 40, (1 << 40) + 1
"""Ledgers with 200 entries of 60 kB, and with small entries far from each other."""

FOREIGN = 1 << 50
"""Ledgers that only hostile connections know have ids from here on."""

PAUSE = 0.005
"""Seconds between two requests of the good client."""

PIECE = 20.0
"""Seconds beside hostile connections, at most, until the good client is measured alone again."""


def stated_memory(at_start: int) -> int:
    """What the bookie may have resident by its settings, given what it had when it had done nothing."""
    caches = (
        SETTINGS["dbStorage_writeCacheMaxSizeMb"]
        + SETTINGS["dbStorage_readAheadCacheMaxSizeMb"]
        + 4 * SETTINGS["dbStorage_rocksDB_writeBufferSizeMB"]
        + SETTINGS["journalMaxMemorySizeMb"]
        + SETTINGS["requestMemoryMaxSizeMb"]
    ) * MIB + SETTINGS["dbStorage_rocksDB_blockCacheSize"]
    return int(at_start + OBJECTS * caches + SPARE)


# --- hostile connections: each opened again when it ends ---


class Hostile:
    """One connection that does not behave."""

    def __init__(self, number: int, port: int) -> None:
        self.number = number
        self.port = port
        self.sock = socket.socket()
        self.count = 0

    async def open(self) -> None:
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.bind((SOURCE, 0))
        self.sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(self.sock, ("127.0.0.1", self.port))

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def receive(self, size: int = 1 << 18) -> bytes:
        data = await asyncio.get_running_loop().sock_recv(self.sock, size)
        if not data:
            raise ConnectionResetError
        return data

    async def closed(self) -> None:
        """Take nothing, until the bookie has enough."""
        while True:
            await asyncio.sleep(0.2)
            await self.send(b"")
            if self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise ConnectionResetError

    def entry(self, ledger_id: int, size: int) -> bytes:
        self.count += 1
        return DIGEST.package(ledger_id, self.count, self.count - 1, self.count * size, bytes(size))


async def never_reads(peer: Hostile) -> None:
    """Asks for much and takes nothing."""
    await peer.send(b"".join(v2.encode_request(m.ReadRequest(ROWS, n % 200)) for n in range(2000)))
    await peer.closed()


async def half_frames(peer: Hostile) -> None:
    """Begins the largest frame there is, and then nothing."""
    body = v2.encode_add_request(KEY, peer.entry(1, 5_000_000))
    await peer.send(body[: -1000 - peer.number])
    await peer.closed()


async def idle(peer: Hostile) -> None:
    """Nothing at all."""
    await peer.closed()


@functools.cache
def hundreds_of_polls() -> list[bytes]:
    """The same for all connections."""

    def poll(n: int) -> bytes:
        return v3.encode_request(m.ReadRequest(ROWS, -1, m.Flags.ENTRY_PIGGYBACK, None, 2**62, 600_000, txn_id=n))

    return [b"".join(poll(n) for n in range(first, first + 100)) for first in range(0, 20_000, 100)]


async def long_polls(peer: Hostile) -> None:
    """As many long polls as there can be."""
    for polls in hundreds_of_polls():
        await peer.send(polls)
        with contextlib.suppress(BlockingIOError):
            peer.sock.recv(1 << 18)
    while True:
        await peer.receive()


async def big_metadata(peer: Hostile) -> None:
    """Explicit LACs and master keys of megabytes."""
    large = random.randbytes(4_900_000)
    while True:
        peer.count += 1
        ledger_id = FOREIGN + (peer.number << 20) + peer.count
        body = ledger_id.to_bytes(8, "big") + bytes(8) + large
        await peer.send(v3.encode_request(m.WriteLacRequest(ledger_id, 0, KEY, body, txn_id=1)))
        add = m.AddRequest(ledger_id, peer.count, peer.entry(ledger_id, 10), large, txn_id=2)
        await peer.send(v3.encode_request(add))
        await peer.receive()


@functools.cache
def hundred_fences() -> list[bytes]:
    """Of the ledgers from `FOREIGN` on, cut where their numbers stand."""

    def fence(ledger_id: int) -> bytes:
        return v3.encode_request(m.ReadRequest(ledger_id, -1, m.Flags.DO_FENCING, KEY, txn_id=1, priority=100))

    return b"".join(fence(FOREIGN) for _ in range(100)).split(varint(FOREIGN))


def varint(number: int) -> bytes:
    """The eight bytes of a ledger's id in a request of v3."""
    low = bytes(0x80 | number >> shift & 0x7F for shift in range(0, 49, 7))
    return low + bytes((number >> 49,))


async def fences(peer: Hostile) -> None:
    """Fences of ledgers that nobody knows, with high priority, as fast as they can be sent."""
    parts = hundred_fences()
    while True:
        first = FOREIGN + (peer.number << 32) + peer.count
        peer.count += 100
        ledgers = [varint(ledger_id) for ledger_id in range(first, first + 100)]
        await peer.send(b"".join(itertools.chain(*zip(parts, [*ledgers, b""], strict=True))))
        with contextlib.suppress(BlockingIOError):
            while peer.sock.recv(1 << 18):
                pass


async def reconnects(peer: Hostile) -> None:
    """Connects, asks for something, and is gone."""
    await peer.send(v2.encode_request(m.ReadRequest(ROWS, 0)))
    raise ConnectionResetError


async def slow_reads(peer: Hostile) -> None:
    """Takes what it asked for, some kB at a time."""
    await peer.send(b"".join(v2.encode_request(m.ReadRequest(ROWS, n % 200)) for n in range(2000)))
    while True:
        await peer.receive(4096)
        await asyncio.sleep(0.1)


async def scattered_batches(peer: Hostile) -> None:
    """Large batch reads of entries that lie far from each other."""
    request = v2.encode_request(m.BatchReadRequest(SCATTERED, 0, 1, 0, 5 << 20))
    while True:
        await peer.send(request * 10)
        await peer.receive()


async def adds(peer: Hostile) -> None:
    """Adds as fast as they can be sent; the answers are never read."""
    ledger_id = FOREIGN + peer.number
    while True:
        await peer.send(b"".join(v2.encode_add_request(KEY, peer.entry(ledger_id, 1000)) for _ in range(50)))


KINDS: dict[str, Callable[[Hostile], Awaitable[None]]] = {
    kind.__name__: kind
    for kind in (
        *(never_reads, half_frames, idle, long_polls, big_metadata),
        *(fences, reconnects, slow_reads, scattered_batches, adds),
    )
}


IDLE_GROUPS = Path("/sys/fs/cgroup/cpu/bookkeeper-hostile"), Path("/sys/fs/cgroup/bookkeeper-hostile")
"""With control groups of version 1 and 2. What is in an idle group gives its processor to what is in none at once."""


def give_way_to_all() -> None:
    """Take one processor, and of that what the bookie and the good client leave: this stands for another machine."""
    os.setsid()
    os.nice(19)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if not any(joined_idle(group) for group in IDLE_GROUPS):
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text("19")  # Linux weighs sessions first, then what runs in them


def joined_idle(group: Path) -> bool:
    """Whether this process is in an idle group now, which takes rights that not every user has."""
    try:
        group.mkdir(exist_ok=True)
        if not (group / "cpu.idle").exists():
            return False
        (group / "cpu.idle").write_text("1")
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        return False
    return True


def remove_idle_groups() -> None:
    for group in IDLE_GROUPS:
        with contextlib.suppress(OSError):
            group.rmdir()


async def attack(kind: str, port: int, connections: int) -> None:
    """Be hostile until killed."""

    async def one(number: int) -> None:
        while True:
            peer = Hostile(number, port)
            try:
                await peer.open()
                await KINDS[kind](peer)
            except OSError:
                pass
            finally:
                peer.sock.close()
            await asyncio.sleep(0.05)

    await asyncio.gather(*(one(number) for number in range(connections)))


# --- the good client ---


@dataclass
class Taken:
    """What the good client's requests took, in seconds."""

    adds: list[float] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def more(self, other: Taken) -> None:
        self.adds += other.adds
        self.reads += other.reads
        self.errors += other.errors

    def latencies(self) -> Latencies:
        return Latencies(
            percentile(self.adds, 0.5),
            percentile(self.adds, 0.99),
            len(self.adds),
            percentile(self.reads, 0.5),
            percentile(self.reads, 0.99),
            len(self.reads),
            len(self.errors),
            sorted(set(self.errors))[:5],
        )


@dataclass
class Latencies:
    """Of what the good client did."""

    add_p50_ms: float
    add_p99_ms: float
    adds: int
    read_p50_ms: float
    read_p99_ms: float
    reads: int
    failed: int
    errors: list[str]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1000 if values else 0.0


async def good(runtime: Runtime, uri: str, ledger_id: int, seconds: float) -> Taken:
    """Append to a new ledger and read a written one for so long, one request each at a time, and at least one."""
    taken = Taken()

    async def measure(took: list[float], request: Callable[[], Awaitable[Any]]) -> None:
        began = time.monotonic()
        settled, end = began + seconds / 20, began + seconds
        while began < end or not took:
            try:
                await request()
            except BookKeeperError as error:
                taken.errors.append(f"{type(error).__name__}: {error}")
                await asyncio.sleep(0.1)
            if began >= settled:  # before it the bookie is not done yet with what was before
                took.append(time.monotonic() - began)
            await asyncio.sleep(PAUSE)
            began = time.monotonic()

    async with bookkeeper.connect(uri, config=ClientConfiguration(), runtime=runtime) as client:
        writer = await client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1, password=PASSWORD)
        reader = await client.open_ledger(ledger_id, password=PASSWORD)
        chance = random.Random(1)
        async with asyncio.TaskGroup() as group:
            group.create_task(measure(taken.adds, lambda: writer.append(bytes(1000))))
            group.create_task(measure(taken.reads, lambda: reader.read_entry(chance.randrange(1000))))
    return taken


# --- one run ---


@dataclass
class Row:
    """What came of one kind."""

    kind: str
    without: Latencies
    beside: Latencies
    memory: int
    """The most bytes that were resident beside it."""
    stated: int

    @property
    def ratio(self) -> float:
        """How much longer 99 % took beside it, of adds or of reads."""
        before, after = self.without, self.beside
        return max(after.add_p99_ms / max(before.add_p99_ms, 0.001), after.read_p99_ms / max(before.read_p99_ms, 0.001))

    @property
    def holds(self) -> bool:
        """Nothing failed, and memory was within what is stated."""
        done = self.beside.adds and self.beside.reads
        return bool(done) and not self.without.failed and not self.beside.failed and self.memory <= self.stated

    def __str__(self) -> str:
        before, after = self.without, self.beside
        return (
            f"{self.kind:18} {after.failed:6} {before.add_p99_ms:8.1f} {after.add_p99_ms:8.1f} "
            f"{before.read_p99_ms:8.1f} {after.read_p99_ms:8.1f} {self.ratio:6.1f} "
            f"{self.memory >> 20:6} of {self.stated >> 20} MB"
        )


HEAD = (
    f"{'beside':18} {'failed':>6} {'add p99':>8} {'beside':>8} {'read p99':>8} {'beside':>8} {'ratio':>6} {'memory':>8}"
)


class Bench:
    """A bookie, and what is measured beside it."""

    def __init__(self, runtime: Runtime, cluster: LocalCluster) -> None:
        self._runtime = runtime
        self._cluster = cluster
        (self._bookie,) = cluster.bookies
        self._stated = stated_memory(cluster.resident_bytes(self._bookie))
        self._ledger = -1
        self._most = 0

    async def prepare(self) -> None:
        """Write what is read: by the good client, and by the others."""
        config = ClientConfiguration()
        async with bookkeeper.connect(self._cluster.uri, config=config, runtime=self._runtime) as client:
            writer = await client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1, password=PASSWORD)
            await asyncio.gather(*[await writer.append_soon(bytes(1000)) for _ in range(1000)])
            await writer.close()
            self._ledger = writer.id
        reader, sender = await asyncio.open_connection("127.0.0.1", self._bookie.port)
        for number in range(200):
            sender.write(v2.encode_add_request(KEY, DIGEST.package(ROWS, number, number - 1, 0, bytes(60_000))))
            await reader.readexactly(28)
        for number in range(30):  # one in each flush, with others behind it
            for ledger_id in (SCATTERED, SCATTERED + 1, SCATTERED + 2):
                size = 20 if ledger_id == SCATTERED else 30_000
                sender.write(v2.encode_add_request(KEY, DIGEST.package(ledger_id, number, number - 1, 0, bytes(size))))
                await reader.readexactly(28)
            await asyncio.sleep(0.1)
        sender.close()

    async def measure(self, kind: str, connections: int, seconds: float) -> Row:
        """The good client without and beside this kind, by turns."""
        without, beside = Taken(), Taken()
        self._most = 0
        pieces = max(1, round(seconds / PIECE))
        for _ in range(pieces):
            without.more(await self._good(seconds / pieces / 2))
            beside.more(await self._beside(kind, connections, seconds / pieces))
        return Row(kind, without.latencies(), beside.latencies(), self._most, self._stated)

    async def _beside(self, kind: str, connections: int, seconds: float) -> Taken:
        attacker = await self._spawn("attack", kind, self._bookie.port, connections)
        try:
            await asyncio.sleep(min(2.0, seconds / 4))
            watching = asyncio.ensure_future(self._most_memory())
            taken = await self._good(seconds)
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
        finally:
            attacker.kill()
            await attacker.wait()
        if not self._bookie.running:
            raise SystemExit(f"the bookie ended beside {kind}")
        return taken

    async def _good(self, seconds: float) -> Taken:
        client = await self._spawn("good", self._cluster.uri, self._ledger, seconds)
        out, _ = await client.communicate()
        if client.returncode:
            raise SystemExit("the good client ended with an error")
        return Taken(**json.loads(out))

    async def _most_memory(self) -> None:
        while True:
            self._most = max(self._most, self._cluster.resident_bytes(self._bookie))
            await asyncio.sleep(0.1)

    async def _spawn(self, *arguments: object) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.hostile", *map(str, arguments)),
            stdout=asyncio.subprocess.PIPE,
            cwd=Path(__file__).parent.parent,
        )


async def compare(
    runtime: Runtime, kinds: list[str], connections: int, seconds: float, show: Callable[[str], None]
) -> list[Row]:
    """Measure all kinds, one after the other, beside one bookie."""
    rows = []
    try:
        with tempfile.TemporaryDirectory(prefix="hostile-") as directory:
            async with LocalCluster(runtime, Path(directory), 1, settings=SETTINGS) as cluster:
                bench = Bench(runtime, cluster)
                await bench.prepare()
                show(HEAD)
                for kind in kinds:
                    row = await bench.measure(kind, connections, seconds)
                    rows.append(row)
                    show(str(row))
    finally:
        remove_idle_groups()
    return rows


async def main(runtime: Runtime, options: argparse.Namespace) -> int:
    kinds = options.kinds.split(",") if options.kinds else list(KINDS)
    if unknown := set(kinds) - set(KINDS):
        raise SystemExit(f"unknown kinds {', '.join(sorted(unknown))}: there are {', '.join(KINDS)}")
    rows = await compare(runtime, kinds, options.connections, options.seconds, lambda line: print(line, flush=True))
    for row in rows:
        for error in row.beside.errors:
            print(f"{row.kind}: {error}")
    if options.json:
        text = json.dumps([{**asdict(row), "ratio": row.ratio, "holds": row.holds} for row in rows], indent=1)
        await asyncio.to_thread(Path(options.json).write_text, text)
    return int(not all(row.holds and (not options.strict or row.ratio <= 2) for row in rows))


def command_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0, help="for each kind, without and beside")
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--kinds", default="", help=", ".join(KINDS))
    parser.add_argument("--json", help="write everything to this file")
    parser.add_argument("--strict", action="store_true", help="latencies count for the exit code")
    return parser.parse_args()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["attack", kind, port, connections]:
            give_way_to_all()
            run(lambda _: attack(kind, int(port), int(connections)))
        case ["good", uri, ledger, seconds]:
            print(json.dumps(asdict(run(lambda runtime: good(runtime, uri, int(ledger), float(seconds))))))
        case _:
            chosen = command_line()
            sys.exit(run(lambda runtime: main(runtime, chosen)))
