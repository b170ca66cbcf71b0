"""Time, for one writer's adds: what takes too long although its bookies answer, and pauses between changes.

That a bookie does not answer at all is noticed by the channels (`wire.add_channel`), which know what it is busy with
but not which entries it answered. Here is the rest: an entry that was *overtaken*, because its bookie answered later
ones for as long as adds may take and so has lost it; and the quorum timeout, for entries that no ack quorum of bookies
takes.

Time is counted in ticks of a clock that all writers of a client share. A writer hears them while it has something
outstanding, and some more, until it rests (`adds.appending`). It misses others, so it asks for the time before it
pushes; what it remembers of its last ticks is older than all that is pushed then, and so overtakes none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...config import ClientConfiguration
from ...runtime.api import TimerHandle
from ...runtime.awake import SharedClock
from ...runtime.waiting.backoff import Backoff

MAX_SWEEP_SECONDS = 1.0
"""How often timeouts are looked for when `timeoutMonitorIntervalSec` does not say and the timeouts are long."""

QUIET_TICKS = 5
"""After so many ticks, mostly seconds, in which nothing was under way, a writer may rest."""

FRUITLESS_CHANGES = 5
"""So many ensemble changes may follow each other at once although nothing was confirmed in between."""

CHANGE_BACKOFF = Backoff(first=0.01, longest=1.0)
"""Before each of the further ones."""


class AddDeadlines:
    """See the module."""

    __slots__ = (
        "_history", "_most_history", "_on_tick", "_pushed", "_quiet", "_quorum_ticks", "_timed", "clock", "pauses",
        "running",
    )  # fmt: skip

    def __init__(
        self,
        config: ClientConfiguration,
        clock_of: Callable[[float], SharedClock],
        quorum_timeout: float,
        on_tick: Callable[[], None],
    ) -> None:
        """`clock_of`: the clock that ticks every so many seconds.

        `quorum_timeout`: seconds an entry may take to its ack quorum; zero or less: no limit.
        """
        add_timeout = float(config.readTimeout if config.addEntryTimeoutSec is None else config.addEntryTimeoutSec)
        timeouts = [timeout for timeout in (add_timeout, quorum_timeout) if timeout > 0]
        interval = config.timeoutMonitorIntervalSec or min([MAX_SWEEP_SECONDS, *(t / 2 for t in timeouts)])
        self.clock = clock_of(interval)
        self.running = False
        """It hears the ticks."""
        self.pauses = ChangePauses()
        self._on_tick = on_tick
        self._quiet = 0  # ticks in a row in which nothing was under way
        self._pushed = -1  # the last entry at the last of them
        self._timed = bool(timeouts)
        self._quorum_ticks = self.clock.ticks(quorum_timeout)
        self._history: list[list[float]] | None = None
        """Times of the latest acks at the last ticks, as many as an add may take; None: as long as it likes."""
        if add_timeout > 0:
            self._history = []
            self._most_history = int(self.clock.ticks(add_timeout)) + 1

    def run(self) -> None:
        """Hear the ticks, until `stop`."""
        if self._timed and not self.running:
            self.running = True
            self.clock.listen(self._on_tick)

    def stop(self) -> None:
        """Nothing will be outstanding. Idempotent."""
        if self.running:
            self.running = False
            self.clock.leave(self._on_tick)

    def quiet(self, pushed: int) -> bool:
        """Nothing is under way at this tick, nor was it at some before; `pushed` is the last entry there is."""
        before, self._pushed = self._pushed, pushed
        self._quiet = self._quiet + 1 if pushed == before else 0
        return self._quiet >= QUIET_TICKS

    def in_time(self) -> None:
        """All that is under way at this tick was pushed since the last one: nothing was overtaken, nor will be before
        what comes now was remembered for as long as an add may take."""
        if self._history:
            self._history.clear()

    def overtaken_before(self, acked: Sequence[float]) -> list[float] | None:
        """By index: what was pushed before that and is not answered was overtaken; None: too early to say.

        `acked` are the window's `acked_times`; to be asked once a tick, if it is not `in_time`.
        """
        history = self._history
        if history is None:
            return None
        history.append(list(acked))
        if len(history) < self._most_history:
            return None
        del history[: -self._most_history]
        # Of an index that was sent everything again since, only what it acked since counts.
        return [min(old, new) for old, new in zip(history[0], acked, strict=True)]

    @property
    def quorum_overdue(self) -> float:
        """What was pushed at this tick or before should be confirmed."""
        return self.clock.tick - 1 - self._quorum_ticks


class ChangePauses:
    """Where every replacement fails at once, change after change would be made as fast as the machine can."""

    __slots__ = ("_fruitless", "_head", "timer")

    def __init__(self) -> None:
        self.timer: TimerHandle | None = None
        """Of the last pause before a change or a retry."""
        self._head = -2  # what was confirmed when a change was last asked for
        self._fruitless = 0  # changes in a row since which nothing was confirmed

    def end(self) -> None:
        """What was to come after the pause does not. Idempotent."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def before_change(self, head: int) -> float:
        """Seconds to wait before the change that is asked for now; `head` is the last entry confirmed."""
        self._fruitless = self._fruitless + 1 if head == self._head else 0
        self._head = head
        if self._fruitless < FRUITLESS_CHANGES:
            return 0.0
        return CHANGE_BACKOFF.pause(self._fruitless - FRUITLESS_CHANGES)
