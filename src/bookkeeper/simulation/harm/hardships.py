"""More harm: machines that stand still, narrow links, a slow, full or damaged index, operators who mix things up.

Each of these once went by unseen, because no fault of `nemesis.FAULTS` could bring it about. A run has them with
`swarm.Options.hardening`.

A *calm* run has only the `CALM` ones. They take time and nothing else, so much more is promised: nothing that a program
does fails, no writer loses its ledger, no bookie ends.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from ..cluster import SimulatedCluster
from ..world.loop import Thaw
from ..world.world import World
from .fault import Fault, does

CALM = ("freeze client", "narrow links of client")

HARDSHIP_DAMAGE = ("flip a bit of a mark", "flip a bit of an index log")
"""Destroys what a bookie has on disk, as `nemesis.DAMAGE` does."""

MISTAKES = ("swap directories", "lose a mount")
"""An operator's: the bookie must not go on as if nothing had happened."""

HARDSHIPS = (
    *CALM,
    "freeze bookie",
    "index is slow",
    "index stops the machine",
    "index is full",
    "ledger disk is full",
    "store loses requests",
    *HARDSHIP_DAMAGE,
    *MISTAKES,
)

ENDING = (
    "fail next sync",
    "fail next write",
    "read errors",
    "disk full",  # of the journal, too
    "flip a bit",
    *HARDSHIP_DAMAGE,
    *MISTAKES,
)
"""What may make a bookie end by itself. Without these none does, whatever else happens."""

LONGEST_FREEZE = 40.0
"""Seconds: together with what follows less than any operation may take (`programs.OPERATION_SECONDS`)."""

NARROWEST = 10_000
"""Bytes per second: two seconds for the largest entries, many for all that a writer may have in flight."""

THAWS = (Thaw.TIMERS_FIRST, Thaw.INPUT_FIRST)


class Hardships:
    """The part of the nemesis that knows how."""

    cluster: SimulatedCluster
    damaged: dict[str, None]
    _later: Callable[..., None]

    @property
    def world(self) -> World:
        return self.cluster.world

    # --- time ---

    def _freeze(self, fault: Fault) -> bool:
        seconds = 1.0 + fault.duration * fault.amount % (LONGEST_FREEZE - 1.0)
        self.cluster.machine(fault.target).freeze(seconds, THAWS[fault.amount % 2])
        return self.cluster.is_up(fault.target)

    @does("freeze client")
    def _freeze_client(self, fault: Fault) -> bool:
        return self._freeze(fault)

    @does("freeze bookie")
    def _freeze_bookie(self, fault: Fault) -> bool:
        return self._freeze(fault)

    # --- the index ---

    @does("index is slow")
    def _index_is_slow(self, fault: Fault) -> bool:
        faults = self.cluster.machine(fault.target).disk.faults
        faults.index_slowness = 0.02 * fault.amount
        self._later(fault.duration, setattr, faults, "index_slowness", 0.0)
        return True

    @does("index stops the machine")
    def _index_stops_the_machine(self, fault: Fault) -> bool:
        self.cluster.machine(fault.target).disk.faults.index_stops_for = 0.1 * fault.amount
        return True

    @does("index is full")
    def _index_is_full(self, fault: Fault) -> bool:
        faults = self.cluster.machine(fault.target).disk.faults
        faults.index_full = True
        self._later(fault.duration, setattr, faults, "index_full", False)
        return True

    @does("ledger disk is full")
    def _ledger_disk_is_full(self, fault: Fault) -> bool:
        """The journal's is not."""
        faults = self.cluster.machine(fault.target).disk.faults
        faults.full_below = "/ledgers"
        self._later(fault.duration, setattr, faults, "full_below", None)
        return True

    @does("flip a bit of an index log")
    def _flip_a_bit_of_an_index_log(self, fault: Fault) -> bool:
        """Found at the next start."""
        name = fault.target
        if not self.cluster.is_serving(name):
            return False
        disk = self.cluster.machine(name).disk
        stores = [path for path, state in disk.stores.items() if state.log]
        if not stores:
            return False
        dice = random.Random(fault.amount)
        path = dice.choice(stores)
        disk.flip_log(path, dice.randrange(len(disk.stores[path].log)))
        self.damaged[name] = None
        self.cluster.machine(name).kill()
        return True

    @does("flip a bit of a mark")
    def _flip_a_bit_of_a_mark(self, fault: Fault) -> bool:
        """Of all its copies, or of one."""
        name = fault.target
        if not self.cluster.is_serving(name):
            return False
        disk = self.cluster.machine(name).disk
        marks = [path for path, inode in disk.names.items() if "/lastMark" in path and inode.durable]
        if not marks:
            return False
        dice = random.Random(fault.amount)
        path = dice.choice(marks)
        size = len(disk.names[path].durable)
        disk.flip_bit(path, dice.choice((dice.randrange(size), *range(13, size)[:3])))  # there, small numbers change
        self.damaged[name] = None
        self.cluster.machine(name).kill()
        return True

    # --- mistakes ---

    @does("swap directories")
    def _swap_directories(self, fault: Fault) -> bool:
        """Started with its ledger directories in another order, and told that new ones are welcome; then corrected."""
        name = fault.target
        directories = self.cluster.setting(name, "ledgerDirectories").split(",")
        if len(directories) < 2 or not self.cluster.is_up(name):
            return False
        wrong = {"ledgerDirectories": ",".join(reversed(directories)), "allowStorageExpansion": True}
        self.cluster.mistakes[name] = wrong
        self.cluster.machine(name).kill()
        self._later(2.0 + fault.duration, self._correct, name)
        return True

    def _correct(self, name: str) -> None:
        if self.cluster.mistakes.pop(name, None) is not None and self.cluster.is_up(name):
            self.cluster.machine(name).kill()

    @does("lose a mount")
    def _lose_a_mount(self, fault: Fault) -> bool:
        """A ledger directory's file system is gone until the machine is started again."""
        name = fault.target
        if not self.cluster.is_serving(name):
            return False
        directories = self.cluster.setting(name, "ledgerDirectories").split(",")
        self.cluster.machine(name).disk.unmount(directories[fault.amount % len(directories)])
        return True

    # --- the store ---

    @does("store loses requests")
    def _store_loses_requests(self, fault: Fault) -> bool:
        self.cluster.faults.lost_request_chance = 0.3
        self._later(fault.duration, setattr, self.cluster.faults, "lost_request_chance", 0.0)
        return True

    # --- links ---

    @does("narrow links of client")
    def _narrow_links_of_client(self, fault: Fault) -> bool:
        """Those to the bookies, each by itself, and back."""
        for bookie in self.cluster.names:
            self.world.set_bandwidth(fault.target, bookie, NARROWEST * (1 + fault.amount % 2))
            self._later(10 * fault.duration, self.world.set_bandwidth, fault.target, bookie, math.inf)
        return True
