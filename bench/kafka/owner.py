"""Two things of streams that no client of Kafka's has: a writer that takes over, and very many streams.

    python -m bench.kafka.owner fail-over       seconds from the end of a writer's session to the successor's append
    python -m bench.kafka.owner many 10000      streams made, listed, and opened, a second
    python -m bench.kafka.owner own NAME        the writer that is killed

`BOOKKEEPER_URI` is the cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time

import bookkeeper

SESSION_MS = 2000
AT_ONCE = 32


async def own(client: bookkeeper.BookKeeper, name: str) -> None:
    """Write until killed."""
    async with (
        bookkeeper.open_namespace("/streams", client=client, create=True) as streams,
        streams.open_writer(name, create=True) as writer,
    ):
        print("owner", flush=True)
        while True:
            await writer.append(b"x" * 100)


async def fail_over(client: bookkeeper.BookKeeper) -> dict[str, float]:
    """Seconds from the kill to the first append of another process, and without the session's time-out."""
    name = f"owned-{os.getpid()}"
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.kafka.owner", "own", name, stdout=asyncio.subprocess.PIPE
    )
    assert owner.stdout is not None
    await owner.stdout.readline()
    async with bookkeeper.open_namespace("/streams", client=client, create=True) as streams:
        opening = asyncio.ensure_future(_first_append(streams, name))
        await asyncio.sleep(1.0)  # it stands in line, and the owner writes
        owner.send_signal(signal.SIGKILL)
        began = time.perf_counter()
        await owner.wait()
        await opening
        took = time.perf_counter() - began
    return {"seconds": took, "without_session": max(took - SESSION_MS / 1000, 0.0)}


async def _first_append(streams: bookkeeper.Namespace, name: str) -> None:
    async with streams.open_writer(name, lock_timeout=None) as writer:
        await writer.append(b"mine")


async def many(client: bookkeeper.BookKeeper, count: int) -> dict[str, float]:
    """Rates of streams that are made, listed, and opened for reading."""
    async with bookkeeper.open_namespace("/many", client=client, create=True) as streams:
        numbers = iter(range(count))

        async def make() -> None:
            for number in numbers:
                await streams.create(f"s{number}")

        began = time.perf_counter()
        await asyncio.gather(*(make() for _ in range(AT_ONCE)))
        made = time.perf_counter()
        listed = [name async for name in streams.list()]
        done = time.perf_counter()
        assert len(listed) == count
        for name in listed[: count // 10]:
            async with streams.open_reader(name, tail=False) as reader:
                await reader.read()
        opened = time.perf_counter()
    return {
        "created_per_second": count / (made - began),
        "listed_per_second": count / (done - made),
        "opened_per_second": count // 10 / (opened - done),
    }


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fail-over")
    commands.add_parser("many").add_argument("count", type=int)
    commands.add_parser("own").add_argument("name")
    arguments = parser.parse_args()
    config = bookkeeper.ClientConfiguration.from_mapping({"zkTimeout": SESSION_MS})
    async with bookkeeper.connect(os.environ["BOOKKEEPER_URI"], config=config) as client:
        if arguments.command == "own":
            await own(client, arguments.name)
        elif arguments.command == "many":
            print(json.dumps(await many(client, arguments.count)))
        else:
            print(json.dumps(await fail_over(client)))


if __name__ == "__main__":
    asyncio.run(main())
