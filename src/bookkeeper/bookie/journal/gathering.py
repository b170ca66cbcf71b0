"""What is appended and not written yet: batches, of which the last one gathers."""

from __future__ import annotations

from collections import deque

from .telling import Done


class Batch:
    """What is written and synced together."""

    __slots__ = ("count", "early", "full", "late", "left", "pieces", "size", "sync")

    def __init__(self, sync: bool) -> None:
        self.pieces: list[bytes] = []
        """Whole records, cut anywhere."""
        self.size = 0
        self.count = 0
        self.early: list[Done] = []
        """To tell when written."""
        self.late: list[Done] = []
        """To tell when synced."""
        self.sync = sync
        """It must be synced. Holds if `late` is not empty."""
        self.full = False
        """It takes no more."""
        self.left = 0.0
        """When it went to be written."""


class Gathering:
    """Batches in the order of their records. All but the last are full."""

    __slots__ = ("_most_bytes", "_most_records", "queue")

    def __init__(self, most_bytes: int, most_records: int) -> None:
        """A batch is full with so many bytes or records. Its last append may go beyond."""
        self._most_bytes = most_bytes
        self._most_records = most_records
        self.queue: deque[Batch] = deque()
        """Not yet given to the write lane."""

    def batch(self, sync: bool) -> Batch:
        """The batch that takes what is appended now."""
        queue = self.queue
        if not queue or queue[-1].full:
            queue.append(Batch(sync))
        batch = queue[-1]
        batch.sync = batch.sync or sync
        return batch

    def is_full(self, batch: Batch) -> bool:
        return batch.size >= self._most_bytes or batch.count >= self._most_records
