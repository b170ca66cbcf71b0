"""Writers and readers as processes of their own, to be killed. `python -m tests.integration.processes ROLE URI ...`"""

from __future__ import annotations

import asyncio
import sys

import bookkeeper
from bookkeeper.errors import LedgerFencedError
from bookkeeper.runtime import Runtime
from bookkeeper.runtime.real import run

PASSWORD = b"kill"


def payload(ledger_id: int, entry_id: int) -> bytes:
    """What entry `entry_id` of a ledger holds: different for each, sizes from 8 to some 300 bytes."""
    return b"%d/%d/" % (ledger_id, entry_id) + bytes([entry_id & 0xFF]) * (entry_id % 293)


async def write(runtime: Runtime, uri: str) -> None:
    """Append for ever; say `ledger ID`, then now and then how many entries are acknowledged."""
    async with bookkeeper.connect(uri, runtime=runtime) as bk:
        writer = await bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2, password=PASSWORD)
        print(f"ledger {writer.id}", flush=True)
        count = 0
        while True:
            futures = []
            for _ in range(100):
                futures.append(await writer.append_soon(payload(writer.id, count)))
                count += 1
            await futures[0]
            print(f"acked {writer.last_add_confirmed + 1}", flush=True)


async def read(runtime: Runtime, uri: str, ledger_id: int) -> None:
    """Open the ledger, which recovers it, and read it again and again; say how many entries were read."""
    async with bookkeeper.connect(uri, runtime=runtime) as bk:
        print("opening", flush=True)
        reader = await bk.recover_ledger(ledger_id, password=PASSWORD)
        while True:
            count = 0
            async for entry in reader.entries():
                assert entry.data == payload(ledger_id, entry.entry_id)
                count += 1
                if count % 100 == 0:
                    print(f"read {count}", flush=True)


async def main(runtime: Runtime) -> None:
    role, uri, *rest = sys.argv[1:]
    if role == "write":
        await write(runtime, uri)
    else:
        await read(runtime, uri, int(rest[0]))


if __name__ == "__main__":
    try:
        run(main)
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)
    except LedgerFencedError as error:
        sys.exit(f"fenced, as it should be: {error}")
