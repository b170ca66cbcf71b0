"""Records read ahead from entry logs.

Theory of operation

What one read of an entry log brought is kept as it is: a block of records of consecutive entries (size word and entry
each). An entry is cut out of its block when it is asked for, a batch read takes a whole slice. Blocks leave in the
order they came, as soon as the cache is over its limit; no bookkeeping on hits. Memory is the block's bytes plus 4
bytes an entry.

Nothing here may outlive what it was read from: when a flush has put newer versions of entries into the logs, or a
ledger is deleted, `forget` drops the ledger's blocks.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping

from .entry_log import format as fmt
from .entry_log.reader import Records

BLOCK_OVERHEAD = 400
"""Bytes a block takes beside its records and offsets."""


class _Block:
    __slots__ = ("alive", "first", "ledger_id", "offsets", "raw")

    def __init__(self, ledger_id: int, first: int, records: Records) -> None:
        self.ledger_id = ledger_id
        self.first = first
        self.raw, self.offsets = records
        self.alive = True
        """False once it is no longer in its ledger's list."""

    def memory(self) -> int:
        return len(self.raw) + 4 * len(self.offsets) + BLOCK_OVERHEAD


class _LedgerBlocks:
    """Blocks of one ledger by ascending first entry."""

    __slots__ = ("blocks", "firsts")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.blocks: list[_Block] = []


class ReadCache:
    """Recently read blocks of records, bounded by memory."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._ledgers: dict[int, _LedgerBlocks] = {}
        self._queue: deque[_Block] = deque()  # every block, alive or not, oldest first; `used` is their memory

    @property
    def entries(self) -> int:
        """How many it holds."""
        return sum(len(block.offsets) - 1 for block in self._queue if block.alive)

    def put(self, ledger_id: int, first: int, records: Records) -> None:
        """Keep records of the entries from `first` on, unless they are more than a quarter of the limit."""
        if len(records.raw) > self.limit // 4:
            return
        block = _Block(ledger_id, first, records)
        held = self._ledgers.setdefault(ledger_id, _LedgerBlocks())
        index = bisect_right(held.firsts, first)
        if index and held.firsts[index - 1] == first:
            held.blocks[index - 1].alive = False
            held.blocks[index - 1] = block
        else:
            held.firsts.insert(index, first)
            held.blocks.insert(index, block)
        self._queue.append(block)
        self.used += block.memory()
        while self.used > self.limit:
            self._drop_oldest()

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        held = self._ledgers.get(ledger_id)
        if held is None:
            return None
        index = bisect_right(held.firsts, entry_id) - 1
        if index < 0:
            return None
        block = held.blocks[index]
        place = entry_id - block.first
        if place + 1 >= len(block.offsets):
            return None
        return block.raw[block.offsets[place] + fmt.SIZE_WORD : block.offsets[place + 1]]

    def slice(self, ledger_id: int, first: int, max_count: int, max_bytes: int) -> tuple[bytes, int]:
        """Records from `first` on that are together here, as many as fit, at least one; and their number.

        None here: b"" and 0.
        """
        held = self._ledgers.get(ledger_id)
        index = bisect_right(held.firsts, first) - 1 if held else -1
        if held is None or index < 0:
            return b"", 0
        block = held.blocks[index]
        offsets = block.offsets
        place = first - block.first
        end = min(place + max_count, len(offsets) - 1)
        if place >= end:
            return b"", 0
        start = offsets[place]
        end = max(place + 1, bisect_right(offsets, start + max_bytes, place, end + 1) - 1)
        return block.raw[start : offsets[end]], end - place

    def forget(self, ledger_id: int) -> None:
        """Drop all blocks of a ledger."""
        held = self._ledgers.pop(ledger_id, None)
        if held is not None:
            for block in held.blocks:
                self._empty(block)

    def forget_all(self, ledgers: Mapping[int, object]) -> None:
        """`forget` for each of these; costs no more than the fewer of them and of those that are here."""
        for ledger_id in self._ledgers.keys() & ledgers.keys():
            self.forget(ledger_id)

    def _drop_oldest(self) -> None:
        block = self._queue.popleft()
        self.used -= block.memory()
        if not block.alive:
            return
        held = self._ledgers[block.ledger_id]
        index = bisect_right(held.firsts, block.first) - 1
        assert held.blocks[index] is block
        del held.firsts[index], held.blocks[index]
        if not held.blocks:
            del self._ledgers[block.ledger_id]

    def _empty(self, block: _Block) -> None:
        """Give a dropped block's memory back now; its shell leaves with its turn in the queue."""
        self.used -= block.memory()
        block.alive = False
        block.raw = b""
        block.offsets = array("I")
        self.used += block.memory()
