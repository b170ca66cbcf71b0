"""Bookies that fail much get no new ledgers for a while (spec client §12.3, scenario 89)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bookkeeper.client.client import BookKeeper
from bookkeeper.client.placement.quarantine import Quarantine
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import BKError, ServiceUnavailable
from bookkeeper.protocol.messages import AddRequest, BatchReadRequest, GetBookieInfoRequest, ReadRequest, Status
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId
from tests.support.fake_bookie import SILENT, FakeBookie, FakeCluster, fake_cluster

from .support import eventually, make_ledger, payload

A, B = BookieId("a"), BookieId("b")
EIO, TIMEOUT, BUSY, UNAVAILABLE = -1, -23, -105, -8


class Clock(RealRuntime):
    time = 100.0

    def now(self) -> float:
        return self.time


class Switch:
    """The one in the metadata store."""

    on = True
    reachable = True

    async def __call__(self) -> bool:
        if not self.reachable:
            raise ServiceUnavailable("not now")
        return self.on


def quarantine(**settings: Any) -> tuple[Quarantine, Clock, Switch]:
    clock, switch = Clock(), Switch()
    config = ClientConfiguration.from_mapping(
        {"bookieHealthCheckEnabled": True, "bookieQuarantineTimeSeconds": 30, **settings}
    )
    return Quarantine(clock, config, switch), clock, switch


async def test_as_many_errors_as_the_threshold_in_one_interval() -> None:
    watched, clock, _ = quarantine()
    watched.failed(A, EIO, 60)
    watched.failed(A, TIMEOUT, 39)
    watched.failed(B, BUSY, 99)
    watched.failed(A, BUSY)
    assert A not in watched  # not before the interval is over
    await watched.check()
    assert A in watched
    assert B not in watched
    watched.failed(B, BUSY)  # another interval
    await watched.check()
    assert B not in watched
    clock.time += 29
    watched.failed(A, EIO, 100)  # that it goes on failing does not prolong it
    await watched.check()
    assert A in watched
    clock.time += 1
    assert A not in watched


@pytest.mark.parametrize("code", [-13, -7, -101, -20, -22, -104, UNAVAILABLE])
async def test_expected_errors_do_not_count(code: int) -> None:
    watched, _, _ = quarantine()
    watched.failed(A, code, 1000)
    await watched.check()
    assert A not in watched


@pytest.mark.parametrize(
    ("settings", "code", "expected"),
    [
        ({"bookieConnectionErrorQuarantineEnabled": True}, UNAVAILABLE, True),
        ({"bookieQuarantineRatio": 0}, EIO, False),
        ({"bookieHealthCheckEnabled": False}, EIO, False),
        ({"bookieErrorThresholdPerInterval": 101}, EIO, False),
    ],
)
async def test_settings(settings: dict[str, Any], code: int, expected: bool) -> None:
    watched, _, _ = quarantine(**settings)
    watched.failed(A, code, 100)
    await watched.check()
    assert (A in watched) is expected


async def test_an_operator_can_release_all() -> None:
    watched, _, switch = quarantine()
    watched.failed(A, EIO, 100)
    await watched.check()
    switch.on = False
    await watched.check()  # nobody was faulty: nobody asks
    assert A in watched
    switch.reachable = False
    watched.failed(B, EIO, 100)
    await watched.check()
    assert A in watched
    assert B not in watched
    switch.reachable = True
    watched.failed(B, EIO, 100)
    await watched.check()
    assert A not in watched
    assert B not in watched


# --- in a client ---


async def chosen(client: BookKeeper, bookie: FakeBookie, size: int) -> int:
    """How many of ten new ledgers have the bookie."""
    found = 0
    for _ in range(10):
        ledger_id = await client.reserve_ledger(ensemble_size=size, write_quorum=size, ack_quorum=size)
        found += bookie.id in (await client.get_ledger_metadata(ledger_id)).ensembles[0]
    return found


def an_hour_passes(client: BookKeeper, bookie: FakeBookie) -> None:
    """What one bookie has not answered is overdue."""
    clock = client._bookies._clock
    for connection in client._bookies.connections:
        if connection.bookie == bookie.id:
            for passed in (0, 1, HOUR):
                clock.tick += passed
                connection.sweep(HOUR)


HOUR = 3600

SETTINGS = {
    "bookieHealthCheckEnabled": True,
    "bookieErrorThresholdPerInterval": 5,
    "speculativeReadTimeout": 0,
    "readEntryTimeoutSec": HOUR,
    "addEntryTimeoutSec": HOUR,
    "getBookieInfoTimeoutSecs": HOUR,
    "batchReadEnabled": False,
    "delayEnsembleChange": True,
    "enableBookieFailureTracking": False,
}


@pytest.mark.parametrize("protocol", ["v2", "v3"])
@pytest.mark.parametrize(
    ("kind", "fault"),
    [(ReadRequest, Status.EIO), (ReadRequest, SILENT), (AddRequest, Status.EIO), (AddRequest, SILENT)],
)
async def test_a_bookie_with_many_errors_is_chosen_only_when_it_must_be(protocol: str, kind: type, fault: Any) -> None:
    async with fake_cluster(4) as cluster:
        client = await cluster.connect(protocol=protocol, **SETTINGS)
        ledger = await make_ledger(cluster, 20)
        bad = ledger.bookies[0]
        writer = await client.create_ledger(ensemble_size=4, write_quorum=4, ack_quorum=2)
        bad.on_request = lambda request: fault if isinstance(request, kind) else None
        reader = await ledger.open(client)
        runs = range(0, 20, reader._reads.run_length)  # each is asked of the next replica first
        asked = sum(min(runs.step, 20 - first) for first in runs[::3])
        reading = asyncio.ensure_future(reader.read(0, 19))
        for i in range(5):
            await writer.append(payload(i))
        await eventually(lambda: bad.count(AddRequest) == 5 and bad.count(ReadRequest) == asked)
        an_hour_passes(client, bad)
        await reading
        await eventually(lambda: client._quarantine._errors.get(bad.id, 0) >= 5)
        await client._quarantine.check()
        assert bad.id in client._quarantine
        assert await chosen(client, bad, 3) == 0
        assert await chosen(client, bad, 4) == 10
        await writer.close()


async def test_other_requests_count_too(cluster: FakeCluster) -> None:
    client = await cluster.connect(**(SETTINGS | {"batchReadEnabled": True}))
    ledger = await make_ledger(cluster, 20)
    bad = ledger.replicas(0)[0]
    bad.on_request = lambda request: Status.EIO if isinstance(request, BatchReadRequest) else None
    reader = await ledger.open(client)
    for _ in range(3):
        await reader.batch_read(0, max_count=5)
    assert client._quarantine._errors == {bad.id: 3}
    bad.on_request = lambda request: SILENT if isinstance(request, GetBookieInfoRequest) else None
    asking = asyncio.ensure_future(client.bookie_info())
    await eventually(lambda: bad.count(GetBookieInfoRequest))
    an_hour_passes(client, bad)
    assert len(await asking) == 2
    assert client._quarantine._errors == {bad.id: 4}


async def test_a_restart_is_no_error(cluster: FakeCluster) -> None:
    client = await cluster.connect(**SETTINGS)
    ledger = await make_ledger(cluster, 20)
    away = ledger.bookies[0]
    away.on_request = lambda request: SILENT
    reading = asyncio.ensure_future((await ledger.open(client)).read(0, 19))
    await eventually(lambda: away.requests)
    await away.stop()  # with requests outstanding
    assert len(await reading) == 20
    with pytest.raises(BKError):
        await client.list_entries_of(ledger.id, away.id)  # and it cannot be connected to
    assert client._quarantine._errors == {}


async def test_the_check_is_made_at_intervals(cluster: FakeCluster) -> None:
    client = await cluster.connect(**SETTINGS, bookieHealthCheckIntervalSeconds=0.01)
    bad = cluster.bookies[0]
    client._quarantine.failed(bad.id, EIO, 5)
    await eventually(lambda: bad.id in client._quarantine)
    assert await chosen(client, bad, 2) == 0
