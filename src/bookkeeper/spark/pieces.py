"""Consecutive entries that a task has read: what readers give, and batches are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..client.reads.columns import PackedRun
from ..types import BookieId

if TYPE_CHECKING:
    from ..metadata.ledger_metadata import LedgerMetadata

Copies = dict[int, dict[BookieId, None]]
"""Entry id -> bookies whose copy is not good."""


@dataclass(frozen=True)
class Piece:
    """Consecutive entries, ready to become rows."""

    metadata: LedgerMetadata
    run: PackedRun
    bad: Copies


def bad_flags(piece: Piece) -> npt.NDArray[np.bool_]:
    """For each entry whether some copy of it is not good."""
    flags = np.zeros(piece.run.rows, np.bool_)
    for entry_id in piece.bad:
        flags[entry_id - piece.run.first] = True
    return flags
