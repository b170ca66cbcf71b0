"""How a bookie ends: what is closed, in which order, and for how long that is waited for (spec bookie-server §1.10).

Theory of operation

Orderly: unregister, let the adds in flight finish (for a bounded time), close the connections, checkpoint, close the
journals, then the storage; take the DIRTY mark away. Nothing is acknowledged after the journals are closed.

After a failure: drop the connections at once, unregister, close everything; flush nothing. The DIRTY mark stays, and
the next start recovers from disk.

A part that fails to close does not keep the others from closing.

Bounds. A dying disk may hold a call for ever, and so whatever waits for that call. So the end is waited for only so
long: `shutdownTimeoutMs` when orderly, `FAILURE_SECONDS` after a failure, when there is nothing to write any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable

from ..config import ServerConfiguration
from ..errors import BookKeeperError
from ..metadata.api import MetadataDriver
from ..runtime import Runtime, ServiceListener
from .life import Life
from .node import dirty
from .parts import Parts

log = logging.getLogger(__name__)

UNREGISTER_SECONDS = 2.0
"""How long a stop waits for the metadata store to take the registration back."""

FAILURE_SECONDS = 10.0
"""How long the end may take after a failure, when nothing is written any more."""


def is_explained(error: BaseException) -> bool:
    """Whether the text of an error says what is needed, so that no traceback has to: a disk, the store, a refusal."""
    while error.__cause__ is not None:
        error = error.__cause__
    return isinstance(error, OSError | BookKeeperError)


class Shutdown:
    """Ends one bookie, once. What the start has not come to is None."""

    def __init__(
        self,
        runtime: Runtime,
        config: ServerConfiguration,
        life: Life,
        parts: Parts | None,
        listener: ServiceListener | None,
        own_driver: MetadataDriver | None,
    ) -> None:
        """`own_driver`: to be closed, too."""
        self._runtime = runtime
        self._config = config
        self._life = life
        self._parts = parts
        self._listener = listener
        self._own_driver = own_driver
        self._closing = ""  # the part that is being closed

    async def run(self, *, orderly: bool) -> bool:
        """Close everything. False: something does not close in time, and is left as it is."""
        seconds = self._config.shutdownTimeoutMs / 1000 if orderly else FAILURE_SECONDS
        closing = self._runtime.spawn(self._close_all(orderly), name="bookie-close")
        await asyncio.wait([closing], timeout=seconds)
        if not closing.done():
            await self._give_up(seconds)
            return False
        if (error := closing.exception()) is not None:
            log.error("closing the %s failed", self._closing, exc_info=error)
        return True

    async def _give_up(self, seconds: float) -> None:
        """Something does not close. The session with the metadata store is closed at least."""
        log.critical("the %s cannot be closed within %.0f s: the bookie ends without that", self._closing, seconds)
        self._life.stop_failed()
        if self._own_driver is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(UNREGISTER_SECONDS):
                    await self._own_driver.close()

    async def _close_all(self, orderly: bool) -> None:
        parts = self._parts
        if parts is not None:
            parts.state.running = False
            parts.state.shutting_down = True
        if self._listener is not None:
            await self._guard(self._listener.close(), "listener")
        if parts is not None:
            await self._close_parts(parts, orderly)
        if self._own_driver is not None:
            await self._guard(self._own_driver.close(), "metadata driver")

    async def _close_parts(self, parts: Parts, orderly: bool) -> None:
        service = parts.service
        if orderly:
            await self._guard(_unregister(parts), "registration")
            await self._guard(service.drain(self._config.shutdownDrainTimeoutMs / 1000), "requests")
        service.drop_connections()
        if not orderly:
            await self._guard(_unregister(parts), "registration")
        await self._guard(service.close(), "connections")
        await self._guard(parts.scope.close(), "tasks")
        flushed = await self._guard(_last_checkpoint(parts, orderly), "checkpoint")
        for journal in parts.journals:
            await self._guard(journal.close(), f"journal {journal.index}")
        flushed = await self._guard(parts.storage.close(), "storage") and flushed
        await self._guard(parts.state.close(), "state")
        await self._guard(parts.disks.close(), "disk monitor")
        if orderly and flushed:
            dirty.clear(self._runtime.files, self._config.ledgerDirectories)

    async def _guard(self, closing: Awaitable[None], what: str) -> bool:
        """Wait for a part to close; a failure is logged and becomes the exit code if there is none yet."""
        self._closing = what
        try:
            await closing
        except Exception as error:
            log.error("closing the %s failed: %s", what, error, exc_info=None if is_explained(error) else error)
            if what not in ("registration", "metadata driver"):
                self._life.stop_failed()
            return False
        return True


async def _unregister(parts: Parts) -> None:
    async with asyncio.timeout(UNREGISTER_SECONDS):
        await parts.state.unregister()


async def _last_checkpoint(parts: Parts, orderly: bool) -> None:
    await parts.checkpointer.close()
    if orderly:
        await parts.checkpointer.flush()
