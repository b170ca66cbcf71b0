"""Entries of archived segments: what a task reads of a file. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class ArchivedRange:
    """Entries of one segment, in a file."""

    uri: str
    rows: int
    """That the file has in all."""
    first: int
    last: int
    first_slot: int = 0
    """Records of entry `first` that are left out."""
    stop_slot: int | None = None
    """The first record of entry `last` that is left out; None: none is."""
    bytes: int = 0
    """Of payload; an estimate."""

    def parts(self, wanted: int) -> list[ArchivedRange]:
        """The same in pieces of about so many bytes."""
        count = min(max(1, -(-self.bytes // wanted)), self.last - self.first + 1)
        entries = self.last - self.first + 1
        bounds = [self.first + entries * part // count for part in range(count + 1)]
        pieces = [
            replace(self, first=first, last=end - 1, first_slot=0, stop_slot=None, bytes=self.bytes // count)
            for first, end in pairwise(bounds)
        ]
        pieces[0] = replace(pieces[0], first_slot=self.first_slot)
        pieces[-1] = replace(pieces[-1], stop_slot=self.stop_slot)
        return pieces
