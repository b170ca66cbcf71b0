"""Stories of losses, told to a simulated cluster step by step: bookies, their fences, disks and restarts.

Numbers: S-n are scenarios of spec safety §2.3, MF-n failure modes of the metadata store (§5.3), C-n of spec client §17,
A1 to A3 the defects of spec bookie-storage §15, which lost data on Apache BookKeeper 4.17.3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bookkeeper.bookie.node.exit_code import ExitCode
from bookkeeper.errors import (
    BKError,
    BookKeeperError,
    LedgerClosedError,
    LedgerFencedError,
)
from bookkeeper.simulation.history import Violation

from .mutations import MUTATIONS
from .scenario import BOOKIES, Scenario, play, power_off, refused

OFTEN = {"flushInterval": 100}
"""Checkpoints ten times a second: a mark passes whatever is idle."""


async def kill(s: Scenario, name: str) -> None:
    s.cluster.machine(name).kill()


async def stop(s: Scenario, name: str) -> None:
    await s.cluster.stop_bookie(name)


ENDINGS = pytest.mark.parametrize("end", [kill, power_off, stop])


# --- what Java lost: A1, A2, A3 -----------------------------------------------------------------------------


async def fence_of_an_idle_bookie(s: Scenario, end: Callable[..., Any], entries: int) -> None:
    """A ledger is recovered, and nothing else happens until the marks have passed the fences. All bookies go down."""
    writer = await s.create(await s.connect("w"))
    await s.append(writer, entries)
    await asyncio.sleep(1)
    await s.recover(await s.connect("r"), writer.id)
    fences = {name: s.cluster.bookies[name].journals.of(writer.id).mark() for name in BOOKIES}
    await asyncio.sleep(1)
    for name in BOOKIES:
        assert s.cluster.bookies[name].journals.of(writer.id).retention.persisted >= fences[name]
        await end(s, name)
    await s.start(*BOOKIES)
    await refused(s, writer)
    assert s.stored(writer).last_entry_id == entries - 1


@ENDINGS
@pytest.mark.parametrize("entries", [0, 3])
def test_a1_a2_the_fence_of_an_idle_bookie_is_there_after_its_mark_has_passed_it(
    end: Callable[..., Any], entries: int
) -> None:
    """BI-2, BI-21, FX-32, JH-3, gap G3."""
    play(lambda s: fence_of_an_idle_bookie(s, end, entries), settings=OFTEN)


def test_a1_is_noticed_if_it_comes_back() -> None:
    with MUTATIONS["attributes are flushed with entries only"].applied(), pytest.raises(Violation, match="forgotten"):
        play(lambda s: fence_of_an_idle_bookie(s, kill, 0), settings=OFTEN)


async def fence_of_an_unknown_ledger(s: Scenario, end: Callable[..., Any]) -> None:
    """A bookie hears of a ledger by its fence first: replay needs the key to place it."""
    w = await s.connect("w")
    writer = await s.create(w)
    await s.recover(await s.connect("r"), writer.id)
    for name in BOOKIES:
        await end(s, name)
    await s.start(*BOOKIES)
    await refused(s, writer)


@ENDINGS
def test_a3_the_fence_of_a_ledger_never_seen_survives(end: Callable[..., Any]) -> None:
    """BI-2, BI-3, gap G2."""
    play(lambda s: fence_of_an_unknown_ledger(s, end), settings={"flushInterval": 3_600_000})


def test_a3_is_noticed_if_it_comes_back() -> None:
    with MUTATIONS["keys are not journaled"].applied(), pytest.raises(Violation, match="forgotten"):
        play(lambda s: fence_of_an_unknown_ledger(s, kill), settings={"flushInterval": 3_600_000})


@ENDINGS
def test_a_fenced_writer_cannot_append_to_a_ledger_closed_by_recovery_after_a_restart(end: Callable[..., Any]) -> None:
    """Each bookie is restarted by itself, so that at each moment an ack quorum of the others is up. RI-9."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 5)
        s.cut("w", "store")  # nothing tells the writer
        await s.recover(await s.connect("r"), writer.id)
        for name in BOOKIES:
            await end(s, name)
            await s.start(name)
        pushed = s.push(writer, 3)
        s.cut("w", "store", False)
        for task in pushed:
            with pytest.raises((LedgerFencedError, LedgerClosedError, BKError)):
                await s.wait(task)
        assert s.stored(writer).last_entry_id == 4

    play(story, settings=OFTEN)


