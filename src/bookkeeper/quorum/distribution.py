"""Which bookies of an ensemble hold an entry: round robin (spec client §4.1).

Entry `e` belongs to the `write_quorum` consecutive ensemble indexes that begin at `e mod ensemble_size`, in that
order. Ids are used in full width (Java narrows them to 32 bits in one place; spec client §16 no. 1).
"""

from __future__ import annotations

from functools import lru_cache

SHARED = 64
"""Schedules that are kept for the next ledger with the same quorums."""


def quorum_coverage(write_quorum: int, ack_quorum: int) -> int:
    """How many members of a write set must deny an entry before it cannot have been acknowledged."""
    return write_quorum - ack_quorum + 1


class Distribution:
    """The round-robin schedule of one ledger: E, Wq and Aq, with the write sets worked out once."""

    __slots__ = ("ack_quorum", "ensemble_size", "masks", "write_quorum", "write_sets")

    def __init__(self, ensemble_size: int, write_quorum: int, ack_quorum: int) -> None:
        if not ensemble_size >= write_quorum >= ack_quorum >= 1:
            raise ValueError(f"quorums {ensemble_size}/{write_quorum}/{ack_quorum} do not descend to 1")
        self.ensemble_size = ensemble_size
        self.write_quorum = write_quorum
        self.ack_quorum = ack_quorum
        self.write_sets: tuple[tuple[int, ...], ...] = tuple(
            tuple((first + i) % ensemble_size for i in range(write_quorum)) for first in range(ensemble_size)
        )
        """Ensemble indexes, by entry id modulo E."""
        self.masks: tuple[int, ...] = tuple(sum(1 << i for i in indexes) for indexes in self.write_sets)
        """The same as bit masks: bit `i` is ensemble index `i`."""

    def write_set(self, entry_id: int) -> tuple[int, ...]:
        """Ensemble indexes that must store the entry, in the order they are asked for it."""
        return self.write_sets[entry_id % self.ensemble_size]

    def ensemble_set(self, entry_id: int) -> tuple[int, ...]:
        """All ensemble indexes, beginning where the write set begins (long polls)."""
        size = self.ensemble_size
        return tuple((entry_id + i) % size for i in range(size))

    def has_entry(self, entry_id: int, index: int) -> bool:
        """Whether ensemble index `index` must store the entry."""
        return bool(self.masks[entry_id % self.ensemble_size] >> index & 1)


@lru_cache(maxsize=SHARED)
def schedule_of(ensemble_size: int, write_quorum: int, ack_quorum: int) -> Distribution:
    """One schedule for all ledgers with these quorums. Raises as `Distribution`."""
    return Distribution(ensemble_size, write_quorum, ack_quorum)
