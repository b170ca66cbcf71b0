"""Stops compaction while disks are filling up: it writes before it frees (spec bookie-server §1.9).

    almost full                 no major compaction
    full, all disks full        none at all
    just writable               minor again
    writable                    both again

With `isForceGCAllowWhenNoSpace` a full disk does not stop compaction.
"""

from __future__ import annotations

from bookkeeper.config import ServerConfiguration

from .disks import DiskEvent, DiskEventKind
from .storage.api import LedgerStorage

_SUSPENDED = {
    DiskEventKind.DISK_FULL: (True, True),
    DiskEventKind.ALL_DISKS_FULL: (True, True),
    DiskEventKind.DISK_WRITABLE: (False, False),
}
"""What each event makes of (minor suspended, major suspended)."""


class CompactionSwitch:
    """A disk listener that switches a storage's compaction off and on."""

    def __init__(self, config: ServerConfiguration, storage: LedgerStorage) -> None:
        self._storage = storage
        self._ignore_full = config.isForceGCAllowWhenNoSpace
        self._minor = False
        self._major = False

    def on_disk_event(self, event: DiskEvent) -> None:
        minor, major = self._minor, self._major
        if event.kind is DiskEventKind.DISK_ALMOST_FULL:
            major = True
        elif event.kind is DiskEventKind.DISK_JUST_WRITABLE:
            minor = False
        else:
            minor, major = _SUSPENDED.get(event.kind, (minor, major))
        if self._ignore_full:
            minor = major = False
        if (minor, major) != (self._minor, self._major):
            self._minor, self._major = minor, major
            self._storage.suspend_compaction(minor=minor, major=major)
