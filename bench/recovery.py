"""How long a client takes to open, with recovery, a ledger that its writer left open; JSON lines.

Entry 0 is written last. Until then nothing is confirmed, so each entry has to be read and written back.

python -m bench.recovery URI [--count 20000] [--size 100] [--rounds 5] [--protocol auto]
"""

from __future__ import annotations

import argparse
import asyncio
import json

import bookkeeper
from bookkeeper.client.client import BookKeeper
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import BKError
from bookkeeper.runtime import Runtime
from bookkeeper.runtime.real import run

PASSWORD = b"bench"


def connect(runtime: Runtime, uri: str, protocol: str) -> BookKeeper:
    config = ClientConfiguration.from_mapping({"protocol": protocol})
    return bookkeeper.connect(uri, config=config, runtime=runtime)


async def measure(runtime: Runtime, arguments: argparse.Namespace) -> None:
    uri, protocol = arguments.uri, arguments.protocol
    async with connect(runtime, uri, protocol) as writing, connect(runtime, uri, protocol) as recovering:
        for number in range(arguments.rounds):
            writer = await writing.create_ledger_adv(ensemble_size=3, write_quorum=3, ack_quorum=2, password=PASSWORD)
            async with asyncio.TaskGroup() as group:
                for entry_id in (*range(1, arguments.count), 0):
                    group.create_task(writer.write(entry_id, bytes(arguments.size)))
            began = runtime.now()
            reader = await recovering.recover_ledger(writer.id, password=PASSWORD)
            took = runtime.now() - began
            print(json.dumps({"round": number, "entries": reader.last_add_confirmed + 1, "ms": round(took * 1000, 3)}))
            await reader.close()
            try:
                await writer.write(arguments.count, b"")
            except BKError:  # it is fenced, which also ends it
                continue
            raise AssertionError("the writer was not fenced")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("uri")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--protocol", default="auto")
    run(lambda runtime: measure(runtime, parser.parse_args()))
