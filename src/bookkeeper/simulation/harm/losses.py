"""Losses of what a bookie has acknowledged: power failures without a journal, disks that are replaced (BP-46).

A run has them with `swarm.Options.losing`. A ledger survives as many losses at a time as its ack quorum less one: so
only one bookie loses at a time, when all others are whole. Nothing else in such a run makes a bookie end.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from ...bookie.storage.entry_log.format import HEADER_SIZE
from ..cluster import SimulatedCluster
from .fault import Fault, does

UNSYNCED = "lose what was not synced"
DISK = "lose a disk"

GONE = "lose a bookie for good"
"""Its disk goes, and nothing makes up for it but autorecovery: with `swarm.Options.healing`."""

ROT = "an entry log rots"
"""Nothing makes up for it but the bookie's own scrubber: with `swarm.Options.scrubbing`. All of a run hit the same
bookie: one copy may go, not two."""

LOSSES = (UNSYNCED, UNSYNCED, DISK)

HARMLESS = (
    "cut link both ways",
    "cut link one way",
    "slow link",
    "reset connections",
    "pause bookie",
    "pause client",
    "kill client",
    "slow disk",
    "wall clock jump",
)
"""What goes on beside losses, and loses nothing."""


class Losses:
    """The part of the nemesis that knows how."""

    cluster: SimulatedCluster
    damaged: dict[str, None]
    on_loss: Callable[[str], None]
    """Told of a bookie that is about to lose what it acknowledged."""

    def may_lose(self) -> bool:
        """Whether all bookies have all they should."""
        return all(self.cluster.is_serving(name) and not self.in_limbo(name) for name in self.cluster.names)

    def in_limbo(self, name: str) -> bool:
        """Whether a running bookie has a ledger in limbo."""
        storage = self.cluster.bookies[name].storage
        return any(storage.is_limbo(ledger_id) for ledger_id in storage.ledgers())

    @does(UNSYNCED)
    def _lose_what_was_not_synced(self, fault: Fault) -> bool:
        if not self.may_lose():
            return False
        self.on_loss(fault.target)
        self.cluster.machine(fault.target).power_off()
        return True

    @does(DISK)
    def _lose_a_disk(self, fault: Fault) -> bool:
        if not self.may_lose():
            return False
        self.on_loss(fault.target)
        self.cluster.machine(fault.target).kill()
        self.cluster.machine(fault.target).disk.wipe()
        return True

    @does(ROT)
    def _rot(self, fault: Fault) -> bool:
        """Some bits of the entry logs flip, wherever in them."""
        disk = self.cluster.machine(fault.target).disk
        logs = [(path, len(inode.durable)) for path, inode in disk.names.items() if path.endswith(".log")]
        logs = [(path, size) for path, size in logs if size > HEADER_SIZE]
        if not logs:
            return False
        dice = random.Random(fault.amount)
        for _ in range(1 + fault.amount % 5):
            path, size = dice.choice(logs)
            disk.flip_bit(path, dice.randrange(HEADER_SIZE, size))
        self.damaged[fault.target] = None
        return True

    @does(GONE)
    def _lose_a_bookie_for_good(self, fault: Fault) -> bool:
        """All of a run hit the same one: one copy may go, not two."""
        self.cluster.machine(fault.target).kill()
        self.cluster.machine(fault.target).disk.wipe()
        self.damaged[fault.target] = None
        return True
