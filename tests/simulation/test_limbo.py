"""Bookies that may have lost what they acknowledged: without a journal, without syncs, with a new disk (BP-46).

S-n are scenarios of spec safety §2.3. Each story that must end well is also told to bookies without the protection, and
then loses what it is known to lose.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bookkeeper.bookie import bookie as bookie_module
from bookkeeper.bookie.integrity import duties
from bookkeeper.bookie.integrity.full_check import FullCheck
from bookkeeper.bookie.integrity.protection import protect
from bookkeeper.bookie.node.exit_code import ExitCode
from bookkeeper.bookie.storage.api import LedgerStorage
from bookkeeper.errors import BookKeeperError
from bookkeeper.metadata.api import MetadataDriver
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.simulation.history import Violation
from bookkeeper.simulation.world.odds import DiskOptions
from bookkeeper.types import BookieId

from .scenario import BOOKIES, Scenario, play, power_off, refused

NEVER = 3_600_000
UNJOURNALED = {"journalWriteData": False, "dataIntegrityChecking": True, "flushInterval": NEVER}
UNSYNCED = {
    "journalSyncData": False,
    "journalPageCacheFlushIntervalMSec": NEVER,
    "dataIntegrityChecking": True,
    "flushInterval": NEVER,
}
NEW_DISKS = {"dataIntegrityChecking": True, "dataIntegrityStampMissingCookies": True}

LOSING = pytest.mark.parametrize("settings", [UNJOURNALED, UNSYNCED], ids=["unjournaled", "unsynced"])


NOTHING_KEPT = DiskOptions(kept_shares=(0.0,))


async def back(s: Scenario, *names: str) -> None:
    """Start bookies again. They need not have what they promised."""
    for name in names:
        assert await s.cluster.start_bookie(name), f"{name} does not start"


def in_limbo(s: Scenario, name: str) -> list[int]:
    storage = s.cluster.bookies[name].storage
    return [ledger_id for ledger_id in storage.ledgers() if storage.is_limbo(ledger_id)]


async def flagged(s: Scenario, name: str) -> bool:
    incarnation = s.cluster.machine(name).incarnation
    assert incarnation is not None
    return await s.world.spawn_on(incarnation, s.cluster.bookies[name].storage.needs_integrity_check(), "look")


async def whole_again(s: Scenario, *names: str) -> None:
    """Wait until bookies have repaired themselves; then they have all that they had acknowledged and that counts."""
    for name in names:
        while await flagged(s, name):
            await asyncio.sleep(0.1)
        assert not in_limbo(s, name)
        s.tap.promises[name].explicit_lac.clear()  # a ledger that is closed has no use for it
        await s.check(name)


async def crash(s: Scenario, *names: str) -> None:
    """Power failures that take all that was not synced."""
    for name in names:
        s.cluster.machine(name).disk.odds = NOTHING_KEPT
        await power_off(s, name)
    await back(s, *names)


# --- S-4: a fence is lost ---------------------------------------------------------------------------------------


async def lost_fence(s: Scenario) -> None:
    """A recovery fences b1 and b2 and closes the ledger; b2 loses that; b3 was never fenced."""
    writer = await s.create(await s.connect("w"))
    await s.append(writer)
    s.cut("r", "b3")
    await s.recover(await s.connect("r"), writer.id)
    s.cut("w", "b1")
    await crash(s, "b2")
    await refused(s, writer)
    assert s.stored(writer).last_entry_id == 0
    s.cut("r", "b3", False)
    s.cut("w", "b1", False)
    await whole_again(s, "b2")


def test_s4_a_bookie_that_lost_its_fence_is_fenced_before_it_serves() -> None:
    """BI-24, S-4: also if the ledger has been closed meanwhile."""
    play(lost_fence, settings=UNSYNCED)


async def no_protection(*_: Any, **__: Any) -> int:
    """Planted: nothing is done."""
    return 0


def test_s4_without_protection_an_entry_behind_the_end_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookie_module, "protect", no_protection)
    with pytest.raises(Violation):
        play(lost_fence, settings=UNSYNCED)


def test_s4_it_is_not_enough_to_fence_what_is_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's rule."""

    def not_closed(metadata: LedgerMetadata, bookie: BookieId) -> bool:
        return not metadata.closed and bookie in metadata.last_ensemble[1]

    monkeypatch.setattr(duties, "names", not_closed)
    with pytest.raises(Violation):
        play(lost_fence, settings=UNSYNCED)


# --- S-5: an entry is lost ----------------------------------------------------------------------------------------


