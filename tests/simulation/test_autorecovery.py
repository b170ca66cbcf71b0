"""A cluster that heals itself: lost bookies, bookies that return, and writers that go on meanwhile.

Each story ends with every ledger whole: each entry is on all bookies that its record names, and those are there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bookkeeper.autorecovery import copy as copy_room
from bookkeeper.autorecovery import fragments, moves, repair
from bookkeeper.autorecovery.checker import digest_of
from bookkeeper.autorecovery.copy import Copier
from bookkeeper.autorecovery.daemon import AutoRecovery
from bookkeeper.autorecovery.fragments import fragments_of
from bookkeeper.client.client import BookKeeper
from bookkeeper.client.reads.replicas import Copy, Replicas
from bookkeeper.config import ServerConfiguration
from bookkeeper.errors import LedgerFencedError
from bookkeeper.runtime import TaskScope
from bookkeeper.simulation.history import Violation
from bookkeeper.types import BookieId, LedgerState

from .scenario import Scenario, play, power_off

QUICK = {"rwRereplicateBackoffMs": 200, "openLedgerRereplicationGracePeriod": 2000}


class Healer:
    """Autorecovery on a machine of its own."""

    def __init__(self, s: Scenario, name: str, **settings: Any) -> None:
        self.s = s
        self.name = name
        self.config = ServerConfiguration.from_mapping({**QUICK, **settings})
        self.tasks: TaskScope | None = None

    async def start(self) -> None:
        client = await self.s.connect(self.name)
        runtime = self.s.cluster.client_runtime(self.name)

        async def begin() -> None:
            driver = self.s.cluster.driver(self.name)
            self.daemon = AutoRecovery(runtime, self.config, BookieId(f"{self.name}:0"), driver, client)
            self.tasks = TaskScope(runtime, self.name)
            self.tasks.spawn(self.daemon.run(), name="autorecovery")

        await self.s.on(self.name, begin())

    def crash(self) -> None:
        self.s.cluster.machine(self.name).kill()


async def healers(s: Scenario, *names: str, **settings: Any) -> list[Healer]:
    found = [Healer(s, name, **settings) for name in names]
    for healer in found:
        await healer.start()
    return found


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.1)


async def bad_copies(s: Scenario, bk: BookKeeper, ledger_id: int) -> list[str]:
    """What is missing of a closed ledger: everything is read from everybody."""

    async def look() -> list[str]:
        metadata = (await bk.get_versioned_metadata(ledger_id)).value
        assert metadata.closed
        replicas = Replicas(bk.context, metadata, digest_of(metadata))
        bad = []
        for fragment in fragments_of(metadata, metadata.last_entry_id):
            for index, bookie in enumerate(fragment.ensemble):
                async for entry_id, reply in replicas.each(bookie, [*fragment.holds(index)]):
                    if not isinstance(replicas.examine(entry_id, reply), Copy):
                        bad.append(f"ledger {ledger_id}, entry {entry_id} on {bookie}: {reply.detail}")
        return bad

    return await s.on(s.home(bk), look())


def names_in(s: Scenario, ledger: Any) -> set[str]:
    return {bookie.partition(":")[0] for ensemble in s.stored(ledger).ensembles.values() for bookie in ensemble}


async def close(s: Scenario, writer: Any) -> None:
    async def end() -> None:
        await writer.close()

    await s.on(s.home(writer), end())


async def closed_ledgers(s: Scenario, count: int, *, entries: int = 7, **shape: int) -> list[Any]:
    bk = await s.connect("w")
    found = []
    for _ in range(count):
        writer = await s.create(bk, **shape)
        await s.append(writer, entries)
        await close(s, writer)
        found.append(writer)
    return found


@pytest.mark.parametrize("shape", [(3, 3, 2), (3, 2, 2), (4, 2, 1), (1, 1, 1)])
def test_what_a_lost_bookie_held_is_copied(shape: tuple[int, int, int]) -> None:
    """W1: every ledger is whole again, and names the lost bookie no more."""

    async def story(s: Scenario) -> None:
        ensemble, write, ack = shape
        ledgers = await closed_ledgers(s, 6, ensemble=ensemble, write=write, ack=ack)
        await healers(s, "h")
        await power_off(s, "b1")
        keep = [ledger for ledger in ledgers if ensemble > 1 or "b1" not in names_in(s, ledger)]
        await until(lambda: not any("b1" in names_in(s, ledger) for ledger in keep))
        bk = await s.connect("r")
        for ledger in keep:
            assert not await bad_copies(s, bk, ledger.id)
            await s.recover(bk, ledger.id)

    play(story, bookies=5)


def test_a_bookie_that_returns_within_the_delay_costs_nothing() -> None:
    async def story(s: Scenario) -> None:
        (ledger,) = await closed_ledgers(s, 1)
        before = s.stored(ledger).ensembles
        (healer,) = await healers(s, "h", lostBookieRecoveryDelay=60)
        await until(lambda: healer.daemon.auditor is not None)
        await asyncio.sleep(5)
        name = sorted(names_in(s, ledger))[0]
        await power_off(s, name)
        await asyncio.sleep(20)
        await s.start(name)
        await asyncio.sleep(120)
        assert s.stored(ledger).ensembles == before

    play(story, bookies=4)


def test_the_end_of_an_open_ledger_is_fenced_after_its_time() -> None:
    """W: a writer that does nothing cannot replace a bookie. Its ledger is recovered, closed and repaired."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 5)
        await healers(s, "h")
        lost = sorted(names_in(s, writer))[0]
        await power_off(s, lost)
        await until(lambda: s.stored(writer).closed and lost not in names_in(s, writer))
        bk = await s.connect("r")
        assert not await bad_copies(s, bk, writer.id)
        with pytest.raises(LedgerFencedError):
            await s.append(writer, 1)

    play(story, bookies=4)


