"""Timeouts of appends, and appends that wait for other racks, at handle level (spec client §5.4, §5.7, §17.2)."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.client.adds.deadlines import QUIET_TICKS
from bookkeeper.errors import (
    AddEntryQuorumTimeoutError,
    LedgerClosedError,
)
from bookkeeper.protocol.messages import Status
from tests.support.fake_ensemble import World, settle
from tests.support.waiting import until

# --- time (scenario 29, and per-bookie timeouts) ---


async def test_an_ack_quorum_not_reached_in_time_ends_the_ledger() -> None:
    async with World(3, addEntryQuorumTimeoutSec=0.05, addEntryTimeoutSec=100) as world:
        writer = await world.writer()
        world["b1"].hold = world["b2"].hold = True
        futures = [writer.append_nowait(b"x") for _ in range(3)]
        for future in futures:
            with pytest.raises(AddEntryQuorumTimeoutError):
                await future
        with pytest.raises(LedgerClosedError):
            await writer.append(b"y")
        await writer.close()
        assert (await world.stored()).last_entry_id == -1


async def test_a_bookie_that_does_not_answer_in_time_is_replaced() -> None:
    """FX-20, LV-2, MF-6."""
    async with World(4) as world:
        writer = await world.writer((3, 3, 3))
        world["b2"].hold = True
        future = writer.append_nowait(b"x")
        await settle()
        world["b2"].time_out()
        assert await future == 0
        assert world.ensembles(writer.metadata) == {0: "b1 b4 b3"}
        await writer.close()


async def test_a_bookie_that_is_late_with_an_acknowledged_entry_is_replaced_before_the_next() -> None:
    async with World(4) as world:
        writer = await world.writer()
        world["b3"].hold = True
        await writer.append(b"x")
        await settle()
        world["b3"].time_out()
        assert world.ensembles(writer.metadata) == {0: "b1 b2 b3"}
        await writer.append(b"y")
        assert world.ensembles(writer.metadata) == {0: "b1 b2 b3", 1: "b1 b2 b4"}
        assert world["b3"].added() == []
        await writer.close()


@pytest.mark.parametrize("quorum", [(3, 3, 3), (3, 3, 2), (3, 2, 2)])
async def test_an_entry_that_its_bookie_has_lost_is_noticed_although_later_ones_are_answered(
    quorum: tuple[int, int, int],
) -> None:
    async with World(4, addEntryTimeoutSec=5, timeoutMonitorIntervalSec=1) as world:
        writer = await world.writer(quorum)
        pipeline = world.pipeline(writer)
        clock = pipeline._deadlines.clock
        world["b2"].hold = True
        futures = [writer.append_nowait(b"lost")]
        await settle()
        world["b2"].hold = False
        for number in range(12):
            clock._tick()
            assert (pipeline.keeper.changing or bool(pipeline.keeper.delayed)) == (number > 5)
            futures.append(writer.append_nowait(b"x"))
            await settle()
            if pipeline.keeper.ensemble[1] != "b2":
                break
        assert await asyncio.gather(*futures) == list(range(len(futures)))
        assert pipeline.keeper.ensemble == ("b1", "b4", "b3")
        await writer.close()


async def test_a_writer_that_was_quiet_while_others_wrote_has_all_the_time_for_its_next_entry() -> None:
    timeouts = {"addEntryTimeoutSec": 3, "addEntryQuorumTimeoutSec": 3, "timeoutMonitorIntervalSec": 1}
    async with World(3, explicitLacInterval=0, **timeouts) as world:
        quiet, busy = await world.writer(), await world.writer()
        clock = world.pipeline(quiet)._deadlines.clock
        assert world.pipeline(busy)._deadlines.clock is clock
        await quiet.append(b"first")
        for _ in range(10):
            await busy.append(b"x")
            clock._tick()
        assert clock.tick == 10
        assert quiet._awake is None
        world["b1"].hold = world["b2"].hold = world["b3"].hold = True
        late = quiet.append_nowait(b"second")
        await settle()
        for _ in range(3):
            clock._tick()
            world.pipeline(quiet).window.check()
        assert not late.done()
        for bookie in ("b1", "b2", "b3"):
            world[bookie].release()
        assert await late == 1
        await settle()
        for _ in range(QUIET_TICKS):
            assert clock.running
            clock._tick()
        clock._tick()
        assert quiet._awake is busy._awake is None
        assert not clock.running
        await quiet.close()
        await busy.close()


async def test_entries_that_were_sent_again_are_not_taken_for_overtaken_ones() -> None:
    async with World(5, addEntryTimeoutSec=3, timeoutMonitorIntervalSec=1) as world:
        writer = await world.writer((3, 3, 3))
        pipeline = world.pipeline(writer)
        clock = pipeline._deadlines.clock
        world["b1"].hold = True  # nothing is confirmed, so that all is sent again
        futures = []
        for _ in range(10):
            futures.append(writer.append_nowait(b"x"))
            await settle()
            clock._tick()
        world["b4"].hold = True
        world["b2"].add_status = Status.EIO
        futures.append(writer.append_nowait(b"x"))
        await until(lambda: world["b4"].held)
        for _ in range(10):
            clock._tick()
        assert pipeline.keeper.ensemble == ("b1", "b4", "b3")
        assert not pipeline.keeper.changing
        world["b4"].release()
        world["b1"].release()
        assert await asyncio.gather(*futures) == list(range(11))
        await writer.close()


async def test_a_quorum_timeout_counts_from_the_push_and_not_from_an_earlier_one() -> None:
    settings = {"addEntryQuorumTimeoutSec": 10, "timeoutMonitorIntervalSec": 1, "explicitLacInterval": 0}
    async with World(3, **settings) as world:
        writer = await world.writer()
        clock = world.pipeline(writer)._deadlines.clock
        for _ in range(3):  # several in turn take longer than one may
            world["b1"].hold = world["b2"].hold = True
            future = writer.append_nowait(b"x")
            await settle()
            for _ in range(10):
                clock._tick()
            world["b1"].release()
            world["b2"].release()
            await future
            for _ in range(QUIET_TICKS + 1):
                clock._tick()
            assert not clock.running  # nothing to time
        world["b1"].hold = world["b2"].hold = True
        future = writer.append_nowait(b"x")
        await settle()
        for _ in range(11):
            clock._tick()
        with pytest.raises(AddEntryQuorumTimeoutError):
            await future


# --- fault domains (scenario 31) ---


async def test_an_entry_may_have_to_wait_for_an_ack_from_another_rack() -> None:
    async with World(3, enforceMinNumFaultDomainsForWrite=True) as world:
        world.placement.spans = lambda acked: "b3" in acked
        writer = await world.writer()
        world["b3"].hold = True
        future = writer.append_nowait(b"x")
        await settle()
        assert not future.done()
        world["b3"].release()
        assert await future == 0
        await writer.close()


async def test_an_entry_that_waits_for_another_rack_too_long_is_counted() -> None:
    timeouts = {"addEntryQuorumTimeoutSec": 0.05, "addEntryTimeoutSec": 100}
    async with World(3, enforceMinNumFaultDomainsForWrite=True, **timeouts) as world:
        world.placement.spans = lambda acked: "b3" in acked
        world["b3"].hold = True
        writer = await world.writer()
        with pytest.raises(AddEntryQuorumTimeoutError):
            await writer.append(b"x")
        assert world.context.stats.WRITE_TIME_OUT_DUE_TO_NOT_ENOUGH_FAULT_DOMAINS == 1
        world["b2"].hold = True
        writer = await world.writer()
        with pytest.raises(AddEntryQuorumTimeoutError):  # for want of acks
            await writer.append(b"x")
        assert world.context.stats.WRITE_TIME_OUT_DUE_TO_NOT_ENOUGH_FAULT_DOMAINS == 1
