"""One simulated run from one seed: draw a configuration, do work and harm, heal, check everything.

A run has three parts. *Work and harm*: programs use the cluster while the nemesis carries out its plan; the checkers
look at every change of the metadata, every frame of a bookie, every answer to an application, and at each bookie after
each start. *Healing*: no more harm; every bookie must come up, register and be writable. *Judgement*: every ledger must
be recoverable, complete and on enough bookies; then once more after a power failure of all bookies; then everything is
stopped, and nothing may be left.

`python -m bookkeeper.simulation` does many of them, or shows one.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from ..bookie.node.exit_code import ExitCode
from ..client.client import BookKeeper
from ..client.recovery import LENGTH_UNKNOWN
from ..errors import BookKeeperError
from ..metadata.ledger_metadata import LedgerMetadata
from .checkers.bookie_local import check_bookie
from .checkers.crowding import CrowdingChecker
from .checkers.leaks import check_leaks
from .checkers.metadata_states import MetadataChecker
from .checkers.quorums import QuorumChecker
from .checkers.replicas import check_replicas
from .checkers.soundness import find_unsound
from .cluster import SimulatedCluster
from .harm.fault import Fault
from .harm.nemesis import Nemesis, draw_plan
from .history import History, LedgerHistory, Violation
from .programs.healing import THOROUGH, Healing
from .programs.users import read_whole
from .programs.workload import Workload
from .swarm import Options, draw
from .wire import WireTap
from .world.disk import MachineCrashed
from .world.odds import NetworkOptions, Odds
from .world.trace import LogListener, Reader, Show
from .world.world import SimulatedRuntime, World

__all__ = ["Options", "Report", "Run", "run_seed"]

CHECKER_MACHINE = "judge"
"""The machine of the client that recovers and reads everything in the end. Its name is part of what a seed means."""

HEALER_MACHINE = "healer"
"""The machine of the autorecovery that makes everything whole in the end."""

WHOLE_SECONDS = 300.0
"""Virtual seconds that it has for that."""

HEAL_SECONDS = 120.0
"""Virtual seconds after which a healthy cluster must be in order again (LV-1, LV-6)."""

LAST_SECONDS = 1.0
"""Given to what has been closed to be gone."""

TASK_FAILED = "task %s failed"
"""What `TaskScope` says of a task that no other task waits for: what it did all the time is not done any more."""

STEP_LIMIT = 3_000_000
STEPS_PER_SECOND = 300_000
"""Callbacks in one virtual second: more than the busiest one has, and it goes round and round."""
VIRTUAL_LIMIT = 3600.0


@dataclass
class Report:
    """What came of a run."""

    seed: int
    violation: str | None = None
    trace_hash: str = ""
    virtual_seconds: float = 0.0
    steps: int = 0
    ledgers: int = 0
    appended: int = 0
    reads: int = 0
    recoveries: int = 0
    under_replicated: int = 0
    """Entries that had fewer replicas at the end than the write quorum wants (there is no autorecovery here)."""
    compared: int = 0
    """Entries that were compared with what their bookie had promised, after a start of it."""
    cancelled: dict[str, int] = field(default_factory=dict)
    """Operations that were cancelled, and where they waited; how many times."""
    injected: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    plan: list[Fault] = field(default_factory=list)
    description: str = ""


class Run:
    """See the module."""

    def __init__(
        self,
        seed: int,
        options: Options | None = None,
        *,
        show: Show | None = None,
        machines: tuple[str, ...] = (),
        until: float | None = None,
    ) -> None:
        """`show` prints a readable trace, of these `machines` only if any are named; `until`: stop at this time."""
        self.options = options or Options()
        self.report = Report(seed)
        self.world = World(seed)
        self.configuration = draw(self.world.stream("configuration"), self.options)
        self.report.description = str(self.configuration)
        self.world.odds = self.configuration.odds
        loop = self.world.loop
        loop.step_limit, loop.deadline, loop.steps_per_second = STEP_LIMIT, VIRTUAL_LIMIT, STEPS_PER_SECOND
        self.history = History(bytes_only=self.configuration.corrupt_network)
        self.cluster = SimulatedCluster(self.world, self.configuration.bookies, settings=self.configuration.settings)
        self.nemesis: Nemesis | None = None
        self._until = until
        self._observer: Callable[[str, str], None] | None = None
        if show is not None:
            self._observer = self.world.observer = Reader(self.world, show, machines)
        self._failure: asyncio.Future[None] = loop.create_future()

    # --- the run ---

    def execute(self) -> Report:
        """Run to the end, or to the first violation."""
        report = self.report
        try:
            with LogListener(self.world, self._heard, self._observer):
                self.world.run(self._main())
        except Violation as error:
            report.violation = f"{error}"
        except Exception as error:
            report.violation = f"unexpected {type(error).__name__}: {error}{_where(error)}"
        finally:
            report.trace_hash = self.world.loop.trace_hash()
            report.virtual_seconds = self.world.loop.time()
            report.steps = self.world.loop.steps
            report.ledgers = len(self.history.ledgers)
            report.appended = self.history.appended
            report.reads = self.history.reads
            report.recoveries = self.history.recoveries
            report.seen = dict(self.world.seen)
            self.world.close()
        return report

    async def _main(self) -> None:
        loop = self.world.loop
        loop.set_exception_handler(self._on_loop_error)
        if not self.configuration.corrupt_network:
            self.tap = self.world.tap = WireTap(self.cluster.names, self.world.sometimes, self._fail)
            self.metadata = MetadataChecker(self.cluster.store, self.history, self._fail)
            self.metadata.on_step = self._metadata_step
            self.tap.on_moment = self._moment
            QuorumChecker(self.history, self.tap, self.metadata)
            if self.configuration.hostile:
                self._watch_crowding()
        if self.configuration.bookies_stay:
            self.cluster.on_end = self._bookie_ended
        work = loop.create_task(self._work(), name="run/work")
        await asyncio.wait([work, self._failure], return_when=asyncio.FIRST_COMPLETED, timeout=self._until)
        if self._failure.done():
            self._failure.result()
        if work.done():
            work.result()

    def _is_bookies(self, task: str) -> bool:
        """Whether a task runs on a bookie's machine: such a bookie ends, which is looked at by itself."""
        return task.lstrip("('").partition("#")[0] in self.cluster.names

    def _bookie_ended(self, name: str, code: ExitCode) -> None:
        self._fail(Violation(f"{name} ended by itself with exit code {code}, and nothing had broken that must end it"))

    def _watch_crowding(self) -> None:
        hostile = self.configuration.programs["hostiles"]
        self.tap.outsiders = {f"h{number}": None for number in range(1, hostile + 1)}
        crowding = CrowdingChecker(self.cluster, self._fail)
        self.tap.on_refused = crowding.refused

        async def look() -> None:
            while True:
                crowding.look()
                await asyncio.sleep(0.1)

        self._looking = self.world.loop.create_task(look(), name="run/crowding")

    def _heard(self, record: logging.LogRecord) -> None:
        if record.msg == TASK_FAILED and self.options.hardening and not self._is_bookies(f"{record.args}"):
            self._fail(Violation(record.getMessage()))
        if record.msg == LENGTH_UNKNOWN and isinstance(record.args, tuple):
            self.history.length_unknown(record.args[0])

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException) and not isinstance(error, MachineCrashed):
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._failure.done():
            self._failure.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def _metadata_step(self, before: LedgerMetadata | None, now: LedgerMetadata) -> None:
        """For readers of the trace, and for the count of rare events."""
        where = f"ledger {now.ledger_id}"
        if before is None:
            return
        if now.ensembles != before.ensembles:
            first, members = now.last_ensemble
            self.world.note(where, f"fragment from {first} on {members}")
            self.world.sometimes("metadata: " + ("closed with" if now.closed else "stored") + " another ensemble")
        if now.state is not before.state:
            last = f" at {now.last_entry_id}" if now.closed else ""
            self.world.note(where, f"{before.state.name} -> {now.state.name}{last}")
            self.world.sometimes(f"metadata: {before.state.name} -> {now.state.name}")
            self._moment("ledger is closed" if now.closed else "recovery begins")
        elif now.ensembles != before.ensembles:
            self._moment("ensemble changes")

    def _moment(self, what: str) -> None:
        if self.nemesis is not None:
            self.world.loop.call_soon(self.nemesis.moment, what, context=contextvars.Context())

    async def _work(self) -> None:
        configuration = self.configuration
        await self.cluster.start()
        begun = self.world.loop.time()
        workload = Workload(
            self.cluster,
            self.history,
            configuration.shape,
            configuration.client_settings,
            self._fail,
            calm=configuration.calm,
            moody=self.options.hardening,
        )
        self.report.cancelled = workload.cancelled
        clients = workload.start(configuration.programs)
        nemesis = self.nemesis = Nemesis(self.cluster, clients, self.world.stream("nemesis"), self._booted, self._loses)
        for name in self.cluster.names:
            nemesis.watch(name)
        plan = self.report.plan = draw_plan(
            self.world.stream("plan"),
            self.cluster.names,
            clients or [CHECKER_MACHINE],
            configuration.seconds,
            configuration.kinds,
            configuration.fault_count,
        )
        self.report.injected = nemesis.injected
        await nemesis.carry_out(plan, self.options.skip)
        await asyncio.sleep(max(0.0, begun + configuration.seconds - self.world.loop.time()))
        workload.stop()
        await nemesis.stop()
        self.world.note("nemesis", "no more harm")
        await workload.ended()
        await self._finale(clients)

    # --- after each start of a bookie ---

    def _loses(self, name: str) -> None:
        if not self.configuration.corrupt_network:  # else nobody listens on the wire
            self.tap.promises[name].lose(self.tap.promises.values())

    def _booted(self, name: str) -> asyncio.Task[None]:
        if not self.configuration.corrupt_network:
            self.tap.promises[name].restarted(self.history.is_deleted)
        return self.world.loop.create_task(self._check_boot(name), name=f"run/check {name}")

    async def _check_boot(self, name: str) -> None:
        incarnation = self.cluster.machine(name).incarnation
        if incarnation is None or not incarnation.alive or self.configuration.corrupt_network:
            return
        bookie = self.cluster.bookies[name]
        if self.cluster.machine(name).disk.faults.fail_reads_of is not None:
            return
        check = check_bookie(name, bookie, self.tap.promises[name], self.history, lambda: name in self._damaged)
        task = self.world.spawn_on(incarnation, check, "check")
        died = self.cluster.machine(name).death()
        await asyncio.wait([task, died], return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
        if not task.done():
            return
        try:
            self.report.compared += task.result()
        except Violation:
            if self.cluster.machine(name).disk.faults.fail_reads_of is None:
                raise
        except Exception:
            if not bookie.ending:
                raise

    # --- after the harm ---

    async def _finale(self, clients: list[str]) -> None:
        """Everything is healthy again: recover and read all, count the copies, stop in order, look for leftovers."""
        corrupt = self.world.odds.network.corrupt_chance
        self.world.odds = Odds(NetworkOptions(fragment_chance=0.0, corrupt_chance=corrupt))
        self.world.heal()
        for name in clients:
            self.cluster.machine(name).kill()
        await self._all_in_order()
        runtime = self.cluster.client_runtime(CHECKER_MACHINE)
        if self.configuration.corrupt_network:
            return
        await self._run_on(runtime, self._check_ledgers(runtime))
        if self.configuration.healing:
            await self._until_whole(runtime)
        if self.configuration.scrubbing:
            await self._until_sound(runtime)
        for name in self.cluster.names:
            self.cluster.machine(name).power_off()
            if self.configuration.losing:  # one at a time
                self._loses(name)
                await self._all_in_order()
        await self._all_in_order()
        await self._run_on(runtime, self._check_ledgers(runtime))
        if self.configuration.scrubbing:  # what was in caches before comes from the disks now
            await self._until_sound(runtime)
        await asyncio.sleep(LAST_SECONDS)
        check_leaks(self.world, [CHECKER_MACHINE])
        for name in self._alive():
            await self.cluster.stop_bookie_only(name)
        await asyncio.sleep(LAST_SECONDS)
        check_leaks(self.world, self._alive())

    def _alive(self) -> list[str]:
        """The bookies that are expected to run."""
        return [name for name in self.cluster.names if name not in self._lost]

    @property
    def _lost(self) -> dict[str, None]:
        """Damaged bookies that refuse to start."""
        return {name: None for name in self._damaged if not self.cluster.is_up(name)}

    @property
    def _damaged(self) -> dict[str, None]:
        return {} if self.nemesis is None else self.nemesis.damaged

    async def _run_on(self, runtime: SimulatedRuntime, work: Coroutine[Any, Any, None]) -> None:
        await self.world.spawn_on(runtime.incarnation, work, CHECKER_MACHINE)

    async def _all_in_order(self) -> None:
        """Every bookie comes up, registers, takes writes."""
        deadline = self.world.loop.time() + HEAL_SECONDS
        for name in self.cluster.names:
            while not self.cluster.is_serving(name):
                if self.cluster.is_up(name):
                    self.cluster.machine(name).kill()
                if await self.cluster.start_bookie(name):
                    break
                if name in self._damaged:
                    self.world.sometimes("damaged bookie refuses to start")
                    break
                if self.world.loop.time() > deadline:
                    code = self.cluster.exit_codes.get(name)
                    raise Violation(f"{name} does not start on a healthy machine: exit code {code}")
                await asyncio.sleep(1)
        for name in self._alive():
            await self._check_boot(name)
        for name in self._alive():
            while not self._settled(name):
                if self.world.loop.time() > deadline:
                    raise Violation(
                        f"{name} is healthy, and not registered as writable and whole after {HEAL_SECONDS:.0f} s"
                    )
                await asyncio.sleep(0.2)

    def _settled(self, name: str) -> bool:
        assert self.nemesis is not None
        state = self.cluster.bookies[name].state
        return state.registered and not state.read_only and not self.nemesis.in_limbo(name)

    async def _until_whole(self, runtime: SimulatedRuntime) -> None:
        """Autorecovery leaves nothing undone (PI-19): every entry is on all bookies that its record names."""
        healer = self.cluster.client_runtime(HEALER_MACHINE)
        whole = asyncio.Event()
        healing = Healing(self.cluster, whole.is_set)

        async def heal() -> None:
            async with self.cluster.client(healer) as bk:
                await healing.heal(bk, THOROUGH, whole.is_set)

        working = self.world.spawn_on(healer.incarnation, heal(), HEALER_MACHINE)
        deadline = self.world.loop.time() + WHOLE_SECONDS
        while True:
            self.report.under_replicated = 0
            await self._run_on(runtime, self._check_ledgers(runtime))
            if not self.report.under_replicated:
                break
            if self.world.loop.time() > deadline:
                raise Violation(
                    f"{self.report.under_replicated} entries lack copies after {WHOLE_SECONDS:.0f} s of autorecovery"
                )
            await asyncio.sleep(1)
        whole.set()
        await working
        await asyncio.sleep(LAST_SECONDS)
        check_leaks(self.world, [HEALER_MACHINE])

    async def _until_sound(self, runtime: SimulatedRuntime) -> None:
        """Scrubbers leave no damaged copy."""
        deadline = self.world.loop.time() + WHOLE_SECONDS
        unsound: list[str] = []

        async def look() -> None:
            async with self.cluster.client(runtime) as bk:
                for ledger in list(self.history.ledgers.values()):
                    if not ledger.delete_started:
                        metadata = await bk.get_ledger_metadata(ledger.ledger_id)
                        unsound.extend(await find_unsound(bk, metadata, ledger, lost))

        lost = [self.cluster.bookie_id(name) for name in self._lost]
        while True:
            unsound.clear()
            await self._run_on(runtime, look())
            if not unsound:
                return
            self.world.sometimes("a copy is damaged after the harm")
            if self.world.loop.time() > deadline:
                raise Violation(f"{len(unsound)} copies are damaged after {WHOLE_SECONDS:.0f} s, as {unsound[0]}")
            await asyncio.sleep(1)

    async def _check_ledgers(self, runtime: SimulatedRuntime) -> None:
        async with self.cluster.client(runtime) as bk:
            await self._wait_until_known(bk)
            for ledger in list(self.history.ledgers.values()):
                if not ledger.delete_started:
                    await self._check_ledger(bk, ledger)

    async def _wait_until_known(self, bk: BookKeeper) -> None:
        """Until the client has heard that all bookies take writes."""
        deadline = self.world.loop.time() + HEAL_SECONDS
        while len(known := await bk.writable_bookies()) < len(self._alive()):
            if self.world.loop.time() > deadline:
                raise Violation(f"a new client knows only {sorted(known)} after {HEAL_SECONDS:.0f} s")
            await asyncio.sleep(0.2)

    async def _check_ledger(self, bk: BookKeeper, ledger: LedgerHistory) -> None:
        deadline = self.world.loop.time() + HEAL_SECONDS
        while True:
            try:
                await read_whole(bk, self.history, ledger)
                break
            except BookKeeperError as error:
                if self.world.loop.time() > deadline:
                    raise Violation(
                        f"ledger {ledger.ledger_id} cannot be recovered and read though all is healthy: {error!r}"
                    ) from error
                await asyncio.sleep(1)
        metadata = await bk.get_ledger_metadata(ledger.ledger_id)
        members = {bookie: None for ensemble in metadata.ensembles.values() for bookie in ensemble}
        held: dict[str, set[int]] = {}
        for bookie in members:
            try:
                held[bookie] = set(await bk.list_entries_of(ledger.ledger_id, bookie))
            except BookKeeperError:
                held[bookie] = set()
        lost = [self.cluster.bookie_id(name) for name in self._lost]
        self.report.under_replicated += check_replicas(metadata, held, lost)


def _where(error: BaseException) -> str:
    traceback = error.__traceback__
    places = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        places.append(f"{code.co_filename.rpartition('/')[2]}:{traceback.tb_lineno} {code.co_name}")
        traceback = traceback.tb_next
    return "\n    at " + "\n    at ".join(reversed(places[-8:]))


def run_seed(seed: int, options: Options | None = None) -> Report:
    """One run; never raises for what the simulated system did."""
    return Run(seed, options).execute()
