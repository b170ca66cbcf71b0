"""A bookie's directories: where things lie, and what must hold before anything is opened (spec bookie-storage §1).

<journalDirectories[i]>/current/    journal files, VERSION
<ledgerDirectories[i]>/current/     entry logs, marks, DIRTY, BOOKIE_STATUS, VERSION
<indexDirectories[i]>/current/      indexes, VERSION; without this key they lie in the ledger directories
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ...config import ServerConfiguration
from ...errors import ConfigurationError
from ...runtime import Files
from ..file_names import current, needs_upgrade

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Directories:
    """The configured directories, in configured order. The order decides which ledger is where: it must not change."""

    journal: tuple[str, ...]
    ledger: tuple[str, ...]
    index: tuple[str, ...]
    """The ledger directories if the index has none of its own."""

    @classmethod
    def of(cls, config: ServerConfiguration) -> Directories:
        ledger = tuple(config.ledgerDirectories)
        return cls(tuple(config.journalDirectories), ledger, tuple(config.indexDirectories or ledger))

    @property
    def all(self) -> tuple[str, ...]:
        """Each once: journal, ledger, index."""
        return tuple(dict.fromkeys((*self.journal, *self.ledger, *self.index)))

    def prepare(self, files: Files, *, allow_shared_partition: bool) -> None:
        """Create missing `current` directories. Blocks.

        Raises `ConfigurationError` for a layout older than 4.1 and, unless allowed, for directories of one kind on the
        same file system; `OSError` for a directory that cannot be used.
        """
        for root in self.all:
            path = current(root)
            if files.is_dir(path):
                continue
            if files.is_dir(root) and needs_upgrade(files.listdir(root)):
                raise ConfigurationError(
                    f"{root} holds data of a BookKeeper before 4.1: upgrade it with that release's tools, "
                    "or configure another directory"
                )
            files.makedirs(path)
            files.fsync_dir(root)
        for group, name in (
            (dict.fromkeys((*self.ledger, *self.index)), "ledger and index"),
            (self.journal, "journal"),
        ):
            _check_partitions(files, tuple(group), name, allowed=allow_shared_partition)


def _check_partitions(files: Files, roots: Sequence[str], name: str, *, allowed: bool) -> None:
    seen: dict[int, str] = {}
    for root in roots:
        device = files.disk_usage(current(root)).device
        other = seen.setdefault(device, root)
        if other == root:
            continue
        text = f"{name} directories {other} and {root} are on the same file system"
        if not allowed:
            raise ConfigurationError(f"{text}: move one, or set allowMultipleDirsUnderSameDiskPartition=true")
        log.warning("%s", text)
