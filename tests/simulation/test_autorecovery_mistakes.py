"""Repair never harms: stories of lost bookies, workers and locks, and mistakes made on purpose, which they notice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from bookkeeper.autorecovery import fragments, moves, worker
from bookkeeper.autorecovery.copying.copy import Copier
from bookkeeper.autorecovery.fragments import Fragment
from bookkeeper.autorecovery.repair import Repair
from bookkeeper.autorecovery.worker import ReplicationWorker
from bookkeeper.errors import LedgerClosedError, LedgerFencedError
from bookkeeper.metadata.api import LedgerLock
from bookkeeper.runtime import TaskScope
from bookkeeper.simulation.history import Violation

from .healing import bad_copies, closed_ledgers, healers, names_in, until
from .scenario import Scenario, play, power_off

SEEDS = 12
"""So many are tried before a mistake counts as missed, and are played without one."""

Patch = Callable[[pytest.MonkeyPatch], None]


async def losses_and_dying_workers(s: Scenario) -> None:
    """A bookie is lost, one of two workers dies in the midst of it, then another bookie is lost."""
    random = s.world.stream("story")
    shapes = [(3, 3, 2), (3, 2, 2), (4, 3, 2), (4, 2, 2), (5, 2, 1)]
    ledgers = []
    for _ in range(6):
        ensemble, write, ack = random.choice(shapes)
        ledgers += await closed_ledgers(s, 1, entries=random.randrange(0, 15), ensemble=ensemble, write=write, ack=ack)
    first, _ = await healers(s, "h1", "h2", rereplicationEntryBatchSize=random.choice([1, 3, 10]))
    lost = random.sample([f"b{n}" for n in range(1, 8)], 2)
    await power_off(s, lost[0])
    await asyncio.sleep(random.uniform(0, 20))
    first.crash()
    await until(lambda: not any(lost[0] in names_in(s, ledger) for ledger in ledgers))
    await power_off(s, lost[1])
    await until(lambda: not any(lost[1] in names_in(s, ledger) for ledger in ledgers))
    bk = await s.connect("r")
    for ledger in ledgers:
        assert not await bad_copies(s, bk, ledger.id)
        await s.recover(bk, ledger.id)


async def append_for_ever(s: Scenario, writer: Any) -> None:
    while True:
        await s.append(writer, 1)
        await asyncio.sleep(0.02)


async def a_bookie_that_only_seems_lost(s: Scenario) -> None:
    """The store and the worker see it no more, the writer does, and writes to it all the time."""
    writer = await s.create(await s.connect("w"))
    await s.append(writer, 5)
    await healers(s, "h")
    name = s.world.stream("story").choice(sorted(names_in(s, writer)))
    s.cut(name, "store")
    s.cut(name, "h")
    with pytest.raises((LedgerFencedError, LedgerClosedError)):
        await append_for_ever(s, writer)
    await until(lambda: s.stored(writer).closed and name not in names_in(s, writer))
    bk = await s.connect("r")
    assert not await bad_copies(s, bk, writer.id)
    await s.recover(bk, writer.id)


async def a_lock_that_is_lost(s: Scenario) -> None:
    """In the midst of a repair, which then goes no further."""
    (ledger,) = await closed_ledgers(s, 1)
    (healer,) = await healers(s, "h")
    going_on = 0

    async def lose_it(self: Repair, *_: Any) -> int:
        nonlocal going_on
        for lock in locks:
            lock.lost.set()
        await asyncio.sleep(1)
        going_on += 1
        return 0

    locks: list[LedgerLock] = []
    rereplicate = ReplicationWorker._rereplicate

    async def remember(self: ReplicationWorker, lock: LedgerLock) -> bool:
        locks.append(lock)
        return await rereplicate(self, lock)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Repair, "repair", lose_it)
        patch.setattr(ReplicationWorker, "_rereplicate", remember)
        await power_off(s, sorted(names_in(s, ledger))[0])
        await until(lambda: len(locks) > 1)
        if going_on:
            raise Violation("a worker went on with a ledger whose lock was lost")
    assert not healer.daemon.worker.kept


def record_changes_first(patch: pytest.MonkeyPatch) -> None:
    """The record names the new bookies before they have acknowledged anything."""

    async def copy_later(self: Copier, fragment: Fragment, chosen: Any, avoided: Any = ()) -> None:
        self._context.tasks.spawn(copy(self, fragment, chosen, avoided), name="late")

    copy = Copier.copy
    patch.setattr(Copier, "copy", copy_later)


def last_entry_is_not_copied(patch: pytest.MonkeyPatch) -> None:
    """A copy is believed to be whole when all but its last stretch is."""
    copies = moves.copies

    def fewer(fragment: Fragment, chosen: Any, first: int, last: int) -> Any:
        needed = copies(fragment, chosen, first, last)
        return {entry: bookies for entry, bookies in needed.items() if entry != fragment.last}

    patch.setattr("bookkeeper.autorecovery.copying.copy.copies", fewer)


def open_ledgers_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    """The end of an open ledger is repaired as it is, under its writer."""
    patch.setattr(fragments, "_settled", lambda *_: True)
    patch.setattr(worker, "open_end_at_risk", lambda *_: False)
    patch.setattr("bookkeeper.autorecovery.repair.moved", unsettled_moved)


def unsettled_moved(record: Any, fragment: Fragment, chosen: Any) -> Any:
    return record.with_ensemble(fragment.first, moves._new_ensemble(fragment, chosen))


def lost_locks_are_not_noticed(patch: pytest.MonkeyPatch) -> None:
    """The worker goes on when another may have its ledger."""

    async def go_on(_tasks: TaskScope, _lock: LedgerLock, work: Coroutine[Any, Any, Any]) -> Any:
        return await work

    patch.setattr(worker, "while_held", go_on)


STORIES = {
    losses_and_dying_workers: 7,
    a_bookie_that_only_seems_lost: 4,
    a_lock_that_is_lost: 4,
}
"""With so many bookies."""


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_repair_does_no_harm(story: Any) -> None:
    for seed in range(SEEDS):
        play(story, bookies=STORIES[story], seed=seed)


@pytest.mark.parametrize(
    ("mistake", "story"),
    [
        (record_changes_first, losses_and_dying_workers),
        (last_entry_is_not_copied, losses_and_dying_workers),
        (open_ledgers_are_not_fenced, a_bookie_that_only_seems_lost),
        (lost_locks_are_not_noticed, a_lock_that_is_lost),
    ],
    ids=lambda value: value.__name__,
)
def test_a_mistake_is_noticed(mistake: Patch, story: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mistake(patch)
        assert any(_violates(story, seed) for seed in range(SEEDS)), "no seed notices"


def _violates(story: Any, seed: int) -> bool:
    try:
        play(story, bookies=STORIES[story], seed=seed)
    except Violation:
        return True
    return False