async def lost_entry(s: Scenario) -> None:
    """b1 and b3 have the entry, b2 never got it; b1 loses it; a recovery cannot reach b3."""
    writer = await s.create(await s.connect("w"))
    s.cut("w", "b2")
    await s.append(writer)
    s.cut("r", "b3")
    s.cut("b1", "b3")
    await crash(s, "b1")
    r = await s.connect("r")
    with pytest.raises(BookKeeperError):
        await s.recover(r, writer.id)
    assert not s.stored(writer).closed
    s.cut("r", "b3", False)
    s.cut("b1", "b3", False)
    s.cut("w", "b2", False)
    await s.recover(r, writer.id)
    assert s.stored(writer).last_entry_id == 0
    await whole_again(s, "b1")


@LOSING
def test_s5_a_bookie_that_lost_an_entry_does_not_deny_it(settings: dict[str, Any]) -> None:
    """BI-24, BI-5, S-5."""
    play(lost_entry, settings=settings)


@LOSING
def test_s5_without_protection_the_entry_is_cut_off(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> None:
    monkeypatch.setattr(bookie_module, "protect", no_protection)
    with pytest.raises(Violation):
        play(lost_entry, settings=settings)


# --- repair -------------------------------------------------------------------------------------------------------


@LOSING
def test_what_was_lost_is_copied_back(settings: dict[str, Any]) -> None:
    """Of ledgers that are closed and of one whose writer is still there; striped over four bookies."""

    async def story(s: Scenario) -> None:
        bk = await s.connect("w")
        writers = [await s.create(bk, 4, 3, 2) for _ in range(3)]
        for writer in writers:
            await s.append(writer, 20)
        await s.on("w", writers[0].close())
        await crash(s, "b1")
        await whole_again(s, "b1")
        assert [s.stored(writer).last_entry_id for writer in writers] == [19, 19, 19]
        await refused(s, writers[1])
        await s.cluster.stop_bookie("b1")
        await s.start("b1")
        assert not in_limbo(s, "b1")

    play(story, bookies=4, settings=settings)


def test_a_clean_stop_loses_nothing_and_nothing_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 5)
        for name in BOOKIES:
            await s.cluster.stop_bookie(name)
        await s.start(*BOOKIES)
        assert not any(s.cluster.bookies[name].storage.is_fenced(writer.id) for name in BOOKIES)
        await s.append(writer, 5)

    play(story, settings=UNJOURNALED)


@pytest.mark.parametrize("delay", [0.001, 0.01, 0.05, 0.3, 1.0, 3.0, 5.0])
def test_a_repair_that_is_cut_short_goes_on_after_the_next_start(delay: float) -> None:
    """Whether it is cut short by a crash or by a clean stop."""

    async def story(s: Scenario) -> None:
        bk = await s.connect("w")
        writers = [await s.create(bk) for _ in range(4)]
        for writer in writers:
            await s.append(writer, 30)
        await crash(s, "b1")
        await asyncio.sleep(delay)
        await crash(s, "b1")
        await asyncio.sleep(delay)
        await s.cluster.stop_bookie("b1")
        await back(s, "b1")
        await whole_again(s, "b1")
        for writer in writers:
            await s.recover(bk, writer.id)

    play(story, settings={**UNJOURNALED, "dataIntegrityRateByBytes": 3000})


