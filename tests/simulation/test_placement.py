"""Ledgers that lie where the placement policy does not want them: found, counted, moved, and never the worse for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from bookkeeper.autorecovery.copying.copy import Copier
from bookkeeper.autorecovery.fragments import Fragment
from bookkeeper.client.placement.resolver import DNSToSwitchMapping
from bookkeeper.simulation.history import Violation

from .healing import Healer, bad_copies, closed_ledgers, until
from .scenario import Scenario, play, power_off

CHECKED = {"auditorPeriodicPlacementPolicyCheckInterval": 5}
MOVED = {**CHECKED, "repairedPlacementPolicyNotAdheringBookieEnabled": True}
WEST = ("b1", "b2", "b3", "b4")
EAST = ("b5", "b6", "b7", "b8")
SHAPES = [(3, 3, 2), (4, 2, 2), (2, 2, 1)]


class Halves(DNSToSwitchMapping):
    """Half of the cluster is in one rack, half in another."""

    use_host_name = True

    async def resolve(self, names: Sequence[str]) -> Sequence[str | None]:
        return ["/west" if name in WEST else "/east" for name in names]


async def healers(s: Scenario, *names: str, **settings: Any) -> list[Healer]:
    """Autorecovery that knows the racks."""
    found = [Healer(s, name, {"reppDnsResolverClass": f"{__name__}:Halves"}, **settings) for name in names]
    for healer in found:
        await healer.start()
    return found


async def in_the_west(s: Scenario, count: int, *, entries: int = 7) -> list[Any]:
    """Ledgers of all shapes that were written while there was nobody in the east."""
    for name in EAST:
        await power_off(s, name)
    await asyncio.sleep(30)
    ledgers: list[Any] = []
    for _ in range(count):
        for ensemble, write, ack in SHAPES:
            ledgers += await closed_ledgers(s, 1, entries=entries, ensemble=ensemble, write=write, ack=ack)
    await s.start(*EAST)
    await asyncio.sleep(2)
    return ledgers


def adheres(s: Scenario, ledger: Any) -> bool:
    """Every write set has both racks."""
    record = s.stored(ledger)
    return all(
        len({bookie.partition(":")[0] in WEST for bookie in (ensemble * 2)[first : first + record.write_quorum]}) == 2
        for ensemble in record.ensembles.values()
        for first in range(len(ensemble))
    )


def moves(s: Scenario, before: Any, ledger: Any) -> int:
    """Members that are others than before."""
    pairs = zip(before.ensembles[0], s.stored(ledger).ensembles[0], strict=True)
    return sum(old != new for old, new in pairs)


async def everything_is_moved(s: Scenario) -> None:
    """W19: with the fewest copies that do, and every copy is there when the record says so."""
    ledgers = await in_the_west(s, 2)
    before = {ledger.id: s.stored(ledger) for ledger in ledgers}
    assert not any(adheres(s, ledger) for ledger in ledgers)
    first, second = await healers(s, "h1", "h2", **MOVED)
    await until(lambda: all(adheres(s, ledger) for ledger in ledgers))
    bk = await s.connect("r")
    for ledger in ledgers:
        assert moves(s, before[ledger.id], ledger) == -(
            -s.stored(ledger).ensemble_size // s.stored(ledger).write_quorum
        )
        assert not await bad_copies(s, bk, ledger.id)
        await s.recover(bk, ledger.id)
    done = sum(healer.daemon.repair.stats.NUM_NOT_ADHERING_PLACEMENT_LEDGERS_REPLICATED for healer in (first, second))
    assert done == len(ledgers)
    auditor = first.daemon.auditor or second.daemon.auditor
    assert auditor is not None
    await until(lambda: auditor.placement.NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY == 0)
    await nothing_is_marked(s, "h1")


async def nothing_is_marked(s: Scenario, name: str) -> None:
    async def look() -> None:
        while [mark async for mark in s.cluster.driver(name).underreplication.list()]:
            await asyncio.sleep(0.1)

    await s.on(name, look())


@pytest.mark.parametrize("seed", range(4))
def test_ledgers_of_one_rack_are_moved(seed: int) -> None:
    play(everything_is_moved, bookies=8, seed=seed)


def test_the_check_alone_counts_and_marks_nothing() -> None:
    async def story(s: Scenario) -> None:
        ledgers = await in_the_west(s, 1)
        before = [s.stored(ledger).ensembles for ledger in ledgers]
        (healer,) = await healers(s, "h", **CHECKED)
        await until(lambda: healer.daemon.auditor is not None and healer.daemon.auditor.placement.ledgers == 3)
        assert healer.daemon.auditor is not None
        report = healer.daemon.auditor.placement
        assert (report.NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY, report.marked) == (3, 0)
        assert report.NUM_LEDGERS_SOFTLY_ADHERING_TO_PLACEMENT_POLICY == 0
        await asyncio.sleep(20)
        assert [s.stored(ledger).ensembles for ledger in ledgers] == before
        await nothing_is_marked(s, "h")

    play(story, bookies=8)


def test_what_nobody_can_better_is_no_failure_and_waits_for_the_next_check() -> None:
    """Nobody is in the east; then somebody is."""

    async def story(s: Scenario) -> None:
        ledgers = await in_the_west(s, 1)
        for name in EAST:
            await power_off(s, name)
        await asyncio.sleep(30)
        (healer,) = await healers(s, "h", **MOVED)
        await until(lambda: healer.daemon.auditor is not None and healer.daemon.auditor.placement.marked > 0)
        await nothing_is_marked(s, "h")
        assert not healer.daemon.repair.stats.fragments_failed
        assert not healer.daemon.worker.kept
        await s.start(*EAST[:2])
        await until(lambda: all(adheres(s, ledger) for ledger in ledgers))

    play(story, bookies=8)


def test_an_open_ledger_is_left_to_its_writer() -> None:
    async def story(s: Scenario) -> None:
        for name in EAST:
            await power_off(s, name)
        await asyncio.sleep(30)
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 5)
        await s.start(*EAST)
        (healer,) = await healers(s, "h", **MOVED)
        await until(lambda: healer.daemon.auditor is not None)
        await asyncio.sleep(30)
        assert not adheres(s, writer)
        await s.append(writer, 5)
        await close_and_see(s, writer)

    async def close_and_see(s: Scenario, writer: Any) -> None:
        async def end() -> None:
            await writer.close()

        await s.on("w", end())
        await until(lambda: adheres(s, writer))
        assert not await bad_copies(s, await s.connect("r"), writer.id)

    play(story, bookies=8)


def test_marks_that_are_too_old_are_counted() -> None:
    async def story(s: Scenario) -> None:
        await closed_ledgers(s, 1)
        (healer,) = await healers(s, "h", **CHECKED, underreplicatedLedgerRecoveryGracePeriod=60)
        await power_off(s, "b1")

        def overdue() -> int:
            auditor = healer.daemon.auditor
            return auditor.placement.NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD if auditor else 0

        await asyncio.sleep(50)
        assert overdue() == 0
        await until(lambda: overdue() == 1)
        await s.start("b1")
        await until(lambda: overdue() == 0)

    play(story, bookies=3)


# --- planted mistakes: each is noticed ---


def test_planted_the_record_is_changed_before_the_copies_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async def copy_later(self: Copier, fragment: Fragment, chosen: Any, avoided: Any = ()) -> None:
        self._context.tasks.spawn(copy(self, fragment, chosen, avoided), name="late")

    copy = Copier.copy
    monkeypatch.setattr(Copier, "copy", copy_later)
    with pytest.raises(Violation, match="has not acknowledged"):
        play(everything_is_moved, bookies=8)
