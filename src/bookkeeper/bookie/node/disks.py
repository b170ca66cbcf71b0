"""Watching the disks: how full they are, whether they are still there, and what follows (spec bookie-server §1.9).

Theory of operation

A `DiskWatch` is the memory for the directories of one kind: which of them are filled, almost full, or gone. `judge` is
the decision: a pure function of what all watches say together, so that no kind can undo what another one asks for.
`DiskMonitor` measures from time to time and hands each verdict to its listeners: the bookie's state (read-only and
back), and the storage (compaction stops on a full disk). A verdict says how things stand, not what has changed, so a
listener that missed one is right again with the next.

A directory is filled above `diskUsageThreshold` and almost full above `diskUsageWarnThreshold`. Filled directories come
back when they fall below the threshold; but when all were filled only after total usage fell below
`diskUsageLwmThreshold`, so that the bookie does not flap.

The journal's disk is measured by what it needs, not by shares: journals may fill a disk of their own nearly to its end,
and stay there. It counts as filled with less than `minUsableSizeForJournalWrites` bytes left, and is free again with
twice as much. A journal that runs into the end of its disk ends the bookie; one that stops before it does not. As it
may fill that much between two measurements, it asks for one after every half of it.

A directory that cannot be used any more ends the bookie. It is gone when it or the cookie in it cannot be found, or
when it lies on another file system than at the start: its disk is not mounted any more, and what is to be seen in its
place is the mount point. Nothing is ever created there.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...config import ServerConfiguration
from ...errors import NoWritableLedgerDirError
from ...runtime import DiskUsage, Files, Runtime
from ..file_names import VERSION_FILE, current
from .directories import Directories

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """When a directory counts as filled. The first three are shares of its file system."""

    full: float
    almost_full: float
    low_water: float
    high_priority_bytes: int
    """Usable bytes that high-priority writes need on some disk."""
    least_bytes: int = 0
    """Usable bytes below which a directory is filled, whatever its share."""

    @classmethod
    def of(cls, config: ServerConfiguration) -> DiskLimits:
        """For ledger and index directories."""
        return cls(
            config.diskUsageThreshold,
            config.diskUsageWarnThreshold,
            config.diskUsageThreshold if config.diskUsageLwmThreshold is None else config.diskUsageLwmThreshold,
            high_priority_bytes(config),
        )

    @classmethod
    def of_journals(cls, config: ServerConfiguration) -> DiskLimits:
        least = journal_bytes(config)
        return cls(1.0, 1.0, 1.0, least // 2, least)

    def is_full(self, usage: DiskUsage) -> bool:
        return used_share(usage) > self.full or usage.usable < self.least_bytes

    def is_free_again(self, usage: DiskUsage) -> bool:
        """Whether a filled directory may come back."""
        return used_share(usage) <= self.full and usage.usable >= 2 * self.least_bytes

    def is_almost_full(self, usage: DiskUsage) -> bool:
        return used_share(usage) > self.almost_full


def entry_log_bytes(config: ServerConfiguration) -> int:
    """Usable bytes needed to create an entry log while no directory is writable."""
    configured = config.minUsableSizeForEntryLogCreation
    return config.logSizeLimit if configured is None else configured


def high_priority_bytes(config: ServerConfiguration) -> int:
    configured = config.minUsableSizeForHighPriorityWrites
    return entry_log_bytes(config) if configured is None else configured


def journal_bytes(config: ServerConfiguration) -> int:
    """Usable bytes without which a journal's disk counts as filled."""
    configured = config.minUsableSizeForJournalWrites
    return 4 * (config.journalPreAllocSizeMB << 20) if configured is None else configured


def used_share(usage: DiskUsage) -> float:
    return 1 - usage.usable / usage.total if usage.total else 1.0


