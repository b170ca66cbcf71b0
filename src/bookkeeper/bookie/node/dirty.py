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

ADDS = b"adds were acknowledged before they were durable\n"
"""What is in the marker of a bookie that does not wait for its journal."""

FENCES = b"fences were answered before they were durable\n"
"""And if it does not wait with fences, either."""


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


def may_be_lost(files: Files, ledger_dirs: Sequence[str]) -> bytes:
    """What may have been lost with the last run, as that one said: `ADDS`, `FENCES`, both, nothing.

    Blocks. Raises `OSError`.
    """
    markers = [f"{current(root)}/{DIRTY_FILE}" for root in ledger_dirs]
    return max([files.read_bytes(path) for path in markers if files.exists(path)], key=len, default=b"")


def mark(files: Files, ledger_dirs: Sequence[str], may_lose: bytes = b"") -> None:
    """Create the markers, durably; what an earlier run left must have been dealt with. Blocks. Raises `OSError`.

    `may_lose`: what this run may lose, `ADDS` and `FENCES`.
    """
    for root in ledger_dirs:
        path = current(root)
        with files.open(f"{path}/{DIRTY_FILE}", "w+") as file:
            if may_lose:
                file.pwrite(may_lose, 0)
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
