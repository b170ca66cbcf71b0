"""The DIRTY marker: tells the next start that this one did not end orderly (spec bookie-server §1.6).

An empty file `current/DIRTY` in every ledger directory, created before the first add can be acknowledged and deleted
at the end of an orderly stop.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ...runtime import Files
from ..file_names import DIRTY_FILE, current

log = logging.getLogger(__name__)


def was_unclean(files: Files, ledger_dirs: Sequence[str]) -> bool:
    """Whether the last run left a marker. A directory that cannot be looked at counts as one. Blocks."""
    for root in ledger_dirs:
        try:
            if files.exists(f"{current(root)}/{DIRTY_FILE}"):
                return True
        except OSError as error:
            log.warning("cannot look for %s in %s: %s", DIRTY_FILE, root, error)
            return True
    return False


def mark(files: Files, ledger_dirs: Sequence[str]) -> None:
    """Create the markers, durably. Blocks. Raises `OSError`."""
    for root in ledger_dirs:
        path = current(root)
        files.open(f"{path}/{DIRTY_FILE}", "w+").close()
        files.fsync_dir(path)


def clear(files: Files, ledger_dirs: Sequence[str]) -> None:
    """Delete the markers. Blocks. A marker that stays only makes the next start more careful: never raises."""
    for root in ledger_dirs:
        path = current(root)
        try:
            if files.exists(f"{path}/{DIRTY_FILE}"):
                files.unlink(f"{path}/{DIRTY_FILE}")
                files.fsync_dir(path)
        except OSError as error:
            log.warning("cannot delete %s in %s: %s", DIRTY_FILE, root, error)
