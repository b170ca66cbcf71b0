"""Watching how full the disks are, and what follows from it (spec bookie-server §1.9, bookie-storage §10).

Theory of operation

`DiskWatch` is the pure part: it keeps which directories are filled, takes the usage of each from time to time, and
says what happened as `DiskEvent`s. `DiskMonitor` measures and hands the events to whoever listens: the bookie's state
(read-only and back), and the storage (compaction stops on a full disk).

A directory is filled above `diskUsageThreshold` and almost full above `diskUsageWarnThreshold`. Filled directories come
back when they fall below the threshold; but when all were filled only after total usage fell below
`diskUsageLwmThreshold`, so that the bookie does not flap. A directory that cannot be used at all ends the bookie.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from bookkeeper.config import ServerConfiguration
from bookkeeper.errors import NoWritableLedgerDirError
from bookkeeper.runtime import DiskUsage, Files, Runtime

from .directories import Directories, current

log = logging.getLogger(__name__)


class DiskEventKind(Enum):
    """What happened to the disks."""

    DISK_FAILED = "disk failed"
    DISK_ALMOST_FULL = "disk almost full"
    DISK_FULL = "disk full"
    DISK_WRITABLE = "disk writable"
    DISK_JUST_WRITABLE = "disk just writable"
    ANY_DISK_FULL = "some disk is full"
    ALL_DISKS_FULL = "all disks are full"
    ALL_DISKS_WRITABLE = "all disks are writable"


@dataclass(frozen=True, slots=True)
class DiskEvent:
    kind: DiskEventKind
    directory: str | None = None
    """Which one, for events about one."""
    high_priority_allowed: bool = True
    """For ANY_DISK_FULL and ALL_DISKS_FULL: whether there is room for the writes of recovery."""


DiskListener = Callable[[DiskEvent], None]


@dataclass(frozen=True, slots=True)
class DiskLimits:
    full: float
    almost_full: float
    low_water: float
    high_priority_bytes: int
    """Usable bytes that high-priority writes need on some disk."""

    @classmethod
    def of(cls, config: ServerConfiguration) -> DiskLimits:
        return cls(
            config.diskUsageThreshold,
            config.diskUsageWarnThreshold,
            config.diskUsageThreshold if config.diskUsageLwmThreshold is None else config.diskUsageLwmThreshold,
            high_priority_bytes(config),
        )


def entry_log_bytes(config: ServerConfiguration) -> int:
    """Usable bytes needed to create an entry log while no directory is writable."""
    configured = config.minUsableSizeForEntryLogCreation
    return config.logSizeLimit if configured is None else configured


def high_priority_bytes(config: ServerConfiguration) -> int:
    configured = config.minUsableSizeForHighPriorityWrites
    return entry_log_bytes(config) if configured is None else configured


def used_share(usage: DiskUsage) -> float:
    return 1 - usage.usable / usage.total if usage.total else 1.0


class DiskWatch:
    """The filled and writable directories of one kind (ledger or index)."""

    def __init__(self, roots: Sequence[str], limits: DiskLimits) -> None:
        self._roots = tuple(roots)
        self._limits = limits
        self._filled: dict[str, None] = {}
        self._almost_full: dict[str, None] = {}  # writable ones that an event has called almost full
        self._first = True
        self.usage: dict[str, DiskUsage] = {}
        """The last measurement of each directory."""

    @property
    def writable(self) -> list[str]:
        return [root for root in self._roots if root not in self._filled]

    def no_space(self) -> None:
        """Somebody could not write, whatever the measurements say: all count as filled until the next one."""
        self._filled.update(dict.fromkeys(self.writable))

    def update(self, measured: Mapping[str, DiskUsage | OSError]) -> list[DiskEvent]:
        """Take a measurement of every directory; returns what happened, in order."""
        events: list[DiskEvent] = []
        self.usage = {root: usage for root, usage in measured.items() if isinstance(usage, DiskUsage)}
        failed = [root for root in self._roots if root not in self.usage]
        events += [DiskEvent(DiskEventKind.DISK_FAILED, root) for root in failed]
        became_full = self._fill(events)
        allowed = any(usage.usable > self._limits.high_priority_bytes for usage in self.usage.values())
        if not self.writable:
            events.append(DiskEvent(DiskEventKind.ALL_DISKS_FULL, high_priority_allowed=allowed))
        recovered = self._recover(events)
        if self._first and not self._filled:
            events.append(DiskEvent(DiskEventKind.ALL_DISKS_WRITABLE))
        elif became_full and self._filled:
            events.append(DiskEvent(DiskEventKind.ANY_DISK_FULL, high_priority_allowed=allowed))
        elif recovered and not self._filled:
            events.append(DiskEvent(DiskEventKind.ALL_DISKS_WRITABLE))
        self._first = False
        return events

    def _fill(self, events: list[DiskEvent]) -> bool:
        """Move writable directories that became full."""
        became_full = False
        for root in self.writable:
            usage = self.usage.get(root)
            if usage is None:
                continue
            share = used_share(usage)
            if share > self._limits.full:
                self._filled[root] = None
                self._almost_full.pop(root, None)
                became_full = True
                events.append(DiskEvent(DiskEventKind.DISK_FULL, root))
            elif share > self._limits.almost_full:
                self._almost_full[root] = None
                events.append(DiskEvent(DiskEventKind.DISK_ALMOST_FULL, root))
            elif root in self._almost_full and not self._filled:
                del self._almost_full[root]
                events.append(DiskEvent(DiskEventKind.DISK_WRITABLE, root))
        return became_full

    def _recover(self, events: list[DiskEvent]) -> bool:
        """Take back filled directories that have room again."""
        if not self.writable and self._total_share() >= self._limits.low_water:
            return False
        recovered = False
        for root in list(self._filled):
            usage = self.usage.get(root)
            if usage is None or (share := used_share(usage)) > self._limits.full:
                continue
            del self._filled[root]
            recovered = True
            just = share > self._limits.almost_full
            if just:
                self._almost_full[root] = None
            kind = DiskEventKind.DISK_JUST_WRITABLE if just else DiskEventKind.DISK_WRITABLE
            events.append(DiskEvent(kind, root))
        return recovered

    def _total_share(self) -> float:
        total, usable = sum_of_file_systems(self.usage.values())
        return 1 - usable / total if total else 1.0


def sum_of_file_systems(usages: Iterable[DiskUsage]) -> tuple[int, int]:
    """Total and usable bytes, each file system counted once."""
    by_device = {usage.device: usage for usage in usages}
    return sum(usage.total for usage in by_device.values()), sum(usage.usable for usage in by_device.values())


def measure(files: Files, roots: Sequence[str]) -> dict[str, DiskUsage | OSError]:
    """The usage of each directory, or why it cannot be used. Blocks."""
    measured: dict[str, DiskUsage | OSError] = {}
    for root in roots:
        try:
            files.makedirs(current(root))
            measured[root] = files.disk_usage(current(root))
        except OSError as error:
            measured[root] = error
    return measured


class DiskMonitor:
    """Measures every `diskCheckInterval` and tells its listeners."""

    def __init__(self, runtime: Runtime, config: ServerConfiguration, directories: Directories) -> None:
        self._runtime = runtime
        self._interval = config.diskCheckInterval / 1000
        limits = DiskLimits.of(config)
        self._ledger = DiskWatch(directories.ledger, limits)
        self._watches = [(directories.ledger, self._ledger)]
        if directories.index != directories.ledger:
            self._watches.append((directories.index, DiskWatch(directories.index, limits)))
        self._entry_log_bytes = entry_log_bytes(config)
        self._ledger_roots = directories.ledger
        self._lane = runtime.workers("disk-monitor")
        self._listeners: list[DiskListener] = []

    def add_listener(self, listener: DiskListener) -> None:
        self._listeners.append(listener)

    def check_now(self) -> list[DiskEvent]:
        """Measure at once; for the start, before anybody listens. Blocks."""
        events: list[DiskEvent] = []
        for roots, watch in self._watches:
            events += watch.update(measure(self._runtime.files, roots))
        return events

    async def run(self) -> None:
        """Measure for ever. Started once the bookie is up."""
        while True:
            await self.check()
            await asyncio.sleep(self._interval)

    async def check(self) -> None:
        """Measure once and tell the listeners."""
        for roots, watch in self._watches:
            measured = await self._lane.submit(measure, self._runtime.files, roots)
            for event in watch.update(measured):
                if event.kind is not DiskEventKind.DISK_ALMOST_FULL:
                    log.info("%s %s", event.kind.value, event.directory or "")
                for listener in self._listeners:
                    listener(event)

    def no_space(self) -> None:
        """A write to the ledger directories found no space. The next check tells the listeners when there is some."""
        self._ledger.no_space()

    @property
    def writable_ledger_dirs(self) -> list[str]:
        """The ledger directories below the threshold, as configured."""
        return self._ledger.writable

    def ledger_dirs_for_new_log(self) -> list[str]:
        """Where an entry log may be created; on a read-only bookie wherever there is room for one.

        Raises `NoWritableLedgerDirError`.
        """
        found = self._ledger.writable or [
            root for root, usage in self._ledger.usage.items() if usage.usable > self._entry_log_bytes
        ]
        if not found:
            raise NoWritableLedgerDirError("all ledger directories are full")
        return found

    async def total_and_usable(self) -> tuple[int, int]:
        """Bytes of the ledger directories' file systems, measured now. Raises `OSError`."""
        measured = await self._lane.submit(measure, self._runtime.files, self._ledger_roots)
        usages = []
        for usage in measured.values():
            if isinstance(usage, OSError):
                raise usage
            usages.append(usage)
        return sum_of_file_systems(usages)

    async def close(self) -> None:
        await self._lane.close()
