"""Damaged entries that wait to be mended: each once, so many at most, each tried so often."""

from __future__ import annotations

from itertools import groupby

ATTEMPTS = 5
"""So often it is tried to mend an entry before it is left as it is."""


class RepairQueue:
    """Entries by ledger and id."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._failures: dict[tuple[int, int], int] = {}  # entry -> attempts that failed; never more than `limit`

    def __len__(self) -> int:
        return len(self._failures)

    @property
    def full(self) -> bool:
        return len(self._failures) >= self._limit

    def add(self, ledger_id: int, entry_id: int) -> bool:
        """Whether the entry waits now; one that did already is not added again. False: there is no room."""
        key = (ledger_id, entry_id)
        if key not in self._failures:
            if self.full:
                return False
            self._failures[key] = 0
        return True

    def by_ledger(self) -> list[tuple[int, list[int]]]:
        """Each ledger, ascending, and the ids that wait, ascending."""
        return [
            (ledger_id, [entry_id for _, entry_id in keys])
            for ledger_id, keys in groupby(sorted(self._failures), key=lambda key: key[0])
        ]

    def done(self, ledger_id: int, entry_id: int) -> None:
        """The entry needs nothing any more."""
        self._failures.pop((ledger_id, entry_id), None)

    def failed(self, ledger_id: int, entry_id: int) -> bool:
        """It could not be mended now. True if that was the last attempt: it waits no more."""
        key = (ledger_id, entry_id)
        failures = self._failures.get(key, 0) + 1
        if failures >= ATTEMPTS:
            self._failures.pop(key, None)
            return True
        self._failures[key] = failures
        return False
