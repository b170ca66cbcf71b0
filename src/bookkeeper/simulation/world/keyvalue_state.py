"""What the folder of a simulated key-value store holds: what was synced, and what a crash may take.

A batch is there whole or not at all. What was not synced survives a crash in the order it was written, up to some
batch.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from dataclasses import dataclass, field

from ...errors import CorruptStorageError

Change = tuple[str, bytes, bytes]
"""put, delete or range; key, or first key; value, or first key that stays."""


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
