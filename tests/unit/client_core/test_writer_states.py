"""A writer goes through the states of its table (`client.adds.life`), and does in each what the table's page says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bookkeeper.client.adds.life import WriterEvent, WriterState
from bookkeeper.errors import (
    ClientClosedError,
    IllegalOpError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataVersionError,
    ServiceUnavailable,
    ZKError,
)
from bookkeeper.protocol.messages import Status
from bookkeeper.runtime.transitions import ImpossibleTransitionError
from bookkeeper.types import LedgerState
from tests.support.fake_ensemble import World, settle


async def test_a_writer_that_is_closed_seals_its_ledger() -> None:
    async with World(3) as world:
        writer = await world.writer()
        assert writer._state is WriterState.OPEN
        world.hooks.block()
        closing = asyncio.ensure_future(writer.close())
        await settle()
        assert writer._state is WriterState.SEALING
        with pytest.raises(LedgerClosedError):
            await writer.append(b"x")
        world.hooks.unblock()
        await closing
        assert writer._state is WriterState.SEALED
        await writer.close(drain=True)
        assert writer._state is WriterState.SEALED


async def test_a_failure_seals_the_ledger_too() -> None:
    async with World(3) as world:
        writer = await world.writer()
        world["b1"].add_status = Status.EFENCED
        with pytest.raises(LedgerFencedError):
            await writer.append(b"x")
        await writer.wait_closed()
        assert writer._state is WriterState.SEALED


async def test_a_drain_that_is_cancelled_opens_the_writer_again() -> None:
    async with World(3) as world:
        writer = await world.writer()
        world["b1"].hold = world["b2"].hold = True
        future = writer.append_nowait(b"x")
        closing = asyncio.ensure_future(writer.close(drain=True))
        await settle()
        assert writer._state is WriterState.DRAINING
        with pytest.raises(LedgerClosedError):
            writer.append_nowait(b"y")
        closing.cancel()
        await settle()
        assert writer._state is WriterState.OPEN
        world["b1"].release()
        world["b2"].release()
        assert await future == 0
        await writer.close()


async def test_a_writer_whose_store_is_away_stays_unsealed_until_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with World(3) as world:
        writer = await world.writer()

        async def away(*_: object) -> Any:
            raise ServiceUnavailable("the store is away")

        with monkeypatch.context() as patch:
            patch.setattr(world.driver.ledgers, "write", away)
            for _ in range(2):
                with pytest.raises(ZKError):
                    await writer.close()
                assert writer._state is WriterState.UNSEALED
        await writer.close()
        assert writer._state is WriterState.SEALED


async def test_a_ledger_that_ended_elsewhere_is_contested() -> None:
    async with World(3) as world:
        writer = await world.writer()
        await world.change(lambda record: record.close(7, 70))
        for _ in range(2):
            with pytest.raises(MetadataVersionError):
                await writer.close()
            assert writer._state is WriterState.CONTESTED


async def test_a_writer_that_finds_its_ledger_in_recovery_withdraws() -> None:
    async with World(4) as world:
        writer = await world.writer((3, 3, 3))
        await world.change(lambda record: record.in_recovery())
        world["b1"].add_status = Status.EIO
        with pytest.raises(LedgerFencedError):
            await writer.append(b"x")
        assert writer._state is WriterState.WITHDRAWN
        with pytest.raises(LedgerFencedError):
            await writer.close(drain=True)
        assert (await world.stored()).state is LedgerState.IN_RECOVERY


async def test_a_close_that_ends_with_the_client_withdraws() -> None:
    async with World(3) as world:
        writer = await world.writer()
        world.hooks.block()
        closing = asyncio.ensure_future(writer.close())
        await settle()
        world.context.closed = True
        await world.tasks.close()
        with pytest.raises(ClientClosedError):
            await closing
        assert writer._state is WriterState.WITHDRAWN
        with pytest.raises(ClientClosedError):
            await writer.close()
        world.hooks.unblock()


async def test_a_writer_that_no_version_can_serve_ends_with_its_first_append(monkeypatch: pytest.MonkeyPatch) -> None:
    async with World(3) as world:

        def none(*_: object) -> int:
            raise IllegalOpError("write flags do not exist in protocol v2")

        monkeypatch.setattr(world.client, "add_version", none)
        writer = await world.writer()
        assert writer._state is WriterState.UNABLE
        with pytest.raises(IllegalOpError):
            await writer.append(b"x")
        await writer.wait_closed()
        assert writer._state is WriterState.SEALED
        with pytest.raises(LedgerClosedError):
            await writer.append(b"x")


async def test_what_must_not_happen_is_an_error() -> None:
    async with World(3) as world:
        writer = await world.writer()
        with pytest.raises(ImpossibleTransitionError, match="writer: 'stored' while open"):
            writer._happened(WriterEvent.STORED)
        await writer.close()


async def test_the_end_is_told_whatever_the_last_step_meets(monkeypatch: pytest.MonkeyPatch) -> None:
    async with World(3) as world:
        writer = await world.writer()
        said: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))

        def fails(_: object) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(writer, "adopt_metadata", fails)
        with pytest.raises(RuntimeError, match="a bug"):
            await writer.close()
        await asyncio.wait_for(writer.wait_closed(), 10)
        assert [str(context["exception"]) for context in said] == ["a bug"]
