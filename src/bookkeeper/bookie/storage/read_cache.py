"""Records read ahead from entry logs.

Theory of operation

What one read of an entry log brought is kept as it is: a block of records of consecutive entries (size word and entry
each). An entry is cut out of its block when it is asked for, a batch read takes a whole slice. Blocks leave in the
order they came, as soon as the cache is over its limit; no bookkeeping on hits. Memory is the block's bytes plus 4
bytes an entry. An entry that was read without its neighbours is kept by itself, and leaves with its turn as blocks do.

Nothing here may outlive what it was read from: when a flush has put newer versions of entries into the logs, or a
ledger is deleted, `forget` drops what is kept of the ledger. It is not found from then on. Its memory, which may be
hundreds of thousands of entries, comes back in pieces, so that nothing else has to wait for it: some now, more with
each call that forgets or keeps something, the rest with its turn.
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

SINGLE_OVERHEAD = 250
"""Bytes an entry takes beside its own that is kept by itself."""

EMPTIED_AT_ONCE = 256
"""Blocks and entries of forgotten ledgers whose memory one call gives back, at most: about 0.1 ms."""


class _Block:
    __slots__ = ("first", "ledger_id", "offsets", "raw")

    def __init__(self, ledger_id: int, first: int, records: Records) -> None:
        self.ledger_id = ledger_id
        self.first = first
        self.raw, self.offsets = records

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def memory(self) -> int:
        return len(self.raw) + 4 * len(self.offsets) + BLOCK_OVERHEAD

    def empty(self) -> None:
        self.raw = b""
        self.offsets = _NO_OFFSETS


class _Single:
    """An entry kept by itself."""

    __slots__ = ("entry", "entry_id", "ledger_id")

    def __init__(self, ledger_id: int, entry_id: int, entry: bytes) -> None:
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.entry = entry

    def memory(self) -> int:
        return len(self.entry) + SINGLE_OVERHEAD

    def empty(self) -> None:
        self.entry = b""


_NO_OFFSETS = array("I")


class _LedgerBlocks:
    """Blocks of one ledger by ascending first entry."""

    __slots__ = ("blocks", "entries", "firsts")

    def __init__(self) -> None:
        self.entries = 0
        """How many the blocks have."""
        self.firsts: list[int] = []
        self.blocks: list[_Block] = []


class ReadCache:
    """Recently read blocks of records, bounded by memory."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.entries = 0
        """How many it holds. Counted, as who asks must not go through all of them."""
        self._ledgers: dict[int, _LedgerBlocks] = {}
        self._singles: dict[int, dict[int, _Single]] = {}  # by ledger and entry; none is empty
        self._queue: deque[_Block | _Single] = deque()  # all, forgotten or not, oldest first; `used` is their memory
        self._forgotten: deque[dict[int, _Single] | list[_Block]] = deque()  # to be emptied; none is empty

    def put(self, ledger_id: int, first: int, records: Records) -> None:
        """Keep records of the entries from `first` on, unless they are more than a quarter of the limit."""
        if len(records.raw) > self.limit // 4:
            return
        block = _Block(ledger_id, first, records)
        held = self._ledgers.setdefault(ledger_id, _LedgerBlocks())
        index = bisect_right(held.firsts, first)
        self._count(held, len(block))
        if index and held.firsts[index - 1] == first:
            self._count(held, -len(held.blocks[index - 1]))
            held.blocks[index - 1] = block
        else:
            held.firsts.insert(index, first)
            held.blocks.insert(index, block)
        self._keep(block)

    def put_one(self, ledger_id: int, entry_id: int, entry: bytes) -> None:
        """Keep an entry by itself, unless it is there already or more than a quarter of the limit."""
        singles = self._singles.get(ledger_id, {})
        if entry_id in singles or len(entry) > self.limit // 4:
            return
        single = singles[entry_id] = _Single(ledger_id, entry_id, entry)
        self._singles[ledger_id] = singles
        self.entries += 1
        self._keep(single)

    def _count(self, held: _LedgerBlocks, entries: int) -> None:
        held.entries += entries
        self.entries += entries

    def _keep(self, item: _Block | _Single) -> None:
        self._empty_some()
        self._queue.append(item)
        self.used += item.memory()
        while self.used > self.limit:
            self._drop_oldest()

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        held = self._ledgers.get(ledger_id)
        if held is not None and (index := bisect_right(held.firsts, entry_id)):
            block = held.blocks[index - 1]
            place = entry_id - block.first
            if place + 1 < len(block.offsets):
                return block.raw[block.offsets[place] + fmt.SIZE_WORD : block.offsets[place + 1]]
        singles = self._singles.get(ledger_id)
        if singles is None or (single := singles.get(entry_id)) is None:
            return None
        return single.entry

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
        """Drop all that is kept of a ledger."""
        self._drop(ledger_id)
        self._empty_some()

    def forget_all(self, ledgers: Mapping[int, object]) -> None:
        """`forget` for each of these; costs no more than the fewer of them and of those that are here."""
        for ledger_id in (self._ledgers.keys() & ledgers.keys()) | (self._singles.keys() & ledgers.keys()):
            self._drop(ledger_id)
        self._empty_some()

    def _drop(self, ledger_id: int) -> None:
        singles = self._singles.pop(ledger_id, None)
        if singles is not None:
            self.entries -= len(singles)
            self._forgotten.append(singles)
        held = self._ledgers.pop(ledger_id, None)
        if held is not None:
            self.entries -= held.entries
            self._forgotten.append(held.blocks)

    def _empty_some(self) -> None:
        """Give back memory of what was forgotten; the shells leave with their turn in the queue."""
        for _ in range(EMPTIED_AT_ONCE):
            if not self._forgotten:
                return
            items = self._forgotten[0]
            item = items.popitem()[1] if isinstance(items, dict) else items.pop()
            if not items:
                self._forgotten.popleft()
            self.used -= item.memory()
            item.empty()
            self.used += item.memory()

    def _drop_oldest(self) -> None:
        item = self._queue.popleft()
        self.used -= item.memory()
        if isinstance(item, _Single):
            self._remove_single(item)
        else:
            self._remove(item)
        item.empty()  # it may wait to be emptied still

    def _remove_single(self, single: _Single) -> None:
        """Unless it is there no more."""
        singles = self._singles.get(single.ledger_id)
        if singles is not None and singles.get(single.entry_id) is single:
            del singles[single.entry_id]
            self.entries -= 1
            if not singles:
                del self._singles[single.ledger_id]

    def _remove(self, block: _Block) -> None:
        """Unless it is there no more."""
        held = self._ledgers.get(block.ledger_id)
        if held is None:
            return
        index = bisect_right(held.firsts, block.first) - 1
        if index >= 0 and held.blocks[index] is block:
            del held.firsts[index], held.blocks[index]
            self._count(held, -len(block))
            if not held.blocks:
                del self._ledgers[block.ledger_id]
