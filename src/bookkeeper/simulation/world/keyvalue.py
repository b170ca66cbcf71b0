"""A key-value store with RocksDB's promises at a crash: a batch is there whole or not at all, and what was not synced
may vanish from some batch on, also when only the process is killed (its write-ahead log waits in memory for a sync).

Faults: on a full disk a sync fails with ENOSPC; what was not synced is visible still, until the first write that finds
space opens the store anew without it. A flipped bit in the synced part of the write-ahead log is found when the store
is opened: it never is again. Calls that are slow, or stop the machine: see `DiskFaults`.
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...runtime.api import KeyValueBatch, KeyValueStore
from .disk import SimulatedDisk
from .keyvalue_state import Change, KeyValueState


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


def open_store(disk: SimulatedDisk, path: str, options: Mapping[str, Any]) -> KeyValueStore:
    """Open the key-value store at `path` of a disk."""
    state = disk.stores.get(path)
    if state is None:
        state = disk.stores[path] = KeyValueState()
    return SimulatedKeyValueStore(disk, path, state, read_only=bool(options.get("read_only")))
