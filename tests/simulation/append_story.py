"""Spark's sink with delivery=at-least-once, while executors die (spec streams §17.6).

As in `sink_story` three tasks write each batch on three executors, with attempts that fail, die, or run beside one
another; a task that fails is repeated, and a batch until all its tasks are done. Tasks append to the same two streams,
each in an order of its own, so they wait for each other all the time.

At the end each row is there at least once, nothing else is, and rows of a task stand in its order.
"""

from __future__ import annotations

import asyncio

from bookkeeper.errors import BookKeeperError
from bookkeeper.spark.writing.appending import TaskAppender
from bookkeeper.spark.writing.tasks import Batch, Written
from bookkeeper.streams.namespace import Namespace
from tests.simulation.scenario import Scenario, play
from tests.simulation.sink_story import STREAMS, QueryEndedError, Records, SinkStory, rows
from tests.simulation.stream_story import PATH

BATCHES = 5
ROWS = 16
"""Of a batch, about."""
WAIT = 60.0
"""Seconds that a task waits for a stream; longer than the session of one that died."""


class AppendStory(SinkStory):
    async def attempt(self, machine: Namespace, batch: Batch, partition: int, records: Records) -> Written:
        """What `spark.writing.writers` does for a task."""
        task = TaskAppender(machine, batch, timeout=WAIT)
        await task.begin()
        try:
            for stream, payload in self.shuffled(records):
                await asyncio.sleep(self.chance.choice((0.0, 0.05, 1.0)) * self.chance.random())
                if not self.calm and self.chance.random() < 0.02:
                    raise QueryEndedError("the task fails")
                await task.add([(stream, [payload])])
            return await task.finish(partition)
        except Exception:
            try:
                await task.abort()
            except BookKeeperError as error:
                self.excuse(error)
            raise

    def shuffled(self, records: Records) -> list[tuple[str, bytes]]:
        """Now one stream, now the other; each in its order."""
        left = {stream: list(payloads) for stream, payloads in records.items()}
        found = []
        while left:
            stream = self.chance.choice(sorted(left))
            found.append((stream, left[stream].pop(0)))
            if not left[stream]:
                del left[stream]
        return found

    async def play(self) -> None:
        s = self.s
        main = await self.namespace("m")
        await s.on("m", main._tree.make(PATH))
        self.executors = [main] * 3
        executors = [asyncio.ensure_future(self.executor(place)) for place in range(3)]
        trouble = asyncio.ensure_future(self.trouble()) if self.hard else None
        for number in range(BATCHES):
            batch = Batch("sink", number, self.new_run(), "q", counted=True)
            while None in await self.written(batch, rows("q", number * ROWS, (number + 1) * ROWS)):
                continue  # the query ended, and was begun again
        if trouble is not None:
            await self.peace(trouble)
        for each in self.attempts:
            await asyncio.wait([asyncio.ensure_future(self.outcome(each))])
        for each in executors:
            each.cancel()
        await s.on("m", self.check(main))

    async def check(self, namespace: Namespace) -> None:
        for stream in STREAMS:
            found = await self.contents(namespace, stream)
            first = {row: found.index(row) for row in set(found)}
            tasks = [part.get(stream, []) for n in range(BATCHES) for part in rows("q", n * ROWS, (n + 1) * ROWS)]
            assert set(first) == {row for task in tasks for row in task}, f"{stream} has {found}"
            for task in tasks:
                places = [first[row] for row in task]
                assert places == sorted(places), f"{stream}: {task} are out of order"


def tell(seed: int, *, calm: bool = False, hard: bool = False) -> None:
    """Play the story; raises what goes wrong."""

    async def story(s: Scenario) -> None:
        await AppendStory(s, calm=calm, hard=hard).play()

    play(story, bookies=4, seed=seed)
