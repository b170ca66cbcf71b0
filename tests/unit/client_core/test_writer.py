"""Writing, backpressure and closing, at handle level (spec client §5, §8, §17.2, §17.3)."""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from collections.abc import Callable

import pytest

from bookkeeper.client.connection import OnReply
from bookkeeper.errors import (
    AddEntryQuorumTimeoutError,
    BackpressureError,
    BKError,
    ClientClosedError,
    DuplicateEntryIdError,
    IllegalOpError,
    IncorrectParameterError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataVersionError,
    NotEnoughBookiesError,
    UnauthorizedError,
    WriteError,
)
from bookkeeper.protocol.messages import Request, Status
from bookkeeper.quorum.rules import ProtocolRules
from bookkeeper.types import BookieId, LedgerState, WriteFlag
from tests.support.fake_ensemble import World, settle, until

# --- appending ---


async def test_appends_get_ids_in_order_and_are_stored_with_lac_and_length() -> None:
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
    settings = {"clientWriteBufferHighWaterMark": 100, "clientWriteBufferLowWaterMark": 50, "addEntryTimeoutSec": 0.05}
    async with World(4, **settings) as world:
        writer = await world.writer()
        world["b3"].hold = True
        await writer.append(bytes(200))
        world.client.channels[2].writable = False
        world.pipeline(writer).on_progress()
        with pytest.raises(BackpressureError):
            writer.append_nowait(b"x")
        assert writer.last_add_pushed == 0  # no id was used
        assert await writer.append(b"x") == 1
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


# --- closing (scenarios 22 to 27) ---


async def test_an_add_after_close_began_fails_at_once() -> None:
    async with World(3) as world:
        writer = await world.writer()
        world.hooks.block()
        closing = asyncio.ensure_future(writer.close())
        await until(lambda: world.hooks.waiting)
        with pytest.raises(LedgerClosedError):
            await writer.append(b"x")
        with pytest.raises(LedgerClosedError):
            writer.append_nowait(b"x")
        world.hooks.unblock()
        await closing


async def test_all_closes_share_one_outcome_and_one_write() -> None:
    async with World(3) as world:
        writer = await world.writer()
        await writer.append(b"x")
        world.hooks.block()
        closes = [asyncio.ensure_future(writer.close()) for _ in range(3)]
        await until(lambda: world.hooks.waiting)
        await settle()
        assert not any(close.done() for close in closes)
        world.hooks.unblock()
        await asyncio.gather(*closes)
        await writer.close()
        assert world.hooks.writes == 1


async def test_closing_what_is_closed_alike_is_a_success() -> None:
    async with World(3) as world:
        writer = await world.writer()
        await writer.append(b"x")
        await world.change(lambda md: md.close(0, 1))
        await writer.close()


async def test_closing_what_is_closed_otherwise_is_a_version_error_for_every_caller() -> None:
    async with World(3) as world:
        writer = await world.writer()
        await world.change(lambda md: md.close(7, 70))
        for _ in range(2):
            with pytest.raises(MetadataVersionError):
                await writer.close()
        assert (await world.stored()).last_entry_id == 7


async def test_close_overrides_a_recovery_and_keeps_a_rewritten_fragment() -> None:
    async with World(4) as world:
        writer = await world.writer()
        await writer.append(b"x")
        await world.change(lambda md: md.in_recovery().with_ensemble(0, ("b1", "b2", "b4")))
        await writer.close()
        stored = await world.stored()
        assert (stored.state, stored.last_entry_id) == (LedgerState.CLOSED, 0)
        assert world.ensembles(stored) == {0: "b1 b2 b4"}


async def test_close_fails_what_is_pending() -> None:
    async with World(3) as world:
        writer = await world.writer()
        world["b1"].hold = world["b2"].hold = True
        future = writer.append_nowait(b"xyz")
        await settle()
        await writer.close()
        with pytest.raises(LedgerClosedError):
            await future
        stored = await world.stored()
        assert (stored.last_entry_id, stored.length) == (-1, 0)


async def test_close_with_drain_awaits_what_is_pending() -> None:
    async with World(3, maxPendingAddEntries=2) as world:
        writer = await world.writer()
        for bookie in world.bookies.values():
            bookie.hold = True
        futures = [writer.append_nowait(b"x"), asyncio.ensure_future(writer.append(b"y"))]
        waiting = asyncio.ensure_future(writer.append(b"z"))
        await settle()
        closing = asyncio.ensure_future(writer.close(drain=True))
        await settle()
        with pytest.raises(LedgerClosedError):
            writer.append_nowait(b"late")
        assert not closing.done()
        for bookie in world.bookies.values():
            bookie.release()
        await closing
        assert await asyncio.gather(*futures, waiting) == [0, 1, 2]
        assert (await world.stored()).last_entry_id == 2


async def test_leaving_the_context_drains_and_leaving_it_by_an_error_does_not() -> None:
    async with World(3) as world:
        async with await world.writer() as writer:
            writer.append_nowait(b"x")
        assert (await world.stored(0)).last_entry_id == 0
        for bookie in world.bookies.values():
            bookie.hold = True
        futures = []

        async def fail_inside() -> None:
            async with await world.writer() as writer:
                futures.append(writer.append_nowait(b"x"))
                raise RuntimeError

        with pytest.raises(RuntimeError):
            await fail_inside()
        with pytest.raises(LedgerClosedError):
            await futures[0]
        assert (await world.stored(1)).last_entry_id == -1


