"""What a bookie's files and directories are called, and what a name tells (spec bookie-storage §1).

All data of a configured directory lies in its `current`:

    <hex id>.txn                          a journal
    lastMark, lastMark.<index>            how far a journal has been flushed: of one journal, or of several
    <hex id>.log                          an entry log
    <hex id>.log.compacting               a copy that a Java bookie was making
    <hex id>.log.<hex source>.compacted   a copy that it had made of the log `source`
    lastId                                the greatest id of an entry log
    ledgers, locations                    the databases of the index
    reserved-space                        see `storage.reserve`
    DIRTY, BOOKIE_STATUS, VERSION         see `node.dirty`, `node.status_file`, `node.cookies`

Ids are lower-case hexadecimal without zeros in front.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

CURRENT = "current"
VERSION_FILE = "VERSION"
"""The cookie."""

DIRTY_FILE = "DIRTY"
STATUS_FILE = "BOOKIE_STATUS"
JOURNAL_SUFFIX = ".txn"
LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".idx"
"""Of the index files of other storage engines."""

LAST_LOG_ID = "lastId"
LEDGERS = "ledgers"
LOCATIONS = "locations"
RESERVED_SPACE = "reserved-space"

_MARK = "lastMark"
_COMPACTING = ".log.compacting"
_JOURNAL_ID = re.compile(r"[0-7]?[0-9a-f]{1,15}")
_LOG = re.compile(r"([0-9a-f]{1,8})\.log")
_UNFINISHED_LOG = re.compile(r"([0-9a-f]{1,8})\.log\.(?:compacting|([0-9a-f]{1,8})\.compacted)")


def current(root: str) -> str:
    """The directory in which the data of a configured directory lies."""
    return f"{root.rstrip('/')}/{CURRENT}"


def needs_upgrade(names: Sequence[str]) -> bool:
    """Whether the names found directly in a directory (not in `current`) tell of a layout before 4.1."""
    return any(name == VERSION_FILE or name.endswith((JOURNAL_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX)) for name in names)


# --- journals ---


def journal_name(journal_id: int) -> str:
    return f"{journal_id:x}{JOURNAL_SUFFIX}"


def journal_ids(names: Sequence[str]) -> list[int]:
    """The ids of the journals among the names of a directory, ascending. Any other name is not a journal's (SEC-37)."""
    ids = []
    for name in names:
        stem = name.removesuffix(JOURNAL_SUFFIX)
        if stem != name and _JOURNAL_ID.fullmatch(stem) and journal_name(int(stem, 16)) == name:
            ids.append(int(stem, 16))
    return sorted(ids)


def journal_strays(names: Sequence[str]) -> list[str]:
    """The names that look like those of journals and are not."""
    return [name for name in names if name.endswith(JOURNAL_SUFFIX) and not journal_ids([name])]


def mark_name(index: int, journals: int) -> str:
    """The name of journal `index`'s mark file when there are `journals` of them."""
    return _MARK if journals == 1 else f"{_MARK}.{index}"


# --- entry logs ---


def log_name(log_id: int) -> str:
    return f"{log_id:x}{LOG_SUFFIX}"


def parse_log_name(name: str) -> int | None:
    """The id of an entry log's file name; None for other files.

    `01.log` is another file, too: entries of log 1 are looked for in `1.log`.
    """
    match = _LOG.fullmatch(name)
    return int(match[1], 16) if match and log_name(int(match[1], 16)) == name else None


def is_log_stray(name: str) -> bool:
    """Whether a name looks like that of an entry log and is not."""
    return name.endswith(LOG_SUFFIX) and parse_log_name(name) is None


def log_ids(name: str) -> list[int]:
    """All log ids that a file name claims, those of unfinished compactions included."""
    match = _LOG.fullmatch(name) or _UNFINISHED_LOG.fullmatch(name)
    return [int(group, 16) for group in match.groups() if group] if match else []


def is_compacting(name: str) -> bool:
    """Whether this is a copy of a log that was not finished."""
    return name.endswith(_COMPACTING)


def compacted(name: str) -> tuple[int, int] | None:
    """The id of a finished copy of a log, and that of the log; None for other files."""
    match = _UNFINISHED_LOG.fullmatch(name)
    return (int(match[1], 16), int(match[2], 16)) if match and match[2] else None