class DiskWatch:
    """What is known about the directories of one kind."""

    def __init__(self, kind: str, roots: Sequence[str], limits: DiskLimits) -> None:
        self.kind = kind
        """For messages: "ledger", "index" or "journal"."""
        self.limits = limits
        self.roots = tuple(roots)
        self.filled: dict[str, None] = {}
        """Above the threshold, and not yet back."""
        self.usage: dict[str, DiskUsage] = {}
        """The last measurement of each directory that could be measured."""
        self.failed: dict[str, OSError] = {}
        """Why the others could not."""

    @property
    def writable(self) -> list[str]:
        return [root for root in self.roots if root not in self.filled]

    @property
    def almost_full(self) -> list[str]:
        """Writable, but not for long."""
        usage = self.usage
        return [root for root in self.writable if root in usage and self.limits.is_almost_full(usage[root])]

    @property
    def high_priority_allowed(self) -> bool:
        """Whether there is room for the writes of recovery."""
        return any(usage.usable > self.limits.high_priority_bytes for usage in self.usage.values())

    def no_space(self) -> None:
        """A write found no space, whatever the measurements say: all count as filled until the next one."""
        self.filled.update(dict.fromkeys(self.roots))

    def update(self, measured: Mapping[str, DiskUsage | OSError]) -> None:
        """Take a measurement of every directory."""
        self.usage = {root: usage for root, usage in measured.items() if isinstance(usage, DiskUsage)}
        self.failed = {root: error for root, error in measured.items() if isinstance(error, OSError)}
        full = [root for root, usage in self.usage.items() if self.limits.is_full(usage)]
        self.filled.update(dict.fromkeys(full))
        if self.writable or self._total_share() < self.limits.low_water:
            for root in list(self.filled):
                if root in self.usage and self.limits.is_free_again(self.usage[root]):
                    del self.filled[root]

    def _total_share(self) -> float:
        total, usable = sum_of_file_systems(self.usage.values())
        return 1 - usable / total if total else 1.0


@dataclass(frozen=True, slots=True)
class DiskVerdict:
    """What follows from the present state of all disks."""

    failed: str | None = None
    """Which directories cannot be used, and why; ends the bookie."""
    full: str | None = None
    """Why normal writes must be refused; None: they need not."""
    high_priority_allowed: bool = True
    """Whether there is room for the writes of recovery nevertheless."""
    suspend_minor: bool = False
    suspend_major: bool = False
    """No compaction of this kind: it writes before it frees."""
    journal_full: bool = False
    """A journal's disk is among the full ones: deleting old journals would help."""


def judge(watches: Iterable[DiskWatch], any_full_is_read_only: bool) -> DiskVerdict:
    """What all watches together ask for.

    Writes stop when all directories of a kind are filled, with `any_full_is_read_only` when any is; for journals when
    any is, as each ledger has its own.
    """
    failed: list[str] = []
    reasons: list[str] = []
    allowed = True
    minor = major = journal_full = False
    for watch in watches:
        is_journal = watch.kind == "journal"
        failed += [f"{watch.kind} directory {root}: {_why(error)}" for root, error in watch.failed.items()]
        if watch.filled and (any_full_is_read_only or is_journal or not watch.writable):
            reasons += [f"{watch.kind} directory {root} is full{_how_full(watch, root)}" for root in watch.filled]
            allowed = allowed and watch.high_priority_allowed
        if is_journal:
            journal_full = bool(watch.filled)
        else:
            minor = minor or bool(watch.filled)
            major = major or minor or bool(watch.almost_full)
    return DiskVerdict(
        "; ".join(failed) or None, "; ".join(reasons) or None, allowed, minor, minor or major, journal_full
    )


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def _how_full(watch: DiskWatch, root: str) -> str:
    usage = watch.usage.get(root)
    if usage is None:
        return ""
    limits = watch.limits
    if limits.least_bytes:
        return f" ({_room(usage)}; minUsableSizeForJournalWrites is {limits.least_bytes >> 20} MB)"
    return f" ({_room(usage)}; diskUsageThreshold is {limits.full:.1%})"


def _room(usage: DiskUsage) -> str:
    return f"{used_share(usage):.1%} used, {usage.usable >> 20} of {usage.total >> 20} MB left"


def sum_of_file_systems(usages: Iterable[DiskUsage]) -> tuple[int, int]:
    """Total and usable bytes, each file system counted once."""
    by_device = {usage.device: usage for usage in usages}
    return sum(usage.total for usage in by_device.values()), sum(usage.usable for usage in by_device.values())


def measure(files: Files, roots: Sequence[str], stamped: bool = True) -> dict[str, DiskUsage | OSError]:
    """The usage of each directory, or why it cannot be used. Blocks, creates nothing.

    `stamped`: all directories have their cookies; one that has not is not the directory that it was.
    """
    measured: dict[str, DiskUsage | OSError] = {}
    for root in roots:
        path = current(root)
        try:
            if stamped and not files.exists(f"{path}/{VERSION_FILE}"):
                raise FileNotFoundError(
                    errno.ENOENT, f"{VERSION_FILE} is not there any more: is its disk mounted?", path
                )
            measured[root] = files.disk_usage(path)
        except OSError as error:
            measured[root] = error
    return measured


