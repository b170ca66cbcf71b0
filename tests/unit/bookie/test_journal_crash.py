"""Crashes at any disk call, power losses and kills, again and again: nothing acknowledged is lost (safety §3.1, §3.2).

The storage is a dictionary with two halves: what was added, and what a flush has made durable. At each start the
durable half and the replayed records together are what the bookie has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.bookie.journal.format import JournalRecord
from bookkeeper.bookie.journal.journal import Journal
from bookkeeper.simulation.world.world import World
from tests.support.java_journal import entry
from tests.support.journals import JournalMachine, append


class Model:
    """What this bookie was sent, has answered, and holds."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.sizes: dict[int, int] = {}
        self.acknowledged: dict[int, None] = {}
        self.memory: dict[int, bytes] = {}
        self.durable: dict[int, bytes] = {}

    def acknowledge(self, entry_id: int) -> Callable[[], None]:
        return lambda: self.acknowledged.setdefault(entry_id)

    def restart(self) -> None:
        self.memory = dict(self.durable)

    def apply(self, record: JournalRecord) -> None:
        """BI-4: what is replayed is what was sent."""
        assert record.body == entry(7, record.entry_id, self.sizes[record.entry_id], record.entry_id % 250 + 1)
        self.memory[record.entry_id] = record.body

    def check(self, replayed: list[int]) -> None:
        lost = [entry_id for entry_id in self.acknowledged if entry_id not in self.memory]
        assert not lost, f"acknowledged and lost: {lost}"  # BI-1, BI-6
        assert replayed == sorted(replayed)
        in_order = [entry_id for entry_id in self.sent if entry_id in dict.fromkeys(replayed)]
        assert in_order == replayed


async def live(journal: Journal, model: Model, plan: list[tuple[int, int]], flush_every: int) -> None:
    """One life of the bookie: replay, flush, then appends, with checkpoints now and then."""
    model.restart()
    replayed: list[int] = []

    def apply(record: JournalRecord) -> None:
        replayed.append(record.entry_id)
        model.apply(record)

    await journal.replay(apply)
    model.check(replayed)
    await checkpoint(journal, model, compact=False)
    journal.start()
    next_id = len(model.sent)
    for number, (size, pause) in enumerate(plan):
        entry_id = next_id + number
        model.sent.append(entry_id)
        model.sizes[entry_id] = size
        model.memory[entry_id] = entry(7, entry_id, size, entry_id % 250 + 1)
        append(journal, entry_id, model.acknowledge(entry_id), size)
        if pause:
            await asyncio.sleep(pause * 0.0002)
        if number % flush_every == flush_every - 1:
            await checkpoint(journal, model, compact=True)
    await asyncio.sleep(1)


async def checkpoint(journal: Journal, model: Model, *, compact: bool) -> None:
    mark = journal.mark()
    flushed = dict(model.memory)
    await asyncio.sleep(0.002)
    model.durable.update(flushed)
    await journal.retention.checkpoint_complete(mark, compact)


lives = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from([40, 100, 470, 3000, 200_000]), st.integers(0, 6)), max_size=30),
        st.integers(1, 400),  # the disk call at which the power fails
        st.booleans(),  # or the process is killed, some time in between
    ),
    min_size=1,
    max_size=4,
)


@given(seed=st.integers(0, 2**32), lives=lives, flush_every=st.integers(3, 40), backups=st.integers(0, 1))
@settings(max_examples=150)
def test_nothing_acknowledged_is_lost(
    seed: int, lives: list[tuple[list[tuple[int, int]], int, bool]], flush_every: int, backups: int
) -> None:
    model = Model()
    with JournalMachine(seed, journalMaxBackups=backups, journalBufferedWritesThreshold=300_000) as box:
        for plan, call, kill in lives:
            if kill:
                box.world.loop.call_later(call * 0.0005, box.machine.kill)
            else:
                box.disk.faults.crash_after_calls = call
            box.run(lambda journal, plan=plan: live(journal, model, plan, flush_every))  # type: ignore[misc]
            box.machine.power_off()
        box.run(lambda journal: live(journal, model, [], flush_every))
        assert not box.fatal


def test_the_same_seed_gives_the_same_run() -> None:
    def trace() -> str:
        model = Model()
        with JournalMachine(11) as box:
            world: World = box.world
            box.run(lambda journal: live(journal, model, [(100, i % 3) for i in range(50)], 7))
            return world.loop.trace_hash()

    assert trace() == trace()
