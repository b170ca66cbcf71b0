"""Explicit LAC: tells the bookies how far an idle writer has come (spec client §5.10).

An entry carries the LAC of the moment it was sent, so the last entries of a writer that pauses would stay invisible to
readers of the open ledger. Every `explicitLacInterval` a tick looks whether the LAC moved on without an entry to carry
it, and if so writes it to the write set of the entry at the LAC. Failures are only logged: the next tick tries again.
"""

from __future__ import annotations

import asyncio
import logging

from ..errors import BKError, from_code
from ..protocol.digest import Digest
from ..protocol.messages import V3, Operation, WriteLacRequest
from ..quorum.coverage import AckSet
from ..quorum.distribution import Distribution
from ..runtime.api import TimerHandle
from ..types import BookieId
from .adds import AddPipeline
from .context import ClientContext
from .results import OK, default_code, result_code

log = logging.getLogger(__name__)


class ExplicitLac:
    """The timer of one writer. Runs from `start` until `stop`, or until its pipeline stops."""

    def __init__(
        self,
        context: ClientContext,
        ledger_id: int,
        distribution: Distribution,
        digest: Digest,
        master_key: bytes,
        adds: AddPipeline,
        *,
        deferred_sync: bool,
    ) -> None:
        self._context = context
        self._ledger_id = ledger_id
        self._distribution = distribution
        self._digest = digest
        self._master_key = master_key
        self._adds = adds
        self._deferred_sync = deferred_sync
        self._interval = context.config.explicitLacInterval / 1000
        self._known = -1  # the LAC that the bookies know, or will with what is under way
        self._timer: TimerHandle | None = None
        self._writing = False  # one write at a time

    def start(self) -> None:
        """Begin to tick, if the setting says so."""
        if self._interval > 0:
            self._timer = self._context.runtime.call_later(self._interval, self._tick)

    def stop(self) -> None:
        """Tick no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        if self._adds.stopped is not None or self._context.closed:
            return
        self.start()
        window = self._adds.window
        # What the entry after the last confirmed one carried, or would carry. With DEFERRED_SYNC entries say little.
        piggybacked = -1 if self._deferred_sync else window.head - 1
        if self._known < piggybacked:
            self._known = piggybacked
        elif window.lac > self._known and not self._writing:
            self._known = window.lac
            self._writing = True
            self._context.tasks.spawn(self._write(window.lac), name=f"explicit LAC of ledger {self._ledger_id}")

    async def _write(self, lac: int) -> None:
        """Send the LAC to its write set; written if an ack quorum takes it."""
        ensemble = self._adds.keeper.ensemble
        indexes = self._distribution.write_set(lac)
        body = self._digest.package_lac(self._ledger_id, lac)
        acks = AckSet(indexes, self._distribution.ack_quorum)
        try:
            codes = await asyncio.gather(*(self._write_to(ensemble[index], lac, body) for index in indexes))
        finally:
            self._writing = False
        for index, code in zip(indexes, codes, strict=True):
            if code == OK:
                acks.complete(index)
            elif acks.fail(index, code):
                self._known = -1
                log.warning("ledger %d: LAC %d was not written: %s", self._ledger_id, lac, from_code(code))
                return

    async def _write_to(self, bookie: BookieId, lac: int, body: bytes) -> int:
        request = WriteLacRequest(self._ledger_id, lac, self._master_key, body, version=V3)
        try:
            response = await self._context.bookies.request(bookie, request)
        except BKError as error:
            return error.code
        return result_code(response.status, default_code(Operation.WRITE_LAC))
