"""Keeps the programs of a run going: starts each on its machine, and again whenever that has been killed.

Errors are normal, a broken promise is not: it is reported at once, and so is whatever a program did not expect.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from ...client.client import BookKeeper
from ...errors import BookKeeperError
from ..cluster import SimulatedCluster
from ..history import History, Violation
from ..swarm import Shape, client_settings
from ..world.disk import MachineCrashed
from ..world.world import SimulatedRuntime
from .claims import Claims
from .healing import Healing
from .hostile import Hostility
from .impatience import Impatience
from .moody import moody_settings
from .users import OPERATION_SECONDS, Programs, unexpected

END_SECONDS = 2 * OPERATION_SECONDS

Program = Callable[[BookKeeper, random.Random], Coroutine[Any, Any, None]]


class Workload:
    """All programs of one run."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        history: History,
        shape: Shape,
        settings: Mapping[str, Any],
        report: Callable[[BaseException], None],
        *,
        calm: bool = False,
        moody: bool = False,
    ) -> None:
        """`settings` win over those drawn for each client; `report` hears of violations and unexpected errors.

        `calm`: errors are not normal either. `moody`: some clients have parts that fail (`simulation.moody`).
        """
        self._moody = moody
        self.cluster = cluster
        self.programs = Programs(cluster, history, shape, calm=calm)
        self._settings = settings
        self._report = report
        self.cancelled: dict[str, int] = {}
        """Operations that impatient programs have cancelled, and where they waited; how many times."""
        self._impatience = Impatience(self.programs, self._was_cancelled)
        self._kinds: dict[str, str] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    def _was_cancelled(self, operation: str, place: str) -> None:
        what = f"{operation} in {place}"
        self.cancelled[what] = self.cancelled.get(what, 0) + 1

    @property
    def stopped(self) -> bool:
        return self.programs.stopped

    def stop(self) -> None:
        """Nothing new is begun."""
        self.programs.stopped = True

    async def ended(self) -> None:
        """Wait until the programs have come to their ends, after `stop`. On a healthy cluster they do (LV-2)."""
        waiting = {name: task for name, task in self._running.items() if self.cluster.is_up(name) and not task.done()}
        if waiting:
            await asyncio.wait(waiting.values(), timeout=END_SECONDS)
        for name, task in waiting.items():
            if not task.done():
                raise Violation(f"the program on {name} does not come to its end on a healthy cluster")

    def start(self, counts: Mapping[str, int]) -> list[str]:
        """Start programs on machines `w1`, `r1`, ...; returns the machines' names."""
        programs: dict[str, tuple[str, Program]] = {
            "writers": ("w", self.programs.write),
            "readers": ("r", self.programs.recover_and_read),
            "followers": ("f", self.programs.follow),
            "browsers": ("x", self.programs.browse),
            "deleters": ("d", self.programs.delete),
            "impatients": ("i", self._impatience.live),
            "claimers": ("c", Claims(self.programs).live),
            "hostiles": ("h", Hostility(self.programs).live),
            "healers": ("a", Healing(self.cluster, lambda: self.stopped).live),
        }
        names = []
        for kind, count in counts.items():
            prefix, program = programs[kind]
            for number in range(1, count + 1):
                names.append(f"{prefix}{number}")
                self._kinds[names[-1]] = kind
                self.launch(names[-1], program)
        return names

    def launch(self, name: str, program: Program) -> None:
        """Run a program on a machine until the workload is stopped; after the machine was killed, again."""
        runtime = self.cluster.client_runtime(name)
        dice = runtime.random("workload")
        loop = self._loop(runtime, program, dice)
        self._running[name] = self.cluster.world.spawn_on(runtime.incarnation, loop, "program")
        self.cluster.machine(name).death().add_done_callback(lambda _: self._relaunch(name, program))

    def _relaunch(self, name: str, program: Program) -> None:
        if not self.stopped:
            self.cluster.world.loop.call_later(1.0, self._launch_again, name, program)

    def _launch_again(self, name: str, program: Program) -> None:
        if not self.stopped:
            self.launch(name, program)

    async def _loop(self, runtime: SimulatedRuntime, program: Program, dice: random.Random) -> None:
        while not self.stopped:
            try:
                settings = {**client_settings(dice), **self._settings}
                if self._moody:
                    settings |= moody_settings(dice, self._kinds[runtime.hostname()])
                async with self.cluster.client(runtime, **settings) as bk:
                    for _ in range(dice.randint(1, 4)):
                        if not self.stopped:
                            await program(bk, dice)
            except BookKeeperError as error:
                if self.programs.calm:
                    self._report(unexpected(runtime.hostname(), error))
                self.cluster.world.sometimes(f"{runtime.hostname()[0]}: {type(error).__name__}")
            except BaseException as error:
                if not isinstance(error, asyncio.CancelledError | GeneratorExit | MachineCrashed):
                    self._report(error)
                raise
            await asyncio.sleep(dice.random())
