"""Recovery at handle level (spec client §10, §17.5; safety §2.3). Numbers are those of the scenarios."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bookkeeper.client.recovery import recover_ledger
from bookkeeper.client.wire.calls import OnReply
from bookkeeper.errors import (
    BKError,
    LedgerClosedError,
    LedgerFencedError,
    NoSuchLedgerOnMetadataError,
    NotEnoughBookiesError,
    ReadError,
    RequestTimeoutError,
    UnauthorizedError,
    UnexpectedError,
)
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.protocol.messages import AddRequest, Flags, ReadRequest, Request, Status
from bookkeeper.types import BookieId, LedgerState
from tests.support.fake_ensemble import World, settle
from tests.support.planted_client import plant
from tests.support.waiting import until


def last(metadata: LedgerMetadata) -> tuple[int, int]:
    assert metadata.closed
    return metadata.last_entry_id, metadata.length


def put_on(world: World, bookies: str, entry_id: int, *, lac: int, size: int = 2) -> None:
    """Entry `entry_id` of a ledger whose entries have `size` bytes each."""
    for bookie in bookies.split():
        payload = (b"%d" % entry_id).rjust(size)
        world.put(bookie, entry_id, lac=lac, length=(entry_id + 1) * size, payload=payload)


async def test_the_worked_example() -> None:
    async with World(4) as world:
        await world.create((3, 3, 2))
        put_on(world, "b1 b2 b3", 0, lac=-1)
        put_on(world, "b1 b2 b3", 1, lac=0)
        put_on(world, "b2", 2, lac=1)
        world["b3"].down = True
        recovered = await world.recover()
        assert last(recovered) == (2, 6)
        assert world.ensembles(recovered) == {0: "b1 b2 b3", 2: "b1 b2 b4"}
        assert world.hooks.writes == 2
        for bookie in ("b1", "b2", "b4"):
            assert world.payload(bookie, 2) == b" 2"
        lac, length, _ = world.digest.verify(0, 2, world["b1"].entries[0, 2])
        assert (lac, length) == (1, 6)


async def test_66_an_empty_ledger_and_a_second_recovery() -> None:
    async with World(3) as world:
        await world.create((3, 3, 2))
        recovered = await world.recover()
        assert last(recovered) == (-1, 0)
        writes = world.hooks.writes
        assert await world.recover() == recovered
        assert world.hooks.writes == writes


async def test_every_read_of_recovery_fences_with_the_master_key() -> None:
    async with World(3) as world:
        await world.create((3, 3, 2))
        put_on(world, "b1", 0, lac=-1)
        await world.recover()
        reads = [r for b in world.bookies.values() for r in b.log if isinstance(r, ReadRequest)]
        assert all(read.flags & Flags.DO_FENCING and read.master_key == world.KEY for read in reads)
        assert all(read.flags & Flags.HIGH_PRIORITY for read in reads if read.entry_id >= 0)
        adds = [r for b in world.bookies.values() for r in b.log if isinstance(r, AddRequest)]
        assert all(add.flags == Flags.RECOVERY_ADD | Flags.HIGH_PRIORITY for add in adds)
        assert adds


async def test_59_when_all_bookies_fail_the_ledger_stays_in_recovery() -> None:
    async with World(3) as world:
        await world.create((3, 3, 2))
        for bookie in world.bookies.values():
            bookie.down = True
        with pytest.raises(ReadError):
            await world.recover()
        assert (await world.stored()).state is LedgerState.IN_RECOVERY
        for bookie in world.bookies.values():
            bookie.down = False
        assert last(await world.recover()) == (-1, 0)


async def test_60_and_68_without_bookies_for_the_write_back_recovery_fails_and_can_be_repeated() -> None:
    async with World(4) as world:
        world.placement.available.remove(BookieId("b4"))
        await world.create((3, 3, 3))
        put_on(world, "b1", 0, lac=-1)
        world["b2"].add_status = Status.EIO
        with pytest.raises(NotEnoughBookiesError):
            await world.recover()
        stored = await world.stored()
        assert stored.state is LedgerState.IN_RECOVERY
        assert world.ensembles(stored) == {0: "b1 b2 b3"}
        world.placement.available.append(BookieId("b4"))
        recovered = await world.recover()
        assert last(recovered) == (0, 2)
        assert world.ensembles(recovered) == {0: "b1 b4 b3"}


async def test_61_a_ledger_closed_by_somebody_during_the_write_back_is_adopted() -> None:
    async with World(3) as world:
        await world.create((3, 3, 2))
        put_on(world, "b1", 0, lac=-1)
        world["b1"].hold = world["b2"].hold = True
        recovery = asyncio.ensure_future(world.recover())
        await until(lambda: world["b1"].held)
        await world.change(lambda md: md.close(-1, 0))
        world["b1"].release()
        world["b2"].release()
        assert last(await recovery) == (-1, 0)


async def test_62_a_fragment_added_during_recovery_is_an_error() -> None:
    async with World(5) as world:
        await world.create((3, 3, 3))
        put_on(world, "b1", 0, lac=-1)
        world["b2"].add_status = Status.EIO
        world["b1"].hold = True
        recovery = asyncio.ensure_future(world.recover())
        await until(lambda: world["b1"].held)
        await world.change(lambda md: md.with_ensemble(1, (BookieId("b1"), BookieId("b3"), BookieId("b5"))))
        world["b1"].release()
        with pytest.raises(UnexpectedError):
            await recovery


@pytest.mark.parametrize(
    ("failing", "entries", "expected"),
    [("b2", 1, {0: "b1 b4 b3"}), ("b1 b2", 1, {0: "b4 b5 b3"}), ("b2", 3, {0: "b1 b4 b3"})],
)
async def test_63_bookies_that_fail_from_the_start_are_replaced_in_place(
    failing: str, entries: int, expected: dict[int, str]
) -> None:
    async with World(5) as world:
        await world.create((3, 3, 3))
        for entry in range(entries):
            put_on(world, "b1 b2 b3", entry, lac=-1)
        for bookie in failing.split():
            world[bookie].add_status = Status.EIO
        recovered = await world.recover()
        assert world.ensembles(recovered) == expected
        assert last(recovered) == (entries - 1, 2 * entries)


async def test_63_a_bookie_that_fails_later_makes_a_new_fragment() -> None:
    async with World(4) as world:
        await world.create((3, 3, 3))
        put_on(world, "b1 b2 b3", 0, lac=-1)
        put_on(world, "b1 b2 b3", 1, lac=-1)
        world["b2"].hold = True
        recovery = asyncio.ensure_future(world.recover())
        await until(lambda: len(world["b2"].held) == 2)
        (channel, zero), _ = world["b2"].held
        channel.answer([zero])
        await settle()
        channel.deliver([], [(1, -12)])
        recovered = await recovery
        assert last(recovered) == (1, 4)
        assert world.ensembles(recovered) == {0: "b1 b2 b3", 1: "b1 b4 b3"}


async def test_64_recovery_reads_fence_a_bookie_that_the_fencing_missed() -> None:
    """S-1, #2614. FX-1."""
    async with World(3) as world:
        writer = await world.writer()
        for payload in (b"0", b"1"):
            await writer.append(payload)
        await settle()
        world["b1"].hold = world["b2"].hold = True
        late = writer.append_nowait(b"2")
        await settle()
        world["b1"].hold = world["b2"].hold = False  # what they hold they keep
        assert world["b3"].ids() == [0, 1, 2]

        def lose_the_fence(request: ReadRequest) -> None:
            world["b2"].other_status = Status.EIO if request.entry_id < 0 else None

        def lose_the_entry(request: ReadRequest) -> None:
            world["b3"].other_status = Status.EIO if request.entry_id == 2 else None

        world["b2"].on_read, world["b3"].on_read = lose_the_fence, lose_the_entry
        recovered = await world.recover()
        assert last(recovered) == (1, 2)
        world["b2"].release()
        with pytest.raises(LedgerFencedError):
            await late
        await writer.close()
        assert writer.last_add_confirmed == 1


