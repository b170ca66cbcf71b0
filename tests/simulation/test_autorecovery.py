"""A cluster that heals itself: lost bookies, bookies that return, and writers that go on meanwhile.

Each story ends with every ledger whole: each entry is on all bookies that its record names, and those are there.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bookkeeper.autorecovery import fragments, moves, repair
from bookkeeper.autorecovery.auditor import Auditor
from bookkeeper.autorecovery.copying import copy as copy_room
from bookkeeper.autorecovery.copying.copy import Copier
from bookkeeper.client.reads.replicas import Replicas
from bookkeeper.errors import LedgerFencedError
from bookkeeper.metadata.api import UnderreplicationStore
from bookkeeper.protocol.availability import decode_availability, encode_availability
from bookkeeper.simulation.history import Violation
from bookkeeper.types import LedgerState

from .healing import bad_copies, close, closed_ledgers, healers, names_in, until
from .scenario import Scenario, play, power_off


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


def test_a_kept_lock_that_is_lost_is_let_go_at_once() -> None:
    """The ledger comes to the same worker again, which then has one lock of it, not the old one."""

    async def story(s: Scenario) -> None:
        (ledger,) = await closed_ledgers(s, 1)
        (healer,) = await healers(s, "h", lockReleaseOfFailedLedgerGracePeriod=320000)
        await power_off(s, "b1")
        worker = healer.daemon.worker
        await until(lambda: worker.kept == 1)
        failed = healer.daemon.repair.stats.fragments_failed
        (lock,) = worker._kept.values()
        lock.lost.set()
        await until(lambda: healer.daemon.repair.stats.fragments_failed > failed and worker.kept == 1)
        (another,) = worker._kept.values()
        assert another is not lock
        await s.start("b1")
        await until(lambda: worker.kept == 0)
        marks = s.cluster.driver("h").underreplication
        await s.on("h", gone(marks, ledger.id))
        assert not await s.on("h", marks.is_locked(ledger.id))

    play(story, bookies=3)


async def gone(marks: UnderreplicationStore, ledger_id: int) -> None:
    """Wait until a ledger is not marked any more."""
    while await marks.info(ledger_id) is not None:
        await asyncio.sleep(0.1)


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


@pytest.mark.parametrize(("shape", "missing"), [((3, 3, 2), (0, 0, 1)), ((3, 2, 2), (0, 1, 0)), ((1, 1, 1), (1, 0, 0))])
def test_the_replicas_check_counts_ledgers_with_too_few_copies(
    shape: tuple[int, int, int], missing: tuple[int, int, int]
) -> None:
    """A bookie has lost one entry, and nobody else has noticed."""

    async def story(s: Scenario) -> None:
        ensemble, write, ack = shape
        _, damaged = await closed_ledgers(s, 2, ensemble=ensemble, write=write, ack=ack)
        bookie = s.stored(damaged).ensembles[0][0]
        real = Replicas.listed

        async def listed(replicas: Replicas, asked: Any) -> Any:
            found = await real(replicas, asked)
            if replicas.metadata.ledger_id != damaged.id or asked != bookie or found is None:
                return found
            return decode_availability(encode_availability([entry for entry in found if entry != 0]))

        Replicas.listed = listed  # type: ignore[method-assign]
        try:
            (healer,) = await healers(s, "h", auditorReplicasCheckInterval=3600, auditorPeriodicCheckInterval=0)
            await until(lambda: healer.daemon.auditor is not None and healer.daemon.auditor.replicas.ledgers == 2)
        finally:
            Replicas.listed = real  # type: ignore[method-assign]
        assert healer.daemon.auditor is not None
        found = healer.daemon.auditor.replicas
        assert missing == (
            found.NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY,
            found.NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY,
            found.NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY,
        )

    play(story, bookies=4)


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
    # Nobody but the writer knows of the last entry that it is confirmed.
    quiet: Any = {"explicitLacInterval": 0}
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


def test_a_check_that_is_due_waits_for_an_audit_that_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the auditor waits with it, instead of looking again and again."""
    steps = 0
    step = Auditor._step

    async def counted(auditor: Auditor) -> bool:
        nonlocal steps
        steps += 1
        assert steps < 200, "the auditor turns round and round"
        return await step(auditor)

    monkeypatch.setattr(Auditor, "_step", counted)

    async def story(s: Scenario) -> None:
        (ledger,) = await closed_ledgers(s, 1)
        (healer,) = await healers(s, "h", lostBookieRecoveryDelay=60, auditorReplicasCheckInterval=10)
        await until(lambda: healer.daemon.auditor is not None and healer.daemon.auditor.replicas.ledgers == 1)
        lost = sorted(names_in(s, ledger))[0]
        await power_off(s, lost)
        await until(lambda: lost not in names_in(s, ledger))

    play(story, bookies=4)


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
