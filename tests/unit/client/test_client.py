"""Creating, opening, deleting, listing; the life of a client (spec client §3, §10.1, §12)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

import bookkeeper
from bookkeeper.client.client import BookieInfo
from bookkeeper.client.writer import LedgerWriter
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import (
    ClientClosedError,
    ConfigurationError,
    DigestMismatchError,
    IllegalOpError,
    IncorrectParameterError,
    LedgerExistError,
    LedgerExists,
    LedgerFencedError,
    LedgerIdOverflow,
    LedgerIdOverflowError,
    LedgerRecoveryError,
    MetadataStoreError,
    MetadataVersionError,
    NoSuchLedgerError,
    NoSuchLedgerOnMetadataError,
    NotEnoughBookiesError,
    ServiceUnavailable,
    UnauthorizedError,
    VersionConflict,
    ZKError,
)
from bookkeeper.metadata import open_driver
from bookkeeper.metadata.api import Mode
from bookkeeper.metadata.memory import MemoryDriver, MemoryStore, StoreFaults
from bookkeeper.protocol.messages import GetBookieInfoRequest, ReadRequest, Request, Status
from bookkeeper.types import BookieId, DigestType, LedgerState, WriteFlag
from tests.support.fake_bookie import SILENT, FakeCluster

from .support import eventually, make_ledger, payload

SHAPE: dict[str, Any] = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}


async def test_the_front_page_example(cluster: FakeCluster) -> None:
    async with bookkeeper.connect(runtime=cluster.runtime, driver=cluster._new_driver()) as bk:
        async with bk.create_ledger(**SHAPE, password=b"s") as ledger:
            assert await ledger.append(b"hello") == 0
        async with bk.open_ledger(ledger.id, password=b"s") as reader:
            assert [(entry.id, entry.data) async for entry in reader] == [(0, b"hello")]


@pytest.mark.parametrize("digest", list(DigestType))
@pytest.mark.parametrize("protocol", ["auto", "v2", "v3"])
async def test_every_digest_in_every_protocol(cluster: FakeCluster, digest: DigestType, protocol: str) -> None:
    client = await cluster.connect(protocol=protocol)
    async with client.create_ledger(**SHAPE, password=b"s", digest=digest) as writer:
        await writer.append_many([payload(i) for i in range(30)])
    reader = await client.open_ledger(writer.id, password=b"s")
    assert [entry.data async for entry in reader] == [payload(i) for i in range(30)]
    assert [entry.data for entry in await reader.read(0, 29)] == [payload(i) for i in range(30)]


@pytest.mark.parametrize("shape", [(2, 3, 2), (3, 2, 3), (3, 3, 0), (3, 0, 0), (0, 0, 0)])
async def test_quorums_must_descend(cluster: FakeCluster, shape: tuple[int, int, int]) -> None:
    client = await cluster.connect()
    with pytest.raises(IncorrectParameterError):
        await client.create_ledger(ensemble_size=shape[0], write_quorum=shape[1], ack_quorum=shape[2])
    with pytest.raises(IncorrectParameterError):
        await client.create_ledger(password="text")  # type: ignore[arg-type]


async def test_what_a_new_ledger_has(cluster: FakeCluster) -> None:
    """ACT-1."""
    client = await cluster.connect(ledgerMetadataVersion=2, storeSystemTimeAsLedgerCreationTime=True)
    writer = await client.create_ledger(**SHAPE, password=b"s", custom_metadata={"a": b"b"})
    metadata = await client.get_ledger_metadata(writer.id)
    assert metadata.state is LedgerState.OPEN
    assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (3, 3, 2)
    assert metadata.custom_metadata == {"a": b"b"}
    assert metadata.digest_type is DigestType.CRC32C
    assert metadata.format_version == 2
    assert metadata.ctime > 0
    assert not await client.is_closed(writer.id)
    await writer.close()
    assert await client.is_closed(writer.id)
    assert b"password" not in repr(metadata).encode()


async def test_too_few_bookies(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    with pytest.raises(NotEnoughBookiesError):
        await client.create_ledger(ensemble_size=4, write_quorum=2, ack_quorum=2)
    striping = await cluster.connect(opportunisticStriping=True)
    async with striping.create_ledger(ensemble_size=5, write_quorum=2, ack_quorum=2) as writer:
        assert writer.metadata.ensemble_size == 3
    with pytest.raises(NotEnoughBookiesError):
        await striping.create_ledger(ensemble_size=5, write_quorum=4, ack_quorum=2)


async def test_only_writable_bookies_get_ledgers(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    gone = cluster.bookies[1]
    await cluster.unregister(gone)
    await cluster.register(gone, Mode.READ_ONLY)
    known = client._placement.bookies
    await eventually(lambda: gone.id in known.readonly and gone.id not in known.writable)
    for _ in range(10):
        ledger_id = await client.reserve_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2)
        assert gone.id not in (await client.get_ledger_metadata(ledger_id)).ensembles[0]
    assert await client.writable_bookies() == {b.id for b in cluster.bookies} - {gone.id}
    assert await client.readonly_bookies() == {gone.id}
    assert known.is_available(gone.id)


async def test_a_chosen_ledger_id_is_taken_once(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    async with client.create_ledger_adv(**SHAPE, ledger_id=5) as writer:
        assert writer.id == 5
    with pytest.raises(LedgerExistError):
        await client.create_ledger_adv(**SHAPE, ledger_id=5)
    for bad in [-1, 2**63]:
        with pytest.raises(IncorrectParameterError):
            await client.create_ledger_adv(**SHAPE, ledger_id=bad)
    ids = [await client.reserve_ledger(**SHAPE) for _ in range(7)]  # goes around the chosen one
    assert 5 not in ids
    assert len(set(ids)) == 7
    async with client.create_ledger_adv(**SHAPE) as writer:
        assert writer.id not in ids


async def test_opening_checks_the_password(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    ledger = await make_ledger(cluster, 3)
    with pytest.raises(UnauthorizedError):
        await client.open_ledger(ledger.id, password=b"wrong")
    with pytest.raises(UnauthorizedError):
        await client.open_ledger(ledger.id)
    async with client.open_ledger_as_admin(ledger.id) as reader:
        assert len(await reader.read(0, 2)) == 3


async def test_a_wrong_password_leaves_an_open_ledger_alone(cluster: FakeCluster) -> None:
    """Scenario 67."""
    client = await cluster.connect()
    ledger = await make_ledger(cluster, 3, closed=False)
    before = await cluster.driver.ledgers.read(ledger.id)
    for recover in (True, False):
        with pytest.raises(UnauthorizedError):
            await client.open_ledger(ledger.id, password=b"wrong", recover=recover)
    assert await cluster.driver.ledgers.read(ledger.id) == before
    assert not any(bookie.requests for bookie in cluster.bookies)
    reader = await client.recover_ledger(ledger.id, password=b"s")
    assert (reader.closed, reader.last_add_confirmed) == (True, 2)


async def test_opening_checks_the_digest_where_it_is_told_to(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 3)
    for autodetect, digest, fine in [
        (True, None, True),
        (True, DigestType.MAC, True),
        (True, DigestType.CRC32, True),
        (False, None, True),
        (False, DigestType.CRC32C, True),
        (False, DigestType.MAC, False),
        (False, DigestType.CRC32, False),
    ]:
        client = await cluster.connect(enableDigestTypeAutodetection=autodetect)
        with pytest.raises(UnauthorizedError):
            await client.open_ledger(ledger.id, password=b"wrong", digest=digest)
        if fine:
            reader = await client.open_ledger(ledger.id, password=b"s", digest=digest)
            assert len(await reader.read(0, 2)) == 3
        else:
            with pytest.raises(DigestMismatchError):
                await client.open_ledger(ledger.id, password=b"s", digest=digest)


@pytest.mark.parametrize("ledger_id", [-1, 999])
async def test_ledgers_that_do_not_exist(cluster: FakeCluster, ledger_id: int) -> None:
    """FX-26, RI-15."""
    client = await cluster.connect()
    with pytest.raises(NoSuchLedgerOnMetadataError):
        await client.open_ledger(ledger_id)
    with pytest.raises(NoSuchLedgerOnMetadataError):
        await client.get_ledger_metadata(ledger_id)
    with pytest.raises(NoSuchLedgerOnMetadataError):
        await client.is_closed(ledger_id)


async def test_opening_a_ledger_leaves_its_writer_alone(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    writer = await client.create_ledger(**SHAPE, password=b"s")
    await writer.append_many([payload(i) for i in range(10)])
    await writer.append(payload(10))
    for reader in (
        await client.open_ledger(writer.id, password=b"s"),
        await client.open_ledger_as_admin(writer.id),
        await (await cluster.connect()).open_ledger(writer.id, password=b"s"),
    ):
        assert (reader.closed, reader.last_add_confirmed) == (False, 9)  # 10 is acknowledged, but no bookie knows
        assert [entry.data async for entry in reader] == [payload(i) for i in range(10)]
    assert await writer.append(payload(11)) == 11
    assert (await client.get_ledger_metadata(writer.id)).state is LedgerState.OPEN
    await writer.close()


@pytest.mark.parametrize("how", ["open_ledger, recover", "recover_ledger", "open_ledger_as_admin, recover"])
async def test_recovery_ends_the_ledger_of_a_living_writer(cluster: FakeCluster, how: str) -> None:
    client = await cluster.connect()
    writer = await client.create_ledger(**SHAPE, password=b"s")
    await writer.append(payload(0))
    match how:
        case "recover_ledger":
            reader = await client.recover_ledger(writer.id, password=b"s")
        case "open_ledger, recover":
            reader = await client.open_ledger(writer.id, password=b"s", recover=True)
        case _:
            reader = await client.open_ledger_as_admin(writer.id, recover=True)
    assert (reader.closed, reader.last_add_confirmed) == (True, 0)
    with pytest.raises(LedgerFencedError):
        await writer.append(payload(1))
    await writer.close()


async def test_recovery_finds_what_a_writer_that_is_gone_has_written(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    writer = await client.create_ledger(**SHAPE)
    for i in range(10):
        await writer.append(payload(i))
    reader = await (await cluster.connect()).recover_ledger(writer.id)
    assert reader.closed
    assert [entry.id async for entry in reader] == list(range(10))
    assert reader.length == sum(len(payload(i)) for i in range(10))
    assert (await client.get_ledger_metadata(writer.id)).last_entry_id == 9
    await writer.close()


async def test_recovery_that_fails_is_reported_as_such(cluster: FakeCluster) -> None:
    ledger = await make_ledger(cluster, 10, closed=False)
    client = await cluster.connect()
    for bookie in cluster.bookies:
        bookie.on_request = lambda request: Status.EIO if isinstance(request, ReadRequest) else None
    with pytest.raises(LedgerRecoveryError):
        await client.recover_ledger(ledger.id, password=b"s")
    for bookie in cluster.bookies:
        bookie.on_request = lambda request: Status.EUA if isinstance(request, ReadRequest) else None
    with pytest.raises(UnauthorizedError):
        await client.recover_ledger(ledger.id, password=b"s")
    for bookie in cluster.bookies:
        bookie.on_request = None
    assert (await client.recover_ledger(ledger.id, password=b"s")).last_add_confirmed == 9


async def test_deleting_is_idempotent(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    ledger = await make_ledger(cluster, 3)
    await client.delete_ledger(ledger.id)
    await client.delete_ledger(ledger.id)
    await client.delete_ledger(999)
    with pytest.raises(IncorrectParameterError):
        await client.delete_ledger(-1)
    with pytest.raises(NoSuchLedgerOnMetadataError):
        await client.open_ledger(ledger.id, password=b"s")


async def test_listing_gives_every_ledger_in_order(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    assert [ledger_id async for ledger_id in client.list_ledgers()] == []
    ids = [await client.reserve_ledger(**SHAPE) for _ in range(5)]
    async with client.create_ledger_adv(**SHAPE, ledger_id=123456789012):
        pass
    assert [ledger_id async for ledger_id in client.list_ledgers()] == [*sorted(ids), 123456789012]


async def test_a_reserved_ledger_has_one_claimer(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    ledger_id = await client.reserve_ledger(**SHAPE, password=b"s", custom_metadata={"a": b"b"})
    with pytest.raises(UnauthorizedError):
        await client.claim_ledger(ledger_id, password=b"x")
    claims = [client.claim_ledger(ledger_id, password=b"s") for _ in range(3)]
    outcomes = await asyncio.gather(*claims, return_exceptions=True)
    assert sum(isinstance(outcome, IllegalOpError) for outcome in outcomes) == 2
    (writer,) = [outcome for outcome in outcomes if isinstance(outcome, bookkeeper.LedgerWriter)]
    assert await writer.append(b"x") == 0
    assert writer.metadata.custom_metadata == {"a": b"b"}
    await writer.close()
    with pytest.raises(IllegalOpError):
        await client.claim_ledger(writer.id, password=b"s")


class LostClaim(StoreFaults):
    """The first claim of client A is lost on its way, and A cannot try again before `rival_done`."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.rival_done = asyncio.Event()

    async def before(self, client: str, operation: str) -> None:
        if client != "A" or operation != "ledgers.write":
            return
        if not self.lost.is_set():
            self.lost.set()
            raise ServiceUnavailable("the connection broke", maybe_applied=True)
        await self.rival_done.wait()


