"""Checkpoints: moving what the journals hold into the storage for good (spec bookie-storage §8).

Theory of operation

A checkpoint takes the marks of all journals, flushes the storage, and then tells each journal that everything before
its mark is not needed any more. In this order it cannot lose anything: what is before the mark was added to the
storage before it was journaled, so the flush that begins afterwards covers it (spec bookie-server §3.2, I2 and I3).
When the flush fails, no mark moves (BI-6, BI-12).

Checkpoints run one at a time: every `flushInterval`, when the storage asks for one, and when `flush` is called,
after replay and at shutdown. The one at shutdown deletes no journals.

A failed flush is fatal, like every failed write of data that was acknowledged. Only full disks are not, which a storage
reports as `NoWritableLedgerDirError` or plain `OSError`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ..errors import NoWritableLedgerDirError
from ..runtime import Runtime, TaskScope, TimerHandle
from .journal.journal import Journal
from .journal.last_mark import LogMark
from .storage.api import LedgerStorage

log = logging.getLogger(__name__)


class Checkpointer:
    """Moves the marks of `journals` by flushing `storage`.

    `on_disks_full` is called when a checkpoint could not be made because there is no space, `on_fatal` with any other
    failure of one that was not asked for by `flush`.
    """

    def __init__(
        self,
        runtime: Runtime,
        flush_interval: float,
        journals: Sequence[Journal],
        storage: LedgerStorage,
        *,
        on_disks_full: Callable[[], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._runtime = runtime
        self._interval = flush_interval
        self._journals = journals
        self._storage = storage
        self._on_disks_full = on_disks_full
        self._on_fatal = on_fatal
        self._one_at_a_time = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._timer: TimerHandle | None = None
        self._scope = TaskScope(runtime, "checkpointer", self._task_failed)

    def start(self) -> None:
        """Begin with the checkpoints at intervals and on request."""
        self._scope.spawn(self._run(), name="run")

    def request(self) -> None:
        """Ask for a checkpoint soon; the storage does when it has much to flush. Requests before it begins are one."""
        self._wanted.set()

    async def flush(self, *, compact: bool = False) -> None:
        """Checkpoint now; journals are deleted with `compact` only. Raises what the flush raised: no mark has moved."""
        await self._checkpoint(compact)

    async def close(self) -> None:
        """Stop; a checkpoint under way is finished first. Idempotent."""
        async with self._one_at_a_time:  # cutting a flush short would look like a failed one
            await self._scope.close()
        if self._timer is not None:
            self._timer.cancel()

    async def _run(self) -> None:
        while True:
            soon = self._runtime.buggify("checkpoint at once", 0.2)
            self._timer = self._runtime.call_later(0.001 if soon else self._interval, self._wanted.set)
            await self._wanted.wait()
            self._timer.cancel()
            self._wanted.clear()
            try:
                await self._checkpoint(compact=True)
            except (NoWritableLedgerDirError, OSError) as error:  # no space; the next checkpoint tries again
                log.error("no checkpoint: %s", error)
                self._on_disks_full()

    def _task_failed(self, _: str, error: BaseException) -> None:
        self._on_fatal(error)

    async def _checkpoint(self, compact: bool) -> None:
        async with self._one_at_a_time:
            marks = [journal.mark() for journal in self._journals]
            await self._storage.flush()
            for journal, mark in zip(self._journals, marks, strict=True):
                await self._complete(journal, mark, compact)

    async def _complete(self, journal: Journal, mark: LogMark, compact: bool) -> None:
        """A mark that cannot be written costs space and time at the next start, but no data."""
        try:
            await journal.retention.checkpoint_complete(mark, compact)
        except OSError as error:
            log.error("journal %d: the mark stays, no journal is deleted: %s", journal.index, error)
            self._on_disks_full()
