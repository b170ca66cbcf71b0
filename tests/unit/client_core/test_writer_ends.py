"""How a writer ends, and that everybody who waits for it is told (spec client §5.6, §8, §12.7, scenario 97)."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from bookkeeper.client.adds.life import WriterState
from bookkeeper.client.adds.pipeline import AddPipeline
from bookkeeper.client.writer import LedgerWriter
from bookkeeper.errors import (
    BKError,
    ClientClosedError,
    LedgerClosedError,
    LedgerFencedError,
    NotEnoughBookiesError,
    ServiceUnavailable,
    UnexpectedError,
    ZKError,
)
from bookkeeper.protocol.messages import Status
from bookkeeper.types import BookieId, LedgerState
from tests.support.fake_bookie import FakeCluster, fake_cluster
from tests.support.fake_ensemble import StoreHooks, World, settle
from tests.support.waiting import until

# --- the client is closed ---


async def test_a_change_of_the_ensemble_that_is_cancelled_tells_everybody() -> None:
    async with World(4, maxPendingAddEntries=3) as world:
        writer = await world.writer((3, 3, 3))
        world.hooks.block()
        world["b1"].add_status = Status.EIO
        waiting = [
            asyncio.ensure_future(work)
            for work in (
                writer.append(b"x"),
                writer.append_many([b"y"] * 10),
                writer.append(b"at the gate"),
                writer.flush(),
            )
        ]
        await until(lambda: world.hooks.waiting)
        world.context.closed = True
        await world.tasks.close()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [ClientClosedError] * 4
        await writer.wait_closed()
        assert writer.failure is None
        with pytest.raises(ClientClosedError):
            await writer.append(b"later")
        with pytest.raises(ClientClosedError):
            await writer.close()
        world.hooks.unblock()
        assert (await world.stored()).state is LedgerState.OPEN


class SlowStore(StoreHooks):
    """Writes of ledger records wait for ever."""

    async def before(self, client: str, operation: str) -> None:
        if operation == "ledgers.write":
            self.waiting += 1
            await asyncio.Event().wait()


async def test_closing_the_client_ends_whatever_waits_for_a_writer() -> None:
    """Also entries that all bookies have, but that wait behind a gap or for an ensemble change."""
    async with fake_cluster(4) as cluster:
        client = await cluster.connect()
        writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3)
        advanced = await client.create_ledger_adv(ensemble_size=3, write_quorum=3, ack_quorum=3)
        await writer.append(b"0")
        behind_a_gap = advanced.write_nowait(1, b"x")
        waiting = [asyncio.ensure_future(advanced.flush())]
        await until(lambda: len(advanced._adds.window.acked(1)) == 3)
        slow = SlowStore()
        _store(cluster).faults = slow
        bad = cluster.ensemble(writer.metadata.last_ensemble[1])[0]
        bad.on_request = lambda _: Status.EIO
        waiting += [asyncio.ensure_future(writer.append(b"1")), asyncio.ensure_future(writer.flush())]
        waiting += [asyncio.ensure_future(writer.append_many([b"2", b"3"]))]
        await until(lambda: slow.waiting)
        await client.close()
        results = await asyncio.gather(behind_a_gap, *waiting, return_exceptions=True)
        assert [type(result) for result in results] == [ClientClosedError] * 5
        _store(cluster).faults = StoreHooks()


def _store(cluster: FakeCluster) -> Any:
    return cluster.driver.store  # type: ignore[attr-defined]


# --- failures ---


async def test_the_failure_that_ended_a_writer_is_kept() -> None:
    async with World(3) as world:
        writer = await world.writer()
        assert await writer.append(b"x") == 0
        assert writer.failure is None
        ended = asyncio.ensure_future(writer.wait_closed())
        world["b1"].add_status = Status.EFENCED
        with pytest.raises(LedgerFencedError):
            await writer.append(b"y")
        await ended
        assert isinstance(writer.failure, LedgerFencedError)
        assert writer.failure.entry_id == 1
        for attempt in (writer.append(b"z"), writer.append_many([b"z"]), writer.force()):
            with pytest.raises(LedgerClosedError) as caught:
                await attempt
            assert caught.value.__cause__ is writer.failure
        await writer.close()  # closed where this writer would have closed it: fine


async def test_a_writer_closed_by_its_user_has_no_failure() -> None:
    async with World(3) as world:
        writer = await world.writer()
        await writer.close()
        await writer.wait_closed()
        assert writer.failure is None
        with pytest.raises(LedgerClosedError) as caught:
            await writer.append(b"x")
        assert caught.value.__cause__ is None


async def test_append_many_raises_the_error_of_the_first_that_failed() -> None:
    async with World(3, maxPendingAddEntries=4) as world:
        writer = await world.writer()
        world["b1"].hold = world["b2"].hold = True
        appending = asyncio.ensure_future(writer.append_many([b"x"] * 100))
        await settle()
        world["b1"].refuse_held(Status.EFENCED)
        with pytest.raises(LedgerFencedError) as caught:
            await appending
        assert caught.value.entry_id == 0
        await writer.close()


async def test_errors_that_are_raised_again_are_new_ones() -> None:
    async with World(3) as world:
        writer = await world.writer()
        await world.change(lambda record: record.close(7, 70))
        errors: list[BKError] = []
        for _ in range(3):
            with pytest.raises(BKError) as caught:
                await writer.close()
            errors.append(caught.value)
        assert len({id(error) for error in errors}) == 3
        assert len({str(error) for error in errors}) == 1


async def test_an_error_in_a_placement_policy_ends_the_writer_and_tells_everybody() -> None:
    async with World(4, enforceMinNumFaultDomainsForWrite=True) as world:

        def raises(_acked: object) -> bool:
            raise KeyError("nobody expects this")

        world.placement.spans = raises
        writer = await world.writer()
        futures = [writer.append_nowait(b"x") for _ in range(3)]
        for future in futures:
            with pytest.raises(UnexpectedError):
                await future
        assert isinstance(writer.failure, UnexpectedError)
        await writer.close()


@pytest.mark.parametrize("error", [KeyError("nobody expects this"), NotEnoughBookiesError(), UnexpectedError()])
async def test_an_error_in_a_placement_policy_ends_a_recovery(error: Exception) -> None:
    async with World(4) as world:
        await world.create((3, 3, 3))
        world.put("b1", 0, lac=-1, length=1, payload=b"x")
        world["b2"].add_status = Status.EIO

        def replace(*_: object) -> BookieId:
            raise error

        world.placement.replace = replace  # type: ignore[method-assign]
        with pytest.raises(BKError):
            await world.recover()
        assert (await world.stored()).state is LedgerState.IN_RECOVERY


async def test_an_error_in_the_read_order_of_a_policy_ends_a_recovery() -> None:
    async with World(3, reorderReadSequenceEnabled=True) as world:
        await world.create((3, 3, 2))

        def reorder(*_: object) -> tuple[int, ...]:
            raise KeyError("nobody expects this")

        world.placement.reorder_read = reorder  # type: ignore[method-assign]
        with pytest.raises(UnexpectedError):
            await world.recover()


# --- close ---


async def test_a_close_that_failed_because_the_store_was_away_can_be_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with World(3) as world:
        writer = await world.writer()
        await writer.append(b"x")

        async def away(*_: object) -> Any:
            raise ServiceUnavailable("the store is away")

        with monkeypatch.context() as patch:
            patch.setattr(world.driver.ledgers, "write", away)
            for _ in range(2):
                with pytest.raises(ZKError):
                    await writer.close()
        await writer.close()
        await writer.close()
        assert world.hooks.writes == 1
        assert (await world.stored()).last_entry_id == 0


async def test_a_drain_that_is_cancelled_leaves_the_writer_as_it_was() -> None:
    async with World(3) as world:
        writer = await world.writer()
        world["b1"].hold = world["b2"].hold = True
        future = writer.append_nowait(b"x")
        closes = [asyncio.ensure_future(writer.close(drain=True)) for _ in range(2)]
        await settle()
        closes[0].cancel()
        await settle()
        with pytest.raises(LedgerClosedError):  # the other one still drains
            writer.append_nowait(b"y")
        closes[1].cancel()
        await settle()
        later = writer.append_nowait(b"y")
        world["b1"].release()
        world["b2"].release()
        assert await asyncio.gather(future, later) == [0, 1]
        await writer.close()
        assert (await world.stored()).last_entry_id == 1


async def test_leaving_the_context_by_cancellation_while_it_drains_seals_the_ledger() -> None:
    async with World(3) as world:
        world["b1"].hold = world["b2"].hold = True
        writers: list[LedgerWriter] = []

        async def write() -> None:
            async with await world.writer() as writer:
                writers.append(writer)
                writer.append_nowait(b"x")

        task = asyncio.ensure_future(write())
        await settle()
        assert writers[0]._state is WriterState.DRAINING
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert writers[0].closed
        stored = await world.stored()
        assert (stored.state, stored.last_entry_id) == (LedgerState.CLOSED, -1)


# --- what is left behind ---


async def test_cancelled_flushes_and_waiters_are_not_kept() -> None:
    async with World(3, maxPendingAddEntries=1) as world:
        writer = await world.writer()
        world["b1"].hold = world["b2"].hold = True
        future = writer.append_nowait(b"x")
        for _ in range(5):
            tasks = [asyncio.ensure_future(work) for work in (writer.flush(), writer.append(b"y"))]
            await settle()
            for task in tasks:
                task.cancel()
            await settle()
        assert not world.pipeline(writer)._flushes.waiting
        assert len(world.pipeline(writer).window.open) == 1  # the one append that is pending
        assert not writer._appending.gate.waiting
        world["b1"].release()
        world["b2"].release()
        assert await future == 0
        await writer.close()


async def test_while_changes_are_disabled_appends_start_no_timers() -> None:
    async with World(4) as world:
        writer = await world.writer()
        world["b3"].hold = True
        await writer.append(b"x")
        world["b3"].time_out()
        assert world.pipeline(writer).keeper.delayed
        world.context.ensemble_change_disabled = True
        timers: list[object] = []
        world.runtime.call_later = lambda *args: timers.append(args)  # type: ignore[assignment, return-value, method-assign]
        for _ in range(10):
            await writer.append(b"y")
        assert not timers
        world.context.ensemble_change_disabled = False
        await writer.append(b"z")
        assert world.ensembles(writer.metadata) == {0: "b1 b2 b3", 11: "b1 b2 b4"}
        await writer.close()


def drop(holder: list[LedgerWriter]) -> None:
    """Nobody has the writer any more, and that is noticed."""
    holder.clear()
    gc.collect()


async def test_a_writer_dropped_on_another_thread_is_abandoned_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async with World(3) as world:
        writer = await world.writer()
        world.pipeline(writer)
        threads: list[threading.Thread] = []
        stop = AddPipeline.stop

        def watched(pipeline: AddPipeline, code: int) -> None:
            threads.append(threading.current_thread())
            stop(pipeline, code)

        monkeypatch.setattr(AddPipeline, "stop", watched)
        holder = [writer]
        del writer
        with pytest.warns(ResourceWarning):
            await asyncio.to_thread(drop, holder)
        await until(lambda: threads)
        assert threads == [threading.main_thread()]


async def test_an_abandoned_pipeline_ends_with_its_last_answer() -> None:
    async with World(3) as world:
        writer = await world.writer()
        for bookie in world.bookies.values():
            bookie.hold = True
        future = writer.append_nowait(b"x")
        await settle()
        pipeline = world.pipeline(writer)
        holder = [writer]
        del writer
        with pytest.warns(ResourceWarning):
            drop(holder)
        await settle()
        assert pipeline.stopped is None
        for bookie in world.bookies.values():
            bookie.release()
        assert await future == 0
        await until(lambda: pipeline.stopped is not None)