async def test_a_claimer_whose_request_was_lost_does_not_take_anothers_claim_for_its_own(cluster: FakeCluster) -> None:
    store = cast(MemoryStore, cluster.runtime.services[cluster.uri])
    a, b = [
        await bookkeeper.connect(runtime=cluster.runtime, driver=MemoryDriver(store, cluster.runtime, name=name))
        for name in "AB"
    ]
    ledger_id = await a.reserve_ledger(**SHAPE, password=b"s")
    faults = store.faults = LostClaim()

    async def claim() -> LedgerWriter:
        return await a.claim_ledger(ledger_id, password=b"s")

    lost = asyncio.create_task(claim())
    await faults.lost.wait()
    writer = await b.claim_ledger(ledger_id, password=b"s")
    faults.rival_done.set()
    with pytest.raises(IllegalOpError):
        await lost
    assert await writer.append(b"x") == 0
    await writer.close()
    for client in a, b:
        await client.close()


@pytest.mark.parametrize("version", [1, 2])
async def test_a_metadata_format_without_token_reserves_nothing(cluster: FakeCluster, version: int) -> None:
    client = await cluster.connect(ledgerMetadataVersion=version)
    with pytest.raises(IncorrectParameterError, match="ledgerMetadataVersion 3"):
        await client.reserve_ledger(**SHAPE)


