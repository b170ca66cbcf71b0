"""Explicit LAC: tells the bookies how far a quiet writer has come (spec client §5.10).

An entry carries the LAC of the moment it was sent, so the last entries of a writer that pauses would stay invisible to
readers of the open ledger. They are told with a message of its own, WRITE_LAC, to the write set of the entry at the
LAC.

Theory of operation

- When an entry is confirmed that was not told, the writer is looked at `explicitLacInterval` later (see
  `client.lac_rounds`). If nothing was appended meanwhile, the LAC is told; else the appended entries carry it, and
  the writer is looked at again after the same time. So the LAC is known twice the interval after the last append, and
  one journey, at the latest; later only where thousands of writers become quiet in the same moment.
- A writer that appends all the time sends nothing, nor does one that has an entry under way that carries the LAC: where
  thousands of writers have one entry at a time, and wait for it longer than the interval, that is all of them. One that
  is quiet and has told its LAC is not looked at.
- An ack quorum that took it is enough. If there is none it is tried again after pauses that double, for as long as
  nothing else happens: the LAC is of use to readers only, and failures are only logged.
"""

from __future__ import annotations

import asyncio
import logging
from functools import lru_cache, partial

from ...errors import BKError, from_code
from ...protocol.digest import Digest
from ...protocol.messages import V3, Response, WriteLacRequest
from ...quorum.coverage import AckSet
from ...quorum.distribution import Distribution
from ...runtime.api import TimerHandle
from ...runtime.waiting.backoff import Backoff, Pauses
from ..context import ClientContext
from ..wire.results import OK
from .pipeline import AddPipeline

log = logging.getLogger(__name__)

LONGEST_PAUSE = 30.0
"""Seconds between attempts to tell a LAC that no ack quorum takes."""


@lru_cache(maxsize=1)
def _backoff(interval: float) -> Backoff:
    """One for all writers: they are clients of the same settings."""
    return Backoff(first=2 * interval, longest=max(LONGEST_PAUSE, interval))


class ExplicitLac:
    """Tells the LAC of one writer, from `start` until `stop`, or until its pipeline stops."""

    def __init__(
        self,
        context: ClientContext,
        ledger_id: int,
        distribution: Distribution,
        digest: Digest,
        master_key: bytes,
        adds: AddPipeline,
    ) -> None:
        self._context = context
        self._ledger_id = ledger_id
        self._distribution = distribution
        self._digest = digest
        self._master_key = master_key
        self._adds = adds
        self._window = adds.window
        self._interval = max(0.0, context.config.explicitLacInterval / 1000)
        self._told = self._window.lac  # the LAC that bookies were told, or are being told
        self._pushed = -1  # the last entry there was when it was last looked at
        self._seen = (-1, -1)  # the LAC when it was last looked at, and the last entry there was when it was first seen
        self._looked_at = False  # by the rounds
        self._timer: TimerHandle | None = None  # the end of the pause before another attempt
        self._telling: AckSet | None = None  # what is under way: one at a time
        self._pauses = Pauses(_backoff(self._interval))
        self._refused = -1  # the LAC that was not taken, while it waits for another attempt
        self._started = False

    def start(self) -> None:
        """Begin to watch the writer's progress, if the setting says so."""
        if self._interval <= 0:
            return
        self._started = True
        self._adds.on_confirmed = self._confirmed

    def stop(self) -> None:
        """Tell nothing more. Idempotent."""
        self._started = self._looked_at = False
        self._context.lac_rounds.forget(self)
        self._end_pause()

    def _end_pause(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def at_rest(self) -> bool:
        """There is nothing to tell, and nothing is being told."""
        idle = self._timer is None and self._telling is None and not self._looked_at
        return not self._started or (idle and self._told >= self._window.lac)

    def progress(self) -> None:
        """The LAC may have moved."""
        if -1 < self._refused < self._window.lac:
            self._refused = -1  # bookies take entries: there is no reason to wait any longer
            self._end_pause()
        idle = self._timer is None and self._telling is None and not self._looked_at
        if idle and self._started and self._window.lac > self._told:
            self._pushed = self._window.lap
            self._see()
            self._looked_at = True
            self._adds.on_confirmed = None  # until `quiet` there is nothing to hear
            self._context.lac_rounds.look_at(self)

    def _confirmed(self, _entry_ids: range) -> None:
        self.progress()

    def appended(self) -> int:
        """See `lac_rounds`."""
        self._see()
        before, self._pushed = self._pushed, self._window.lap
        return self._pushed - before if self._adds.stopped is None else 0

    def quiet(self) -> None:
        """Called by the rounds: nothing was appended for the interval."""
        self._looked_at = False
        self._adds.on_confirmed = self._confirmed
        self._tell_now()

    def _tell_now(self) -> None:
        self._timer = None
        lac = self._window.lac
        if (
            self._adds.stopped is None
            and not self._context.closed
            and lac > self._told
            and not self._is_on_its_way(lac)
        ):
            self._tell(lac)

    def _is_on_its_way(self, lac: int) -> bool:
        """An entry that is not confirmed carries it; when that is confirmed there is another LAC to tell."""
        seen, last_pushed = self._seen
        return self._window.lap > self._window.head and lac == seen and self._window.lap > last_pushed

    def _see(self) -> None:
        if self._window.lac != self._seen[0]:
            self._seen = (self._window.lac, self._window.lap)

    def _tell(self, lac: int) -> None:
        """Send the LAC to its write set."""
        before, self._told = self._told, lac
        self._refused = -1
        ensemble = self._adds.keeper.ensemble
        indexes = self._distribution.write_set(lac)
        body = self._digest.package_lac(self._ledger_id, lac)
        acks = self._telling = AckSet(indexes, self._distribution.ack_quorum)
        for index in indexes:
            request = WriteLacRequest(self._ledger_id, lac, self._master_key, body, version=V3)
            heard = partial(self._heard, acks, before, index)
            try:
                self._context.bookies.call(ensemble[index], request, None, heard)
            except BKError as error:
                asyncio.get_running_loop().call_soon(heard, error.code, None)

    def _heard(self, acks: AckSet, before: int, index: int, code: int, _response: Response | None) -> None:
        if self._telling is not acks:
            return  # decided already
        if code == OK:
            if acks.complete(index):
                self._telling = None
                self._pauses.reset()
                self.progress()
        elif acks.fail(index, code):
            self._telling = None
            self._failed(before, code)

    def _failed(self, before: int, code: int) -> None:
        if self._adds.stopped is not None or self._context.closed:
            return
        if not self._pauses.failures:
            log.warning(
                "ledger %d: LAC %d was not told: %s; trying again", self._ledger_id, self._told, from_code(code)
            )
        self._refused, self._told = self._told, before
        if self._started:
            self._timer = self._context.runtime.call_later(self._pauses.next(), self._tell_now)
