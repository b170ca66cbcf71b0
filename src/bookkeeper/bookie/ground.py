"""What serving requests stands on: the same for adds, reads and all the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..config import ServerConfiguration
from ..runtime import Runtime
from .journal.journals import Journals
from .ledgers import LedgerTable
from .node.mode import BookieState
from .stats import BookieStats
from .storage.api import LedgerStorage


@dataclass(frozen=True, slots=True)
class Ground:
    """See the module."""

    runtime: Runtime
    config: ServerConfiguration
    storage: LedgerStorage
    journals: Journals
    ledgers: LedgerTable
    state: BookieState
    stats: BookieStats
    on_error: Callable[[BaseException], None]
    """Told of a failure after which the state may be wrong."""
