"""What a task needs to repair ledgers: autorecovery's own code, and its lock on each ledger.

Theory of operation

- A task repairs with a driver and a client of its own, through `autorecovery.repair`: there is one implementation.
- It holds the lock of autorecovery for each ledger that it works on. So jobs and autorecovery's workers may run side
  by side: whoever has the lock repairs the ledger, and the job lists it as `locked` and goes on.
- A ledger that is whole afterwards loses its mark, if it had one and nobody has marked it anew meanwhile.
- A rate is that of one task. Spark gives tasks nothing that they could share: the rate of a job is that of a task times
  the tasks that run at once, which `at_once` bounds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from ...autorecovery.daemon import connected, repair_with
from ...autorecovery.repair import Repair
from ...autorecovery.worker import LockLostError, while_held
from ...client.client import BookKeeper
from ...config import ServerConfiguration
from ...errors import LockHeld
from ...metadata.api import LedgerLock, MetadataDriver, Versioned
from ...metadata.ledger_metadata import LedgerMetadata
from ...runtime import TaskScope
from ..options import ReadOptions
from ..session import Session

T = TypeVar("T")


@dataclass(frozen=True)
class Tools:
    """What repairs."""

    driver: MetadataDriver
    client: BookKeeper
    repair: Repair
    tasks: TaskScope

    async def look(self, ledger_id: int) -> tuple[Versioned[LedgerMetadata], int]:
        """A ledger's record, and the last entry known to be confirmed. Disturbs nobody."""
        async with self.client.open_ledger_as_admin(ledger_id) as reader:
            return await self.client.get_versioned_metadata(ledger_id), reader.last_add_confirmed

    async def locked(self, ledger_id: int, work: Callable[[LedgerLock], Coroutine[Any, Any, T]]) -> T | str:
        """Work on a ledger under its lock; or why that could not be: somebody else repairs it."""
        try:
            lock = await self.driver.underreplication.acquire(ledger_id, with_mark=True)
        except LockHeld:
            return "somebody else repairs it"
        try:
            return await while_held(self.tasks, lock, work(lock))
        except LockLostError as error:
            return str(error)
        finally:
            await lock.release()

    async def unmark(self, lock: LedgerLock) -> None:
        """Take the mark of a ledger away if nothing is missing of it any more."""
        if await self.driver.underreplication.info(lock.ledger_id) is None:
            return
        record, last_confirmed = await self.look(lock.ledger_id)
        if record.value.closed and not await self.repair.damages(record.value, last_confirmed, 0):
            await lock.mark_replicated()


@asynccontextmanager
async def tools(here: Session, options: ReadOptions, rate: int = -1) -> AsyncIterator[Tools]:
    """A driver, a client, and repair that reads `rate` bytes a second; -1: as fast as it can."""
    runtime = here.client.context.runtime
    config = ServerConfiguration.from_mapping({**dict(options.client), "replicationRateByBytes": rate})
    tasks = TaskScope(runtime, "repair job", lambda *_: None)  # who waits for a task has its error
    try:
        async with connected(runtime, config, options.uri) as (driver, client):
            yield Tools(driver, client, repair_with(runtime, config, driver, client), tasks)
    finally:
        await tasks.close()


def with_tools(here: Session, options: ReadOptions, work: Callable[[Tools], Awaitable[T]]) -> T:
    """At the driver: what `work` makes of the tools."""

    async def run() -> T:
        async with tools(here, options) as mine:
            return await work(mine)

    return here.run(run())


def dealt(units: Sequence[T], at_once: int | None) -> list[list[T]]:
    """Units as tasks: one each, or dealt in turns to as many as may run at once."""
    count = min(len(units), at_once) if at_once else len(units)
    return [list(units[start::count]) for start in range(count)]
