"""Ensemble changes of a writer (spec client §6, §17.1). Numbers are those of the scenarios."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bookkeeper.client.adds.deadlines import FRUITLESS_CHANGES
from bookkeeper.client.writer import LedgerWriter
from bookkeeper.errors import (
    BookieUnavailableError,
    LedgerClosedError,
    LedgerFencedError,
    NoSuchLedgerOnMetadataError,
    NotEnoughBookiesError,
    WriteError,
)
from bookkeeper.protocol.messages import Status
from bookkeeper.runtime import TimerHandle
from bookkeeper.types import BookieId, LedgerState
from tests.support.fake_ensemble import World, settle
from tests.support.planted_client import plant
from tests.support.waiting import until


async def closed(world: World, writer: LedgerWriter) -> dict[int, str]:
    """Close, and the ensembles stored."""
    await writer.close()
    return world.ensembles(await world.stored())


async def test_01_five_pipelined_appends_with_a_failing_bookie_make_one_change() -> None:
    async with World(4) as world:
        writer = await world.writer((3, 3, 3))
        world["b1"].add_status = Status.EIO
        assert await writer.append_many([b"x"] * 5) == [0, 1, 2, 3, 4]
        assert world.hooks.writes == 1
        assert world["b4"].ids() == [0, 1, 2, 3, 4]
        assert await closed(world, writer) == {0: "b4 b2 b3"}


async def test_02_a_second_failure_during_the_change_makes_a_second_write_and_no_second_fragment() -> None:
    """FX-7."""
    async with World(5) as world:
        writer = await world.writer((3, 3, 3))
        world["b1"].add_status = Status.EIO
        world["b2"].hold = True
        world.hooks.block()
        futures = [writer.append_nowait(b"x") for _ in range(3)]
        await until(lambda: world.hooks.waiting)
        world["b2"].refuse_held(Status.EIO)
        await settle()
        world.hooks.unblock()
        await asyncio.gather(*futures)
        assert world.hooks.writes == 2
        assert await closed(world, writer) == {0: "b4 b5 b3"}


async def test_03_a_failure_after_an_acknowledged_entry_makes_a_new_fragment() -> None:
    async with World(4) as world:
        writer = await world.writer((3, 3, 3))
        await writer.append(b"x")
        world["b1"].down = True
        await writer.append(b"y")
        assert await closed(world, writer) == {0: "b1 b2 b3", 1: "b4 b2 b3"}
        assert (await world.stored()).last_entry_id == 1


@pytest.mark.parametrize("acked", [0, 1])
async def test_04_without_spare_bookies_the_ledger_is_closed(acked: int) -> None:
    async with World(3) as world:
        writer = await world.writer((3, 3, 3))
        await writer.append_many([b"x"] * acked)
        world["b1"].down = world["b2"].down = True
        with pytest.raises(NotEnoughBookiesError):
            await writer.append(b"y")
        assert await closed(world, writer) == {0: "b1 b2 b3"}
        assert (await world.stored()).last_entry_id == acked - 1


async def blocked_change(world: World) -> tuple[LedgerWriter, asyncio.Future[int]]:
    """A writer whose first append waits for an ensemble change that waits for the store."""
    writer = await world.writer((3, 3, 3))
    world["b1"].add_status = Status.EIO
    world.hooks.block()
    future = writer.append_nowait(b"x")
    await until(lambda: world.hooks.waiting)
    return writer, future


async def test_05_a_close_during_the_change_wins() -> None:
    async with World(4) as world:
        writer, future = await blocked_change(world)
        closing = asyncio.ensure_future(writer.close())
        with pytest.raises(LedgerClosedError):
            await future
        world.hooks.unblock()
        await closing
        stored = await world.stored()
        assert (stored.last_entry_id, world.ensembles(stored)) == (-1, {0: "b1 b2 b3"})


async def test_06_a_ledger_closed_meanwhile_is_adopted() -> None:
    async with World(4) as world:
        writer, future = await blocked_change(world)
        await world.change(lambda md: md.close(1234, 5678))
        world.hooks.unblock()
        with pytest.raises(LedgerClosedError):
            await future
        assert (writer.last_add_confirmed, writer.length) == (1234, 5678)
        assert writer.closed


async def test_07_a_ledger_in_recovery_meanwhile_is_left_alone() -> None:
    async with World(4) as world:
        writer, future = await blocked_change(world)
        await world.change(lambda md: md.in_recovery())
        world.hooks.unblock()
        with pytest.raises(LedgerFencedError):
            await future
        with pytest.raises(LedgerClosedError):
            await writer.append(b"y")
        for _ in range(2):
            with pytest.raises(LedgerFencedError):
                await writer.close()
        assert (await world.stored()).state is LedgerState.IN_RECOVERY


async def test_08_a_rewritten_older_fragment_survives() -> None:
    async with World(6) as world:
        writer = await world.writer((3, 3, 3))
        await writer.append(b"x")
        world["b1"].down = True
        await writer.append(b"y")
        world["b2"].down = True
        world.hooks.block()
        future = writer.append_nowait(b"z")
        await until(lambda: world.hooks.waiting)
        await world.change(lambda md: md.with_ensemble(0, (BookieId("b6"), BookieId("b2"), BookieId("b3"))))
        world.hooks.unblock()
        await future
        assert await closed(world, writer) == {0: "b6 b2 b3", 1: "b4 b2 b3", 2: "b4 b5 b3"}


async def test_09_nothing_is_acknowledged_during_a_change() -> None:
    async with World(4) as world:
        writer = await world.writer((3, 3, 2))
        world["b1"].hold = world["b2"].hold = True
        world["b3"].add_status = Status.EIO
        world.hooks.block()
        futures = [writer.append_nowait(b"x") for _ in range(3)]
        await until(lambda: world.hooks.waiting)
        world["b1"].release()
        world["b2"].release()
        await settle()
        assert not any(future.done() for future in futures)
        assert writer.last_add_confirmed == -1
        world.hooks.unblock()
        assert await asyncio.gather(*futures) == [0, 1, 2]
        assert await closed(world, writer) == {0: "b1 b2 b4"}


async def test_09_a_close_during_the_change_fails_what_had_its_quorum() -> None:
    async with World(4) as world:
        writer = await world.writer((3, 3, 2))
        world["b1"].hold = world["b2"].hold = True
        world["b3"].add_status = Status.EIO
        world.hooks.block()
        future = writer.append_nowait(b"x")
        await until(lambda: world.hooks.waiting)
        world["b1"].release()
        world["b2"].release()
        closing = asyncio.ensure_future(writer.close())
        with pytest.raises(LedgerClosedError):
            await future
        world.hooks.unblock()
        await closing
        assert (await world.stored()).last_entry_id == -1


async def test_10_an_entry_outside_the_replaced_index_is_released_by_the_end_of_the_change() -> None:
    async with World(5) as world:
        writer = await world.writer((4, 2, 2))  # write sets 01 12 23 30
        await writer.append_many([b"x"] * 2)
        world["b4"].add_status = Status.EIO
        world.hooks.block()
        two = writer.append_nowait(b"2")  # b3 b4
        await until(lambda: world.hooks.waiting)
        four_to_five = [writer.append_nowait(b"3"), writer.append_nowait(b"4"), writer.append_nowait(b"5")]
        await settle()
        world["b5"].hold = True
        world.hooks.unblock()
        await until(lambda: world["b5"].held)
        assert not two.done()
        world["b5"].release()
        assert await asyncio.gather(two, *four_to_five) == [2, 3, 4, 5]
        assert await closed(world, writer) == {0: "b1 b2 b3 b4", 2: "b1 b2 b3 b5"}


async def test_10_alone_an_entry_completed_during_the_change_needs_no_further_answer() -> None:
    """FX-7."""
    async with World(5) as world:
        writer = await world.writer((4, 2, 1))  # write sets 01 12 23 30
        world["b2"].hold = True
        world["b1"].hold = True
        world.hooks.block()
        zero = writer.append_nowait(b"0")  # b1 b2
        await settle()
        world["b2"].add_status = Status.EIO
        world["b2"].release()
        await until(lambda: world.hooks.waiting)
        world["b1"].release()
        await settle()
        assert not zero.done()
        world["b5"].hold = True
        world.hooks.unblock()
        assert await zero == 0
        await closed(world, writer)


async def test_11_a_complete_entry_stays_complete_when_other_acks_suffice() -> None:
    async with World(6) as world:
        writer = await world.writer((4, 4, 2))
        world["b1"].hold = True
        first = writer.append_nowait(b"x")
        await settle()
        assert await first == 0
        world["b2"].add_status = Status.EIO
        world["b5"].hold = True
        world["b6"].hold = True
        second = writer.append_nowait(b"y")
        assert await second == 1  # b3, b4
        assert await closed(world, writer) == {0: "b1 b2 b3 b4", 1: "b1 b5 b3 b4"}


async def test_11_a_replacement_that_fails_is_replaced_in_its_turn() -> None:
    async with World(6) as world:
        writer = await world.writer((4, 4, 2))
        world["b1"].hold = world["b2"].hold = True
        first = writer.append_nowait(b"x")
        second = writer.append_nowait(b"y")
        world["b3"].hold = world["b4"].hold = True
        await until(lambda: all(len(world[name].held) == 2 for name in ("b1", "b2", "b3", "b4")))
        for name in ("b2", "b3", "b4"):  # the second entry has three acks, the first none
            (_, one), (channel, two) = world[name].held
            channel.answer([two])
            world[name].held = [(channel, one)]
        await settle()
        world["b5"].add_status = Status.EIO
        world.pipeline(writer).on_channel_lost(BookieId("b2"), BookieUnavailableError())
        await until(lambda: world["b6"].ids() == [0, 1])
        assert world["b5"].added() == [0, 1]
        await settle()
        assert not first.done()
        for name in ("b1", "b3", "b4"):
            world[name].release()
        assert await asyncio.gather(first, second) == [0, 1]
        assert await closed(world, writer) == {0: "b1 b6 b3 b4"}


async def test_12_a_late_failure_replaces_the_bookie_before_the_next_entry() -> None:
    async with World(4) as world:
        writer = await world.writer()
        world["b3"].hold = True
        await writer.append(b"x")
        world["b3"].refuse_held(Status.EIO)
        await settle()
        assert world.pipeline(writer).keeper.late_failures == 1
        assert world.hooks.writes == 0
        await writer.append(b"y")
        assert await closed(world, writer) == {0: "b1 b2 b3", 1: "b1 b2 b4"}
        assert world["b3"].held == []


async def test_12_with_delayed_changes_a_late_failure_changes_nothing() -> None:
    async with World(4, delayEnsembleChange="true") as world:
        writer = await world.writer()
        world["b3"].hold = True
        await writer.append(b"x")
        world["b3"].refuse_held(Status.EIO)
        world["b3"].hold = False
        await settle()
        await writer.append(b"y")
        assert await closed(world, writer) == {0: "b1 b2 b3"}


async def test_13_delayed_changes_ride_out_two_dead_bookies() -> None:
    async with World(7, delayEnsembleChange="true") as world:
        writer = await world.writer((5, 5, 3))
        world["b1"].down = world["b2"].down = True
        await writer.append_many([b"x"] * 10)
        world["b1"].down = world["b2"].down = False
        await writer.append_many([b"y"] * 10)
        await settle()
        assert await closed(world, writer) == {0: "b1 b2 b3 b4 b5"}
        assert world["b1"].ids() == list(range(10, 20))
        assert world["b3"].ids() == list(range(20))


async def test_14_delayed_changes_take_what_spares_there_are() -> None:
    async with World(6, delayEnsembleChange="true") as world:
        writer = await world.writer((5, 5, 3))
        await writer.append(b"x")
        await settle()
        for name in ("b1", "b2", "b3"):
            world[name].down = True
        await writer.append_many([b"y"] * 5)
        for name in ("b1", "b2", "b3"):
            world[name].down = False
        await writer.append_many([b"z"] * 5)
        fragments = await closed(world, writer)
        assert list(fragments) == [0, 1]
        assert len(set(fragments[1].split()) & {"b6"}) == 1
        assert len(set(fragments[1].split()) - {"b6"} - set(fragments[0].split())) == 0


async def test_14_delayed_changes_replace_a_whole_ensemble_at_one_key() -> None:
    async with World(10, delayEnsembleChange="true") as world:
        writer = await world.writer((5, 5, 3))
        await writer.append(b"x")
        await settle()
        for i in range(1, 6):
            world[f"b{i}"].down = True
        await writer.append_many([b"y"] * 5)
        fragments = await closed(world, writer)
        assert list(fragments) == [0, 1]
        assert set(fragments[1].split()) >= {"b6", "b7", "b8"}


async def test_15_a_read_only_bookie_is_replaced_at_once_with_what_else_failed() -> None:
    async with World(7, delayEnsembleChange="true") as world:
        writer = await world.writer((5, 5, 3))
        for i in (3, 4, 5):
            world[f"b{i}"].hold = True
        future = writer.append_nowait(b"x")
        world["b1"].add_status = Status.EIO
        world["b2"].add_status = Status.EREADONLY
        await until(lambda: world.hooks.writes)
        for i in (3, 4, 5):
            world[f"b{i}"].release()
        await future
        assert await closed(world, writer) == {0: "b6 b7 b3 b4 b5"}


async def test_16_with_changes_disabled_writes_wait_for_the_bookie_to_return() -> None:
    async with World(4, disabledEnsembleChangeResendMillis=5) as world:
        world.context.ensemble_change_disabled = True
        writer = await world.writer((3, 3, 2))
        world["b1"].down = True
        assert await writer.append_many([b"x"] * 5) == [0, 1, 2, 3, 4]
        world["b2"].down = True
        future = writer.append_nowait(b"y")
        await settle()
        assert not future.done()
        world["b2"].down = False
        assert await future == 5
        assert world.hooks.writes == 0
        world["b2"].down = True
        future = writer.append_nowait(b"z")
        await settle()
        world.context.ensemble_change_disabled = False
        assert await future == 6
        assert set((await closed(world, writer))[6].split()) > {"b3", "b4"}


async def test_17_the_number_of_changes_is_limited() -> None:
    async with World(9, maxNumEnsembleChanges=5) as world:
        writer = await world.writer((3, 3, 3))
        for change in range(5):
            await writer.append(b"x")
            victim = world.pipeline(writer).keeper.ensemble[change % 3]
            world[victim].down = True
            world.placement.available.remove(victim)
        await writer.append(b"x")
        world[world.pipeline(writer).keeper.ensemble[0]].down = True
        with pytest.raises(WriteError):
            await writer.append(b"y")
        await writer.close()
        assert (await world.stored()).last_entry_id == 5


async def test_18_an_entry_given_up_before_it_was_sent_is_not_sent() -> None:
    async with World(3) as world:
        writer = await world.writer()
        future = writer.append_nowait(b"x")
        told: list[asyncio.Future[int]] = []
        future.add_done_callback(told.append)
        await writer.close()  # the loop has not turned yet: the frames are still here
        await settle()
        assert told == [future]
        with pytest.raises(LedgerClosedError):
            await future
        assert not any(bookie.log for bookie in world.bookies.values())
        assert (await world.stored()).last_entry_id == -1


async def test_19_an_append_that_waited_goes_to_the_new_ensemble() -> None:
    async with World(4, maxPendingAddEntries=1) as world:
        writer = await world.writer((3, 3, 3))
        world["b1"].hold = True
        first = writer.append_nowait(b"a")
        waiting = asyncio.ensure_future(writer.append(b"b"))
        await settle()
        world["b1"].refuse_held(Status.EIO)
        world["b1"].log.clear()
        assert await asyncio.gather(first, waiting) == [0, 1]
        assert world["b4"].ids() == [0, 1]
        assert world["b1"].added() == []
        await closed(world, writer)


async def test_20_an_answer_of_a_replaced_bookie_is_ignored() -> None:
    async with World(4) as world:
        writer = await world.writer((3, 3, 2))
        pipeline = world.pipeline(writer)
        world["b1"].hold = world["b2"].hold = world["b4"].hold = True
        future = writer.append_nowait(b"x")
        await settle()
        pipeline.on_channel_lost(BookieId("b1"), BookieUnavailableError())
        await until(lambda: world["b4"].held)
        pipeline.on_add_responses(BookieId("b1"), [0], [])
        await settle()
        assert not future.done()
        world["b4"].release()
        assert await future == 0
        assert await closed(world, writer) == {0: "b4 b2 b3"}


async def test_21_an_advanced_writer_resends_complete_entries_that_wait_behind_a_gap() -> None:
    async with World(4) as world:
        writer = await world.adv_writer((3, 3, 3))
        futures = {entry: writer.write_nowait(entry, b"%d" % entry) for entry in (2, 4)}
        await settle()
        world["b2"].down = True
        futures |= {entry: writer.write_nowait(entry, b"%d" % entry) for entry in (3, 0, 1)}
        assert await asyncio.gather(*futures.values()) == list(futures)
        assert world["b4"].ids() == [0, 1, 2, 3, 4]
        assert [world.payload("b4", e) for e in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
        await writer.close()
        assert world.ensembles(await world.stored()) == {0: "b1 b4 b3"}


async def test_frames_are_the_same_bytes_for_every_bookie_and_every_resend() -> None:
    async with World(4) as world:
        writer = await world.writer((3, 3, 3))
        await writer.append(b"x")
        world["b1"].add_status = Status.EIO
        await writer.append_many([b"y"] * 3)
        for entry in range(1, 4):
            assert len({world[b].entries[0, entry] for b in ("b2", "b3", "b4")}) == 1
        await closed(world, writer)


async def test_a_store_that_fails_during_a_change_ends_the_ledger() -> None:
    async with World(4) as world:
        writer = await world.writer((3, 3, 3))
        await writer.append(b"x")
        await world.other.ledgers.remove(0)
        world["b1"].down = True
        with pytest.raises(NoSuchLedgerOnMetadataError):
            await writer.append(b"y")
        with pytest.raises(NoSuchLedgerOnMetadataError):
            await writer.close()


async def test_nothing_is_sent_to_a_bookie_that_is_being_replaced() -> None:
    async with World(4) as world:
        writer, future = await blocked_change(world)
        before = len(world["b1"].log)
        futures = [writer.append_nowait(b"x") for _ in range(5)]
        await settle()
        assert len(world["b1"].log) == before
        world.hooks.unblock()
        await asyncio.gather(future, *futures)
        await writer.close()


async def test_s_7_acks_of_an_ensemble_that_is_not_stored_count_for_nothing() -> None:
    """FX-3."""
    async with World(6) as world:
        writer = await world.writer((3, 3, 2))
        world.hooks.block()
        for name in ("b1", "b2", "b3"):
            world[name].add_status = Status.EIO
        future = writer.append_nowait(b"x")
        await until(lambda: world.hooks.waiting)
        await settle()
        assert not future.done()
        assert all(not world[name].ids() for name in ("b4", "b5", "b6"))
        world.hooks.unblock()
        assert await future == 0
        assert await closed(world, writer) == {0: "b4 b5 b6"}


async def test_s_7_with_mu_10_planted_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "store_before_use")
    async with World(6) as world:
        writer = await world.writer((3, 3, 2))
        world.hooks.block()
        world["b1"].add_status = world["b2"].add_status = Status.EIO
        future = writer.append_nowait(b"x")
        await until(lambda: world.hooks.waiting)
        await until(future.done)
        assert world.ensembles(await world.stored()) == {0: "b1 b2 b3"}
        world.hooks.unblock()
        await settle()
        await writer.close()


async def test_where_every_replacement_fails_at_once_changes_are_paused() -> None:
    async with World(5) as world:
        writer = await world.writer((1, 1, 1))
        for bookie in world.bookies.values():
            bookie.down = True
        pauses: list[Callable[[], None]] = []
        call_later = world.runtime.call_later

        def held(delay: float, callback: Callable[..., None], *args: Any) -> TimerHandle:
            if callback == world.pipeline(writer)._ask_owner:
                pauses.append(lambda: callback(*args))
                delay = 1_000_000
            return call_later(delay, callback, *args)

        world.runtime.call_later = held  # type: ignore[method-assign]
        future = writer.append_nowait(b"x")
        await until(lambda: pauses)
        await settle(200)
        assert (len(pauses), world.hooks.writes) == (1, FRUITLESS_CHANGES)
        pauses.pop()()
        await until(lambda: pauses)
        assert world.hooks.writes == FRUITLESS_CHANGES + 1
        for bookie in world.bookies.values():
            bookie.down = False
        pauses.pop()()
        assert await future == 0
        await writer.close()


async def test_a_change_that_is_paused_is_off_when_the_writer_is_closed() -> None:
    async with World(5) as world:
        writer = await world.writer((1, 1, 1))
        for bookie in world.bookies.values():
            bookie.down = True
        future = writer.append_nowait(b"x")
        await until(lambda: world.hooks.writes >= 6)
        await writer.close()
        writes = world.hooks.writes
        with pytest.raises(LedgerClosedError):
            await future
        await asyncio.sleep(0.05)
        assert world.hooks.writes == writes


async def test_a_bookie_that_the_watch_has_not_told_of_yet_is_found_before_giving_up() -> None:
    async with World(4) as world:
        writer = await world.writer((3, 3, 3))
        placement = world.placement
        placement.late.append(placement.available.pop())
        world["b1"].add_status = Status.EIO
        assert await writer.append_many([b"x"] * 3) == [0, 1, 2]
        assert await closed(world, writer) == {0: "b4 b2 b3"}
