"""What some clients do does not harm the others: no refusals for their sake, no memory without bound, no end.

The bounds of a run with hostile peers are small (`HOSTILE_SETTINGS`), so that few requests reach them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..cluster import SimulatedCluster
from ..history import Violation
from ..world.network import SimulatedTransport

MEMORY_MB = 4
READS_LIMIT = 100
"""Of one connection; see `maxPendingReadRequestsPerThread`."""

HOSTILE_SETTINGS: Mapping[str, Any] = {
    "maxPendingReadRequestsPerThread": READS_LIMIT,
    "numReadWorkerThreads": 4,
    "numHighPriorityWorkerThreads": 2,
    "nettyMaxFrameSizeBytes": 256 << 10,
    "maxBatchReadSize": 64 << 10,
    "journalMaxMemorySizeMb": 1,
    "requestMemoryMaxSizeMb": MEMORY_MB,
}
"""Of bookies that have hostile peers."""

ANSWERS_LIMIT = 6 << 20
"""Bytes of answers that a bookie with `HOSTILE_SETTINGS` may hold: the least that it must be able to, which is sixteen
of the largest frames, and half as much again for what it is working on."""

JOURNAL_SLACK = 2 << 20
"""Bytes that a journal's queue may be above its limit: what one round of the loop may bring."""


class CrowdingChecker:
    """Watches the bookies of a run. `fail` is called with a violation."""

    def __init__(self, cluster: SimulatedCluster, fail: Callable[[BaseException], None]) -> None:
        self._cluster = cluster
        self._fail = fail
        cluster.world.on_buffered = self._buffered

    def refused(self, name: str, under_way: int) -> None:
        """A bookie had too much to do for a read of a peer that behaves; those have so many under way."""
        if under_way < READS_LIMIT // 2:
            self._fail(Violation(f"{name} refuses a read for want of room, with {under_way} under way: others take it"))

    def _buffered(self, transport: SimulatedTransport) -> None:
        """A connection's buffer has grown beyond its high water mark."""
        name = transport.owner.machine.name
        bookie = self._cluster.bookies.get(name)
        if bookie is None or not transport.accepted:
            return
        ends = self._cluster.world.connections()
        held = sum(end.get_write_buffer_size() for end in ends if end.owner is transport.owner)
        if held > ANSWERS_LIMIT:
            self._fail(Violation(f"{name} holds {held} bytes of answers that nobody takes"))

    def look(self) -> None:
        """To be called now and then."""
        for name in self._cluster.names:
            if self._cluster.is_serving(name):
                for journal in self._cluster.bookies[name].journals:
                    if journal.room.bytes > journal.room.limit + JOURNAL_SLACK:
                        self._fail(
                            Violation(
                                f"{name}: {journal.room.bytes} bytes wait for the journal; the limit is "
                                f"{journal.room.limit}"
                            )
                        )