async def s_1() -> tuple[int, bool]:
    """Scenario S-1: the fence of b3 is lost, e0 reaches b2 in time and b3 too late. Last entry; was e0 acknowledged?"""
    async with World(3) as world:
        writer = await world.writer()
        world["b1"].hold = world["b3"].hold = True
        future = writer.append_nowait(b"0")
        await settle()
        assert world["b2"].ids() == [0]
        world["b1"].held.clear()  # lost

        def lose_the_fence(request: ReadRequest) -> None:
            world["b3"].other_status = Status.EIO if request.entry_id < 0 else None

        world["b3"].on_read = lose_the_fence
        world["b2"].on_read = lambda request: setattr(
            world["b2"], "other_status", Status.EIO if request.entry_id >= 0 else None
        )
        recovered = await world.recover()
        world["b3"].release()
        await settle()
        acked = future.done() and future.exception() is None
        try:
            await writer.close()
        except BKError:
            assert acked
        return recovered.last_entry_id, acked


async def test_s_1_without_fencing_reads_an_acknowledged_entry_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "fencing_reads")
    assert await s_1() == (-1, True)


async def test_s_1_with_fencing_reads_the_late_add_is_refused() -> None:
    """FX-1."""
    assert await s_1() == (-1, False)


async def test_65_reading_starts_at_the_last_fragment() -> None:
    """S-2, #2615. FX-2."""
    async with World(4) as world:
        await world.create((2, 2, 2))
        await world.change(lambda md: md.with_ensemble(1, (BookieId("b1"), BookieId("b3"))))
        world.put("b1", 0, lac=-1, length=1, payload=b"0")
        world.put("b2", 0, lac=-1, length=1, payload=b"0")
        world.put("b1", 1, lac=-1, length=2, payload=b"1")
        world["b3"].down = True
        world.placement.available.remove(BookieId("b2"))
        recovered = await world.recover()
        assert last(recovered) == (1, 2)
        assert world.ensembles(recovered) == {0: "b1 b2", 1: "b1 b4"}
        assert world.payload("b4", 1) == b"1"


