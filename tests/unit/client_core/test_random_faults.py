"""Writers and recoverers among bookies that fail at random; what must hold afterwards (spec safety §1.4)."""

from __future__ import annotations

import asyncio
import random

import pytest

from bookkeeper.errors import BackpressureError, BKError, LedgerClosedError, MetadataVersionError
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.protocol.messages import Status
from bookkeeper.quorum.distribution import Distribution
from tests.support.fake_ensemble import FakeBookie, World, settle

QUORUMS = [(3, 3, 2), (3, 2, 2), (4, 3, 2), (5, 3, 2), (3, 3, 3), (2, 2, 1)]
STEPS = 60


def payload_of(entry_id: int) -> bytes:
    return b"entry %d" % entry_id


def disturb(dice: random.Random, bookie: FakeBookie) -> None:
    match dice.randrange(8):
        case 0:
            bookie.hold = True
        case 1:
            bookie.release()
        case 2:
            bookie.add_status = Status.EIO
        case 3:
            bookie.down = True
        case 4:
            bookie.refuse_held(Status.ETOOMANYREQUESTS)
        case 5:
            bookie.other_status = Status.EIO
        case _:
            heal(bookie)


def heal(bookie: FakeBookie) -> None:
    bookie.down = False
    bookie.add_status = bookie.other_status = None
    bookie.release()


async def healthy(world: World) -> None:
    for bookie in world.bookies.values():
        heal(bookie)
    await settle()


def check_replicas(world: World, metadata: LedgerMetadata, last: int) -> None:
    """PI-6, PI-7, PI-8: every entry up to `last` is on an ack quorum of the bookies that the metadata names."""
    schedule = Distribution(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    for entry_id in range(last + 1):
        ensemble = metadata.ensemble_at(entry_id)
        holders = [ensemble[i] for i in schedule.write_set(entry_id) if (0, entry_id) in world[ensemble[i]].entries]
        assert len(set(holders)) >= metadata.ack_quorum, f"entry {entry_id} is on {holders} of {ensemble}"
        for holder in holders:
            assert world.payload(holder, entry_id) == payload_of(entry_id)


@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("seed", range(30))
async def test_what_is_acknowledged_is_stored_and_never_lost(seed: int, delayed: bool) -> None:
    """RI-1, RI-11."""
    dice = random.Random(seed)
    quorum = dice.choice(QUORUMS)
    settings = {"delayEnsembleChange": delayed, "maxPendingAddEntries": dice.choice([5, 1000]), "addEntryTimeoutSec": 0}
    async with World(quorum[0] + 3, recoveryReadBatchSize=dice.choice([1, 4]), **settings) as world:
        writer = await world.writer(quorum)
        futures: list[asyncio.Future[int]] = []
        recoveries: list[asyncio.Future[LedgerMetadata]] = []
        for step in range(STEPS):
            for _ in range(dice.randrange(4)):
                try:
                    futures.append(writer.append_nowait(payload_of(len(futures))))
                except (BackpressureError, LedgerClosedError):
                    break
            if dice.random() < 0.4:
                disturb(dice, dice.choice(list(world.bookies.values())))
            if step > STEPS // 2 and dice.random() < 0.05:
                recoveries.append(asyncio.ensure_future(world.recover()))
            await settle(dice.choice([0, 1, 3, 10]))
            acked = sum(future.done() and future.exception() is None for future in futures)
            assert writer.last_add_confirmed <= acked - 1 or writer.metadata.closed
            if not recoveries:
                check_replicas(world, await world.stored(), acked - 1)
        await healthy(world)
        outcomes = await asyncio.gather(*recoveries, return_exceptions=True)
        if not any(isinstance(outcome, LedgerMetadata) for outcome in outcomes) and dice.random() < 0.5:
            await world.recover()
        await healthy(world)
        try:
            await writer.close(drain=True)
        except MetadataVersionError:
            assert (await world.stored()).closed
        except BKError:
            assert writer.closed
        results = await asyncio.gather(*futures, return_exceptions=True)
        acked = sum(isinstance(result, int) for result in results)
        assert results[:acked] == list(range(acked))
        stored = await world.stored()
        if not stored.closed:
            stored = await world.recover()
        assert stored.last_entry_id >= acked - 1
        assert stored.length == sum(len(payload_of(e)) for e in range(stored.last_entry_id + 1))
        assert list(stored.ensembles) == sorted(stored.ensembles)
        assert max(stored.ensembles) <= stored.last_entry_id + 1
        assert all(len(set(members)) == quorum[0] for members in stored.ensembles.values())
        check_replicas(world, stored, stored.last_entry_id)
        for outcome in outcomes:
            if isinstance(outcome, LedgerMetadata):
                assert (outcome.last_entry_id, outcome.length) == (stored.last_entry_id, stored.length)
