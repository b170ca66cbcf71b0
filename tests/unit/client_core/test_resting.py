"""Writers that rest: what they keep, what wakes them, and that nobody can tell (client/adds/appending.py)."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
import weakref
from typing import Any

import pytest

from bookkeeper.client.adds.deadlines import QUIET_TICKS
from bookkeeper.client.writer import LedgerAdvWriter, LedgerWriter
from bookkeeper.errors import (
    ClientClosedError,
    IllegalOpError,
    LedgerClosedError,
    LedgerFencedError,
    WriteError,
    WrongLoopError,
)
from bookkeeper.protocol.messages import Status
from bookkeeper.types import LedgerState, WriteFlag
from tests.support.elsewhere import error_elsewhere
from tests.support.fake_ensemble import World, settle
from tests.support.waiting import until

SETTINGS: dict[str, Any] = {"explicitLacInterval": 0, "timeoutMonitorIntervalSec": 1}


async def quiet(world: World) -> None:
    """Time goes by until all would rest that may."""
    await settle()
    (clock,) = world.context.clocks.values()
    for _ in range(QUIET_TICKS + 1):
        clock._tick()


async def rested(world: World, *writers: LedgerWriter | LedgerAdvWriter) -> None:
    await quiet(world)
    for writer in writers:
        assert writer._awake is None
        assert writer in world.context.resting


async def resting(world: World) -> LedgerWriter:
    """A writer that has appended an entry, and rests."""
    writer = await world.writer()
    await writer.append(b"x")
    await rested(world, writer)
    return writer


async def test_a_writer_rests_and_goes_on_where_it_was() -> None:
    async with World(3, **SETTINGS) as world:
        writer = await world.writer()
        assert writer._awake is None, "nothing was appended yet"
        assert await writer.append_many([b"a", b"bc"]) == [0, 1]
        for number in range(2, 5):
            await rested(world, writer)
            assert (writer.last_add_confirmed, writer.last_add_pushed) == (number - 1, number - 1)
            assert await writer.append(b"x") == number
            assert writer not in world.context.resting
        await rested(world, writer)
        assert await writer.append_nowait(b"x") == 5
        await rested(world, writer)
        assert await (await writer.append_soon(b"x")) == 6
        await rested(world, writer)
        assert await writer.flush() == 6
        assert writer.length == 8
        await rested(world, writer)
        await writer.close(drain=True)
        stored = await world.stored()
        assert (stored.state, stored.last_entry_id, stored.length) == (LedgerState.CLOSED, 6, 8)
        assert not world.context.resting


async def test_what_rests_has_no_channels_and_listens_to_no_clock() -> None:
    async with World(3, **SETTINGS) as world:
        writers = [await world.writer() for _ in range(20)]
        for writer in writers:
            await writer.append(b"x")
        pipelines = [weakref.ref(writer._adds) for writer in writers]
        await rested(world, *writers)
        assert all(channel.closed for channel in world.client.channels)
        world.client.channels.clear()
        gc.collect()
        assert [pipeline() for pipeline in pipelines] == [None] * 20
        assert all(not clock.running for clock in world.context.clocks.values())
        for writer in writers:
            await writer.close()


async def test_what_rests_takes_no_room_for_the_entries_it_once_had_under_way() -> None:
    async with World(3, **SETTINGS) as world:
        writer = await world.writer()
        empty = sys.getsizeof(writer._window.open)
        await writer.append_many([b"x"] * 1000)
        assert sys.getsizeof(writer._window.open) > 20 * empty
        await rested(world, writer)
        assert sys.getsizeof(writer._window.open) == empty
        assert await writer.append(b"x") == 1000
        await writer.close()


async def test_what_is_asked_of_a_writer_that_rests_wakes_it_only_if_it_must() -> None:
    async with World(3, **SETTINGS) as world:
        writer = await resting(world)
        assert await writer.flush() == 0
        assert (writer.length, writer.failure, writer.closed) == (1, None, False)
        await writer.close(drain=True)
        assert writer._awake is None


async def test_a_condition_on_acks_does_not_keep_what_was_given_up() -> None:
    async with World(3, enforceMinNumFaultDomainsForWrite=True, **SETTINGS) as world:
        asked: list[object] = []
        world.placement.spans = lambda acked: bool(asked.append(acked)) or True
        writer = await resting(world)
        assert writer._window.accept is None
        asked.clear()
        assert await writer.append(b"y") == 1
        assert asked
        await writer.close()


async def test_a_writer_that_no_protocol_can_serve_says_why_it_ended() -> None:
    async with World(3, **SETTINGS) as world:
        world.client.protocol = "v2"
        writer = await world.writer(flags=WriteFlag.DEFERRED_SYNC)
        with pytest.raises(IllegalOpError):
            await writer.append(b"x")
        assert isinstance(writer.failure, IllegalOpError)
        await writer.close()


async def test_a_writer_of_which_something_is_awaited_does_not_rest() -> None:
    async with World(3, **SETTINGS) as world:
        slow, advanced, changed = await world.writer(), await world.adv_writer(), await world.writer()
        world["b3"].hold = True
        assert await slow.append(b"x") == 0  # of b1 and b2
        gap = advanced.write_nowait(1, b"y")
        await quiet(world)
        assert slow._awake is not None
        assert advanced._awake is not None
        world["b3"].release()
        await rested(world, slow)
        assert advanced._awake is not None
        assert await advanced.write(0, b"x") == 0
        assert await gap == 1
        await rested(world, advanced)
        world["b3"].hold, world["b3"].add_status = False, Status.EIO
        assert await changed.append(b"x") == 0
        await quiet(world)
        assert changed._keeper.delayed
        assert changed._awake is not None, "a bookie is to be replaced before the next entry"
        world["b3"].add_status = None
        for writer in (slow, advanced, changed):
            await writer.close()


async def test_a_writer_does_not_rest_before_its_lac_was_told_and_tells_none_twice() -> None:
    async with World(3, explicitLacInterval=1, timeoutMonitorIntervalSec=1) as world:
        writer = await world.writer()
        for bookie in world.bookies.values():
            bookie.other_status = Status.EIO
        await writer.append(b"x")
        await quiet(world)
        assert writer._awake is not None
        for bookie in world.bookies.values():
            bookie.other_status = None
        writer._awake.explicit_lac._pauses.failures = 0
        await until(lambda: writer._awake is not None and writer._awake.explicit_lac.at_rest)
        assert any(bookie.explicit_lac.get(0) == 0 for bookie in world.bookies.values())
        await rested(world, writer)
        for bookie in world.bookies.values():
            bookie.explicit_lac.clear()
        assert writer._appending.explicit_lac.at_rest
        assert writer._awake is not None
        await writer.append(b"y")
        await until(lambda: any(bookie.explicit_lac.get(0) == 1 for bookie in world.bookies.values()))
        await writer.close()


async def test_force_of_a_writer_that_rests_tells_the_new_lac() -> None:
    async with World(3, explicitLacInterval=1, timeoutMonitorIntervalSec=1) as world:
        writer = await world.writer(flags=WriteFlag.DEFERRED_SYNC)
        await writer.append(b"x")
        await rested(world, writer)
        assert writer.last_add_confirmed == -1
        await writer.force()
        assert writer.last_add_confirmed == 0
        await until(lambda: any(bookie.explicit_lac.get(0) == 0 for bookie in world.bookies.values()))
        await writer.close()


async def test_what_happened_to_the_ensemble_is_not_forgotten() -> None:
    async with World(4, maxNumEnsembleChanges=1, **SETTINGS) as world:
        writer = await world.writer()
        world["b3"].add_status = Status.EIO
        for _ in range(2):
            await writer.append(b"x")
            await settle()
        await until(lambda: "b4" in writer._keeper.ensemble and writer._keeper.at_rest)
        await rested(world, writer)
        assert writer._keeper.rounds == 1
        assert writer._keeper.ensemble == ("b1", "b2", "b4")
        assert await writer.append(b"z") == 2
        assert (0, 2) in world["b4"].entries
        world["b4"].add_status = Status.EIO
        assert await writer.append(b"") == 3
        await settle()
        with pytest.raises(LedgerClosedError):
            await writer.append(b"")
        assert isinstance(writer.failure, WriteError)  # one change too many


async def test_a_writer_that_rests_hears_of_a_fence_with_its_next_entry() -> None:
    async with World(3, **SETTINGS) as world:
        writer = await resting(world)
        await world.recover()
        with pytest.raises(LedgerFencedError):
            await writer.append(b"y")
        assert writer.closed


async def test_a_client_that_ends_tells_those_that_rest() -> None:
    async with World(3, **SETTINGS) as world:
        writer = await resting(world)
        waiting = asyncio.create_task(writer.wait_closed())
        await settle()
        world.context.closed = True
        world.context.end_resting()
        await waiting
        assert writer.closed
        assert writer._awake is None, "it needs nothing for its end"
        assert not world.context.resting
        for attempt in (lambda: writer.append(b"y"), writer.force, writer.close):
            with pytest.raises(ClientClosedError):
                await attempt()
        world.context.closed = False


async def test_a_writer_that_was_closed_while_it_rested_says_so() -> None:
    async with World(3, **SETTINGS) as world:
        writer = await resting(world)
        await writer.close()
        with pytest.raises(LedgerClosedError):
            await writer.append(b"y")
        with pytest.raises(LedgerClosedError):
            writer.append_nowait(b"y")
        assert await writer.flush() == 0
        await writer.close()


async def test_a_writer_that_rests_is_missed_when_it_is_dropped() -> None:
    async with World(3, **SETTINGS) as world:
        writer = await resting(world)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del writer
            gc.collect()
        assert ["was dropped without close()" in str(warning.message) for warning in caught] == [True]
        caught.clear()  # it has the writer
        gc.collect()
        assert not world.context.resting


async def test_another_thread_wakes_nobody() -> None:
    async with World(3, **SETTINGS) as world:
        writer = await resting(world)
        assert isinstance(error_elsewhere(lambda: writer.append_nowait(b"y")), WrongLoopError)
        assert writer._awake is None
        await writer.close()
