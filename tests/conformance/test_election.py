"""Auditor election (spec metadata §13: 69 to 71)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bookkeeper.metadata.api import Leadership, MetadataDriver
from bookkeeper.types import BookieId
from tests.support.metadata_stores import StoreUnderTest
from tests.support.waiting import until

SHORT_MS = 1000

NAMES = [BookieId(f"127.0.0.1:{port}") for port in (1, 2, 3)]


class Candidates:
    """Three candidates who voted one after the other."""

    def __init__(self) -> None:
        self.drivers: list[MetadataDriver] = []
        self.campaigns: list[asyncio.Task[Leadership]] = []

    async def stand(self, driver: MetadataDriver, name: BookieId, votes: int) -> None:
        """Start a campaign and wait until it has its place."""
        self.drivers.append(driver)
        self.campaigns.append(asyncio.create_task(driver.auditor.campaign(name)))
        if votes == 0:
            await until(lambda: self.campaigns[-1].done())
        else:
            await asyncio.wait([self.campaigns[-1]], timeout=0.3)

    def elected(self) -> list[int]:
        return [n for n, campaign in enumerate(self.campaigns) if campaign.done() and not campaign.cancelled()]

    async def wait_for(self, place: int) -> Leadership:
        async with asyncio.timeout(30):
            return await asyncio.shield(self.campaigns[place])


@pytest.fixture
async def three(store: StoreUnderTest) -> AsyncIterator[Candidates]:
    found = Candidates()
    for n, name in enumerate(NAMES):
        await found.stand(await store.open(session_timeout_ms=SHORT_MS if n == 0 else 20_000), name, n)
    yield found
    for campaign in found.campaigns:
        campaign.cancel()
    await asyncio.gather(*found.campaigns, return_exceptions=True)


async def test_nobody_is_auditor_before_the_first_vote(store: StoreUnderTest) -> None:
    p = await store.open()
    assert await p.auditor.current() is None


async def test_the_oldest_candidate_is_elected_alone(three: Candidates) -> None:
    assert three.elected() == [0]
    for driver in three.drivers:
        assert await driver.auditor.current() == NAMES[0]


async def test_the_next_one_follows_when_the_leader_resigns(three: Candidates) -> None:
    leader = await three.wait_for(0)
    await leader.resign()
    await three.wait_for(1)
    assert three.elected() == [0, 1]
    assert await three.drivers[2].auditor.current() == NAMES[1]


async def test_the_next_one_follows_when_the_leader_is_killed(store: StoreUnderTest, three: Candidates) -> None:
    await store.kill(three.drivers[0])
    await three.wait_for(1)
    assert await three.drivers[2].auditor.current() == NAMES[1]
    assert three.elected() == [0, 1]


async def test_the_next_one_follows_when_the_leader_loses_its_session(store: StoreUnderTest, three: Candidates) -> None:
    leader = await three.wait_for(0)
    await store.expire(three.drivers[0])
    async with asyncio.timeout(30):
        await leader.lost.wait()
    await three.wait_for(1)
    again = asyncio.create_task(three.drivers[0].auditor.campaign(NAMES[0]))
    await asyncio.wait([again], timeout=0.3)
    assert not again.done()
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)


async def test_a_withdrawn_candidate_in_the_middle_elects_nobody(three: Candidates) -> None:
    three.campaigns[1].cancel()
    await asyncio.gather(three.campaigns[1], return_exceptions=True)
    await asyncio.wait([three.campaigns[2]], timeout=0.3)
    assert three.elected() == [0]
    await (await three.wait_for(0)).resign()
    await three.wait_for(2)
    assert await three.drivers[0].auditor.current() == NAMES[2]


async def test_a_vote_without_an_answer_does_not_stand_in_its_own_way(store: StoreUnderTest) -> None:
    p = await store.open()
    store.lose_answer(p, "auditor.vote")
    async with asyncio.timeout(30):
        leader = await p.auditor.campaign(NAMES[0])
    await leader.resign()
    await until(lambda: _nobody(p))


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8])
async def test_a_cancelled_campaign_leaves_no_vote_behind(store: StoreUnderTest, turns: int) -> None:
    p, q = await store.open(), await store.open()
    campaign = asyncio.create_task(p.auditor.campaign(NAMES[0]))
    for _ in range(turns):
        await asyncio.sleep(0)
    campaign.cancel()
    (outcome,) = await asyncio.gather(campaign, return_exceptions=True)
    if not isinstance(outcome, BaseException):
        await outcome.resign()
    async with asyncio.timeout(30):
        await q.auditor.campaign(NAMES[1])
    assert await p.auditor.current() == NAMES[1]


async def _nobody(driver: MetadataDriver) -> bool:
    return await driver.auditor.current() is None
