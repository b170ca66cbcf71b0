"""Which entries a flush writes past the system's page cache (`dbStorage_directIOEntryLogger`).

Theory of operation

What goes through the page cache is copied once more, which takes longer than anything else that a bookie does with
large entries; in return it is there for those who read it soon. Past it (`runtime.disk.direct_io`) a flush takes less
processor time, and a disk that it keeps busy takes a quarter more. So with `auto` a flush goes past it when all of this
holds:

- *flushing limits the writers*: the flush before took longer than the time since. A directory that has pauses between
  its flushes loses nothing by the copy.
- *few read from the logs*: readers that are behind the write caches would find on the disk what they are about to ask
  for.
- *its entries are large*, a page and more on average. Of smaller ones a read takes many at once, and gains from pages
  that are there. The entry log's writer sees to this: it knows what is in each write.
"""

from __future__ import annotations

from ....config import AutoBool

LARGE_ENTRY = 4096
"""Bytes of an entry from which on a busy flush gains by going past the page cache."""

BYTES_PER_READ = 1 << 20
"""With more reads of the logs than one for so many flushed bytes, somebody reads what was written lately."""


class PageCacheChoice:
    """Decides for each flush of a directory, from the one before. Times are seconds of one clock.

    What it decides is the average size of an entry from which on a write goes past the cache; None: none does.
    """

    def __init__(self, setting: AutoBool) -> None:
        """True: all go past the cache. False: none."""
        self._setting = setting
        self._began = self._ended = self._took = 0.0
        self._reads = 0
        self.busy = False
        """Flushing limited the writers when the last flush began."""

    def for_moves(self) -> int | None:
        """Compaction's writes: they are never what limits the writers."""
        return 0 if self._setting is True else None

    def for_flush(self, now: float, size: int, reads: int) -> int | None:
        """A flush of `size` bytes begins, when the logs were read so often in all."""
        new_reads, self._reads = reads - self._reads, reads
        self._began = now
        self.busy = self._took > now - self._ended
        if self._setting != "auto":
            return self.for_moves()
        return LARGE_ENTRY if self.busy and new_reads * BYTES_PER_READ <= size else None

    def flushed(self, now: float, rested: float = 0.0) -> None:
        """The flush has ended, whatever came of it; so long it did nothing on purpose."""
        self._took, self._ended = now - self._began - rested, now
