"""Spark's sink, batch after batch, while drivers and executors die (spec streams §17.6, §15.7).

Spark does not run in the simulator; all that its sink does is run: `spark.writing` without what Spark calls. The story
plays Spark. A driver plans a batch in its checkpoint, has three tasks written on three executors, publishes what the
first attempt of each has told, and notes that. An attempt may fail, die, or get a second one beside it; what lost goes
on writing. A driver that dies, just before or after a change of the metadata as anywhere else, is followed by another
one with the checkpoint. Beside them jobs write batches of their own, counted and not, and somebody cleans up all the
time, with a patience so short that a run must be heard of to stay.

What is merged before it is published is drawn, and what becomes of the checkpoint: it is kept; two drivers have it at
once; backups of it are put back; or it is lost, and a query with another id takes over the sink.

After each change the watch (`sink_watch`) looks at what is published. At the end each number that the query has read is
in its stream once, in the order of batches and partitions, of batches that failed nothing is there, and no ledger is
left that is no segment, and no run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bookkeeper.errors import BookKeeperError, NotOwnerError
from bookkeeper.metadata.tree import TransactionLimits
from bookkeeper.spark.writing.committing import commit, end_runs
from bookkeeper.spark.writing.fingerprint import fingerprint_of
from bookkeeper.spark.writing.sink_options import MergePolicy
from bookkeeper.spark.writing.tasks import UNCOUNTED, Batch, TaskWriter, Written
from bookkeeper.streams.errors import EpochConflictError
from bookkeeper.streams.namespace import Namespace
from tests.simulation.scenario import Died, Scenario, play
from tests.simulation.sink_checkpoint import Checkpoint, NotAloneError
from tests.simulation.sink_watch import SinkWatch
from tests.simulation.stream_story import DEATHS, PATH, SMALL, Story

INPUT = 40
"""Numbers that the query reads."""
PARTITIONS = 3
STREAMS = ("a", "b")
SINK = "sink"
JOBS = 3
"""Batches of each kind that are written beside the query."""
ATTEMPTS = 4
"""Of a task, before its batch fails."""
PATIENCE = 6.0
"""Seconds after which whoever cleans up gives a run up that is silent."""
BEAT = 1.0
MERGES = (MergePolicy(), MergePolicy(target=100), MergePolicy(target=0))
"""One of them: all drafts of a stream become one, or some, or none."""
COMMIT_SECONDS = (0.1, 20.0)
"""One of them: how long a commit tries. With the first one most that happens to it ends the query."""

KINDS = ("kept", "two drivers", "put back", "lost")
"""What becomes of the checkpoint."""

Records = dict[str, list[bytes]]
"""By stream."""


class StoppedError(Exception):
    """An operator has stopped the query."""


class QueryEndedError(Exception):
    """A batch failed; nothing was published of it."""


def rows(query: str, first: int, end: int) -> list[Records]:
    """What a batch writes, by partition: some numbers give no row, so some batches are empty."""
    parts: list[Records] = [{} for _ in range(PARTITIONS)]
    for number in range(first, end):
        if number % 4:
            stream = STREAMS[number % 5 == 0]
            parts[number % PARTITIONS].setdefault(stream, []).append(f"{query} {number}".encode())
    return parts


def together(parts: Iterable[Records], stream: str) -> list[bytes]:
    return [row for part in parts for row in part.get(stream, [])]


@dataclass
class Job:
    """A batch write that is no query's."""

    name: str
    parts: list[Records]
    counted: bool
    done: bool = False


