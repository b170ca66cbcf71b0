"""Reading a long range in order, ahead of the caller that takes the entries.

Theory of operation

- The range is read in *chunks*, up to `CHUNKS_AHEAD` of them at a time. What all chunks may hold together is the
  window, in bytes; so each gets its share. A chunk that was not taken yet holds its memory: the next one begins when
  the first one has been handed out.
- How many entries make a chunk is a guess from the size of entries (`LedgerReads.entry_size`). A chunk ends when it has
  its share of bytes, whatever was guessed; the rest of it becomes a chunk of its own, in front of the others. Nothing
  is known before the first chunk, so it is read alone.
- Bookies work on the chunks behind while the caller works on the one in front: so what is begun leaves before any entry
  is given out. A caller that never waits would keep it here, and both would wait for each other by turns.
- With a request for each entry, sizes can only be guessed when the requests go out. So a chunk has no more than its
  share of `window` entries then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, TypeVar

from ...errors import BKError
from ...runtime import Runtime
from .ledger_reads import LedgerReads

CHUNKS_AHEAD = 4
"""A range is read in chunks, and so many of them at a time."""

LARGEST_CHUNK = 4096
"""Entries."""

LEFT_OVER = 0.125
"""Of a chunk's room: so little is not worth another request."""

GUESS = 0.9
"""Part of a chunk's share that is planned with: a little more than was guessed shall still fit."""

T = TypeVar("T")
"""An entry, or columns of some."""

Chunk = tuple[list[T], BKError | None]
"""Entries of a range from its beginning, and why they end before its end: None if only because there was no more
room."""

ReadChunk = Callable[[int, int, int], Awaitable[Chunk[T]]]
"""Reads entries `first` to `last`, about so many bytes of them; at least one, or an error."""


class ReadAhead(Generic[T]):
    """Reads ranges of one ledger: `async for entry in ReadAhead(...).entries(first, last)`."""

    def __init__(
        self,
        runtime: Runtime,
        reads: LedgerReads,
        read_chunk: ReadChunk[T],
        last_of: Callable[[T], int],
        window: int,
        window_bytes: int,
    ) -> None:
        """`last_of`: the id of an item's last entry."""
        self._last_of = last_of
        self._runtime = runtime
        self._reads = reads
        self._read_chunk = read_chunk
        self._most_singles = max(1, window // CHUNKS_AHEAD)
        self._share = max(1, window_bytes // CHUNKS_AHEAD)

    async def entries(self, first: int, last: int) -> AsyncGenerator[T, None]:
        """The entries in order. Raises the error of the first that cannot be read, in its place."""
        chunks: deque[tuple[asyncio.Task[Chunk[T]], int]] = deque()  # with the last entry of each; without gaps
        next_id = first  # behind all chunks
        try:
            while next_id <= last or chunks:
                begun = False
                while next_id <= last and (not chunks or (len(chunks) < CHUNKS_AHEAD and self._reads.entry_size)):
                    end = min(last, next_id + self._count(next_id) - 1)
                    chunks.append((self._start(next_id, end), end))
                    next_id = end + 1
                    begun = True
                if begun:
                    await _requests_have_left()
                entries, error = await chunks[0][0]
                _, end = chunks.popleft()
                for entry in entries:
                    yield entry
                if error is not None:
                    raise error
                rest = self._last_of(entries[-1]) + 1
                if rest > end:
                    continue
                if chunks:
                    chunks.appendleft((self._start(rest, end), end))
                else:
                    next_id = rest
        finally:
            tasks = [task for task, _ in chunks]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    def _count(self, first: int) -> int:
        """How many entries make the chunk that begins with `first`."""
        most = LARGEST_CHUNK if self._reads.can_batch(first) else self._most_singles
        size = self._reads.entry_size
        return max(1, min(most, int(self._share * GUESS / size))) if size else most

    def _start(self, first: int, last: int) -> asyncio.Task[Chunk[T]]:
        return self._runtime.spawn(self._read(first, last), name=f"entries of ledger {self._reads.ledger_id}")

    async def _read(self, first: int, last: int) -> Chunk[T]:
        return await self._read_chunk(first, last, self._share)


async def _requests_have_left() -> None:
    """Of tasks that were just begun: they run in one turn of the loop, and connections write in the next."""
    for _ in range(2):
        await asyncio.sleep(0)