async def test_67_a_wrong_password_is_noticed_by_the_bookies() -> None:
    async with World(3) as world:
        await world.create((3, 3, 2))
        for bookie in world.bookies.values():
            bookie.other_status = Status.EUA
        with pytest.raises(UnauthorizedError):
            await world.recover()
        for bookie in world.bookies.values():
            bookie.other_status = None
        assert last(await world.recover()) == (-1, 0)


@pytest.mark.parametrize("batch", [1, 3, 13])
async def test_70_long_tails_are_recovered_in_order(batch: int) -> None:
    async with World(3, recoveryReadBatchSize=batch) as world:
        await world.create((3, 3, 2))
        for entry in range(53):
            put_on(world, "b1 b2" if entry % 2 else "b2 b3", entry, lac=-1)
        recovered = await world.recover()
        assert last(recovered) == (52, 106)
        for bookie in ("b1", "b2", "b3"):
            assert world[bookie].added() == list(range(53))
            assert [world.payload(bookie, e) for e in range(53)] == [b"%2d" % e for e in range(53)]


async def test_71_a_stray_entry_behind_the_end_stays_behind() -> None:
    async with World(1, recoveryReadBatchSize=10) as world:
        await world.create((1, 1, 1))
        for entry in [*range(10), 14]:
            put_on(world, "b1", entry, lac=entry - 1 if entry < 5 else 3)
        assert last(await world.recover()) == (9, 20)


async def test_72_a_bookie_replaced_while_entries_are_in_flight_changes_the_metadata_once() -> None:
    async with World(4, recoveryReadBatchSize=5) as world:
        await world.create((3, 3, 3))
        for entry in range(10):
            put_on(world, "b1 b2 b3", entry, lac=-1)
        world["b2"].hold = True
        recovery = asyncio.ensure_future(world.recover())
        await until(lambda: len(world["b2"].held) >= 5)
        world["b2"].refuse_held(Status.EIO)
        recovered = await recovery
        assert last(recovered) == (9, 20)
        assert world.ensembles(recovered) == {0: "b1 b4 b3"}
        assert world["b4"].ids() == list(range(10))
        assert world.hooks.writes == 2


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("at", ["start", "fencing", "write-back", "close"])
async def test_73_a_version_bumped_meanwhile_is_no_obstacle(at: str, others: int) -> None:
    """Somebody writes the record again before it says IN_RECOVERY, while bookies are fenced, while an entry is
    written back, or when all is done but the close."""
    async with World(3, speculativeReadTimeout=0) as world:
        await world.create((3, 3, 2))
        put_on(world, "b1 b2", 0, lac=-1)
        holds = at in ("write-back", "close")
        world["b1"].hold = world["b2"].hold = holds
        stalled: list[Callable[[], None]] = []
        call = world.client.call

        def stalling(bookie: BookieId, message: Request, timeout: float | None, done: OnReply) -> None:
            if at == "fencing":
                stalled.append(lambda: call(bookie, message, timeout, done))
            else:
                call(bookie, message, timeout, done)

        world.client.call = stalling  # type: ignore[method-assign]
        if at == "start":
            world.hooks.block()
        recoveries = [asyncio.ensure_future(world.recover()) for _ in range(1 + others)]
        if at == "start":
            await until(lambda: world.hooks.waiting == 1 + others)
        elif at == "fencing":
            await until(lambda: len(stalled) == 3 * (1 + others))
        else:
            await until(lambda: len(world["b1"].held) == len(world["b2"].held) == 1 + others)
        if at == "close":
            world.hooks.block()
            world["b1"].release()
            world["b2"].release()
            await until(lambda: world.hooks.waiting == 1 + others)
        bumped = (await world.other.ledgers.read(0)).version
        await world.change(lambda md: md.with_ensemble(0, md.ensembles[0]))
        world.hooks.unblock()
        world.client.call = call  # type: ignore[method-assign]
        for send in stalled:
            send()
        world["b1"].release()
        world["b2"].release()
        assert [last(await recovery) for recovery in recoveries] == [(0, 2)] * (1 + others)
        assert last(await world.stored()) == (0, 2)
        assert (await world.other.ledgers.read(0)).version > bumped + 1


