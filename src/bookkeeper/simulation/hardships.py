"""More harm: machines that stand still, narrow links, a slow, full or damaged index, operators who mix things up.

Each of these once went by unseen, because no fault of `nemesis.FAULTS` could bring it about. A run has them with
`swarm.Options.hardening`.

A *calm* run has only the `CALM` ones. They take time and nothing else, so much more is promised: nothing that a program
does fails, no writer loses its ledger, no bookie ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from .loop import Thaw

if TYPE_CHECKING:
    from .cluster import SimulatedCluster
    from .nemesis import Fault
    from .world import World

CALM = ("freeze client", "narrow links of client")

HARDSHIPS = (*CALM, "freeze bookie")

LONGEST_FREEZE = 40.0
"""Seconds: together with what follows less than any operation may take (`programs.OPERATION_SECONDS`)."""

NARROWEST = 8_000
"""Bytes per second: three seconds for the largest entries, many for all that a writer may have in flight."""

THAWS = (Thaw.TIMERS_FIRST, Thaw.INPUT_FIRST)


class Hardships:
    """The part of the nemesis that knows how."""

    cluster: SimulatedCluster
    _later: Callable[..., None]

    @property
    def world(self) -> World:
        return self.cluster.world

    # --- time ---

    def _freeze(self, fault: Fault) -> bool:
        seconds = 1.0 + fault.duration * fault.amount % (LONGEST_FREEZE - 1.0)
        self.cluster.machine(fault.target).freeze(seconds, THAWS[fault.amount % 2])
        return self.cluster.is_up(fault.target)

    def _freeze_client(self, fault: Fault) -> bool:
        return self._freeze(fault)

    def _freeze_bookie(self, fault: Fault) -> bool:
        return self._freeze(fault)

    def _narrow_links_of_client(self, fault: Fault) -> bool:
        """Those to the bookies, each by itself, and back."""
        for bookie in self.cluster.names:
            self.world.set_bandwidth(fault.target, bookie, NARROWEST * (1 + fault.amount % 4))
            self._later(10 * fault.duration, self.world.set_bandwidth, fault.target, bookie, math.inf)
        return True
