"""When entry logs and location indexes are compacted (spec bookie-storage §9).

Minor and major compaction of logs differ in threshold and interval. Disks that fill up forbid them, and operators may.
Indexes are compacted every `entryLocationCompactionInterval`, and when an operator asks for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from ....config import ServerConfiguration
from ....runtime import Runtime, Workers


class LogCompaction:
    """When one kind of compaction is due."""

    def __init__(self, name: str, threshold: float, interval: float, max_seconds: float, now: float) -> None:
        self.name = name
        self.threshold = threshold
        self.interval = interval
        self.max_seconds = max_seconds
        """Longest run; 0 or less: no limit."""
        self.enabled = self.interval > 0 and self.threshold > 0
        self.last = now
        self.suspended = False
        """The disks forbid it."""
        self.held = False
        """An operator does."""
        self.running = False
        self.count = 0
        """Runs that have ended, in this process."""
        self.ended_ms = 0
        """When the last one did, since 1970; 0: none has."""

    @classmethod
    def minor(cls, config: ServerConfiguration, now: float) -> LogCompaction:
        longest = config.minorCompactionMaxTimeMillis / 1000
        return cls("minor", config.minorCompactionThreshold, config.minorCompactionInterval, longest, now)

    @classmethod
    def major(cls, config: ServerConfiguration, now: float) -> LogCompaction:
        longest = config.majorCompactionMaxTimeMillis / 1000
        return cls("major", config.majorCompactionThreshold, config.majorCompactionInterval, longest, now)

    @property
    def stopped(self) -> bool:
        return self.suspended or self.held

    def due(self, now: float, forced: bool, allow_when_disabled: bool) -> bool:
        if self.stopped:
            return False
        if forced and allow_when_disabled and 0 < self.threshold < 1:
            return True
        return self.enabled and (forced or now - self.last > self.interval)


class HasIndex(Protocol):
    """A directory with a location index."""

    path: str

    def compact_index(self) -> None:
        """For a worker."""


class IndexCompaction:
    """Of all directories of a storage, one after another."""

    def __init__(self, runtime: Runtime, configuration: ServerConfiguration, directories: Sequence[HasIndex]) -> None:
        self._runtime = runtime
        self._directories = directories
        self._interval = configuration.entryLocationCompactionInterval
        self._due = self._next()
        self._wanted: dict[str, None] = {}
        self.running: dict[str, bool] = {directory.path: False for directory in directories}
        """By the path of each directory."""
        self.count = 0
        """Runs that have ended, in this process."""
        self.ended_ms = 0
        """When the last one did, since 1970; 0: none has."""

    def want(self, paths: Collection[str]) -> None:
        """These are due with the next pass."""
        self._wanted |= dict.fromkeys(paths)

    async def run(self, worker: Workers) -> None:
        """Do what is due."""
        due = self._interval > 0 and self._runtime.now() >= self._due
        wanted = dict.fromkeys(self.running) if due else self._wanted
        self._wanted = {}
        if not wanted:
            return
        for directory in self._directories:
            if directory.path in wanted:
                self.running[directory.path] = True
                try:
                    await worker.submit(directory.compact_index)
                finally:
                    self.running[directory.path] = False
        self.count += 1
        self.ended_ms = self._runtime.wall_ms()
        if due:
            self._due = self._next()

    def _next(self) -> float:
        """Interval and a random delay of up to as much again: bookies started together do not compact together."""
        share = 1 + self._runtime.random("index compaction").random()
        return self._runtime.now() + self._interval * share
