"""What Spark keeps of a streaming query, as far as a sink depends on it (spec streams §16, §17.6).

`offsets/<batch>` is written before a batch is run, `commits/<batch>` after its commit. A query that is begun again runs
the batch that has the one and not the other once more, with the same offsets. Both files are created atomically: of two
drivers the second one finds that it is not alone, and ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field


class NotAloneError(Exception):
    """Another driver has written what this one was about to."""


@dataclass
class Checkpoint:
    """Of one query, whose input are the numbers from 0 on."""

    query: str
    offsets: dict[int, bytes] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)

    def copy(self) -> Checkpoint:
        """A backup."""
        return Checkpoint(self.query, dict(self.offsets), set(self.commits))

    def next_batch(self) -> int:
        """The one to be run: the last one again, if it was not committed."""
        last = max(self.offsets, default=-1)
        return last + 1 if last in self.commits or last < 0 else last

    def end(self, batch: int) -> int:
        """The first number that a batch does not read; 0 before the first one."""
        return int(self.offsets[batch].rpartition(b"\n")[2]) if batch >= 0 else 0

    def plan(self, batch: int, end: int, now: float) -> None:
        """Say what a batch reads. Raises `NotAloneError`."""
        if batch in self.offsets:
            raise NotAloneError
        self.offsets[batch] = b'v1\n{"batchTimestampMs":%d}\n%d' % (now * 1000, end)

    def committed(self, batch: int) -> None:
        """Raises `NotAloneError`."""
        if batch in self.commits:
            raise NotAloneError
        self.commits.add(batch)
