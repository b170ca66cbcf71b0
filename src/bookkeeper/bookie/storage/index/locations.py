"""The `locations` database: (ledger id, entry id) -> location in the entry logs (spec bookie-storage §6.3).

Key: int64 ledger id, int64 entry id. Value: int64 location. Both ids are never negative, so the database's unsigned
order is that of the ids.

All calls block. Changes come only from the directory's lane; lookups from any worker.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct

from ....errors import CorruptStorageError
from ....runtime import KeyValueStore
from ..packing import INDEX_CHUNK, cut, longs, pairs

_KEY = Struct(">qq")
_VALUE = Struct(">q")
_AFTER_ID = 1 << 63
"""One more than the greatest id; only as the end of a range of keys."""

KEY_SIZE = 16

Move = tuple[int, int, int, int]
"""Ledger, entry, the location it had, the location it shall have."""


class Located:
    """Entries, of any number of ledgers, and where they are: what a flush has for the index."""

    __slots__ = ("keys", "locations")

    def __init__(self) -> None:
        self.keys = bytearray()
        """As the index has them, in one piece."""
        self.locations: array[int] = array("q")

    def add(self, ledger_ids: Sequence[int], entry_ids: Sequence[int], locations: array[int]) -> None:
        """Add entries, given by columns."""
        self.keys += pairs(ledger_ids, entry_ids)
        self.locations += locations


class LocationIndex:
    """Where each entry of one directory is."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store

    @property
    def generation(self) -> int:
        """Grows when changes may have been lost that were visible, but never durable."""
        return self._store.generation

    def get(self, ledger_id: int, entry_id: int) -> int:
        """The location; 0 when there is none."""
        value = self._store.get(_KEY.pack(ledger_id, entry_id))
        return 0 if value is None else _location(value)

    def get_many(self, keys: Sequence[tuple[int, int]]) -> list[int]:
        """The location of each (ledger, entry); 0 where there is none."""
        values = self._store.get_many([_KEY.pack(*key) for key in keys])
        return [0 if value is None else _location(value) for value in values]

    def last(self, ledger_id: int) -> tuple[int, int] | None:
        """Id and location of the ledger's greatest entry."""
        found = self._store.last_in(*_range(ledger_id))
        return None if found is None else (_KEY.unpack(found[0])[1], _location(found[1]))

    def places(self, ledger_id: int, first: int) -> Iterator[tuple[int, int]]:
        """Ids and locations of a ledger's entries from `first` on, ascending by id."""
        for key, value in self._store.iterate(_KEY.pack(ledger_id, first), _range(ledger_id)[1]):
            yield _KEY.unpack(key)[1], _location(value)

    def entries(self, ledger_id: int) -> array[int]:
        """All entry ids of a ledger, ascending."""
        return array("q", (_VALUE.unpack_from(key, 8)[0] for key, _ in self._store.iterate(*_range(ledger_id))))

    def all(self) -> Iterator[tuple[int, int, int]]:
        """Every ledger, entry and location. A walk over the whole index: for offline tools and rare checks."""
        for key, value in self._store.iterate(_KEY.pack(0, 0), _AFTER_ID.to_bytes(8, "big")):
            ledger_id, entry_id = _KEY.unpack(key)
            yield ledger_id, entry_id, _location(value)

    def write(self, deleted: Iterable[int], located: Located, give_way: Callable[[], None]) -> None:
        """Drop the deleted ledgers' locations, then put those of entries; durable at return.

        The binding of RocksDB keeps the interpreter while it applies a batch: so batches are small, with
        `give_way` between them, and one sync at the end stands for all.
        """
        for ledger_id in deleted:
            batch = self._store.batch()
            batch.delete_range(*_range(ledger_id))
            self._store.write(batch, sync=False)
        for start in range(0, len(located.locations), INDEX_CHUNK):
            end = start + INDEX_CHUNK
            keys = bytes(located.keys[start * KEY_SIZE : end * KEY_SIZE])
            batch = self._store.batch()
            batch.put_many(cut(keys, KEY_SIZE), longs(located.locations[start:end]))
            self._store.write(batch, sync=False)
            give_way()
        self.sync()

    def put(self, places: Iterable[tuple[int, int, int]]) -> None:
        """Set the location of each (ledger, entry, location); durable after `sync`."""
        batch = self._store.batch()
        for ledger_id, entry_id, location in places:
            batch.put(_KEY.pack(ledger_id, entry_id), _VALUE.pack(location))
        self._store.write(batch, sync=False)

    def sync(self) -> None:
        """Make all changes durable."""
        self._store.write(self._store.batch(), sync=True)

    def move(self, moves: Sequence[Move], give_way: Callable[[], None]) -> int:
        """Set new locations, each only if the entry is still where it was; durable at return. Returns how many moved.

        Without the condition a compaction could undo a later add, or bring back a deleted ledger's keys.
        """
        moved = 0
        for start in range(0, len(moves), INDEX_CHUNK):
            part = moves[start : start + INDEX_CHUNK]
            batch = self._store.batch()
            for (ledger_id, entry_id, old, new), current in zip(
                part, self.get_many([(move[0], move[1]) for move in part]), strict=True
            ):
                if current == old:
                    batch.put(_KEY.pack(ledger_id, entry_id), _VALUE.pack(new))
            moved += len(batch)
            self._store.write(batch, sync=False)
            give_way()
        self.sync()
        return moved

    def compact(self) -> None:
        """Rewrite the database's files without what is obsolete."""
        self._store.compact()

    def close(self) -> None:
        self._store.close()


def _range(ledger_id: int) -> tuple[bytes, bytes]:
    """Where the keys of a ledger begin, and where they have ended: those of the greatest entry id included."""
    return _KEY.pack(ledger_id, 0), ledger_id.to_bytes(8, "big") + _AFTER_ID.to_bytes(8, "big")


def _location(value: bytes) -> int:
    if len(value) != 8:
        raise CorruptStorageError(f"location of {len(value)} bytes in the index: {value.hex()}")
    return int(_VALUE.unpack(value)[0])
