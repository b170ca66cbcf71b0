r"""BOOKIE_STATUS: the mode a bookie had, kept over restarts (spec bookie-server §1.8).

    1,<READ_WRITE|READ_ONLY>,<wall clock in ms>,<true|false>\n

in `current/BOOKIE_STATUS` of every ledger directory, used only with `persistBookieStatusEnabled`. The last field says
whether a person chose the mode; a line without it (written before 4.18) counts as chosen by a person.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ...runtime import Files
from ..file_names import STATUS_FILE, current

log = logging.getLogger(__name__)

_VERSION = "1"
_MODES = {"READ_WRITE": False, "READ_ONLY": True}
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class StoredStatus:
    read_only: bool
    wall_ms: int
    manual: bool


def encode(status: StoredStatus) -> bytes:
    mode = "READ_ONLY" if status.read_only else "READ_WRITE"
    return f"{_VERSION},{mode},{status.wall_ms},{'true' if status.manual else 'false'}\n".encode()


def parse(data: bytes) -> StoredStatus | None:
    """None if this is not a status line."""
    fields = data.decode("latin-1").split("\n")[0].strip().split(",")
    if len(fields) not in (3, 4) or fields[0] != _VERSION or fields[1] not in _MODES or not fields[2].isdecimal():
        return None
    manual = _FLAGS.get(fields[3]) if len(fields) == 4 else True
    return None if manual is None else StoredStatus(_MODES[fields[1]], int(fields[2]), manual)


def read(files: Files, ledger_dirs: Sequence[str]) -> StoredStatus | None:
    """The newest status of all directories; unreadable files are skipped. Blocks."""
    newest: StoredStatus | None = None
    for root in ledger_dirs:
        path = f"{current(root)}/{STATUS_FILE}"
        try:
            status = parse(files.read_bytes(path)) if files.exists(path) else None
        except OSError as error:
            log.warning("cannot read %s: %s", path, error)
            continue
        if status is not None and (newest is None or status.wall_ms > newest.wall_ms):
            newest = status
    return newest


def write(files: Files, ledger_dirs: Sequence[str], status: StoredStatus) -> None:
    """Write the status to every directory. Blocks. A directory that cannot be written is skipped with a warning:
    the others have the newer time."""
    data = encode(status)
    for root in ledger_dirs:
        try:
            files.write_atomically(f"{current(root)}/{STATUS_FILE}", data)
        except OSError as error:
            log.warning("cannot write %s in %s: %s", STATUS_FILE, root, error)