class SinkStory(Story):
    def __init__(self, s: Scenario, *, calm: bool, hard: bool = False, merge: MergePolicy | None = None) -> None:
        super().__init__(s, calm=calm, hard=hard)
        self.kind = self.chance.choice([kind for kind in KINDS if not calm or kind != "two drivers"])
        self.limits = self.chance.choice((SMALL, TransactionLimits()))
        self.commit_seconds = self.chance.choice(COMMIT_SECONDS)
        self.loss = 0.02 if self.commit_seconds > 1 else 0.08
        self.merge = merge or s.world.stream("merging").choice(MERGES)
        self.watch = SinkWatch(s.cluster.store)
        self.checkpoints = [Checkpoint("q1")]
        """Those that a driver may begin with; one that is refused is none any more."""
        self.backups: list[Checkpoint] = []
        self.left: list[Checkpoint] = []
        """Those that were lost, as they were then."""
        self.reset = False
        self.finished: Checkpoint | None = None
        self.jobs: list[Job] = []
        self.executors: list[Namespace] = []
        self.attempts: set[asyncio.Task[Written]] = set()

    def excuse(self, error: Exception) -> None:
        """Where nothing fails there is no excuse."""
        if self.calm:
            raise error

    # --- tasks ---

    async def attempt(self, machine: Namespace, batch: Batch, partition: int, records: Records) -> Written:
        """What `spark.writing.writers` does for a task."""
        writer = TaskWriter(machine, batch, beat_seconds=BEAT)
        await writer.begin()
        try:
            for stream, payloads in records.items():
                await asyncio.sleep(self.chance.choice((0.0, 0.05, 4.0)) * self.chance.random())
                if not self.calm and self.chance.random() < 0.05:
                    raise QueryEndedError("the task fails")
                await writer.add([(stream, payloads)])
            await asyncio.sleep(self.chance.choice((0.0, 0.05, 4.0)) * self.chance.random())
            written = await writer.finish(partition)
            self.watch.attempted(written)
            return written
        except Exception:
            try:
                await writer.abort()
            except BookKeeperError as error:
                self.excuse(error)
            raise

    async def task(self, batch: Batch, partition: int, records: Records) -> Written | None:
        """The first attempt that is done counts; None: all have failed. What others do does not matter any more."""
        for _ in range(ATTEMPTS):
            while not any(map(self.is_up, self.executors)):
                await asyncio.sleep(0.05)
            running = {self.begin_attempt(batch, partition, records) for _ in range(self.chance.choice((1, 1, 2)))}
            while running:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    try:
                        return each.result()
                    except (Died, QueryEndedError):
                        continue
                    except BookKeeperError as error:
                        self.excuse(error)
        return None

    def begin_attempt(self, batch: Batch, partition: int, records: Records) -> asyncio.Task[Written]:
        machine = self.chance.choice([each for each in self.executors if self.is_up(each)])
        doing = self.s.begin(machine._client_id, self.attempt(machine, batch, partition, records))
        waiting = asyncio.ensure_future(self.s.wait(doing))
        for each in (doing, waiting):
            each.add_done_callback(lambda task: task.cancelled() or task.exception())
        self.attempts.add(doing)
        return waiting

    def is_up(self, executor: Namespace) -> bool:
        machine = self.s.cluster.machine(executor._client_id)
        return machine.incarnation is not None and machine.incarnation.alive

    async def written(self, batch: Batch, parts: Sequence[Records]) -> list[Written | None]:
        """By all tasks of a batch: an empty partition has one, too."""
        return list(await asyncio.gather(*(self.task(batch, n, each) for n, each in enumerate(parts))))

    async def write(
        self, namespace: Namespace, batch: Batch, parts: Sequence[Records], fingerprint: str | None, reset: bool
    ) -> None:
        """A batch as Spark runs it. Raises `QueryEndedError` and what committing raises: it was aborted then."""
        messages = await self.written(batch, parts)
        self.watch.offer(batch.run, messages, counted=batch.counted)
        known = None if batch.query is not None else batch  # a query aborts on a copy that knows its messages only
        try:
            if None in messages:
                raise QueryEndedError
            if self.hard and self.chance.random() < 0.2:
                # of the changes of anybody: this commit's may be done, and the driver takes them for failed
                self.s.cluster.faults.lose_answers_to["tree.commit"] = self.chance.randrange(1, 30)
            await commit(
                namespace,
                batch.epoch,
                messages,
                fingerprint=fingerprint,
                reset=reset,
                merge=self.merge,
                timeout=self.commit_seconds,
            )
        except (BookKeeperError, QueryEndedError):
            try:
                await end_runs(namespace, messages, known)
            except BookKeeperError as error:
                self.excuse(error)
            raise

    def new_run(self) -> str:
        return f"{self.chance.getrandbits(64):016x}"

    # --- the query ---

    async def query(self, namespace: Namespace, checkpoint: Checkpoint) -> None:
        """To the end of the input, from where the checkpoint says."""
        while True:
            if self.kind == "put back" and self.chance.random() < 0.3:
                self.backups.append(checkpoint.copy())
                if self.chance.random() < 0.3:
                    raise StoppedError
            number = checkpoint.next_batch()
            first = checkpoint.end(number - 1)
            if number not in checkpoint.offsets:
                if first >= INPUT:
                    return
                end = min(first + self.chance.randrange(1, 10), INPUT)
                checkpoint.plan(number, end, self.s.world.loop.time())
            batch = Batch(SINK, number, self.new_run(), checkpoint.query, counted=True)
            parts = rows(checkpoint.query, first, checkpoint.end(number))
            fingerprint = fingerprint_of(checkpoint.offsets[number])
            reset = self.reset and checkpoint.query in self.watch.resets
            await self.write(namespace, batch, parts, fingerprint, reset)
            await asyncio.sleep(self.chance.uniform(0.0, 0.1))
            checkpoint.committed(number)
            if self.kind == "put back" and self.chance.random() < 0.2:
                raise StoppedError

    def choose(self) -> Checkpoint:
        """What the next driver begins with."""
        if self.backups and self.chance.random() < 0.5:
            self.checkpoints.append(self.backups.pop(self.chance.randrange(len(self.backups))))
        lose = self.kind == "lost" and not self.left and self.checkpoints[0].commits
        if lose and self.chance.random() < 0.5:
            self.left = self.checkpoints
            self.checkpoints = [Checkpoint("q2")]
        return self.chance.choice(self.checkpoints)

    async def drive(self, namespace: Namespace) -> None:
        """Begin the query again and again, until one comes to the end."""
        while self.finished is None:
            checkpoint = self.choose()
            try:
                await self.query(namespace, checkpoint)
                self.finished = checkpoint
            except StoppedError:
                continue
            except EpochConflictError:
                self.refused(checkpoint)
            except NotAloneError:
                assert self.kind == "two drivers", "nobody else has the checkpoint"
                await asyncio.sleep(self.chance.uniform(0.0, 0.5))
            except (BookKeeperError, QueryEndedError) as error:
                self.excuse(error)
                await asyncio.sleep(0.1)

    def refused(self, checkpoint: Checkpoint) -> None:
        """Right are: a checkpoint that is behind, a query that is new, and the slower one of two drivers."""
        if self.kind == "put back":
            if checkpoint in self.checkpoints:
                self.checkpoints.remove(checkpoint)
            assert self.checkpoints or self.backups, "all checkpoints are refused"
            self.checkpoints = self.checkpoints or [self.backups.pop()]
        elif self.kind == "lost":
            assert checkpoint.query == "q2", "the query is refused, and nobody else has its sink"
            self.reset = True
            self.watch.resets.add("q2")
        else:
            assert self.kind == "two drivers", "the query is refused, with the checkpoint that it always had"

    # --- beside it ---

    async def work(self, namespace: Namespace, *, counted: bool) -> None:
        """Batch writes: those with a number are begun again until one is known to be published."""
        while (number := sum(job.done for job in self.jobs if job.counted == counted)) < JOBS:
            name = f"job{number}" if counted else f"once{len(self.jobs)}"
            parts = [{"a": [f"{name} {part} {n}".encode() for n in range(2)]} for part in range(PARTITIONS)]
            if not counted:
                parts = parts[:1]  # without a number nothing is published in parts
            job = next((job for job in self.jobs if job.name == name), None) or Job(name, parts, counted)
            if job not in self.jobs:
                self.jobs.append(job)
            sink = "nightly" if counted else UNCOUNTED
            batch = Batch(sink, number if counted else 0, self.new_run(), None, counted)
            try:
                await self.write(namespace, batch, parts, None, reset=False)
                job.done = True
            except (BookKeeperError, QueryEndedError) as error:
                self.excuse(error)
            await asyncio.sleep(self.chance.uniform(0.0, 1.0))

    async def sweep(self, namespace: Namespace) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self.chance.uniform(0.1, 1.0))
            try:
                await namespace.collect_staged(lost_after=PATIENCE, lock_timeout=1.0)
            except NotOwnerError:
                continue
            except BookKeeperError:
                assert self.hard, "nothing failed, but cleaning up does"

    async def executor(self, place: int) -> None:
        """A machine for tasks; who dies is replaced, the last one lives. Until cancelled."""
        for life in range(DEATHS):
            machine = f"x{place}.{life}"
            namespace = await self.namespace(machine, mortal=not self.calm and life < DEATHS - 1)
            self.executors[place : place + 1] = [namespace]
            if self.calm:
                return
            if life < DEATHS - 1:
                self.s.world.loop.call_later(self.chance.uniform(0.5, 10.0), self.s.cluster.machine(machine).power_off)
            await self.s.cluster.machine(machine).death()

    # --- all together ---

    async def play(self) -> None:
        s = self.s
        main = await self.namespace("m")
        await s.on("m", main._tree.make(PATH))
        self.executors = [main] * 3
        executors = [asyncio.ensure_future(self.executor(place)) for place in range(3)]
        sweeping = s.begin("s", self.sweep(await self.namespace("s")))
        trouble = asyncio.ensure_future(self.trouble()) if self.hard else None
        drivers = ["p1", "p2"] if self.kind == "two drivers" else ["p1"]
        work = [self.lives(name, self.drive) for name in drivers]
        work.append(self.lives("pc", lambda namespace: self.work(namespace, counted=True)))
        work.append(self.lives("pu", lambda namespace: self.work(namespace, counted=False)))
        await asyncio.gather(*map(asyncio.ensure_future, work))
        if trouble is not None:
            await self.peace(trouble)
        for each in self.attempts:
            await asyncio.wait([asyncio.ensure_future(self.outcome(each))])
        sweeping.cancel()
        await asyncio.wait([sweeping])
        for each in executors:
            each.cancel()
        await s.on("m", main.collect_staged(lost_after=-1, lock_timeout=None))
        await s.on("m", self.check(main))

    async def outcome(self, task: asyncio.Task[Written]) -> None:
        """Wait for an attempt that nobody waits for any more."""
        try:
            await self.s.wait(task)
        except (Died, BookKeeperError, QueryEndedError):
            return

    async def check(self, namespace: Namespace) -> None:
        assert not self.watch.wrong, self.watch.wrong
        found = {name: await self.contents(namespace, name) for name in STREAMS}
        self.check_queries(found)
        self.check_jobs(found["a"])
        ledgers = [ledger async for ledger in namespace.client.list_ledgers()]
        assert sorted(ledgers) == sorted(self.watch.published), "ledgers are left that are no segments"
        sinks = await namespace._tree.children(f"{PATH}/.sinks", fresh=True)
        for sink in () if sinks is None else sinks.names:
            runs = await namespace._tree.children(f"{PATH}/.sinks/{sink}/staging", fresh=True)
            assert runs is None or not runs.names, f"runs of {sink} are left"

    async def contents(self, namespace: Namespace, stream: str) -> list[bytes]:
        if not await namespace.exists(stream):
            return []
        async with namespace.open_reader(stream, tail=False) as reader:
            return [record.payload async for record in reader]

    def check_queries(self, found: Records) -> None:
        assert self.finished is not None
        self.check_query(found, self.finished, len(self.finished.offsets))
        for lost in self.left:
            known = len(lost.commits)
            counts = [count for count in range(known, len(lost.offsets) + 1) if self.holds(found, lost, count)]
            assert counts, "of the query that was lost there is not what it has committed"
        for records in found.values():
            queries = [record.split()[0] for record in records if record.startswith(b"q")]
            assert queries == sorted(queries), "a query goes on that has lost its sink"

    def check_query(self, found: Records, checkpoint: Checkpoint, batches: int) -> None:
        for stream, records in found.items():
            own = [record for record in records if record.startswith(f"{checkpoint.query} ".encode())]
            assert own == self.expected(checkpoint, batches, stream), f"{stream} has {own}"

    def holds(self, found: Records, checkpoint: Checkpoint, batches: int) -> bool:
        try:
            self.check_query(found, checkpoint, batches)
        except AssertionError:
            return False
        return True

    def expected(self, checkpoint: Checkpoint, batches: int, stream: str) -> list[bytes]:
        wanted: list[bytes] = []
        for number in range(batches):
            wanted += together(rows(checkpoint.query, checkpoint.end(number - 1), checkpoint.end(number)), stream)
        return wanted

    def check_jobs(self, found: list[bytes]) -> None:
        for job in self.jobs:
            own = [record for record in found if record.startswith(f"{job.name} ".encode())]
            whole = together(job.parts, "a")
            assert own == whole or (not own and not job.done), f"{job.name} has {own}"


def tell(seed: int, *, calm: bool = False, hard: bool = False, merge: MergePolicy | None = None) -> None:
    """Play the story; raises what goes wrong. `merge`: None: it is drawn."""

    async def story(s: Scenario) -> None:
        await SinkStory(s, calm=calm, hard=hard, merge=merge).play()

    play(story, bookies=4, seed=seed)