DiskListener = Callable[[DiskVerdict], None]


class DiskMonitor:
    """Measures every `diskCheckInterval` and tells its listeners. `run` it when all directories have their cookies."""

    def __init__(self, runtime: Runtime, config: ServerConfiguration, directories: Directories) -> None:
        self._runtime = runtime
        self._interval = config.diskCheckInterval / 1000
        self._any_full_is_read_only = config.readOnlyModeOnAnyDiskFullEnabled
        limits = DiskLimits.of(config)
        self.ledgers = DiskWatch("ledger", directories.ledger, limits)
        self._watches = [self.ledgers]
        if directories.index != directories.ledger:
            self._watches.append(DiskWatch("index", directories.index, limits))
        self._watches.append(DiskWatch("journal", directories.journal, DiskLimits.of_journals(config)))
        self._roots = directories.all
        self._devices: dict[str, int] = {}  # where each directory was when it was first seen
        self._entry_log_bytes = entry_log_bytes(config)
        self._lane = runtime.workers("disk-monitor")
        self._listeners: list[DiskListener] = []
        self._wanted = asyncio.Event()

    def add_listener(self, listener: DiskListener) -> None:
        self._listeners.append(listener)

    def check_now(self, *, stamped: bool = True) -> DiskVerdict:
        """Measure at once; for the start, before there are listeners. Blocks."""
        return self._take(measure(self._runtime.files, self._roots, stamped))

    async def run(self) -> None:
        """Measure for ever. Started once the bookie is up."""
        while True:
            self._wanted.clear()
            await self.check()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._wanted.wait()

    def look_soon(self) -> None:
        """Much has been written: measure at once."""
        self._wanted.set()

    async def check(self) -> None:
        """Measure once and tell the listeners."""
        verdict = self._take(await self._lane.submit(measure, self._runtime.files, self._roots))
        for listener in self._listeners:
            listener(verdict)

    def _take(self, measured: dict[str, DiskUsage | OSError]) -> DiskVerdict:
        for root, usage in measured.items():
            if isinstance(usage, DiskUsage) and self._devices.setdefault(root, usage.device) != usage.device:
                text = "it lies on another file system than at the start: is its disk mounted?"
                measured[root] = FileNotFoundError(errno.ENOENT, text, current(root))
        for watch in self._watches:
            before = (list(watch.filled), watch.almost_full)
            watch.update({root: measured[root] for root in watch.roots})
            self._tell(watch, *before)
        return judge(self._watches, self._any_full_is_read_only)

    def _tell(self, watch: DiskWatch, filled: list[str], almost_full: list[str]) -> None:
        for root in watch.roots:
            if (root in watch.filled) != (root in filled):
                state = "is full" if root in watch.filled else "has room again"
            elif root in watch.almost_full and root not in almost_full:
                state = "is almost full"
            else:
                continue
            usage = watch.usage.get(root)
            log.info("%s directory %s %s: %s", watch.kind, root, state, "gone" if usage is None else _room(usage))

    def no_space(self) -> None:
        """A write to the ledger directories found no space. The next check tells the listeners when there is some."""
        self.ledgers.no_space()

    @property
    def writable_ledger_dirs(self) -> list[str]:
        """The ledger directories below the threshold, as configured."""
        return self.ledgers.writable

    def ledger_dirs_for_new_log(self) -> list[str]:
        """Where an entry log may be created; on a read-only bookie wherever there is room for one.

        Raises `NoWritableLedgerDirError`.
        """
        found = self.ledgers.writable or [
            root for root, usage in self.ledgers.usage.items() if usage.usable > self._entry_log_bytes
        ]
        if not found:
            raise NoWritableLedgerDirError("all ledger directories are full")
        return found

    async def total_and_usable(self) -> tuple[int, int]:
        """Bytes of the ledger directories' file systems, measured now. Raises `OSError`."""
        measured = await self._lane.submit(measure, self._runtime.files, self.ledgers.roots)
        usages = []
        for usage in measured.values():
            if isinstance(usage, OSError):
                raise usage
            usages.append(usage)
        return sum_of_file_systems(usages)

    async def close(self) -> None:
        await self._lane.close()
