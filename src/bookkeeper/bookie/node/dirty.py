"""The DIRTY marker: tells the next start that this one did not end orderly (spec bookie-server §1.6).

A file `current/DIRTY` in every ledger directory, created before the first add can be acknowledged and deleted at the
end of an orderly stop. It is empty, as Java's, if what was acknowledged is durable in the journal. If not, it says so:
then whatever the settings of the next start are, that one knows that entries may have been lost. Java does not look
inside.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ...runtime import Files
from ..file_names import DIRTY_FILE, current

log = logging.getLogger(__name__)

UNPROTECTED = b"adds were acknowledged before they were durable\n"
"""What is in the marker of a bookie that does not wait for its journal to be synced."""


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


def was_unprotected(files: Files, ledger_dirs: Sequence[str]) -> bool:
    """Whether a marker of the last run says that entries may have been lost with it. Blocks. Raises `OSError`."""
    for root in ledger_dirs:
        path = f"{current(root)}/{DIRTY_FILE}"
        if files.exists(path) and files.read_bytes(path):
            return True
    return False


def mark(files: Files, ledger_dirs: Sequence[str], *, unprotected: bool = False) -> None:
    """Create the markers, durably; what an earlier run left must have been dealt with. Blocks. Raises `OSError`."""
    for root in ledger_dirs:
        path = current(root)
        with files.open(f"{path}/{DIRTY_FILE}", "w+") as file:
            if unprotected:
                file.pwrite(UNPROTECTED, 0)
                file.fdatasync()
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
