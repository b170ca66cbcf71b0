"""Stops compaction while disks are filling up: it writes before it frees (spec bookie-server §1.9).

    a directory is almost full  no major compaction
    a directory is full         none at all

With `isForceGCAllowWhenNoSpace` a full disk does not stop compaction.
"""

from __future__ import annotations

from ...config import ServerConfiguration
from ..storage.api import LedgerStorage
from .disks import DiskVerdict


class CompactionSwitch:
    """Listens to the disks and switches a storage's compaction off and on."""

    def __init__(self, config: ServerConfiguration, storage: LedgerStorage) -> None:
        self._storage = storage
        self._ignore_full = config.isForceGCAllowWhenNoSpace
        self._suspended = (False, False)

    def on_disks(self, verdict: DiskVerdict) -> None:
        wanted = (False, False) if self._ignore_full else (verdict.suspend_minor, verdict.suspend_major)
        if wanted != self._suspended:
            self._suspended = wanted
            self._storage.suspend_compaction(minor=wanted[0], major=wanted[1])