def test_a_writer_that_goes_on_replaces_the_bookie_itself_and_is_not_fenced() -> None:
    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 5)
        await healers(s, "h", openLedgerRereplicationGracePeriod=20000)
        lost = sorted(names_in(s, writer))[0]
        await power_off(s, lost)
        for _ in range(40):
            await s.append(writer, 1)
            await asyncio.sleep(1)
        assert s.stored(writer).state is LedgerState.OPEN
        await until(lambda: lost not in names_in(s, writer))
        await close(s, writer)
        assert not await bad_copies(s, await s.connect("r"), writer.id)

    play(story, bookies=4)


def test_another_worker_takes_over_from_one_that_dies() -> None:
    async def story(s: Scenario) -> None:
        ledgers = await closed_ledgers(s, 8)
        first, _ = await healers(s, "h1", "h2")
        await power_off(s, "b1")
        await until(lambda: any("b1" not in names_in(s, ledger) for ledger in ledgers))
        first.crash()
        await until(lambda: not any("b1" in names_in(s, ledger) for ledger in ledgers))
        bk = await s.connect("r")
        for ledger in ledgers:
            assert not await bad_copies(s, bk, ledger.id)

    play(story, bookies=4)


def test_a_cluster_without_a_spare_bookie_waits_for_one() -> None:
    async def story(s: Scenario) -> None:
        (ledger,) = await closed_ledgers(s, 1)
        (healer,) = await healers(s, "h", lockReleaseOfFailedLedgerGracePeriod=3200)
        await power_off(s, "b1")
        await until(lambda: healer.daemon.repair.stats.fragments_failed > 1)
        await s.start("b1")
        await asyncio.sleep(30)
        assert not await bad_copies(s, await s.connect("r"), ledger.id)
        marks = s.cluster.driver("h").underreplication
        assert await s.on("h", marks.info(ledger.id)) is None

    play(story, bookies=3)


# --- planted mistakes: each is noticed ---


def test_planted_the_record_is_changed_before_the_copies_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: Any) -> None:
        """Planted: nothing is copied."""

    monkeypatch.setattr(Copier, "copy", nothing)
    with pytest.raises(Violation, match="has not acknowledged"):
        test_what_a_lost_bookie_held_is_copied((3, 3, 2))


def test_planted_half_of_the_copies_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    real = copy_room.copies
    monkeypatch.setattr(
        copy_room, "copies", lambda *arguments: dict([*real(*arguments).items()][: len(real(*arguments)) // 2])
    )
    with pytest.raises(Violation, match="has not acknowledged"):
        test_what_a_lost_bookie_held_is_copied((3, 3, 2))


async def slow_third(s: Scenario) -> None:
    """Entries are on two bookies of three, and one of the two is lost while nobody writes."""
    writer = await s.create(await s.connect("w"))
    await s.append(writer, 3)
    lost, _, slow = (bookie.partition(":")[0] for bookie in s.stored(writer).ensembles[0])
    s.cut("w", slow)
    await s.append(writer, 3)
    await healers(s, "h")
    await power_off(s, lost)
    await until(lambda: lost not in names_in(s, writer))
    s.cut("w", slow, False)
    await s.recover(await s.connect("r"), writer.id)


def test_the_end_of_an_open_ledger_is_never_repaired_without_a_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet: Any = {
        "explicitLacInterval": 0
    }  # so that nobody but the writer knows of the last entry that it is confirmed
    play(slow_third, bookies=5, **quiet)
    # Planted, twice: what is still written is not told apart, nor that the fragment has no end yet.
    monkeypatch.setattr(fragments, "_settled", lambda *_: True)
    monkeypatch.setattr(
        repair,
        "moved",
        lambda record, part, chosen: record.with_ensemble(part.first, moves._new_ensemble(part, chosen)),
    )
    with pytest.raises(Violation, match="its ensemble was changed"):
        play(slow_third, bookies=5, **quiet)


def test_bookies_that_come_back_do_not_hide_one_that_does_not() -> None:
    """Most of the cluster is gone for a while: that is not believed, and not forgotten either."""

    async def story(s: Scenario) -> None:
        ledgers = await closed_ledgers(s, 3)
        (healer,) = await healers(s, "h")
        await until(lambda: healer.daemon.auditor is not None)
        await asyncio.sleep(2)
        for name in ("b1", "b2", "b3"):
            await power_off(s, name)
        await asyncio.sleep(20)
        await s.start("b2", "b3")
        await until(lambda: not any("b1" in names_in(s, ledger) for ledger in ledgers))

    play(story, bookies=5)
