"""Autorecovery in stories: machines that run it, and what is missing of a ledger.

Those of `test_autorecovery` and `test_autorecovery_mistakes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from bookkeeper.autorecovery.daemon import AutoRecovery
from bookkeeper.client.client import BookKeeper
from bookkeeper.config import ServerConfiguration
from bookkeeper.runtime import TaskScope
from bookkeeper.types import BookieId
from tests.support import scrub

from .scenario import Scenario

QUICK = {"rwRereplicateBackoffMs": 200, "openLedgerRereplicationGracePeriod": 2000}


class Healer:
    """Autorecovery on a machine of its own."""

    def __init__(self, s: Scenario, name: str, client: Mapping[str, Any] | None = None, **settings: Any) -> None:
        """`client`: settings of its client."""
        self.s = s
        self.name = name
        self.client = client or {}
        self.config = ServerConfiguration.from_mapping({**QUICK, **settings})
        self.tasks: TaskScope | None = None

    async def start(self) -> None:
        client = await self.s.connect(self.name, **self.client)
        runtime = self.s.cluster.client_runtime(self.name)

        async def begin() -> None:
            driver = self.s.cluster.driver(self.name)
            self.daemon = AutoRecovery(runtime, self.config, BookieId(f"{self.name}:0"), driver, client)
            self.tasks = TaskScope(runtime, self.name)
            self.tasks.spawn(self.daemon.run(), name="autorecovery")

        await self.s.on(self.name, begin())

    def crash(self) -> None:
        self.s.cluster.machine(self.name).kill()


async def healers(s: Scenario, *names: str, **settings: Any) -> list[Healer]:
    found = [Healer(s, name, **settings) for name in names]
    for healer in found:
        await healer.start()
    return found


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.1)


async def bad_copies(s: Scenario, bk: BookKeeper, ledger_id: int) -> list[str]:
    """What is missing of a closed ledger: everything is read from everybody."""

    async def look() -> list[str]:
        assert await bk.is_closed(ledger_id)
        return await scrub.bad_copies(bk, [ledger_id])

    return await s.on(s.home(bk), look())


def names_in(s: Scenario, ledger: Any) -> set[str]:
    return {bookie.partition(":")[0] for ensemble in s.stored(ledger).ensembles.values() for bookie in ensemble}


async def close(s: Scenario, writer: Any) -> None:
    async def end() -> None:
        await writer.close()

    await s.on(s.home(writer), end())


async def closed_ledgers(s: Scenario, count: int, *, entries: int = 7, **shape: int) -> list[Any]:
    bk = await s.connect("w")
    found = []
    for _ in range(count):
        writer = await s.create(bk, **shape)
        await s.append(writer, entries)
        await close(s, writer)
        found.append(writer)
    return found
