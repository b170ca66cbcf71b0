"""A key-value store with RocksDB's promises at a crash: a batch is there whole or not at all, and what was not synced
may vanish from some batch on, also when only the process is killed (its write-ahead log waits in memory for a sync).

Faults: on a full disk a sync fails with ENOSPC; what was not synced is visible still, until the first write that finds
space opens the store anew without it. A flipped bit in the synced part of the write-ahead log is found when the store
is opened: it never is again. Calls that are slow, or stop the machine: see `DiskFaults`.
"""

from __future__ import annotations

import errno
import random
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...errors import CorruptStorageError
from ...runtime.api import KeyValueBatch, KeyValueStore

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

    def open(self, path: str) -> None:
        """Replay the log. Raises `CorruptStorageError` for a damaged one."""
        if self.damaged_at is not None:
            self.found_damage(path, self.damaged_at)
        self.base, self.log = dict(self.durable), []
        self.opened = True

    def found_damage(self, path: str, batch: int) -> None:
        """What was synced is not readable from this batch of the log on."""
        raise CorruptStorageError(f"{path}: the write-ahead log is damaged in batch {batch} (simulated)")

    def salvage(self, batch: int) -> None:
        """Keep what the log has before a batch, and drop it and all that follow."""
        self.durable = dict(self.base)
        self.forget_unsynced()
        for changes in self.log[:batch]:
            self.apply(changes)
        self.durable = dict(self.values)
        self.damaged_at = None

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
        self.log += filter(None, self.unsynced)
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

    def forget_unsynced(self) -> None:
        """Back to what was synced."""
        self.values = dict(self.durable)
        self.keys = sorted(self.values)
        self.unsynced = []

    def crash(self, dice: random.Random) -> None:
        """Keep what was synced and a drawn number of the batches that followed."""
        kept = self.unsynced[: dice.randint(0, len(self.unsynced))]
        self.forget_unsynced()
        for changes in kept:
            self.apply(changes)
        self.durable = dict(self.values)
        self.log += kept
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
        self._no_space = False
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
        if self._no_space:
            self._disk.check_index_space(1, self._path)
            self._no_space = False
            self.generation += 1
            self._state.forget_unsynced()
        self._state.apply(batch.changes)
        self._state.unsynced.append(batch.changes)
        if sync and any(self._state.unsynced):
            self._sync()

    def _sync(self) -> None:
        size = sum(len(key) + len(value) for part in self._state.unsynced for _, key, value in part)
        try:
            self._disk.check_index_space(size, self._path)
        except OSError as error:
            self._no_space = error.errno == errno.ENOSPC
            raise
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
        if not self._read_only and self._life == self._disk.lives and self._state.opened:
            if not self._no_space:
                self._state.sync()  # tables are written; the log is not needed any more
            self._state.log, self._state.damaged_at = [], None
            self._state.opened = False