async def test_leaving_the_context_reports_an_append_that_failed_unnoticed() -> None:
    async with World(3) as world:
        world["b1"].add_status = Status.EIO

        async def append_and_leave() -> None:
            async with await world.writer((3, 3, 3)) as writer:
                writer.append_nowait(b"x")

        with pytest.raises(NotEnoughBookiesError):
            await append_and_leave()
        assert (await world.stored()).closed


async def test_with_all_bookies_down_nothing_is_left_of_the_failed_append() -> None:
    """Scenario 26."""
    async with World(6) as world:
        writer = await world.writer((6, 3, 3))
        for bookie in world.bookies.values():
            bookie.down = True
        with pytest.raises(NotEnoughBookiesError):
            await writer.append(b"xyz")
        await writer.close()
        assert (writer.length, writer.last_add_confirmed) == (0, -1)
        stored = await world.stored()
        assert (stored.last_entry_id, stored.length) == (-1, 0)


@pytest.mark.parametrize(("status", "error"), [(Status.EUA, UnauthorizedError), (Status.EFENCED, LedgerFencedError)])
async def test_an_unrecoverable_answer_fails_every_pending_append_once(status: Status, error: type[BKError]) -> None:
    """Scenario 27."""
    async with World(3) as world:
        writer = await world.writer()
        await writer.append(b"four")
        world["b2"].add_status = status
        world["b3"].hold = True
        futures = [writer.append_nowait(b"pending") for _ in range(5)]
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert all(isinstance(result, error) for result in results)
        assert [result.entry_id for result in results if isinstance(result, BKError)] == [1, 2, 3, 4, 5]
        with pytest.raises(LedgerClosedError):
            await writer.append(b"later")
        await writer.close()
        stored = await world.stored()
        assert (stored.last_entry_id, stored.length) == (0, 4)


async def test_fenced_by_a_recovery_the_writer_accepts_its_result() -> None:
    async with World(3) as world:
        writer = await world.writer()
        await writer.append(b"x")
        await settle()
        recovered = await world.recover()
        assert recovered.last_entry_id == 0
        with pytest.raises(LedgerFencedError):
            await writer.append(b"y")
        await writer.close()  # closed at the same entry: fine
        assert (await world.stored()).last_entry_id == 0


async def test_a_recovery_against_a_busy_writer_leaves_no_append_unanswered() -> None:
    """Scenario 28: a hundred appends, and recovery begins after each of them."""
    for before in range(100):
        async with World(3) as world:
            writer = await world.writer()
            futures = [writer.append_nowait(b"x") for _ in range(before)]
            recovery = asyncio.ensure_future(world.recover())
            refused = 0
            for _ in range(before, 100):
                try:
                    futures.append(writer.append_nowait(b"x"))
                except LedgerClosedError:
                    refused += 1
                await asyncio.sleep(0)
            recovered = await recovery
            results = await asyncio.gather(*futures, return_exceptions=True)
            assert len(results) + refused == 100
            acked = [result for result in results if isinstance(result, int)]
            assert acked == list(range(len(acked)))
            assert all(isinstance(result, BKError) for result in results[len(acked) :])
            assert recovered.last_entry_id >= len(acked) - 1
            try:
                await writer.close()
            except MetadataVersionError:
                assert recovered.last_entry_id > len(acked) - 1
            else:
                assert recovered.last_entry_id == len(acked) - 1


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
    async with World(4, addEntryTimeoutSec=0.05) as world:
        writer = await world.writer((3, 3, 3))
        world["b2"].hold = True
        assert await writer.append(b"x") == 0
        assert world.ensembles(writer.metadata) == {0: "b1 b4 b3"}
        await writer.close()


async def test_a_bookie_that_is_late_with_an_acknowledged_entry_is_replaced_before_the_next() -> None:
    async with World(4, addEntryTimeoutSec=0.05) as world:
        writer = await world.writer()
        world["b3"].hold = True
        await writer.append(b"x")
        await until(lambda: world.pipeline(writer).keeper.delayed)
        assert world.ensembles(writer.metadata) == {0: "b1 b2 b3"}
        await writer.append(b"y")
        assert world.ensembles(writer.metadata) == {0: "b1 b2 b3", 1: "b1 b2 b4"}
        assert world["b3"].added() == []
        await writer.close()


async def test_the_first_append_after_a_pause_has_all_its_time() -> None:
    async with World(3, addEntryTimeoutSec=1, timeoutMonitorIntervalSec=0.1) as world:
        writer = await world.writer()
        for _ in range(2):
            world["b1"].hold = world["b2"].hold = True
            future = writer.append_nowait(b"x")
            await asyncio.sleep(0.5)  # several looks at the clock
            world["b1"].release()
            world["b2"].release()
            await future
            await asyncio.sleep(1.2)  # nothing to time: the clock stands still
        await writer.close()


async def test_time_in_which_the_machine_stood_still_is_not_held_against_the_bookies() -> None:
    async with World(3, addEntryTimeoutSec=1) as world:
        writer = await world.writer()
        for bookie in ("b1", "b2", "b3"):
            world[bookie].hold = True
        future = writer.append_nowait(b"x")
        await settle()
        time.sleep(2.2)  # noqa: ASYNC251 - nothing runs, neither the writer nor the bookies
        await settle()
        for bookie in ("b1", "b2", "b3"):
            world[bookie].release()
        assert await future == 0
        await writer.close()


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


# --- planted bugs ---


async def test_mu_5_planted_closes_at_the_last_push() -> None:
    async with World(3) as world:
        writer = await world.writer(rules=ProtocolRules(close_at_lac=False))
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
