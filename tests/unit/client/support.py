"""Ledgers put onto fake bookies without a writer: exactly the entries a test wants, where it wants them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from bookkeeper.client.client import BookKeeper
from bookkeeper.client.reader import LedgerReader
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.protocol.digest import digest_for
from bookkeeper.protocol.messages import BatchReadRequest, ReadRequest, Status
from bookkeeper.quorum.distribution import Distribution
from bookkeeper.types import BookieId, DigestType, LedgerState
from tests.support.fake_bookie import FakeBookie, FakeCluster, Fault

PASSWORD = b"s"
DIGEST = digest_for(DigestType.CRC32C, PASSWORD)
PROTOCOLS = pytest.mark.parametrize("protocol", ["auto", "v2", "v3"])


def refuse(status: Status | Fault, *kinds: type) -> object:
    wanted = kinds or (ReadRequest, BatchReadRequest)
    return lambda request: status if isinstance(request, wanted) else None


def stop_reads(bookie: FakeBookie, how: Status | Fault) -> None:
    bookie.on_request = refuse(how)  # type: ignore[assignment]


def payload(entry_id: int) -> bytes:
    return b"entry %d" % entry_id


def package(ledger_id: int, entry_id: int, lac: int | None = None) -> bytes:
    length = sum(len(payload(i)) for i in range(entry_id + 1))
    return DIGEST.package(ledger_id, entry_id, entry_id - 1 if lac is None else lac, length, payload(entry_id))


class Ledger:
    """A ledger on fake bookies. `bookies` is the ensemble."""

    def __init__(self, cluster: FakeCluster, metadata: LedgerMetadata) -> None:
        self.cluster = cluster
        self.id = metadata.ledger_id
        self.metadata = metadata
        self.bookies = cluster.ensemble(metadata.last_ensemble[1])
        self.distribution = Distribution(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)

    def replicas(self, entry_id: int) -> list[FakeBookie]:
        """The bookies of an entry in the order they are asked."""
        members = self.cluster.ensemble(self.metadata.ensemble_at(entry_id))
        return [members[index] for index in self.distribution.write_set(entry_id)]

    def put(self, entry_ids: Iterable[int]) -> None:
        for entry_id in entry_ids:
            for bookie in self.replicas(entry_id):
                bookie.put(package(self.id, entry_id))

    def corrupt(self, bookie: FakeBookie, entry_id: int) -> None:
        entry = bookie.ledger(self.id).entries[entry_id]
        bookie.ledger(self.id).entries[entry_id] = entry[:-1] + bytes([entry[-1] ^ 1])

    def put_sizes(self, sizes: Sequence[int]) -> None:
        """Entries with payloads of these sizes instead."""
        length = 0
        for entry_id, size in enumerate(sizes):
            length += size
            for bookie in self.replicas(entry_id):
                bookie.put(DIGEST.package(self.id, entry_id, entry_id - 1, length, bytes(size)))

    async def open(self, client: BookKeeper, *, recover: bool = False, **options: Any) -> LedgerReader:
        return await client.open_ledger(self.id, password=PASSWORD, recover=recover, **options)


async def make_ledger(
    cluster: FakeCluster,
    count: int = 0,
    *,
    closed: bool = True,
    quorums: tuple[int, int, int] = (3, 3, 2),
    ensembles: dict[int, Sequence[FakeBookie]] | None = None,
    sizes: Sequence[int] | None = None,
) -> Ledger:
    """A ledger with `count` entries (or with payloads of these sizes), closed behind them or open."""
    if sizes is not None:
        count = len(sizes)
    members: dict[int, tuple[BookieId, ...]] = {
        first: tuple(bookie.id for bookie in bookies)
        for first, bookies in (ensembles or {0: cluster.bookies[: quorums[0]]}).items()
    }
    ledger_id = await cluster.driver.ids.allocate()
    metadata = LedgerMetadata(
        ledger_id,
        *quorums,
        members,
        password=PASSWORD,
        state=LedgerState.CLOSED if closed else LedgerState.OPEN,
        last_entry_id=count - 1 if closed else -1,
        length=sum([len(payload(i)) for i in range(count)] if sizes is None else sizes) if closed else 0,
    )
    await cluster.driver.ledgers.create(ledger_id, metadata)
    ledger = Ledger(cluster, metadata)
    if sizes is None:
        ledger.put(range(count))
    else:
        ledger.put_sizes(sizes)
    return ledger


async def eventually(condition: Callable[[], object], timeout: float = 20.0) -> None:
    """Wait until `condition` is true."""
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.005)
