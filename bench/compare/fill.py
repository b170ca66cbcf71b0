"""Write so many entries to a new ledger and leave it open; prints its id as JSON.

python -m bench.compare.fill URI [--count 100000] [--size 1000]
"""

from __future__ import annotations

import argparse
import asyncio
import json

import bookkeeper
from bookkeeper.runtime import Runtime
from bookkeeper.runtime.real import run

WINDOW = 500


async def fill(runtime: Runtime, uri: str, count: int, size: int) -> None:
    payload = bytes(size)
    async with bookkeeper.connect(uri, runtime=runtime) as bk:
        writer = await bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3, password=b"bench")
        for begin in range(0, count, WINDOW):
            await asyncio.gather(*[await writer.append_soon(payload) for _ in range(min(WINDOW, count - begin))])
        print(json.dumps({"ledger": writer.id, "entries": writer.last_add_confirmed + 1}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("uri")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1000)
    given = parser.parse_args()
    run(lambda runtime: fill(runtime, given.uri, given.count, given.size))