async def test_what_bookies_say_of_themselves(cluster: FakeCluster) -> None:
    client = await cluster.connect(getBookieInfoTimeoutSecs=0.2)
    a, b, c = cluster.bookies
    a.on_request = lambda request: SILENT if isinstance(request, GetBookieInfoRequest) else None
    b.on_request = lambda request: Status.EIO if isinstance(request, GetBookieInfoRequest) else None
    assert await client.bookie_info() == {c.id: BookieInfo(1000, 400)}
    ledger = await make_ledger(cluster, 7, quorums=(3, 2, 2))
    assert list(await client.list_entries_of(ledger.id, c.id)) == [1, 2, 4, 5]
    with pytest.raises(NoSuchLedgerError):
        await client.list_entries_of(999, c.id)


async def test_a_closed_client_does_nothing(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    ledger = await make_ledger(cluster, 3)
    reader = await ledger.open(client)
    await client.close()
    await client.close()
    assert not await client.metadata_service_available()
    for operation in [
        lambda: client.create_ledger(**SHAPE),
        lambda: client.create_ledger_adv(**SHAPE),
        lambda: client.open_ledger(ledger.id),
        lambda: client.reserve_ledger(**SHAPE),
        lambda: client.claim_ledger(1),
        lambda: client.delete_ledger(1),
        lambda: client.get_ledger_metadata(1),
        lambda: client.is_closed(1),
        lambda: client.writable_bookies(),
        lambda: client.readonly_bookies(),
        lambda: client.all_bookies(),
        lambda: client.bookie_info(),
        lambda: client.list_entries_of(1, BookieId("b")),
        lambda: anext(client.list_ledgers()),
        lambda: reader.read(0, 1),
        lambda: reader.batch_read(0, max_count=1),
        lambda: reader.read_last_add_confirmed(),
        lambda: reader.try_read_last_add_confirmed(),
        lambda: reader.refresh_metadata(),
        lambda: anext(reader.entries()),
    ]:
        with pytest.raises(ClientClosedError):
            await operation()  # type: ignore[no-untyped-call]
    with pytest.raises(IncorrectParameterError):
        await client.create_ledger(ensemble_size=1)  # arguments are looked at first


async def test_closing_ends_what_is_under_way(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    ledger = await make_ledger(cluster, 3, closed=False)
    reader = await ledger.open(client)
    for bookie in cluster.bookies:
        bookie.on_request = lambda request: SILENT
    waiting = [
        asyncio.ensure_future(work)
        for work in [
            reader.read(0, 1),
            reader.batch_read(0, max_count=2),
            reader.read_last_add_confirmed(),
            reader.try_read_last_add_confirmed(),
            reader.read_last_add_confirmed_and_entry(5, poll_timeout=60),
            client.open_ledger(ledger.id, password=b"s"),
        ]
    ]
    await eventually(lambda: sum(len(bookie.requests) for bookie in cluster.bookies) > 14)
    await client.close()
    for operation in waiting:
        with pytest.raises(ClientClosedError):
            await operation


class StuckStore(StoreFaults):
    """Requests for ledger records wait until `release`."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self._gate = asyncio.Event()

    async def before(self, client: str, operation: str) -> None:
        if operation.startswith("ledgers."):
            self.waiting.append(operation)
            await self._gate.wait()

    def release(self) -> None:
        self._gate.set()


async def test_closing_ends_appends_and_what_waits_for_the_store(cluster: FakeCluster) -> None:
    """Scenario 97. What the store did all the same nobody gets a handle of."""
    client = await cluster.connect()
    writer = await client.create_ledger(**SHAPE)
    doomed = await make_ledger(cluster, 3)
    for bookie in cluster.bookies:
        bookie.on_request = lambda request: SILENT
    store = cast(MemoryStore, cluster.runtime.services[cluster.uri])
    stuck = store.faults = StuckStore()
    waiting = [
        asyncio.ensure_future(work)
        for work in [
            writer.append(b"x"),
            client.create_ledger(**SHAPE),
            client.create_ledger_adv(**SHAPE, ledger_id=777),
            client.open_ledger(doomed.id, password=b"s"),
            client.delete_ledger(doomed.id),
        ]
    ]
    await eventually(lambda: len(stuck.waiting) == 4 and all(bookie.requests for bookie in cluster.bookies))
    await client.close()
    stuck.release()
    for operation in waiting:
        with pytest.raises(ClientClosedError):
            await operation


async def test_v2_clients_cannot_defer_syncs(cluster: FakeCluster) -> None:
    """Scenario 33."""
    client = await cluster.connect(protocol="v2")
    deferred = await client.create_ledger(**SHAPE, write_flags=WriteFlag.DEFERRED_SYNC)
    with pytest.raises(IllegalOpError):
        await deferred.append(b"x")
    await deferred.close()
    async with client.create_ledger(**SHAPE) as plain:
        await plain.append(b"x")
        with pytest.raises(IllegalOpError):
            await plain.force()
        assert await plain.append(b"y") == 1


async def test_a_client_is_connected_once_and_before_use(cluster: FakeCluster) -> None:
    client = bookkeeper.connect(runtime=cluster.runtime, driver=cluster._new_driver())
    with pytest.raises(IllegalOpError):
        await client.create_ledger(**SHAPE)
    await client
    with pytest.raises(IllegalOpError):
        await client
    await client.close()


async def test_addresses_are_checked(cluster: FakeCluster) -> None:
    with pytest.raises(ConfigurationError):
        bookkeeper.connect("nonsense")
    with pytest.raises(ConfigurationError):
        bookkeeper.connect()
    config = ClientConfiguration.from_mapping({"metadataServiceUri": "memory://fake"})
    async with bookkeeper.connect(config=config, runtime=cluster.runtime) as client:
        assert await client.metadata_service_available()
        assert len(await client.writable_bookies()) == 3


async def test_errors_of_the_metadata_store_are_the_clients(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await cluster.connect()
    driver = client.context.driver

    def fail_with(error: Exception) -> Any:
        async def failing(*args: object, **options: object) -> Any:
            raise error

        return failing

    for theirs, ours in [
        (ServiceUnavailable("x"), ZKError),
        (LedgerIdOverflow("x"), LedgerIdOverflowError),
        (LedgerExists("x"), LedgerExistError),
        (VersionConflict("x"), MetadataVersionError),
    ]:
        monkeypatch.setattr(driver.ids, "allocate", fail_with(theirs))
        with pytest.raises(ours):
            await client.create_ledger(**SHAPE)
    monkeypatch.setattr(driver.discovery, "list", fail_with(ServiceUnavailable("x")))
    with pytest.raises(MetadataStoreError):
        await client.writable_bookies()
    broken = bookkeeper.connect(runtime=cluster.runtime, driver=open_driver("memory://fake", cluster.runtime))
    monkeypatch.setattr(broken.context.driver.discovery, "list", fail_with(ServiceUnavailable("x")))
    with pytest.raises(ZKError):
        await broken
    assert broken.context.closed


async def test_metadata_without_a_digest_is_read_with_the_callers(cluster: FakeCluster) -> None:
    """The oldest records name neither digest type nor password."""
    ledger = await make_ledger(cluster, 3)
    stored = await cluster.driver.ledgers.read(ledger.id)
    old = replace(stored.value, digest_type=None, password=None, format_version=1)
    await cluster.driver.ledgers.write(ledger.id, old, stored.version)
    client = await cluster.connect()
    reader = await client.open_ledger(ledger.id, password=b"s", digest=DigestType.CRC32C)
    assert len(await reader.read(0, 2)) == 3


async def test_a_writer_reads_its_own_ledger(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    async with client.create_ledger(**SHAPE) as writer:
        for i in range(10):
            await writer.append(payload(i))
        assert (await writer.read_last_entry()).id == 9
        assert [entry.id async for entry in writer] == list(range(10))
        asked: list[Request] = [r for b in cluster.bookies for r in b.requests if isinstance(r, ReadRequest)]
        assert all(not request.flags for request in asked if isinstance(request, ReadRequest))
