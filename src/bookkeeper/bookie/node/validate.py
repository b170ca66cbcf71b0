"""Settings that are wrong only together, or that this bookie must not ignore (spec bookie-server §6.2).

A single setting is checked by its type in `config`. What is checked here ends the start with exit code 1 and one line
that names the keys, their values, and what to do.
"""

from __future__ import annotations

import logging
from itertools import permutations
from pathlib import PurePosixPath
from posixpath import normpath

from ... import promises
from ...config import ServerConfiguration
from ...errors import ConfigurationError
from ..file_names import CURRENT

log = logging.getLogger(__name__)

MIB = 1 << 20


def validate(config: ServerConfiguration) -> None:
    """Raises `ConfigurationError` for the first problem found."""
    for check in (_network, _journal, _integrity, _directories, _disks, _compaction, _not_there_yet):
        problem = check(config)
        if problem is not None:
            raise ConfigurationError(problem)


def _network(config: ServerConfiguration) -> str | None:
    if config.bookiePort == 0 and not config.allowEphemeralPorts:
        return "bookiePort=0 means any free port: choose one, or set allowEphemeralPorts=true"
    if config.bookiePort == 0 and not config.bookieId:
        return "bookiePort=0 gives the bookie another name at each start: set bookieId too"
    if config.serverWriteBufferLowWaterMark > config.serverWriteBufferHighWaterMark:
        return (
            f"serverWriteBufferLowWaterMark={config.serverWriteBufferLowWaterMark} is above "
            f"serverWriteBufferHighWaterMark={config.serverWriteBufferHighWaterMark}: lower it"
        )
    return None


def _journal(config: ServerConfiguration) -> str | None:
    alignment = config.journalAlignmentSize
    if alignment < 512 or alignment % 512:
        return f"journalAlignmentSize={alignment} is not a multiple of 512: use 512 or 4096"
    if alignment > config.journalPreAllocSizeMB * MIB:
        return (
            f"journalAlignmentSize={alignment} is more than journalPreAllocSizeMB={config.journalPreAllocSizeMB}: "
            "lower the first or raise the second"
        )
    return None


def _integrity(config: ServerConfiguration) -> str | None:
    if config.dataIntegrityChecking:
        return None
    if not config.journalWriteData:
        return (
            "journalWriteData=false without dataIntegrityChecking: after a crash the bookie would deny entries that it "
            "has acknowledged; set dataIntegrityChecking=true"
        )
    if config.dataIntegrityStampMissingCookies:
        return "dataIntegrityStampMissingCookies=true does nothing without dataIntegrityChecking=true: set both"
    return None


def _directories(config: ServerConfiguration) -> str | None:
    """No directory is named twice under one key, and none lies among the files of another, in its `current` (SEC-52).
    Directories of different kinds may be the same, and one may lie in another beside its files. Judged by
    their names: links are not followed, nor is a relative name compared with an absolute one."""
    if not config.journalDirectories or not config.ledgerDirectories:
        return "journalDirectories and ledgerDirectories must each name at least one directory"
    keys = {
        "journalDirectories": config.journalDirectories,
        "ledgerDirectories": config.ledgerDirectories,
        "indexDirectories": config.indexDirectories or [],
    }
    places = {key: [PurePosixPath(normpath(root)) for root in roots] for key, roots in keys.items()}
    for key, paths in places.items():
        if len(set(paths)) != len(paths):
            return f"{key}={','.join(keys[key])} names a directory twice: name each once"
    named = [(key, path) for key, paths in places.items() for path in paths]
    for (key, path), (outer_key, outer) in permutations(named, 2):
        files = outer / CURRENT
        if path == files or files in path.parents:
            return f"{path} of {key} lies among the files of {outer} of {outer_key}: give it a directory of its own"
    return None


def _disks(config: ServerConfiguration) -> str | None:
    full = config.diskUsageThreshold
    if config.diskUsageWarnThreshold > full:
        return (
            f"diskUsageWarnThreshold={config.diskUsageWarnThreshold} is above diskUsageThreshold={full}: a disk must "
            "be almost full before it is full"
        )
    low = config.diskUsageLwmThreshold
    if low is not None and low > full:
        return f"diskUsageLwmThreshold={low} is above diskUsageThreshold={full}: lower it"
    if config.forceReadOnlyBookie and not config.readOnlyModeEnabled:
        return "forceReadOnlyBookie=true needs readOnlyModeEnabled=true"
    return None


def _compaction(config: ServerConfiguration) -> str | None:
    wait = config.gcWaitTime / 1000
    intervals = {
        "minorCompactionInterval": config.minorCompactionInterval,
        "majorCompactionInterval": config.majorCompactionInterval,
        "entryLocationCompactionInterval": config.entryLocationCompactionInterval,
    }
    for key, seconds in intervals.items():
        if 0 < seconds < wait:
            return f"{key}={seconds} (s) is shorter than gcWaitTime={config.gcWaitTime} (ms): raise the first"
    thresholds = (config.minorCompactionThreshold, config.majorCompactionThreshold)
    if max(thresholds) > 1.0:
        return "minorCompactionThreshold and majorCompactionThreshold are shares of a log: at most 1.0"
    minor = config.minorCompactionInterval > 0 and config.minorCompactionThreshold > 0
    major = config.majorCompactionInterval > 0 and config.majorCompactionThreshold > 0
    if minor and major:
        if config.minorCompactionInterval >= config.majorCompactionInterval:
            return "minorCompactionInterval must be shorter than majorCompactionInterval, or one of them 0 (off)"
        if config.minorCompactionThreshold >= config.majorCompactionThreshold:
            return "minorCompactionThreshold must be below majorCompactionThreshold, or one of them 0 (off)"
    return None


def _not_there_yet(config: ServerConfiguration) -> str | None:
    """Settings that promise protection: to ignore them would be worse than not to start."""
    return promises.refusal(config, promises.REFUSED)


def warn(config: ServerConfiguration) -> None:
    """Say which settings do nothing yet, and which are dangerous."""
    idle = promises.without_effect(config)
    if idle:
        log.warning("settings that have no effect yet (docs/not-there-yet.md): %s", ", ".join(idle))
    if not config.journalSyncData and not config.dataIntegrityChecking:
        log.warning(
            "journalSyncData=false without dataIntegrityChecking: after a loss of power this bookie may deny entries "
            "that it has acknowledged"
        )
