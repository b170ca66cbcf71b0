"""One simulated run from one seed: draw a configuration, do work and harm, heal, check everything.

python -m bookkeeper.simulation --seeds 1000 --first 0      many, in parallel
python -m bookkeeper.simulation --seed 42                   one, with a readable trace
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from ..errors import BookKeeperError
from ..types import DigestType
from .checkers.bookie_local import check_bookie
from .checkers.leaks import check_leaks
from .checkers.metadata_states import MetadataChecker
from .checkers.replicas import check_replicas
from .cluster import SimulatedCluster
from .disk import MachineCrashed
from .history import History, LedgerHistory, Violation
from .nemesis import FAULTS, Fault, Nemesis, draw_plan
from .wire import WireTap
from .workload import Shape, Workload, read_whole
from .world import World

SHAPES = ((3, 3, 2), (3, 2, 2), (3, 3, 3), (4, 3, 2), (2, 2, 1), (3, 2, 1), (5, 3, 2), (1, 1, 1), (2, 2, 2))
BOOT_SECONDS = 120.0
HEAL_ATTEMPTS = 20


@dataclass
class Options:
    """What may differ from the usual run."""

    seconds: float = 12.0
    """Virtual seconds of work and harm."""
    faults: list[str] | None = None
    """Kinds of faults; None: a drawn part of all."""


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
    compared: int = 0
    injected: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    plan: list[Fault] = field(default_factory=list)
    description: str = ""


class Run:
    """See the module."""

    def __init__(self, seed: int, options: Options | None = None) -> None:
        self.options = options or Options()
        self.report = Report(seed)
        self.world = World(seed)
        self.dice = self.world.stream("configuration")
        self.history = History()
        self._failure: asyncio.Future[None] | None = None
        self._draw()

    def _draw(self) -> None:
        dice = self.dice
        ensemble, write_quorum, ack_quorum = dice.choice(SHAPES)
        bookies = ensemble + dice.randint(1, 2)
        self.shape = Shape(
            ensemble,
            write_quorum,
            ack_quorum,
            dice.choice(list(DigestType)),
            entries=dice.choice((5, 40, 150)),
            pause=dice.choice((0.01, 0.05, 0.3)),
        )
        settings = {
            "flushInterval": dice.choice((200, 1000, 5000)),
            "journalMaxGroupWaitMSec": dice.choice((0, 2, 20)),
            "journalMaxBackups": dice.choice((0, 1, 5)),
            "dbStorage_readAheadCacheBatchSize": dice.choice((0, 10, 100)),
            "journalWriteBufferSizeKB": dice.choice((1, 64)),
        }
        self.world.fragment_chance = dice.choice((0.0, 0.05, 0.5))
        self.world.buggify_chance = dice.choice((0.0, 0.0, 1.0))
        self.cluster = SimulatedCluster(self.world, bookies, settings=settings)
        kinds = self.options.faults
        if kinds is None:
            kinds = [kind for kind in FAULTS if dice.random() < 0.5] or list(FAULTS)
        self.kinds = kinds
        self.programs = {
            "writers": dice.randint(1, 3),
            "readers": dice.randint(0, 2),
            "followers": dice.randint(0, 2),
            "deleters": int(dice.random() < 0.2),
        }
        self.fault_count = dice.choice((0, 3, 10, 25))
        self.report.description = (
            f"{bookies} bookies, {ensemble}/{write_quorum}/{ack_quorum}, {self.shape.digest.value}, {self.programs}, "
            f"{self.fault_count} faults of {len(kinds)} kinds, {settings}"
        )

    # --- the run ---

    def execute(self) -> Report:
        """Run to the end, or to the first violation."""
        report = self.report
        try:
            self.world.run(self._main())
        except Violation as error:
            report.violation = f"{error}"
        except Exception as error:
            report.violation = f"unexpected {type(error).__name__}: {error}"
            report.violation += _where(error)
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
        self._failure = loop.create_future()
        loop.set_exception_handler(self._on_loop_error)
        self.tap = self.world.tap = WireTap(self.cluster.names)
        self.metadata = MetadataChecker(self.cluster.store, self.history)
        work = loop.create_task(self._work(), name="run/work")
        await asyncio.wait([work, self._failure], return_when=asyncio.FIRST_COMPLETED)
        if self._failure.done():
            self._failure.result()
        work.result()

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException) and not isinstance(error, MachineCrashed):
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        assert self._failure is not None
        if not self._failure.done():
            self._failure.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    async def _work(self) -> None:
        await self.cluster.start()
        self.world.loop.after_step = self._after_step
        workload = Workload(self.cluster, self.history, self.shape, self._fail)
        clients = workload.start(**self.programs)
        nemesis = Nemesis(self.cluster, clients, self.world.stream("nemesis"), self._booted)
        for name in self.cluster.names:
            nemesis.watch(name)
        plan = draw_plan(
            self.world.stream("plan"),
            self.cluster.names,
            clients,
            self.options.seconds,
            self.kinds,
            self.fault_count,
        )
        self.report.plan = plan
        await nemesis.carry_out(plan)
        await asyncio.sleep(max(0.0, self.options.seconds - self.world.loop.time()))
        workload.stopped = True
        self.report.injected = nemesis.injected
        await nemesis.stop()
        await self._finale(clients)

    def _after_step(self) -> None:
        if self.world.loop.steps % 16 == 0:
            try:
                self.metadata.check()
            except Violation as error:
                self._fail(error)

    def _booted(self, name: str) -> asyncio.Task[None]:
        return self.world.loop.create_task(self._check_boot(name), name=f"run/check {name}")

    async def _check_boot(self, name: str) -> None:
        incarnation = self.cluster.machine(name).incarnation
        if incarnation is None or not incarnation.alive:
            return
        bookie = self.cluster.bookies[name]
        check = self.world.spawn_on(
            incarnation, check_bookie(name, bookie, self.tap.promises[name], self.history), "check"
        )
        died = self.cluster.machine(name).death()
        await asyncio.wait([check, died], return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
        if not check.done():
            return
        try:
            self.report.compared += check.result()
        except Violation:
            raise
        except Exception:
            if not bookie.ending:
                raise

    # --- after the harm ---

    async def _finale(self, clients: list[str]) -> None:
        """Everything is healthy again: recover and read all, count the copies, stop in order, look for leftovers."""
        for name in clients:
            self.cluster.machine(name).kill()
        for name in self.cluster.names:
            await self._bring_up(name)
        await asyncio.sleep(8)  # sessions of the dead run out
        for name in self.cluster.names:
            await self._check_boot(name)
        runtime = self.cluster.client_runtime("judge")
        await self.world.spawn_on(runtime.incarnation, self._judge(runtime), "judge")
        for name in self.cluster.names:
            await self._power_cycle(name)
        await self.world.spawn_on(runtime.incarnation, self._judge(runtime), "judge again")
        for name in self.cluster.names:
            await self.cluster.stop_bookie_only(name)
        await asyncio.sleep(10)
        check_leaks(self.world, [*self.cluster.names, "judge"])

    async def _bring_up(self, name: str) -> None:
        machine = self.cluster.machine(name)
        machine.pause(0)
        for _ in range(HEAL_ATTEMPTS):
            if self.cluster.is_serving(name):
                return
            if self.cluster.is_up(name):
                machine.kill()
            if await self.cluster.start_bookie(name):
                await self._check_boot(name)
                return
            await asyncio.sleep(3)
        raise Violation(f"{name} does not start on a healthy machine: exit code {self.cluster.exit_codes.get(name)}")

    async def _power_cycle(self, name: str) -> None:
        self.cluster.machine(name).power_off()
        await asyncio.sleep(1)
        await self._bring_up(name)

    async def _judge(self, runtime: object) -> None:
        async with self.cluster.client(runtime) as bk:  # type: ignore[arg-type]
            await asyncio.sleep(8)
            for ledger in list(self.history.ledgers.values()):
                if not ledger.delete_started:
                    await self._judge_ledger(bk, ledger)

    async def _judge_ledger(self, bk: object, ledger: LedgerHistory) -> None:
        for attempt in range(HEAL_ATTEMPTS):
            try:
                await read_whole(bk, self.history, ledger)  # type: ignore[arg-type]
                break
            except BookKeeperError as error:
                if attempt == HEAL_ATTEMPTS - 1:
                    raise Violation(
                        f"ledger {ledger.ledger_id} cannot be recovered and read though all is healthy: {error!r}"
                    ) from error
                await asyncio.sleep(1)
        metadata = await bk.get_ledger_metadata(ledger.ledger_id)  # type: ignore[attr-defined]
        members = {bookie for ensemble in metadata.ensembles.values() for bookie in ensemble}
        held: dict[str, set[int]] = {}
        for bookie in sorted(members):
            try:
                held[bookie] = set(await bk.list_entries_of(ledger.ledger_id, bookie))  # type: ignore[attr-defined]
            except BookKeeperError:
                held[bookie] = set()
        self.report.under_replicated += check_replicas(metadata, held)


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
