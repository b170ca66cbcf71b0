"""What auditor and worker count, under BookKeeper's names (spec autorecovery-admin §10.3, §10.4).

Plain numbers; an exporter reads them. Those of the auditor begin anew with each term. What Java's have and these have
not: `BOOKIE_TO_LEDGERS_MAP_CREATION_TIME` and `URL_PUBLISH_TIME_FOR_LOST_BOOKIE`, as ledgers are marked on the way and
no map is made, and `NUM_SKIPPING_CHECK_TASK_TIMES`, as checks are put off and not skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from ..bookie.stats import OpStats


class ValueStats:
    """A summary of sizes or numbers."""

    __slots__ = ("buckets", "count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.buckets: Counter[int] = Counter()
        """By the number of bits of the value; there are at most 64."""

    def add(self, value: int, count: int = 1) -> None:
        self.count += count
        self.total += value * count
        self.buckets[value.bit_length()] += count

    def quantile(self, share: float) -> int:
        """A bound that this share of the values stayed within, less than twice the largest of them; 0 if there were
        none."""
        seen = 0
        for bits in sorted(self.buckets):
            seen += self.buckets[bits]
            if seen >= share * self.count:
                return (1 << bits) - 1
        return 0


class AuditorStats:
    """Of one term as auditor. The gauges are in its last reports (`audits.ReplicasReport`,
    `placement.PlacementReport`)."""

    def __init__(self) -> None:
        self.NUM_UNDER_REPLICATED_LEDGERS = ValueStats()
        """Ledgers that an audit of the bookies marked."""
        self.UNDER_REPLICATED_LEDGERS_TOTAL_SIZE = ValueStats()
        """Their length in bytes; open ones count nothing."""
        self.AUDIT_BOOKIES_TIME = OpStats()
        self.CHECK_ALL_LEDGERS_TIME = OpStats()
        self.PLACEMENT_POLICY_CHECK_TIME = OpStats()
        self.REPLICAS_CHECK_TIME = OpStats()
        self.NUM_FRAGMENTS_PER_LEDGER = ValueStats()
        self.NUM_BOOKIES_PER_LEDGER = ValueStats()
        self.NUM_LEDGERS_CHECKED = 0
        self.NUM_BOOKIE_AUDITS_DELAYED = 0
        self.NUM_DELAYED_BOOKIE_AUDITS_CANCELLED = 0

    def audited(self, marked: int, size: int) -> None:
        """An audit of the bookies marked so many ledgers, of so many bytes."""
        if marked:
            self.NUM_UNDER_REPLICATED_LEDGERS.add(marked)
            self.UNDER_REPLICATED_LEDGERS_TOTAL_SIZE.add(size)

    def checked(self, shapes: Mapping[tuple[int, int], int]) -> None:
        """A check of all ledgers came to its end: how many ledgers had so many fragments, on so many bookies."""
        for (fragments, bookies), ledgers in shapes.items():
            self.NUM_LEDGERS_CHECKED += ledgers
            self.NUM_FRAGMENTS_PER_LEDGER.add(fragments, ledgers)
            self.NUM_BOOKIES_PER_LEDGER.add(bookies, ledgers)


class WorkerStats:
    """Of one process, its repairs by hand among them."""

    def __init__(self) -> None:
        self.rereplicate = OpStats()
        """Marked ledgers that were taken: whole afterwards, or not."""
        self.NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED = 0
        self.NUM_NOT_ADHERING_PLACEMENT_LEDGERS_REPLICATED = 0
        self.NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER = 0
        self.NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION = 0
        self.NUM_ENTRIES_READ = 0
        self.NUM_ENTRIES_WRITTEN = 0
        """An entry that two bookies needed counts twice."""
        self.NUM_BYTES_READ = ValueStats()
        self.NUM_BYTES_WRITTEN = ValueStats()
        self.READ_DATA_LATENCY = OpStats()
        """Of a stretch of entries; each of them counts."""
        self.WRITE_DATA_LATENCY = OpStats()
        """To the last acknowledgement of a stretch."""
        self.exceptions: Counter[str] = Counter()
        """By the name of the error that ended a repair. Java exports `exceptions_<its class>`."""
        self.fragments_failed = 0
        """Not a Java name."""

    def read(self, sizes: Collection[int], seconds: float) -> None:
        """Entries of these sizes were read together in that time."""
        self.NUM_ENTRIES_READ += len(sizes)
        self.READ_DATA_LATENCY.ok(seconds, len(sizes))
        for size in sizes:
            self.NUM_BYTES_READ.add(size)

    def written(self, sizes: Collection[int], seconds: float) -> None:
        """Copies of these sizes were acknowledged together after that time."""
        self.NUM_ENTRIES_WRITTEN += len(sizes)
        self.WRITE_DATA_LATENCY.ok(seconds, len(sizes))
        for size in sizes:
            self.NUM_BYTES_WRITTEN.add(size)
