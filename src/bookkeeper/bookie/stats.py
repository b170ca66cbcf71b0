"""What a bookie counts, under BookKeeper's names (spec bookie-server §7).

Plain numbers, updated once per batch; an exporter reads them. A latency is kept as count, sum and a histogram whose
bounds grow by a tenth of a decade, which gives every quantile to about a tenth.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BOUNDS_SECONDS = tuple(10 ** (exponent / 10) for exponent in range(-60, 21))
"""1 µs to 100 s."""


class OpStats:
    """Outcomes and latencies of one kind of operation."""

    __slots__ = ("buckets", "failed", "failed_seconds", "seconds", "succeeded")

    def __init__(self) -> None:
        self.succeeded = 0
        self.failed = 0
        self.seconds = 0.0
        """Of all that succeeded, together."""
        self.failed_seconds = 0.0
        self.buckets = [0] * (len(BOUNDS_SECONDS) + 1)
        """How many succeeded within each bound of `BOUNDS_SECONDS`, and beyond the last one."""

    def ok(self, seconds: float, count: int = 1) -> None:
        self.succeeded += count
        self.seconds += seconds * count
        self.buckets[bisect_left(BOUNDS_SECONDS, seconds)] += count

    def fail(self, seconds: float = 0.0, count: int = 1) -> None:
        self.failed += count
        self.failed_seconds += seconds * count

    @contextmanager
    def timed(self, now: Callable[[], float]) -> Iterator[None]:
        """Count what happens inside: how long it took by this clock, and whether it raised an error."""
        started = now()
        try:
            yield
        except Exception:
            self.fail(now() - started)
            raise
        self.ok(now() - started)

    def quantile(self, share: float) -> float:
        """Seconds that this share of the successes stayed within; 0 if there were none."""
        rank = share * self.succeeded
        seen = 0
        for bound, count in zip(BOUNDS_SECONDS, self.buckets, strict=False):
            seen += count
            if seen and seen >= rank:
                return bound
        return BOUNDS_SECONDS[-1] if self.succeeded else 0.0


class ScrubStats:
    """What the scrubber and the mender count, under Java's names in scope `scrubber` where Java has them."""

    def __init__(self) -> None:
        self.runTime = OpStats()
        """Whole runs."""
        self.detectedScrubErrors = 0
        """Damaged entries that were found, each time they were."""
        self.detectedFatalScrubErrors = 0
        """Ledgers whose index could not be read."""
        self.entriesRepaired = 0
        self.entriesNotRepaired = 0
        """Given up: no good copy, or none to be had."""
        self.repairsLeftOut = 0
        """Damage met by reads while the queue was full."""


class BookieStats:
    """All of a bookie's counters."""

    def __init__(self) -> None:
        self.scrubber = ScrubStats()
        self.ADD_ENTRY = OpStats()
        self.READ_ENTRY = OpStats()
        self.READ_ENTRY_FENCE_REQUEST = OpStats()
        self.READ_ENTRY_LONG_POLL_REQUEST = OpStats()
        self.FORCE_LEDGER = OpStats()
        self.WRITE_LAC = OpStats()
        self.READ_LAC = OpStats()
        self.GET_BOOKIE_INFO = OpStats()
        self.GET_LIST_OF_ENTRIES_OF_LEDGER = OpStats()
        self.ADD_ENTRY_REJECTED = 0
        self.READ_ENTRY_REJECTED = 0
        self.ADD_ENTRY_BLOCKED = 0
        """Connections whose adds wait for room now."""
        self.READ_ENTRY_BLOCKED = 0
        """Connections whose reads wait for a permit now."""
        self.WRITE_BYTES = 0
        self.READ_BYTES = 0
        self.connections_refused = 0
        self.connections_broken = 0
        """Closed because of bytes that are no legal message."""
        self.responses_dropped = 0
