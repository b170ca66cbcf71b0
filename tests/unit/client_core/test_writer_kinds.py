"""Advanced writers, DEFERRED_SYNC, explicit LAC, at handle level (spec client §5.8 to §5.10, §17.3)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from bookkeeper.client.wire.calls import OnReply
from bookkeeper.errors import (
    BackpressureError,
    DuplicateEntryIdError,
    IllegalOpError,
    IncorrectParameterError,
    LedgerClosedError,
    WriteError,
)
from bookkeeper.protocol.messages import Request, Status
from bookkeeper.types import BookieId, WriteFlag
from tests.support.fake_ensemble import World, settle
from tests.support.waiting import until

# --- advanced writers (scenario 34, 35) ---


async def test_entries_with_ids_of_the_caller() -> None:
    async with World(3) as world:
        writer = await world.adv_writer()
        later = writer.write_nowait(1, b"one")
        await settle()
        assert not later.done()
        assert await writer.write(0, b"zero") == 0
        assert await later == 1
        assert world.payload("b2", 1) == b"one"
        for used in (0, 1):
            with pytest.raises(DuplicateEntryIdError):
                await writer.write(used, b"again")
        pending = writer.write_nowait(5, b"five")
        with pytest.raises(DuplicateEntryIdError):
            writer.write_nowait(5, b"again")
        with pytest.raises(IncorrectParameterError):
            await writer.write(-1, b"x")
        await writer.close(drain=True)  # the gap is never filled: not waited for
        with pytest.raises(LedgerClosedError):
            await pending
        stored = await world.stored()
        assert (stored.last_entry_id, stored.length) == (1, 7)
        assert not hasattr(writer, "append")


async def test_the_entry_that_fills_a_gap_enters_however_full_the_window_is() -> None:
    async with World(3, maxPendingAddEntries=10) as world:
        writer = await world.adv_writer()
        tasks = [asyncio.ensure_future(writer.write(entry, b"x")) for entry in range(1, 25)]
        await settle()
        assert len(world.pipeline(writer).window.open) == 10  # all on all bookies, and none can be acknowledged
        assert await writer.write(0, b"fills the gap") == 0
        assert await asyncio.gather(*tasks) == list(range(1, 25))
        await writer.close()
        assert (await world.stored()).last_entry_id == 24


async def test_it_enters_from_the_line_and_without_waiting_too() -> None:
    async with World(3, maxPendingAddEntries=4) as world:
        writer = await world.adv_writer()
        behind = [asyncio.ensure_future(writer.write(entry, b"x")) for entry in (9, 8, 7, 6, 5, 4)]
        await settle()
        with pytest.raises(BackpressureError):
            writer.write_nowait(3, b"x")
        assert await writer.write_nowait(0, b"x") == 0
        more = [asyncio.ensure_future(writer.write(entry, b"x")) for entry in (3, 2)]  # each waits for the gap at 1
        await settle()
        assert not any(task.done() for task in (*behind, *more))
        assert await (await writer.write_soon(1, b"x")) == 1
        assert await asyncio.gather(*behind, *more) == [9, 8, 7, 6, 5, 4, 3, 2]
        await writer.close()


@pytest.mark.parametrize("seed", range(5))
async def test_writes_in_any_order_all_get_through(seed: int) -> None:
    ids = list(range(200))
    random.Random(seed).shuffle(ids)
    async with World(3, maxPendingAddEntries=7) as world:
        writer = await world.adv_writer((3, 2, 2))
        assert await asyncio.gather(*(writer.write(entry, b"x") for entry in ids)) == ids
        await writer.close()


async def test_the_way_for_a_missing_entry_is_no_way_around_the_limits() -> None:
    async with World(3, maxPendingAddEntries=5) as world:
        writer = await world.adv_writer()
        for bookie in world.bookies.values():
            bookie.hold = True
        tasks = [asyncio.ensure_future(writer.write(entry, b"x")) for entry in range(50)]
        await settle()
        assert len(world.pipeline(writer).window.open) == 5
        for bookie in world.bookies.values():
            bookie.release()
        await asyncio.gather(*tasks)
        await writer.close()
    async with World(3, throttle=20) as world:
        writer = await world.adv_writer()
        for entry in range(20):  # a second's worth is there at once
            writer.write_nowait(entry, b"x")
        with pytest.raises(BackpressureError):
            [await writer.write_nowait(entry, b"x") for entry in range(20, 60)]
        await writer.close()


async def test_a_drain_waits_for_what_can_get_in_and_not_for_what_waits_behind_a_gap() -> None:
    async with World(3, maxPendingAddEntries=3) as world:
        writer = await world.adv_writer()
        for bookie in world.bookies.values():
            bookie.hold = True
        good = [asyncio.ensure_future(writer.write(entry, b"x")) for entry in range(6)]
        lost = [asyncio.ensure_future(writer.write(entry, b"x")) for entry in range(7, 15)]
        await settle()
        closing = asyncio.ensure_future(writer.close(drain=True))
        await settle()
        assert not closing.done()
        for bookie in world.bookies.values():
            bookie.release()
        assert await asyncio.gather(*good) == list(range(6))
        await closing
        for task in lost:
            with pytest.raises(LedgerClosedError):
                await task
        assert (await world.stored()).last_entry_id == 5


async def test_only_an_advanced_writer_takes_ids() -> None:
    """Scenario 35: what is an illegal operation in BookKeeper cannot be said here."""
    async with World(3) as world:
        writer = await world.writer()
        advanced = await world.adv_writer()
        assert not any(hasattr(writer, name) for name in ("write", "write_nowait"))
        assert not any(hasattr(advanced, name) for name in ("append", "append_nowait", "append_soon", "append_many"))
        await writer.close()
        await advanced.close()


# --- DEFERRED_SYNC (scenarios 33, 37 to 39) ---


async def test_deferred_sync_confirms_by_force() -> None:
    async with World(3) as world:
        writer = await world.writer(flags=WriteFlag.DEFERRED_SYNC)
        await writer.force()  # nothing to do
        assert await writer.append_many([b"x"] * 100) == list(range(100))
        assert (writer.last_add_confirmed, writer.last_add_pushed) == (-1, 99)
        await writer.force()
        assert writer.last_add_confirmed == 99
        await writer.append(b"y")
        await writer.close()
        stored = await world.stored()
        assert (stored.last_entry_id, stored.length) == (99, 101)
        with pytest.raises(LedgerClosedError):
            await writer.force()


async def test_force_needs_every_bookie_and_covers_what_was_acknowledged_before_it() -> None:
    async with World(3) as world:
        writer = await world.writer(flags=WriteFlag.DEFERRED_SYNC)
        await writer.append(b"x")
        world["b3"].other_status = Status.EIO
        with pytest.raises(WriteError):
            await writer.force()
        assert writer.last_add_confirmed == -1
        world["b3"].other_status = None
        world["b1"].hold = world["b2"].hold = True
        pending = writer.append_nowait(b"y")
        await writer.force()
        assert writer.last_add_confirmed == 0
        world["b1"].release()
        world["b2"].release()
        assert await pending == 1
        await writer.close()


async def test_force_covers_what_was_acknowledged_when_it_was_called_and_no_more() -> None:
    """Scenario 38."""
    async with World(3) as world:
        writer = await world.writer(flags=WriteFlag.DEFERRED_SYNC)
        await writer.append(b"x")
        answers: list[Callable[[], None]] = []
        call = world.client.call

        def late(bookie: BookieId, message: Request, timeout: float | None, done: OnReply) -> None:
            answers.append(lambda: call(bookie, message, timeout, done))

        world.client.call = late  # type: ignore[method-assign]
        forcing = asyncio.ensure_future(writer.force())
        await until(lambda: len(answers) == 3)
        assert await writer.append(b"y") == 1
        for answer in answers:
            answer()
        await forcing
        assert writer.last_add_confirmed == 0
        world.client.call = call  # type: ignore[method-assign]
        await writer.force()
        assert writer.last_add_confirmed == 1
        await writer.close()


async def test_with_deferred_sync_a_failed_bookie_ends_the_ledger() -> None:
    async with World(4) as world:
        writer = await world.writer(flags=WriteFlag.DEFERRED_SYNC)
        await writer.append(b"x")
        world["b1"].down = True
        with pytest.raises(WriteError):
            await writer.append(b"y")
        await writer.close()
        stored = await world.stored()
        assert world.ensembles(stored) == {0: "b1 b2 b3"}
        assert stored.last_entry_id == -1


async def test_protocol_v2_has_no_deferred_sync() -> None:
    async with World(3) as world:
        world.client.protocol = "v2"
        writer = await world.writer(flags=WriteFlag.DEFERRED_SYNC)
        with pytest.raises(IllegalOpError):
            await writer.append(b"x")
        with pytest.raises(LedgerClosedError):
            await writer.append(b"x")
        await writer.close()
        assert (await world.stored()).closed


async def test_a_duplicate_of_an_unforced_id_is_refused() -> None:
    async with World(3) as world:
        writer = await world.adv_writer(flags=WriteFlag.DEFERRED_SYNC)
        await writer.write(0, b"x")
        assert writer.last_add_confirmed == -1
        with pytest.raises(DuplicateEntryIdError):
            await writer.write(0, b"y")
        await writer.close()


# --- explicit LAC (scenario 41) ---


async def test_an_idle_writer_tells_its_lac() -> None:
    async with World(3, explicitLacInterval=5) as world:
        writer = await world.writer()
        await writer.append_many([b"x"] * 10)
        await until(lambda: all(b.explicit_lac.get(0) == 9 for b in world.bookies.values()))
        await writer.close()


async def test_a_lac_that_an_entry_under_way_carries_is_not_told() -> None:
    async with World(3, explicitLacInterval=5) as world:
        writer = await world.writer()
        await writer.append(b"x")
        explicit_lac = writer._appending.explicit_lac
        assert explicit_lac._looked_at
        for bookie in world.bookies.values():
            bookie.hold = True
        under_way = asyncio.ensure_future(writer.append(b"y"))
        await until(lambda: not explicit_lac._looked_at)  # it was found quiet
        await settle()
        assert not any(bookie.explicit_lac for bookie in world.bookies.values())
        for bookie in world.bookies.values():
            bookie.release()
        assert await under_way == 1
        await until(lambda: all(b.explicit_lac.get(0) == 1 for b in world.bookies.values()))
        await writer.close()


async def test_explicit_lac_is_tried_again_and_never_beyond_what_was_forced() -> None:
    async with World(3, explicitLacInterval=5) as world:
        writer = await world.writer(flags=WriteFlag.DEFERRED_SYNC)
        await writer.append_many([b"x"] * 3)
        await writer.force()
        await writer.append(b"unforced")
        world["b1"].down = world["b2"].down = True
        await until(lambda: 0 in world["b3"].explicit_lac)
        world["b1"].down = world["b2"].down = False
        await until(lambda: all(b.explicit_lac.get(0) == 2 for b in world.bookies.values()))
        await writer.close()


async def test_a_lac_that_nobody_takes_is_told_at_the_next_progress_without_waiting_for_the_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with World(3, explicitLacInterval=1) as world:
        writer = await world.writer()
        for bookie in world.bookies.values():
            bookie.other_status = Status.EIO
        await writer.append(b"x")
        await until(lambda: writer._appending.explicit_lac._pauses.failures >= 2)
        assert caplog.text.count("was not told") == 1
        for bookie in world.bookies.values():
            bookie.other_status = None
        writer._appending.explicit_lac._pauses.failures = 100
        await until(lambda: 0 in world["b1"].explicit_lac or writer._appending.explicit_lac._timer is not None)
        await writer.append(b"y")
        await until(lambda: any(b.explicit_lac.get(0) == 1 for b in world.bookies.values()))
        await writer.close()