async def test_74_a_writer_that_closes_first_is_adopted() -> None:
    async with World(3) as world:
        writer = await world.writer()
        await writer.append_many([b"0", b"1"])
        world["b1"].hold = world["b2"].hold = True
        futures = [writer.append_nowait(b"x") for _ in range(3)]
        await settle()
        before = await world.driver.ledgers.read(0)
        assert before.value.state is LedgerState.OPEN
        await writer.close()
        # The recoverer read the open record, and its first write comes only now.
        recovered = await recover_ledger(world.context, before, world.digest, world.KEY)
        assert last(recovered.value) == (1, 2)
        for future in futures:
            with pytest.raises(LedgerClosedError):
                await future
        assert world["b3"].ids() == [0, 1, 2, 3, 4]
        assert not any(bookie.fenced for bookie in world.bookies.values())
        lacs = [world.digest.verify(0, e, data)[0] for (_, e), data in world["b3"].entries.items()]
        assert max(lacs) == 1


async def test_77_a_deleted_ledger_cannot_be_recovered() -> None:
    async with World(3) as world:
        await world.create((3, 3, 2))
        current = await world.driver.ledgers.read(0)
        await world.other.ledgers.remove(0)
        with pytest.raises(NoSuchLedgerOnMetadataError):
            await recover_ledger(world.context, current, world.digest, world.KEY)


async def test_78_ten_recoveries_at_once_agree() -> None:
    async with World(4) as world:
        writer = await world.writer()
        futures = [writer.append_nowait(b"xy") for _ in range(10)]
        results = await asyncio.gather(*(world.recover() for _ in range(10)), return_exceptions=True)
        closed = [result for result in results if isinstance(result, LedgerMetadata)]
        assert len(closed) == 10
        assert len({last(metadata) for metadata in closed}) == 1
        acked = [r for r in await asyncio.gather(*futures, return_exceptions=True) if isinstance(r, int)]
        assert len(acked) - 1 <= closed[0].last_entry_id
        try:
            await writer.close()
        except BKError:
            assert writer.last_add_confirmed == closed[0].last_entry_id


async def test_79_a_hanging_bookie_does_not_stop_the_fencing() -> None:
    """FX-10, LV-3."""
    async with World(3, speculativeReadTimeout=10, maxSpeculativeReadTimeout=10) as world:
        await world.create((3, 3, 2))
        put_on(world, "b1 b2", 0, lac=-1)
        world["b3"].silent = True
        assert last(await world.recover()) == (0, 2)


async def test_51_a_stalled_replica_is_not_waited_for_when_the_end_is_proved() -> None:
    """FX-10, LV-3."""
    async with World(3, speculativeReadTimeout=10, maxSpeculativeReadTimeout=10) as world:
        await world.create((3, 3, 2))
        world["b1"].silent = True  # first in the order for entry 0
        assert last(await world.recover()) == (-1, 0)


