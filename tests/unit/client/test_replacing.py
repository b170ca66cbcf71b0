"""A writer that looks for a bookie in the place of one that failed."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.metadata.api import Mode, Versioned
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.protocol.messages import AddRequest
from tests.support.fake_bookie import CLOSE, fake_cluster


async def test_a_bookie_that_comes_while_one_is_replaced_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch tells of it after none was found, and before the list is read once more: it is news all the same."""
    async with fake_cluster(4) as cluster:
        await cluster.unregister(cluster.bookies[3])
        client = await cluster.connect()
        bookies, ledgers = client.context.placement.bookies, client.context.driver.ledgers
        assert len(bookies.writable) == 3
        read = ledgers.read

        async def read_late(ledger_id: int) -> Versioned[LedgerMetadata]:
            await cluster.register(cluster.bookies[3], Mode.WRITABLE)
            while len(bookies.writable) < 4:
                await bookies.changed(bookies.writable)
            return await read(ledger_id)

        async with await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"p") as writer:
            await writer.append(b"0")
            monkeypatch.setattr(ledgers, "read", read_late)
            cluster.bookies[0].on_request = lambda request: CLOSE if isinstance(request, AddRequest) else None
            assert [await writer.append(b"more") for _ in range(20)] == list(range(1, 21))
            while cluster.bookies[3].id not in writer.metadata.last_ensemble[1]:
                await asyncio.sleep(0)
