"""Closing a writer, at handle level (spec client §8, §17.2)."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.errors import (
    BKError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataVersionError,
    NotEnoughBookiesError,
    UnauthorizedError,
)
from bookkeeper.protocol.messages import Status
from bookkeeper.types import LedgerState
from tests.support.fake_ensemble import World, settle
from tests.support.waiting import until


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
