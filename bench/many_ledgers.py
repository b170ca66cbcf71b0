"""What an append costs the client when many ledgers are open, in microseconds: three connections, no sockets.

    python -m bench.many_ledgers [--ledgers 1 100 1000 5000 10000]

Each turn of the loop pushes `--window` entries, to one ledger after the other; then each connection hears their acks.
Ledgers that are open and not written to should cost nothing, those with one entry a turn little more than one ledger
with many. The bookie's side: `python -m bench.bookie_add --ledgers N`.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any, cast

from bookkeeper.client.adds.encoding import add_encoder
from bookkeeper.client.adds.pipeline import AddPipeline, new_keeper
from bookkeeper.client.context import ClientContext
from bookkeeper.client.wire.pool import ConnectionPool
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import LedgerClosedError
from bookkeeper.protocol import v2
from bookkeeper.protocol.digest import digest_for
from bookkeeper.protocol.messages import V2, AddResponse, Status
from bookkeeper.quorum.distribution import Distribution
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId, DigestType

from .client import NobodyDialer, NoTransport

BOOKIES = [BookieId(f"b{i}:3181") for i in range(3)]
ENTRIES = 60_000
PAYLOAD = bytes(100)


class CountingTransport(NoTransport):
    """Counts writes: each would be a system call."""

    writes = 0

    def write(self, data: Any) -> None:
        CountingTransport.writes += 1

    def get_write_buffer_size(self) -> int:
        return 0


class Dialer(NobodyDialer):
    async def dial(self, bookie: BookieId, protocol: asyncio.Protocol) -> None:
        protocol.connection_made(CountingTransport())


class Owner:
    """No bookie fails here."""

    def change_ensemble(self, change: object) -> None:
        raise AssertionError(change)

    def give_up(self, code: int, withdraw: bool) -> None:
        raise AssertionError(code)

    def rest(self) -> bool:
        return False


def open_ledgers(count: int, owner: Owner) -> tuple[ConnectionPool, list[AddPipeline]]:
    runtime = RealRuntime()
    config = ClientConfiguration()
    pool = ConnectionPool(runtime, config, cast(Any, None))
    pool._dialer = Dialer(runtime, config, cast(Any, None))
    context = ClientContext(
        runtime, config, cast(Any, None), pool, cast(Any, None), pool._dialer.tasks, departures=pool.departures
    )
    digest = digest_for(DigestType.CRC32C, b"")
    schedule = Distribution(3, 3, 2)
    return pool, [
        AddPipeline(
            context,
            ledger_id,
            schedule,
            new_keeper(config, schedule, BOOKIES),
            owner,
            add_encoder(V2, ledger_id, digest, bytes(20)),
            version=V2,
        )
        for ledger_id in range(count)
    ]


async def measure(ledgers: int, window: int) -> tuple[float, float]:
    """Microseconds and writes for each append."""
    owner = Owner()
    pool, pipelines = open_ledgers(ledgers, owner)
    turns = ENTRIES // window
    new_future = asyncio.get_running_loop().create_future
    taken = 0.0
    CountingTransport.writes = 0
    for turn in range(turns):
        pushed: list[tuple[int, int]] = []
        started = time.process_time()
        for i in range(turn * window, (turn + 1) * window):
            ledger_id = i % ledgers
            pushed.append((ledger_id, pipelines[ledger_id].push(PAYLOAD, new_future())))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        taken += time.process_time() - started
        acks = b"".join(v2.encode_response(AddResponse(Status.EOK, *ids)) for ids in pushed)
        started = time.process_time()
        for connection in pool.connections:
            connection.data_received(acks)
        await asyncio.sleep(0)  # acknowledgements are told when the turn ends
        taken += time.process_time() - started
    for ledger_id, pipeline in enumerate(pipelines):
        assert pipeline.window.head == pipeline.window.lap, f"ledger {ledger_id}: {pipeline.window}"
        pipeline.stop(LedgerClosedError.code)
    await pool.close()
    return taken / (turns * window) * 1e6, CountingTransport.writes / (turns * window)


async def main(options: argparse.Namespace) -> None:
    print(f"an append of {len(PAYLOAD)} B in the client, three acks included; {options.window} a turn of the loop")
    for ledgers in options.ledgers:
        microseconds, writes = await measure(ledgers, options.window)
        print(f"{ledgers:6} ledgers {microseconds:7.2f} us {writes:7.4f} writes", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledgers", type=int, nargs="+", default=[1, 100, 1000, 5000, 10000])
    parser.add_argument("--window", type=int, default=1000, help="appends in a turn of the loop")
    asyncio.run(main(parser.parse_args()))
