"""Does harm to a simulated cluster, by a plan that is drawn beforehand.

The plan is data: which fault, when, where, how long. Leaving an element out does not change what the others do, so a
failing run can be made smaller by leaving elements out.

Some faults wait, from their time on, for something that makes them more interesting: the first moments of a recovery,
an ensemble change, a fence.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from ..cluster import STORE, SimulatedCluster
from .fault import ACTIONS, Fault, does
from .hardships import HARDSHIP_DAMAGE, Hardships
from .losses import GONE, ROT, Losses

DAMAGE = ("flip a bit",)
"""Faults that destroy what a bookie has on disk. All of a run hit the same bookie: one copy may go, not two."""

FAULTS = (
    "kill bookie",
    "power off bookie",
    "kill all bookies",
    "power off all bookies",
    "crash bookie in a disk call",
    "stop bookie cleanly",
    "pause bookie",
    "kill client",
    "pause client",
    "cut link both ways",
    "cut link one way",
    "cut off from store",
    "cut all off from store",
    "isolate bookie",
    "swizzle links",
    "slow link",
    "reset connections",
    "expire session",
    "fail next sync",
    "fail next write",
    "read errors",
    "disk full",
    "slow disk",
    "wall clock jump",
    "store loses answers",
    "store refuses",
    *DAMAGE,
)


MOMENTS = ("recovery begins", "ensemble changes", "ledger is closed", "fence is answered", "force is answered")
"""What a fault may wait for."""


def draw_plan(
    dice: random.Random, bookies: list[str], clients: list[str], seconds: float, kinds: Sequence[str], count: int
) -> list[Fault]:
    """`count` faults of these kinds, in order of time."""
    plan = []
    weak = dice.choice(bookies)
    for _ in range(count):
        kind = dice.choice(kinds)
        target = dice.choice(clients if "client" in kind else bookies)
        if kind in ("cut off from store", "expire session"):
            target = dice.choice([*bookies, *clients])
        if kind in DAMAGE or kind in HARDSHIP_DAMAGE or kind in (GONE, ROT):
            target = weak
        others = [name for name in [*bookies, *clients] if name != target]
        moment = dice.choice(MOMENTS) if dice.random() < 0.5 else ""
        plan.append(
            Fault(
                at=dice.random() * seconds,
                kind=kind,
                target=target,
                other=dice.choice(others),
                duration=dice.choice((0.05, 0.5, 2.0, 8.0)) * (0.5 + dice.random()),
                amount=dice.randint(1, 60),
                moment=moment,
                delay=dice.choice((0.0, 0.001, 0.005, 0.02)),
            )
        )
    return sorted(plan, key=lambda fault: fault.at)


@dataclass
class Nemesis(Hardships, Losses):
    """Carries out a plan."""

    cluster: SimulatedCluster
    clients: list[str]
    dice: random.Random
    on_boot: Callable[[str], asyncio.Future[None]]
    """Called when a bookie has come up again."""
    on_loss: Callable[[str], None]
    injected: dict[str, int] = field(default_factory=dict)
    damaged: dict[str, None] = field(default_factory=dict)
    """Bookies whose disk is not what they wrote any more."""
    _restarts: list[asyncio.Task[None]] = field(default_factory=list)
    _waiting: dict[str, list[tuple[int, Fault]]] = field(default_factory=dict)
    """Faults whose time has come, by what they wait for."""
    stopped: bool = False

    async def carry_out(self, plan: list[Fault], skip: Collection[int] = ()) -> None:
        """Do what the plan says, but for the elements with these numbers."""
        started = self.world.loop.time()
        for number, fault in enumerate(plan):
            await asyncio.sleep(max(0.0, started + fault.at - self.world.loop.time()))
            if self.stopped:
                return
            if number in skip:
                continue
            if fault.moment:
                self._waiting.setdefault(fault.moment, []).append((number, fault))
            else:
                self._inject(number, fault)

    def moment(self, what: str) -> None:
        """Something has happened that faults may wait for."""
        for number, fault in self._waiting.pop(what, []):
            self._later(fault.delay, self._inject, number, fault)

    def _inject(self, number: int, fault: Fault) -> None:
        if not self.stopped and self._strike(fault):
            self.world.note("nemesis", f"{number}: {fault}")
            self.injected[fault.kind] = self.injected.get(fault.kind, 0) + 1

    def _strike(self, fault: Fault) -> bool:
        """False if the fault does not apply now."""
        return ACTIONS[fault.kind](self, fault)

    def _later(self, delay: float, call: Callable[..., object], *args: object) -> None:
        self.world.loop.call_later(delay, call, *args)

    # --- processes and machines ---

    def restart_later(self, name: str, delay: float) -> None:
        task = self.world.loop.create_task(self._restart(name, delay), name=f"nemesis/restart {name}")
        self._restarts.append(task)

    async def _restart(self, name: str, delay: float) -> None:
        await asyncio.sleep(delay)
        while not self.stopped and not self.cluster.is_up(name):
            if await self.cluster.start_bookie(name):
                await self.on_boot(name)
                return
            await asyncio.sleep(0.5 + self.dice.random())

    def watch(self, name: str) -> None:
        """Bring a bookie back whenever it has died, however that came."""

        def died(_: asyncio.Future[None]) -> None:
            if not self.stopped:
                self.restart_later(name, 0.2 + self.dice.random() * 5)
                self.world.loop.call_soon(watch_again)

        def watch_again() -> None:
            if self.cluster.is_up(name):
                self.cluster.machine(name).death().add_done_callback(died)
            elif not self.stopped:
                self.world.loop.call_later(0.1, watch_again)

        self.cluster.machine(name).death().add_done_callback(died)

    @does("kill bookie")
    def _kill_bookie(self, fault: Fault) -> bool:
        if not self.cluster.is_up(fault.target):
            return False
        self.cluster.machine(fault.target).kill()
        return True

    @does("power off bookie")
    def _power_off_bookie(self, fault: Fault) -> bool:
        if not self.cluster.is_up(fault.target):
            return False
        self.cluster.machine(fault.target).power_off()
        return True

    @does("power off all bookies")
    def _power_off_all_bookies(self, fault: Fault) -> bool:
        for name in self.cluster.names:
            if self.cluster.is_up(name):
                self.cluster.machine(name).power_off()
        return True

    @does("kill all bookies")
    def _kill_all_bookies(self, fault: Fault) -> bool:
        for name in self.cluster.names:
            if self.cluster.is_up(name):
                self.cluster.machine(name).kill()
        return True

    @does("crash bookie in a disk call")
    def _crash_bookie_in_a_disk_call(self, fault: Fault) -> bool:
        self.cluster.machine(fault.target).disk.faults.crash_after_calls = fault.amount
        return True

    @does("stop bookie cleanly")
    def _stop_bookie_cleanly(self, fault: Fault) -> bool:
        name = fault.target
        if not self.cluster.is_serving(name):
            return False
        self._restarts.append(self.world.loop.create_task(self.cluster.stop_bookie(name), name=f"nemesis/stop {name}"))
        return True

    @does("pause bookie")
    def _pause_bookie(self, fault: Fault) -> bool:
        self.cluster.machine(fault.target).pause(fault.duration)
        return True

    @does("kill client")
    def _kill_client(self, fault: Fault) -> bool:
        if not self.cluster.is_up(fault.target):
            return False
        self.cluster.machine(fault.target).kill()
        return True

    @does("pause client")
    def _pause_client(self, fault: Fault) -> bool:
        self.cluster.machine(fault.target).pause(fault.duration)
        return True

    # --- network ---

    def _cut(self, fault: Fault, pairs: list[tuple[str, str]]) -> bool:
        for source, target in pairs:
            self.world.set_blocked(source, target, True)
            self._later(fault.duration, self.world.set_blocked, source, target, False)
        return True

    @does("cut link both ways")
    def _cut_link_both_ways(self, fault: Fault) -> bool:
        return self._cut(fault, [(fault.target, fault.other), (fault.other, fault.target)])

    @does("cut link one way")
    def _cut_link_one_way(self, fault: Fault) -> bool:
        return self._cut(fault, [(fault.target, fault.other)])

    @does("cut off from store")
    def _cut_off_from_store(self, fault: Fault) -> bool:
        return self._cut(fault, [(fault.target, STORE), (STORE, fault.target)])

    @does("cut all off from store")
    def _cut_all_off_from_store(self, fault: Fault) -> bool:
        everything = [*self.cluster.names, *self.clients]
        return self._cut(fault, [pair for name in everything for pair in ((name, STORE), (STORE, name))])

    @does("swizzle links")
    def _swizzle_links(self, fault: Fault) -> bool:
        """Cut some links one after the other, restore them in another order."""
        dice = random.Random(fault.amount)
        everything = [*self.cluster.names, *self.clients, STORE]
        pairs = [(one, other) for one in everything for other in everything if one != other]
        for source, target in dice.sample(pairs, min(len(pairs), 12)):
            begin = dice.random() * fault.duration
            self._later(begin, self._block, source, target)
            self._later(begin + dice.random() * fault.duration, self.world.set_blocked, source, target, False)
        return True

    def _block(self, source: str, target: str) -> None:
        if not self.stopped:
            self.world.set_blocked(source, target, True)

    @does("isolate bookie")
    def _isolate_bookie(self, fault: Fault) -> bool:
        others = [name for name in [*self.cluster.names, *self.clients, STORE] if name != fault.target]
        return self._cut(fault, [pair for name in others for pair in ((fault.target, name), (name, fault.target))])

    @does("slow link")
    def _slow_link(self, fault: Fault) -> bool:
        link = self.world.link(fault.target, fault.other)
        link.latency = 0.01 * fault.amount
        self._later(fault.duration, setattr, link, "latency", self.world.odds.network.latency)
        return True

    @does("reset connections")
    def _reset_connections(self, fault: Fault) -> bool:
        self.world.reset_connections(fault.target, fault.other)
        return True

    # --- disks and clocks ---

    @does("fail next sync")
    def _fail_next_sync(self, fault: Fault) -> bool:
        self.cluster.machine(fault.target).disk.faults.fail_next_sync = True
        return True

    @does("fail next write")
    def _fail_next_write(self, fault: Fault) -> bool:
        self.cluster.machine(fault.target).disk.faults.fail_next_write = True
        return True

    @does("disk full")
    def _disk_full(self, fault: Fault) -> bool:
        faults = self.cluster.machine(fault.target).disk
        faults.faults.full = True
        self._later(fault.duration, self._disk_has_room, fault.target)
        return True

    def _disk_has_room(self, name: str) -> None:
        self.cluster.machine(name).disk.faults.full = False

    @does("read errors")
    def _read_errors(self, fault: Fault) -> bool:
        faults = self.cluster.machine(fault.target).disk.faults
        faults.fail_reads_of = ".log"
        self._later(fault.duration, setattr, faults, "fail_reads_of", None)
        return True

    @does("slow disk")
    def _slow_disk(self, fault: Fault) -> bool:
        faults = self.cluster.machine(fault.target).disk.faults
        faults.slowness = 0.01 * fault.amount
        self._later(fault.duration, setattr, faults, "slowness", 0.0)
        return True

    @does("flip a bit")
    def _flip_a_bit(self, fault: Fault) -> bool:
        """In an entry log, or in a part of the journal that is known to have been synced.

        The last batches of a journal are spared: damaged, they look as if a power loss had torn them, before any
        client was told of them.
        """
        name = fault.target
        if not self.cluster.is_serving(name):
            return False
        disk = self.cluster.machine(name).disk
        dice = random.Random(fault.amount)
        places = [
            (path, 1024, len(inode.durable))
            for path, inode in disk.names.items()
            if path.endswith(".log") and len(inode.durable) > 1024
        ]
        for journal in self.cluster.bookies[name].journals:
            mark = journal.mark()
            path = next((p for p in disk.names if p.endswith(f"/{mark.journal_id:x}.txn")), None)
            if path is not None and mark.offset > 32 << 10:
                places.append((path, 512, mark.offset // 2))
        if not places:
            return False
        path, start, end = dice.choice(places)
        disk.flip_bit(path, dice.randrange(start, end))
        self.damaged[name] = None
        return True

    @does("wall clock jump")
    def _wall_clock_jump(self, fault: Fault) -> bool:
        self.cluster.machine(fault.target).wall_offset_ms += (fault.amount - 30) * 60_000
        return True

    # --- the store ---

    @does("expire session")
    def _expire_session(self, fault: Fault) -> bool:
        return self.cluster.expire_session(fault.target)

    @does("store loses answers")
    def _store_loses_answers(self, fault: Fault) -> bool:
        self.cluster.faults.lost_answer_chance = 0.3
        self._later(fault.duration, setattr, self.cluster.faults, "lost_answer_chance", 0.0)
        return True

    @does("store refuses")
    def _store_refuses(self, fault: Fault) -> bool:
        self.cluster.faults.refusal_chance = 0.3
        self._later(fault.duration, setattr, self.cluster.faults, "refusal_chance", 0.0)
        return True

    # --- the end ---

    async def stop(self) -> None:
        """No more harm: heal everything, wait for restarts under way."""
        self.stopped = True
        self.world.heal()
        for name in [*self.cluster.names, *self.clients]:
            self.cluster.machine(name).resume()
        self.cluster.faults.lost_answer_chance = 0.0
        self.cluster.faults.refusal_chance = 0.0
        self.cluster.faults.lost_request_chance = 0.0
        for name in list(self.cluster.mistakes):
            self._correct(name)
        for name in self.cluster.names:
            disk = self.cluster.machine(name).disk
            disk.faults = type(disk.faults)()
        for task in self._restarts:
            await asyncio.wait([task])
            task.result()
