"""Election of the auditor: the oldest vote wins (spec metadata §9.5).

    underreplication/auditorelection             the vote of the last one elected, for people to read
    underreplication/auditorelection/V_<number>  a candidate (ephemeral, sequential)

A candidate that is not first waits for the vote just before its own to go, then looks again: so an election wakes one
process, not all. A vote whose creation had an unknown outcome is looked for among the votes of this session before
another one is made, else a forgotten vote would win the election with no auditor behind it.
"""

from __future__ import annotations

import asyncio
import logging

from ....errors import ConfigurationError, CorruptMetadata, MetadataError, ServiceUnavailable, SessionLost
from ....runtime.tasks import TaskScope
from ....types import BookieId, parse_bookie_id
from ...formats.underreplication import encode_vote, parse_vote
from ..ids import sequence_number
from ..locks import Right, Rights
from ..session.client import NoNode, ZooKeeper
from ..session.watching import Pacer, Subscription

log = logging.getLogger(__name__)

PREFIX = "V_"


class ZooKeeperLeadership:
    """Being the auditor (`Leadership`)."""

    def __init__(self, election: ZooKeeperAuditorElection, right: Right, watcher: asyncio.Task[None]) -> None:
        self.lost = right.lost
        self._election = election
        self._right = right
        self._watcher = watcher

    async def resign(self) -> None:
        self._watcher.cancel()
        await self._election.votes.release(self._right)


class ZooKeeperAuditorElection:
    """Elects one auditor per cluster (`AuditorElection`)."""

    def __init__(self, zk: ZooKeeper, tasks: TaskScope, pacer: Pacer) -> None:
        self._zk = zk
        self._tasks = tasks
        self._pacer = pacer
        self._directory = zk.root + "/underreplication/auditorelection"
        self.votes = Rights(zk, tasks)

    async def campaign(self, bookie_id: BookieId) -> ZooKeeperLeadership:
        await self._zk.ensure(self._directory)
        while True:
            vote = await self._vote(bookie_id)
            try:
                if await self._wait_elected(vote):
                    await self._zk.set(self._directory, encode_vote(bookie_id))
                    if not vote.lost.is_set():
                        watcher = self._tasks.spawn(self._watch_own(vote), name="own-vote")
                        return ZooKeeperLeadership(self, vote, watcher)
            except BaseException:
                await self._withdraw(vote)
                raise

    async def _withdraw(self, vote: Right) -> None:
        try:
            await self.votes.release(vote)
        except MetadataError as error:
            log.debug("the vote %s goes with the session: %s", vote.path, error)

    async def _vote(self, bookie_id: BookieId) -> Right:
        data = encode_vote(bookie_id)
        failures = 0
        while True:
            try:
                path = await self._zk.create_sequential(f"{self._directory}/{PREFIX}", data, retry=False)
            except NoNode:
                await self._zk.ensure(self._directory)
                continue
            except ServiceUnavailable as error:
                if self._zk.closed():
                    raise
                failures = await self._pacer.after_failure("auditor election", error, failures)
                await self._drop_forgotten()
                continue
            except asyncio.CancelledError:
                if not self._zk.closed():
                    self._tasks.spawn(self._drop_forgotten(), name="drop-forgotten-vote")
                raise
            try:
                return self.votes.hold(path)
            except SessionLost:
                continue

    async def _drop_forgotten(self) -> None:
        """Votes of this session that this object does not know."""
        for name in await self._names():
            path = f"{self._directory}/{name}"
            stat = await self._zk.exists(path)
            if stat is not None and self._zk.owns(stat) and not self.votes.knows(path):
                self.votes.disown(path)

    async def _names(self) -> list[str]:
        """Votes, oldest first."""
        try:
            names, _ = await self._zk.children(self._directory, sync=True)
        except NoNode:
            return []
        return sorted((name for name in names if name.startswith(PREFIX)), key=_number)

    async def _wait_elected(self, vote: Right) -> bool:
        """True when our vote is the oldest; False when it is gone, so that another one is needed."""
        own = vote.path.rpartition("/")[2]
        while not vote.lost.is_set():
            names = await self._names()
            if own not in names:
                self.votes.forget(vote)
                return False
            place = names.index(own)
            if place == 0:
                return True
            await self._until_gone(f"{self._directory}/{names[place - 1]}", vote)
        return False

    async def _until_gone(self, path: str, vote: Right) -> None:
        """Until a vote is gone, or ours is lost: trouble with the session wakes every subscription."""
        subscription = Subscription(self._zk, path)
        try:
            while not vote.lost.is_set() and await subscription.stat() is not None:
                await subscription.changed()
        finally:
            subscription.close()

    async def _watch_own(self, vote: Right) -> None:
        """Leadership ends when the vote is deleted."""
        subscription = Subscription(self._zk, vote.path)
        failures = 0
        try:
            while not vote.lost.is_set() and not self._zk.closed():
                try:
                    if await subscription.stat() is None:
                        self.votes.forget(vote)
                        return
                except MetadataError as error:
                    failures = await self._pacer.after_failure("watch of the auditor's vote", error, failures)
                    continue
                failures = 0
                await subscription.changed()
        finally:
            subscription.close()

    async def current(self) -> BookieId | None:
        for name in await self._names():
            try:
                data, _ = await self._zk.get(f"{self._directory}/{name}")
            except NoNode:
                continue
            try:
                return parse_bookie_id(parse_vote(data))
            except ConfigurationError as error:
                raise CorruptMetadata(f"the auditor's vote {name} names no bookie: {error}") from None
        return None


def _number(name: str) -> int:
    return sequence_number(name, PREFIX)
