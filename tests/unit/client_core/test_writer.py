"""Appending and backpressure, at handle level (spec client §5, §17.2)."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from bookkeeper.errors import (
    BackpressureError,
    ClientClosedError,
    IncorrectParameterError,
    LedgerClosedError,
)
from bookkeeper.types import LedgerState
from tests.support.fake_ensemble import World, settle
from tests.support.planted_client import plant
from tests.support.waiting import until

# --- appending ---


async def test_appends_get_ids_in_order_and_are_stored_with_lac_and_length() -> None:
    """RI-4."""
    async with World(3) as world:
        writer = await world.writer()
        assert [await writer.append(data) for data in (b"hello", b"world")] == [0, 1]
        assert (writer.last_add_confirmed, writer.last_add_pushed, writer.length) == (1, 1, 10)
        await settle()
        for name in ("b1", "b2", "b3"):
            assert world.payload(name, 1) == b"world"
            lac, length, _ = world.digest.verify(0, 1, world[name].entries[0, 1])
            assert (lac, length) == (0, 10)
        await writer.close()
        stored = await world.stored()
        assert (stored.state, stored.last_entry_id, stored.length) == (LedgerState.CLOSED, 1, 10)


async def test_the_bytes_are_those_of_the_specification() -> None:
    async with World(3) as world:
        world.created = 100
        writer = await world.writer()
        await writer.append(b"hello")
        assert world["b1"].entries[100, 0].hex() == (
            "0000000000000064"
            + "0000000000000000"
            + "ffffffffffffffff"
            + "0000000000000005"
            + "60ce91d7"
            + "68656c6c6f"
        )
        await writer.close()


async def test_append_nowait_gives_ids_before_it_returns() -> None:
    async with World(3) as world:
        writer = await world.writer()
        futures = [writer.append_nowait(b"x") for _ in range(5)]
        assert writer.last_add_pushed == 4
        assert await asyncio.gather(*futures) == [0, 1, 2, 3, 4]
        await writer.close()


@pytest.mark.parametrize("protocol", ["v2", "v3"])
async def test_append_many_and_flush(protocol: str) -> None:
    async with World(5) as world:
        world.client.protocol = protocol
        writer = await world.writer((5, 3, 2))
        assert await writer.append_many(bytes([i]) for i in range(100)) == list(range(100))
        writer.append_nowait(bytearray(b"a"))
        writer.append_nowait(memoryview(b"b"))
        assert await writer.flush() == 101
        assert await writer.flush() == 101
        assert world["b1"].ids() == [e for e in range(102) if e % 5 in (0, 3, 4)]
        await writer.close()


async def test_an_empty_writer_flushes_at_once() -> None:
    async with World(3) as world:
        writer = await world.writer()
        assert await writer.flush() == -1
        await writer.close()
        assert (await world.stored()).last_entry_id == -1


async def test_a_payload_that_fits_no_frame_is_refused_before_it_gets_an_id() -> None:
    async with World(3, nettyMaxFrameSizeBytes=2048) as world:
        writer = await world.writer()
        with pytest.raises(IncorrectParameterError):
            await writer.append(bytes(2048))
        with pytest.raises(IncorrectParameterError):
            writer.append_nowait(bytes(2048))
        assert writer.last_add_pushed == -1
        assert await writer.append(bytes(1900)) == 0
        await writer.close()


async def test_cancelling_an_append_does_not_withdraw_the_entry() -> None:
    """RI-11."""
    async with World(3) as world:
        writer = await world.writer()
        world["b1"].hold = world["b2"].hold = True
        task = asyncio.ensure_future(writer.append(b"x"))
        await settle()
        task.cancel()
        await asyncio.wait([task])
        world["b1"].release()
        world["b2"].release()
        assert await writer.append(b"y") == 1
        assert writer.last_add_confirmed == 1
        await writer.close()


# --- backpressure ---


async def test_append_waits_first_come_first_served_when_too_much_is_in_flight() -> None:
    async with World(3, maxPendingAddEntries=2) as world:
        writer = await world.writer()
        for bookie in world.bookies.values():
            bookie.hold = True
        first = [writer.append_nowait(b"a"), writer.append_nowait(b"b")]
        with pytest.raises(BackpressureError):
            writer.append_nowait(b"c")
        later = [asyncio.ensure_future(writer.append(data)) for data in (b"c", b"d", b"e")]
        await settle()
        assert writer.last_add_pushed == 1
        with pytest.raises(BackpressureError):
            writer.append_nowait(b"f")
        for bookie in world.bookies.values():
            bookie.release()
        assert await asyncio.gather(*first, *later) == [0, 1, 2, 3, 4]
        assert [world.payload("b1", e) for e in range(5)] == [b"a", b"b", b"c", b"d", b"e"]
        await writer.close()


async def test_what_a_slow_bookie_has_not_answered_counts_as_in_flight() -> None:
    """FX-22, BI-26."""
    async with World(3, maxPendingAddBytes=300) as world:
        writer = await world.writer()
        world["b3"].hold = True
        await writer.append(bytes(200))
        await writer.append(bytes(200))
        with pytest.raises(BackpressureError):
            writer.append_nowait(b"x")
        world["b3"].release()
        await settle()
        await writer.append_nowait(b"x")
        await writer.close()


async def test_a_cancelled_waiter_lets_the_next_one_in() -> None:
    async with World(3, maxPendingAddEntries=1) as world:
        writer = await world.writer()
        for bookie in world.bookies.values():
            bookie.hold = True
        writer.append_nowait(b"a")
        tasks = [asyncio.ensure_future(writer.append(data)) for data in (b"b", b"c")]
        await settle()
        tasks[0].cancel()
        for bookie in world.bookies.values():
            bookie.release()
        assert await tasks[1] == 1
        assert world.payload("b1", 1) == b"c"
        await writer.close()


async def test_append_waits_while_a_connection_is_not_writable() -> None:
    async with World(3, clientWriteBufferHighWaterMark=100, clientWriteBufferLowWaterMark=50) as world:
        writer = await world.writer()
        world["b3"].hold = True
        await writer.append(bytes(200))
        channel = world.client.channels[2]
        channel.writable = False
        world.pipeline(writer).on_progress()  # it is looked at whenever something is sent or answered
        task = asyncio.ensure_future(writer.append(b"x"))
        await settle()
        assert not task.done()
        assert writer.last_add_pushed == 0
        channel.writable = True
        world.pipeline(writer).on_writable(channel.bookie)
        assert await task == 1
        await writer.close()


async def test_an_append_held_back_by_a_full_connection_goes_on_when_its_bookie_is_replaced() -> None:
    """Scenario 30: instead of sending past a bookie that takes no bytes, it waits until that one is given up."""
    settings = {"clientWriteBufferHighWaterMark": 100, "clientWriteBufferLowWaterMark": 50}
    async with World(4, **settings) as world:
        writer = await world.writer()
        world["b3"].hold = True
        await writer.append(bytes(200))
        world.client.channels[2].writable = False
        world.pipeline(writer).on_progress()
        with pytest.raises(BackpressureError):
            writer.append_nowait(b"x")
        assert writer.last_add_pushed == 0  # no id was used
        appending = asyncio.ensure_future(writer.append(b"x"))
        await settle()
        world["b3"].time_out()
        assert await appending == 1
        assert world.ensembles(writer.metadata) == {0: "b1 b2 b3", 1: "b1 b2 b4"}
        await writer.close()


async def test_the_throttle_limits_appends() -> None:
    async with World(3, throttle=20) as world:
        writer = await world.writer()
        for _ in range(20):  # a second's worth is there at once
            writer.append_nowait(b"x")
        with pytest.raises(BackpressureError):
            [writer.append_nowait(b"x") for _ in range(20)]
        assert await writer.append(b"y") >= 20
        await writer.close()


async def test_waiting_appends_fail_when_the_writer_is_closed() -> None:
    async with World(3, maxPendingAddEntries=1) as world:
        writer = await world.writer()
        for bookie in world.bookies.values():
            bookie.hold = True
        first = writer.append_nowait(b"a")
        waiting = asyncio.ensure_future(writer.append(b"b"))
        await settle()
        await writer.close()
        for pending in (first, waiting):
            with pytest.raises(LedgerClosedError):
                await pending


# --- client closed, dropped ---


async def test_after_the_client_is_closed_appends_fail_and_the_ledger_stays_open() -> None:
    async with World(3) as world:
        writer = await world.writer()
        world["b1"].hold = world["b2"].hold = True
        future = writer.append_nowait(b"x")
        await settle()
        for channel in world.client.channels:
            world.pipeline(writer).on_channel_lost(channel.bookie, ClientClosedError())
        with pytest.raises(ClientClosedError):
            await future
        with pytest.raises(ClientClosedError):
            await writer.append(b"y")
        with pytest.raises(ClientClosedError):
            await writer.close()
        assert (await world.stored()).state is LedgerState.OPEN


async def test_closing_a_writer_after_its_client_reports_the_closed_client() -> None:
    async with World(3) as world:
        writer = await world.writer()
        world.context.closed = True
        with pytest.raises(ClientClosedError):
            await writer.close()


async def test_a_writer_dropped_without_close_warns_and_leaves_the_ledger_open() -> None:
    async with World(3) as world:
        writer = await world.writer()
        await writer.append(b"x")
        await settle()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del writer
            gc.collect()
        assert [w.category for w in caught] == [ResourceWarning]
        await settle()
        assert all(channel.closed for channel in world.client.channels)
        assert (await world.stored()).state is LedgerState.OPEN


# --- planted bugs ---


async def test_mu_5_planted_closes_at_the_last_push(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "close_at_lac")
    async with World(3) as world:
        writer = await world.writer()
        world["b1"].hold = world["b2"].hold = True
        future = writer.append_nowait(b"x")
        await writer.close()
        with pytest.raises(LedgerClosedError):
            await future
        assert (await world.stored()).last_entry_id == 0


async def test_a_close_cut_short_by_the_clients_end_reports_the_closed_client() -> None:
    async with World(3) as world:
        writer = await world.writer()
        world.hooks.block()
        closing = asyncio.ensure_future(writer.close())
        await until(lambda: world.hooks.waiting)
        world.context.closed = True
        await world.tasks.close()
        with pytest.raises(ClientClosedError):
            await closing


async def test_append_soon_waits_for_room_only() -> None:
    async with World(3, maxPendingAddEntries=1) as world:
        writer = await world.writer()
        world["b1"].hold = world["b2"].hold = True
        first = await writer.append_soon(b"a")
        assert not first.done()
        second = asyncio.ensure_future(writer.append_soon(b"b"))
        await settle()
        assert not second.done()
        world["b1"].release()
        world["b2"].release()
        assert [await first, await (await second)] == [0, 1]
        await writer.close()
