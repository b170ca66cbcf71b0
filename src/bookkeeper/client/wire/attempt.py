"""An attempt to connect to a bookie, and the frames that wait for it."""

from __future__ import annotations

import asyncio


class Attempt:
    """See the module. Lives as long as the connection is connecting."""

    __slots__ = ("_deadline", "_frames", "_task", "waiting")

    def __init__(self, task: asyncio.Task[None], deadline: float) -> None:
        """`deadline`: the tick at which it has taken too long."""
        self._task = task
        self._deadline = deadline
        self._frames: list[bytes] = []
        self.waiting = 0
        """Bytes of the frames that wait."""

    def overdue(self, tick: int) -> bool:
        """Whether it has taken too long."""
        return tick >= self._deadline

    def hold(self, frames: bytes) -> None:
        """These frames go out when there is a connection."""
        self._frames.append(frames)
        self.waiting += len(frames)

    def take(self) -> bytes:
        """Everything that waits, in order."""
        frames = b"".join(self._frames)
        self._frames.clear()
        self.waiting = 0
        return frames

    def give_up(self) -> None:
        """Stop trying; what waits is lost."""
        self._task.cancel()
        self._frames.clear()
        self.waiting = 0