async def test_timeouts_of_fencing_are_reported_as_such() -> None:
    async with World(3) as world:
        await world.create((3, 3, 2))
        real = world.client.call

        def timing_out(bookie, message, timeout, done):  # type: ignore[no-untyped-def]
            if bookie == "b1":
                real(bookie, message, timeout, done)
            else:
                asyncio.get_running_loop().call_soon(done, RequestTimeoutError.code, None)

        world.client.call = timing_out  # type: ignore[method-assign]
        with pytest.raises(RequestTimeoutError):
            await world.recover()


async def test_a_damaged_copy_is_passed_over() -> None:
    async with World(3) as world:
        await world.create((3, 3, 2))
        put_on(world, "b1 b2 b3", 0, lac=-1)
        damaged = bytearray(world["b1"].entries[0, 0])
        damaged[-1] ^= 1
        world["b1"].entries[0, 0] = bytes(damaged)
        assert last(await world.recover()) == (0, 2)
        assert world.payload("b1", 0) == b" 0"  # and repaired by the write-back


async def test_limbo_bookies_do_not_truncate() -> None:
    """S-5: b1 lost e0 and is in limbo, b2 never had it, b3 must be heard."""
    async with World(3) as world:
        await world.create((3, 3, 2))
        put_on(world, "b3", 0, lac=-1)
        world["b1"].other_status = Status.EUNKNOWNLEDGERSTATE
        assert last(await world.recover()) == (0, 2)
        assert world.payload("b2", 0) == b" 0"


async def test_the_length_is_right_when_nothing_had_to_be_read_back() -> None:
    async with World(3) as world:
        writer = await world.writer()
        await writer.append_many([b"four"] * 3)
        await settle()
        # The writer told its LAC without an entry: the fencing answers' LAC is that of entry 2's record, 1.
        put_on(world, "b1 b2 b3", 3, lac=2)
        for bookie in world.bookies.values():
            lost = bookie.entries.pop((0, 3))
            bookie.on_read = lambda request, b=bookie, e=lost: (  # type: ignore[misc]
                b.entries.__setitem__((0, 3), e) if request.entry_id == -1 else b.entries.pop((0, 3), None)
            )
        recovered = await world.recover()
        assert last(recovered) == (2, 12)
        with pytest.raises(LedgerFencedError):
            await writer.append(b"x")
        await writer.close()


async def test_v3_adds_write_back_too() -> None:
    async with World(3) as world:
        world.client.protocol = "v3"
        await world.create((3, 3, 2))
        put_on(world, "b1", 0, lac=-1)
        assert last(await world.recover()) == (0, 2)
        (add,) = [request for request in world["b3"].log if isinstance(request, AddRequest)]
        assert add.flags & Flags.RECOVERY_ADD


async def test_a_cancelled_recovery_leaves_the_ledger_in_recovery() -> None:
    async with World(3) as world:
        await world.create((3, 3, 2))
        put_on(world, "b1", 0, lac=-1)
        world["b1"].hold = world["b2"].hold = True
        recovery = asyncio.ensure_future(world.recover())
        await until(lambda: world["b1"].held)
        recovery.cancel()
        await asyncio.wait([recovery])
        assert (await world.stored()).state is LedgerState.IN_RECOVERY
        world["b1"].release()
        world["b2"].release()
        assert last(await world.recover()) == (0, 2)


@pytest.mark.parametrize("planted", [False, True])
async def test_s_11_an_attempt_that_dies_leaves_no_trace_unless_mu_13_is_planted(
    planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if planted:
        plant(monkeypatch, "recovered_ensembles_in_memory")
    async with World(4) as world:
        await world.create((2, 2, 2))
        put_on(world, "b1 b2", 0, lac=-1)
        world["b2"].add_status = Status.EIO
        world["b3"].hold = True
        recovery = asyncio.ensure_future(world.recover())
        await until(lambda: world["b3"].held)
        await settle()
        recovery.cancel()
        await asyncio.wait([recovery])
        world["b3"].held.clear()
        stored = world.ensembles(await world.stored())
        assert stored == ({0: "b1 b3"} if planted else {0: "b1 b2"})
        for bookie in world.bookies.values():
            bookie.add_status = None
            bookie.release()
        if planted:
            world["b3"].entries.clear()
            world["b1"].other_status = Status.EIO  # the second recoverer hears b3, which denies e0
            assert last(await world.recover()) == (-1, 0)
        else:
            assert last(await world.recover()) == (0, 2)
