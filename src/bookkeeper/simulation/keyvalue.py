"""A key-value store with RocksDB's promises at a crash: a batch is there whole or not at all, and what was not synced
may vanish from some batch on.

Also as behind the seam: a write that finds no space fails with ENOSPC; what was written since the last sync is seen but
not durable, and gone when there is space again and the next write opens the store anew. A log that is damaged is found
when the store is opened.
"""

from __future__ import annotations

import errno
import random
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import CorruptStorageError
from ..runtime.api import KeyValueBatch, KeyValueStore

if TYPE_CHECKING:
    from .disk import SimulatedDisk

Change = tuple[str, bytes, bytes]


class SimulatedBatch(KeyValueBatch):
    """Changes in the order they were made."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.changes.append(("put", bytes(key), bytes(value)))

    def delete(self, key: bytes) -> None:
        self.changes.append(("delete", bytes(key), b""))

    def delete_range(self, start: bytes, end: bytes) -> None:
        self.changes.append(("range", bytes(start), bytes(end)))

    def __len__(self) -> int:
        return len(self.changes)


@dataclass
class KeyValueState:
    """What a store's folder holds; outlives the process that opened it."""

    values: dict[bytes, bytes] = field(default_factory=dict)
    keys: list[bytes] = field(default_factory=list)
    durable: dict[bytes, bytes] = field(default_factory=dict)
    unsynced: list[list[Change]] = field(default_factory=list)
    opened: bool = False
    base: dict[bytes, bytes] = field(default_factory=dict)
    """What is in tables: all that was there when the store was opened."""
    log: list[list[Change]] = field(default_factory=list)
    """The batches synced since then, which are in the write-ahead log only."""
    damaged_at: int | None = None
    """The batch of `log` in which a bit is wrong."""
    no_space: bool = False
    """A write has found no space: the next one must open the store anew."""

    def open(self, path: str) -> None:
        """Replay the log. Raises `CorruptStorageError` for a damaged one."""
        if self.damaged_at is not None:
            self.found_damage(path, self.damaged_at)
        self.base, self.log, self.no_space = dict(self.durable), [], False
        self.opened = True

    def found_damage(self, path: str, batch: int) -> None:
        """What was synced is not readable from this batch of the log on."""
        raise CorruptStorageError(f"{path}: the log is damaged in batch {batch}, which was synced (simulated)")

    def salvage(self, batch: int) -> None:
        """Keep what the log has before a batch, and drop it and all that follow."""
        self.values = dict(self.base)
        self.unsynced = []
        self.keys = sorted(self.values)
        for changes in self.log[:batch]:
            self.apply(changes)
        self.durable = dict(self.values)
        self.damaged_at = None

    def open_anew(self) -> None:
        """After a write without space: what was synced is there."""
        self.values = dict(self.durable)
        self.keys = sorted(self.values)
        self.unsynced = []
        self.no_space = False

    def apply(self, changes: list[Change]) -> None:
        for kind, key, value in changes:
            if kind == "put":
                if key not in self.values:
                    insort(self.keys, key)
                self.values[key] = value
            elif kind == "delete":
                if self.values.pop(key, None) is not None:
                    del self.keys[bisect_left(self.keys, key)]
            else:
                low, high = bisect_left(self.keys, key), bisect_left(self.keys, value)
                for dead in self.keys[low:high]:
                    del self.values[dead]
                del self.keys[low:high]

    def sync(self) -> None:
        self.log += self.unsynced
        for changes in self.unsynced:
            for kind, key, value in changes:
                if kind == "put":
                    self.durable[key] = value
                elif kind == "delete":
                    self.durable.pop(key, None)
                else:
                    for dead in [known for known in self.durable if key <= known < value]:
                        del self.durable[dead]
        self.unsynced = []

    def power_loss(self, dice: random.Random) -> None:
        """Keep what was synced and a drawn number of the batches that followed."""
        kept = self.unsynced[: dice.randint(0, len(self.unsynced))]
        self.values = dict(self.durable)
        self.keys = sorted(self.values)
        for changes in kept:
            self.apply(changes)
        self.durable = dict(self.values)
        self.log += kept
        self.unsynced = []
        self.opened = False


class SimulatedKeyValueStore(KeyValueStore):
    """One open store."""

    def __init__(self, disk: SimulatedDisk, path: str, state: KeyValueState, *, read_only: bool) -> None:
        if state.opened and not read_only:
            raise OSError(f"{path} is open already")
        self._disk = disk
        self._path = path
        self._life = disk.lives
        self._state = state
        self._read_only = read_only
        if not read_only:
            state.open(path)

    def get(self, key: bytes) -> bytes | None:
        self._disk.index_call()
        return self._state.values.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._disk.index_call()
        return [self._state.values.get(key) for key in keys]

    def batch(self) -> KeyValueBatch:
        return SimulatedBatch()

    def write(self, batch: KeyValueBatch, *, sync: bool) -> None:
        assert isinstance(batch, SimulatedBatch)
        self._disk.call(f"kv write {self._path} {len(batch)} {'sync' if sync else ''}", self._life)
        self._disk.index_call()
        try:
            self._disk.check_index_space()
        except OSError as error:
            if error.errno == errno.ENOSPC:
                self._state.no_space = True
            raise
        if self._state.no_space:
            self._state.open_anew()
        self._state.apply(batch.changes)
        self._state.unsynced.append(batch.changes)
        if sync:
            self._disk.check_sync()
            self._state.sync()

    def iterate(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._disk.index_call()
        state = self._state
        keys = state.keys[bisect_left(state.keys, start) : bisect_left(state.keys, end)]
        for key in keys:
            if key in state.values:
                yield key, state.values[key]

    def last_in(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        self._disk.index_call()
        index = bisect_left(self._state.keys, end)
        if index == 0 or self._state.keys[index - 1] < start:
            return None
        found = self._state.keys[index - 1]
        return found, self._state.values[found]

    def compact(self) -> None:
        """Nothing to see."""

    def close(self) -> None:
        if not self._read_only:
            self._state.opened = False