# --- fences: S-6, S-14, S-15 -------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", range(1, 13))
def test_s6_the_fence_survives_a_power_loss_at_every_disk_call_around_it(calls: int) -> None:
    """b1 dies in its nth disk call after recovery has begun. What it has answered by then must hold. BI-2, gap G1."""
    # PI-10

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        s.mute("w", "b1")  # b1 has not heard of the ledger
        r = await s.connect("r")
        s.cluster.machine("b1").disk.faults.crash_after_calls = calls
        recovering = s.begin("r", r.recover_ledger(writer.id, password=b"simulated").__aenter__())
        await s.until(lambda: recovering.done() or not s.cluster.is_up("b1"))
        await s.wait(recovering)
        s.cluster.machine("b1").power_off()
        await s.start("b1")  # compares it with what it has answered
        s.mute("w", "b1", False)
        await refused(s, writer)

    for seed in range(3):
        play(story, seed=seed)


def test_s14_a_fence_and_adds_meet_although_the_handle_is_dropped_all_the_time() -> None:
    """FX-13."""

    async def story(s: Scenario) -> None:
        w = await s.connect("w")
        writer = await s.create(w)
        others = [await s.create(w) for _ in range(3)]
        r = await s.connect("r")
        recovering = None
        for turn in range(30):
            s.push(writer)
            for other in others:
                s.push(other)
            if turn == 10:
                recovering = s.begin("r", r.recover_ledger(writer.id, password=b"simulated").__aenter__())
            await asyncio.sleep(0.001)
        assert recovering is not None
        reader = await s.wait(recovering)
        s.history.opened(writer.id, -1, reader.last_add_confirmed, reader.length)
        await s.recover(r, writer.id)

    for seed in range(10):
        play(story, seed=seed, settings={"ledgerHandleCacheSize": 1})


@pytest.mark.parametrize("handles", [1, 20_000])
def test_s15_a_fenced_and_deleted_ledger_is_not_brought_back_by_its_old_writer(handles: int) -> None:
    """FX-12."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        r = await s.connect("r")
        await s.recover(r, writer.id)
        s.ledger(writer).delete_started = True
        await s.on("r", r.delete_ledger(writer.id))
        await s.until(lambda: not any(s.cluster.bookies[name].storage.ledger_exists(writer.id) for name in BOOKIES))
        with pytest.raises(LedgerFencedError):
            await s.append(writer)
        assert not any(s.cluster.bookies[name].storage.ledger_exists(writer.id) for name in BOOKIES)

    collecting = {"gcWaitTime": 700, "minorCompactionInterval": 1, "majorCompactionInterval": 2}
    play(story, settings={**collecting, "ledgerHandleCacheSize": handles})


def test_c80_bookies_restarted_between_the_fence_and_the_next_add_are_still_fenced() -> None:
    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 2)
        await s.recover(await s.connect("r"), writer.id)
        for name in BOOKIES:
            await power_off(s, name)
        await s.start(*BOOKIES)
        await refused(s, writer)

    play(story)


def test_c81_the_old_writer_stays_fenced_when_its_ensemble_is_rewritten() -> None:
    """Another bookie takes the place of one in the record, as re-replication does; the writer knows nothing of it."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 2)
        await asyncio.sleep(0.1)  # the third bookie has the entries too
        old = s.stored(writer).last_ensemble[1]
        (spare,) = {s.cluster.bookie_id(name) for name in s.cluster.names} - set(old)
        r = await s.connect("r")
        ledgers = r.context.driver.ledgers

        async def rewrite() -> None:
            stored = await ledgers.read(writer.id)
            await ledgers.write(writer.id, stored.value.with_ensemble(0, (spare, *old[1:])), stored.version)

        await s.on("r", rewrite())
        await s.recover(r, writer.id)
        assert s.stored(writer).last_ensemble[1] == (spare, *old[1:])
        for _ in range(3):  # whichever of its bookies comes first
            await refused(s, writer)

    play(story, bookies=4)


# --- identity: S-13 ------------------------------------------------------------------------------------------


