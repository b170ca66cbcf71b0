"""What one connection got done lately: whether it is the bookie that a request waits for.

A request, or an add, may wait for other reasons than a bookie that is dead: its bytes have not left our own buffer
yet, or the bookie is still busy with what it was sent before. Behind a slow link both take any time, with a cluster in
perfect health. So a timeout counts from when its turn came:

- what was handed over is *leaving* while bytes handed over before it, or its own, go out;
- a bookie answers about in the order it was asked: an answer to something handed over no later is progress, and the
  time of everything behind it begins anew. An answer to something handed over *later* is none, so one request that is
  stuck at a bookie that answers all others expires all the same;
- a long answer may take several looks to arrive: bytes that do not make a whole message are progress for all, as
  it is not known yet whose they are.

Everything is looked at once a tick (`runtime.awake`), and told apart by the tick in which it was handed over.
"""

from __future__ import annotations

import math
from collections import deque


class Progress:
    """See the module. One per connection."""

    __slots__ = ("_gone", "_left", "_marks", "_oldest_answered", "heard", "understood")

    def __init__(self) -> None:
        self.heard = False
        """Bytes have come since the last look."""
        self.understood = False
        """So has the end of a message."""
        self._gone = 0  # bytes that had left us at the last look
        self._left = -1  # all that was handed over in this tick or before had left us at the last look
        self._marks: deque[tuple[int, int]] = deque()  # (tick, bytes handed over by its end), ascending; not left
        self._oldest_answered = math.inf  # when the oldest of what was answered since the last look was handed over

    def answered(self, sent: float) -> None:
        """An answer came to what was handed over in tick `sent`."""
        if sent < self._oldest_answered:
            self._oldest_answered = sent

    def look(self, tick: int, written: int, unsent: int) -> float:
        """Tick `tick` is over; `written` bytes were ever handed over, `unsent` are in our buffers still. Once a tick.

        Returns since when what was handed over did not wait for the bookie: its time begins now.
        """
        gone = written - unsent
        since = self._oldest_answered
        if gone > self._gone:
            since = min(since, self._left + 1)
        if self.heard and not self.understood:
            since = -1
        marks = self._marks
        if marks and marks[-1][1] == written:
            marks[-1] = (tick, written)
        else:
            marks.append((tick, written))
        while marks and marks[0][1] <= gone:
            self._left = marks.popleft()[0]
        self._gone = gone
        self._oldest_answered = math.inf
        self.heard = self.understood = False
        return since
