"""Autorecovery on machines of its own, which die, stand still and are cut off as clients are.

A run has it with `swarm.Options.healing`. In the midst of the harm each healer takes part for a while, as a process
that is restarted now and then. When the harm is over, others are started, and leave when every ledger is whole.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from ...autorecovery.daemon import AutoRecovery
from ...client.client import BookKeeper
from ...config import ServerConfiguration
from ...runtime import TaskScope
from ...types import BookieId
from ..cluster import SimulatedCluster
from ..world.world import SimulatedRuntime

LOOK_SECONDS = 0.1
"""Between two looks at whether there is an end."""


def healer_settings(dice: random.Random) -> dict[str, Any]:
    """Quick ones, which must not change what is promised."""
    settings: dict[str, Any] = {
        "rwRereplicateBackoffMs": dice.choice((100, 1000)),
        "openLedgerRereplicationGracePeriod": dice.choice((100, 1000, 5000)),
        "lockReleaseOfFailedLedgerGracePeriod": dice.choice((320, 6400)),
        "lostBookieRecoveryDelay": dice.choice((0, 0, 2)),
        "auditorPeriodicBookieCheckInterval": dice.choice((2, 86400)),
        "auditorPeriodicCheckInterval": dice.choice((1, 5, 86400)),
        "auditorReplicasCheckInterval": dice.choice((0, 3)),
        "auditorPeriodicPlacementPolicyCheckInterval": dice.choice((0, 2)),
        "repairedPlacementPolicyNotAdheringBookieEnabled": dice.random() < 0.5,
        "auditorLedgerVerificationPercentage": dice.choice((0, 50, 100)),
        "rereplicationEntryBatchSize": dice.choice((1, 10, 100)),
    }
    pace = dice.choice(((-1, 1), (-1, 0.05), (20_000, 1)))
    settings["replicationRateByBytes"], settings["replicationTimeShare"] = pace
    return settings


THOROUGH: dict[str, Any] = {
    "rwRereplicateBackoffMs": 200,
    "openLedgerRereplicationGracePeriod": 1000,
    "lockReleaseOfFailedLedgerGracePeriod": 3200,
    "auditorPeriodicBookieCheckInterval": 5,
    "auditorPeriodicCheckInterval": 5,
    "auditorLedgerVerificationPercentage": 100,
}
"""When the harm is over."""


class Healing:
    """Takes part in autorecovery."""

    def __init__(self, cluster: SimulatedCluster, stopped: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._stopped = stopped

    async def live(self, bk: BookKeeper, dice: random.Random) -> None:
        """For a while, by settings that are drawn."""
        end = self._cluster.world.loop.time() + dice.choice((2.0, 10.0, 60.0))
        await self.heal(bk, healer_settings(dice), lambda: self._cluster.world.loop.time() >= end)

    async def heal(self, bk: BookKeeper, settings: dict[str, Any], enough: Callable[[], bool]) -> None:
        """Until it is `enough`, or the run's work is over."""
        runtime = bk.context.runtime
        assert isinstance(runtime, SimulatedRuntime)
        name = runtime.hostname()
        config = ServerConfiguration.from_mapping(settings)
        daemon = AutoRecovery(runtime, config, BookieId(f"{name}:0"), self._cluster.driver(name), bk)
        tasks = TaskScope(runtime, "healer")
        try:
            working = tasks.spawn(daemon.run(), name="autorecovery")
            while not (self._stopped() or enough()):
                await asyncio.sleep(LOOK_SECONDS)
                if working.done():
                    working.result()
        finally:
            await tasks.close()
        self._note(daemon)

    def _note(self, daemon: AutoRecovery) -> None:
        """For the count of rare events."""
        stats = daemon.repair.stats
        for what, happened in (
            ("a ledger is made whole", stats.NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED),
            ("a ledger is moved to where it adheres", stats.NUM_NOT_ADHERING_PLACEMENT_LEDGERS_REPLICATED),
            ("a ledger cannot be repaired now", stats.fragments_failed),
            ("an entry that nobody gives", stats.NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION),
        ):
            if happened:
                self._cluster.world.sometimes(f"healer: {what}")