def test_s13_a_wiped_bookie_refuses_to_start_under_its_old_name() -> None:
    """BI-20, FX-9, FX-11."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 3)
        await s.recover(await s.connect("r"), writer.id)
        for name in ("b1", "b2"):
            s.cluster.machine(name).kill()
            s.cluster.machine(name).disk.wipe()
            assert not await s.cluster.start_bookie(name)
            assert s.cluster.exit_codes[name] is ExitCode.SERVER_EXCEPTION
        pushed = s.push(writer)  # with both of them back and empty, it would be acknowledged
        with pytest.raises(BookKeeperError):
            await s.wait(pushed[0])

    play(story)


def test_bookies_with_each_others_disks_refuse_to_start() -> None:
    """BI-20."""

    async def story(s: Scenario) -> None:
        one, other = s.cluster.machine("b1"), s.cluster.machine("b2")
        one.kill()
        other.kill()
        one.disk, other.disk = other.disk, one.disk
        for name in ("b1", "b2"):
            assert not await s.cluster.start_bookie(name)
            assert s.cluster.exit_codes[name] is ExitCode.SERVER_EXCEPTION

    play(story)


# --- restarts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [kill, power_off])
def test_everything_comes_back_from_the_journal_alone(end: Callable[..., Any]) -> None:
    """BI-21, BI-1."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        for _ in range(5):
            await s.append(writer, 20)
        for name in BOOKIES:
            await end(s, name)
        await s.start(*BOOKIES)
        await s.recover(await s.connect("r"), writer.id)
        assert s.stored(writer).last_entry_id == 99

    play(story, settings={"flushInterval": 3_600_000})


def test_a_bookie_that_dies_in_every_disk_call_of_its_start_starts_in_the_end() -> None:
    """BI-8."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 20)
        s.cluster.machine("b1").power_off()
        disk = s.cluster.machine("b1").disk
        calls = 0
        started = False
        while not started:
            calls += 1
            disk.faults.crash_after_calls = calls
            started = await s.cluster.start_bookie("b1")
        disk.faults.crash_after_calls = None
        assert calls > 15
        await s.check("b1")

    play(story, settings={"flushInterval": 3_600_000})


def test_a_failed_journal_sync_ends_the_bookie_and_its_next_start_recovers() -> None:
    """BI-17, DF-6."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 5)
        s.cluster.machine("b1").disk.faults.fail_next_sync = True
        await s.append(writer, 5)  # the others make the ack quorum
        await s.until(lambda: not s.cluster.is_up("b1"))
        assert s.cluster.exit_codes["b1"] is ExitCode.BOOKIE_EXCEPTION
        await s.start("b1")
        await s.append(writer, 5)
        await s.recover(await s.connect("r"), writer.id)

    play(story, bookies=4)


def test_a_fence_written_but_not_synced_by_a_flush_that_failed_is_durable_before_its_journal_is_passed() -> None:
    """Found by simulation, seed 2213. Replay found the fence there already, and nothing to be flushed."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.recover(await s.connect("r"), writer.id)
        s.cluster.machine("b1").disk.faults.fail_next_sync = True  # of the next flush, which has no entries
        await s.until(lambda: not s.cluster.is_up("b1"))
        await s.start("b1")  # with a flush at the end of replay
        await power_off(s, "b1")
        await s.start("b1")
        assert s.cluster.bookies["b1"].storage.is_fenced(writer.id)
        await s.check("b1")

    for seed in range(8):  # what a loss of power takes is drawn
        play(story, seed=seed, settings={"flushInterval": 3000})


def test_a_bookie_with_a_full_disk_turns_read_only_and_comes_back() -> None:
    """BI-18, FX-51, LV-6."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 5)
        state = s.cluster.bookies["b1"].state
        faults = s.cluster.machine("b1").disk.faults
        faults.full = True
        await s.until(lambda: state.read_only or not s.cluster.is_up("b1"))
        await s.append(writer, 5)
        if not s.cluster.is_up("b1"):  # its journal had no space either
            assert s.cluster.exit_codes["b1"] is ExitCode.BOOKIE_EXCEPTION
            await s.start("b1")
            assert s.cluster.bookies["b1"].state.read_only
        faults.full = False
        await s.until(lambda: not s.cluster.bookies["b1"].state.read_only)
        await s.check("b1")
        await s.recover(await s.connect("r"), writer.id)

    play(story, bookies=4, settings={"diskCheckInterval": 500})


def test_a_flush_without_space_makes_read_only_until_the_disks_are_looked_at() -> None:
    """Shorter than `diskCheckInterval`: the disk monitor never sees the disk full. BI-18, LV-6."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 5)
        await asyncio.sleep(11)
        bookie, faults = s.cluster.bookies["b1"], s.cluster.machine("b1").disk.faults
        await s.append(writer)
        faults.full = True
        await s.until(lambda: bookie.state.read_only or bookie.ending, seconds=3)
        faults.full = False
        assert not bookie.ending
        await s.until(lambda: not bookie.state.read_only and bookie.state.registered, seconds=15)

    play(story)