def test_limbo_ends_after_the_copies_are_durable() -> None:
    """The end of limbo and the flag are never durable before the copies: whenever the power fails meanwhile."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 10)
        await s.on("w", writer.close())
        s.cluster.machine("b1").kill()
        s.cluster.machine("b1").disk.wipe()
        for calls in range(1, 400, 7):
            if not s.cluster.is_up("b1"):
                await s.cluster.start_bookie("b1")
            s.cluster.machine("b1").disk.faults.crash_after_calls = calls
            await asyncio.sleep(4)
            if s.cluster.is_up("b1") and not await flagged(s, "b1"):
                await s.check("b1")
        s.cluster.machine("b1").disk.faults.crash_after_calls = None
        if not s.cluster.is_up("b1"):
            await back(s, "b1")
        await whole_again(s, "b1")

    play(story, settings={**NEW_DISKS, "flushInterval": 100})


def test_while_peers_are_away_limbo_lasts_and_what_is_there_is_served() -> None:
    async def story(s: Scenario) -> None:
        bk = await s.connect("w")
        writer = await s.create(bk)
        await s.append(writer, 3)
        for name in ("b2", "b3"):
            await power_off(s, name)
        await crash(s, "b1")
        await asyncio.sleep(20)
        assert in_limbo(s, "b1") == [writer.id]
        assert await flagged(s, "b1")

    play(story, settings=UNJOURNALED)


def test_where_all_lost_their_data_nothing_is_closed() -> None:
    """More losses than the ack quorum less one: an entry may be lost, and nobody may say that it never was."""

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 3)
        await crash(s, *BOOKIES)
        with pytest.raises(BookKeeperError):
            await s.recover(await s.connect("r"), writer.id)
        await asyncio.sleep(30)
        assert not s.stored(writer).closed
        assert all(in_limbo(s, name) == [writer.id] for name in BOOKIES)

    play(story, settings=UNJOURNALED)


def test_what_one_start_must_repair_is_not_left_out_by_other_settings_of_the_next() -> None:
    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 3)
        await power_off(s, "b1")
        s.cluster.mistakes["b1"] = {"journalWriteData": True, "dataIntegrityChecking": False}
        assert not await s.cluster.start_bookie("b1")
        assert s.cluster.exit_codes["b1"] is ExitCode.INVALID_CONF
        s.cluster.mistakes["b1"] = {"journalWriteData": True}
        await back(s, "b1")
        await whole_again(s, "b1")

    play(story, settings=UNJOURNALED)


# --- S-13: a new disk -------------------------------------------------------------------------------------------


async def wiped(s: Scenario) -> None:
    """The ledger is closed; two bookies get empty disks, one after the other; the old writer comes back."""
    writer = await s.create(await s.connect("w"))
    await s.append(writer, 3)
    await s.recover(await s.connect("r"), writer.id)
    for name in ("b1", "b2"):
        s.cluster.machine(name).kill()
        s.cluster.machine(name).disk.wipe()
        await back(s, name)
        await whole_again(s, name)
    await refused(s, writer)


def test_s13_a_wiped_bookie_comes_back_by_repairing_itself() -> None:
    """BI-20, S-13."""
    play(wiped, settings=NEW_DISKS)


def test_s13_without_protection_the_old_writer_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookie_module, "protect", no_protection)

    async def repaired_somehow(self: FullCheck) -> bool:
        return True

    monkeypatch.setattr(FullCheck, "round", repaired_somehow)

    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 3)
        await s.recover(await s.connect("r"), writer.id)
        for name in ("b1", "b2"):
            s.cluster.machine(name).kill()
            s.cluster.machine(name).disk.wipe()
            await back(s, name)
        s.cut("w", "b3")
        await s.append(writer)

    with pytest.raises(Violation):
        play(story, settings=NEW_DISKS)


def test_a_missing_cookie_alone_is_no_permission() -> None:
    async def story(s: Scenario) -> None:
        s.cluster.machine("b1").kill()
        s.cluster.machine("b1").disk.wipe()
        assert not await s.cluster.start_bookie("b1")
        assert s.cluster.exit_codes["b1"] is ExitCode.SERVER_EXCEPTION

    play(story, settings={"dataIntegrityChecking": True})


# --- a fence of a bookie that is not named any more ------------------------------------------------------------


async def lost_fence_of_a_replaced_bookie(s: Scenario) -> None:
    """A recovery fences two of three bookies and closes the ledger; another bookie takes the place of the first, which
    then loses its fence. With the third, which was not fenced, it would be an ack quorum for the old writer."""
    writer = await s.create(await s.connect("w"))
    await s.append(writer)
    await asyncio.sleep(0.1)
    old = s.stored(writer).last_ensemble[1]
    first, second, third = (bookie.partition(":")[0] for bookie in old)
    (spare,) = {s.cluster.bookie_id(name) for name in s.cluster.names} - set(old)
    s.cut("r", third)
    r = await s.connect("r")
    await s.recover(r, writer.id)
    ledgers = r.context.driver.ledgers

    s.metadata.on_moved = None  # nothing is copied

    async def replace_first() -> None:
        stored = await ledgers.read(writer.id)
        await ledgers.write(writer.id, stored.value.with_ensemble(0, (spare, *old[1:])), stored.version)

    await s.on("r", replace_first())
    s.cut("w", second)
    await crash(s, first)
    await refused(s, writer)


def test_a_bookie_that_is_not_named_any_more_keeps_its_fences() -> None:
    """BI-24, BI-2."""
    play(lost_fence_of_a_replaced_bookie, bookies=4, settings=UNSYNCED)


def test_it_is_not_enough_to_fence_the_ledgers_that_name_the_bookie(monkeypatch: pytest.MonkeyPatch) -> None:
    async def only_its_own(driver: MetadataDriver, storage: LedgerStorage, bookie: BookieId, **_: Any) -> int:
        return await protect(driver, storage, bookie, fences_lost=False)

    monkeypatch.setattr(bookie_module, "protect", only_its_own)
    with pytest.raises(Violation):
        play(lost_fence_of_a_replaced_bookie, bookies=4, settings=UNSYNCED)
