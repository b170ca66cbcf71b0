"""The loop's side of group commit: what makes a batch leave at the moment that `group_commit` decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...runtime import Runtime, TimerHandle
from .gathering import Batch
from .group_commit import Departure, GroupCommit


class Departures:
    """Calls `leave` when the next batch should leave: at once, at the end of the turn, or after a wait."""

    def __init__(
        self, runtime: Runtime, longest_wait: float, can_leave: Callable[[], bool], leave: Callable[[], None]
    ) -> None:
        """`longest_wait`: of `GroupCommit`. `can_leave`: whether there is a batch, and the write lane is free."""
        self._runtime = runtime
        self._rule = GroupCommit(longest_wait)
        self._can_leave = can_leave
        self._leave = leave
        self.turn_ends = False
        """The end of this turn is waited for: there is nothing to decide before."""
        self._timer: TimerHandle | None = None

    def schedule(self, batch: Batch, unsynced: int) -> None:
        """See to it that this batch leaves when it should. The write lane is free; `unsynced` others are on their way.

        To be called whenever something changed, except while `turn_ends`.
        """
        departure = self._rule.departure(full=batch.full, answers_when_written=bool(batch.early), unsynced=unsynced)
        if departure is Departure.NOW:
            self._leave()
        elif departure is Departure.AT_TURN_END and self._timer is None:
            self.turn_ends = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self.turn_ends = False
        if not self._can_leave():
            return
        if wait := self._rule.wait(self._runtime.now()):
            self._timer = self._runtime.call_later(wait, self._wait_over)
        else:
            self._leave()

    def _wait_over(self) -> None:
        self._timer = None
        if self._can_leave():
            self._leave()

    def left(self, batch: Batch) -> None:
        """This batch has left."""
        self.cancel()
        self._rule.left(self._runtime.now(), batch.count)

    def hurry(self) -> None:
        """Nothing is waited for from now on."""
        self.cancel()
        self._rule.hurry()

    def cancel(self) -> None:
        """Do not wait for the moment that was set."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
