"""A chain of ledgers with two leaders: a stream whose owner stalls, and comes back after another one took over (spec
safety LC-1 to LC-3)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from bookkeeper.errors import BookKeeperError, NoSuchLedgerOnMetadataError, NotOwnerError
from bookkeeper.metadata.api import ANY
from bookkeeper.metadata.tree import Operation, Write, Written
from bookkeeper.streams.names.head import LogHead
from bookkeeper.streams.namespace import Namespace
from bookkeeper.streams.policy import WritePolicy
from tests.simulation.scenario import Scenario, play
from tests.simulation.stream_story import PATH, MortalLedgers
from tests.support.dying_tree import DyingTree, Life

POLICY = WritePolicy(buffer_bytes=0)


class StallingTree(DyingTree):
    """Lets its client wait when it is about to begin a certain segment."""

    def __init__(self, tree: Any, segment: int) -> None:
        super().__init__(tree, Life(1_000_000, applied=True))
        self._name = f"inprogress_{segment:018d}"
        self.ledger: int | None = None
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    async def commit(self, operations: Sequence[Operation]) -> Written:
        begun = [each for each in operations if each.path.endswith(self._name)]
        if begun and not self.reached.is_set():
            self.ledger = int(begun[0].data.split(b";")[1])
            self.reached.set()
            await self.go_on.wait()
        return await super().commit(operations)


async def namespace_of(s: Scenario, machine: str, tree: Any = None) -> Namespace:
    client = await s.connect(machine)
    namespace = Namespace(client, tree or client.context.driver.tree, PATH, None, machine, AsyncExitStack())
    namespace._ledgers = MortalLedgers(s, client)
    return namespace


async def story(s: Scenario) -> None:
    two = await namespace_of(s, "l2")
    await s.on("l2", two._tree.make(PATH))
    await s.on("l2", two.create("a"))
    stalling = StallingTree((await s.connect("l1")).context.driver.tree, 2)
    one = await namespace_of(s, "l1", stalling)

    async def lead() -> None:
        async with one.open_writer("a", policy=POLICY) as writer:
            await writer.append(b"0", txid=0)
            await writer.roll()  # stalls between its new ledger and the record that takes that up
            await writer.append(b"of a leader that is none any more", txid=5)

    async def take_over() -> None:
        lock = f"{PATH}/a/<default>/lock"
        listing = await two._tree.children(lock, fresh=True)
        assert listing is not None
        for member in listing.names:
            await two._tree.delete(f"{lock}/{member}")  # as if the session had ended
        async with two.open_writer("a", policy=POLICY) as writer:
            await writer.append(b"1", txid=1)

    async def check() -> None:
        async with two.open_reader("a", tail=False) as reader:
            assert [record.payload async for record in reader] == [b"0", b"1"]
        segments = (await two.info("a")).segments
        assert [segment.number for segment in segments] == [1, 2]
        assert all(segment.completed for segment in segments)
        assert stalling.ledger not in {segment.ledger_id for segment in segments}
        assert stalling.ledger is not None
        with pytest.raises(NoSuchLedgerOnMetadataError):
            await two._client.get_ledger_metadata(stalling.ledger)

    leading = s.begin("l1", lead())
    await s.until(stalling.reached.is_set)
    await s.on("l2", take_over())
    stalling.go_on.set()
    with pytest.raises(NotOwnerError):
        await s.wait(leading)
    await s.on("l2", check())


def test_s17_a_leader_that_stalled_cannot_add_its_ledger_to_the_chain() -> None:
    """S-17, LC-1, LC-2, LC-3: it has written nothing to its ledger, which the new leader has deleted."""
    play(story, bookies=4)


def test_s17_without_versions_the_chain_has_two_leaders(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = LogHead._commit

    async def careless(self: LogHead, changes: Sequence[Operation], **keywords: Any) -> Written:
        anyhow = [replace(each, expected=ANY) if isinstance(each, Write) else each for each in changes]
        return await commit(self, anyhow, **keywords)

    monkeypatch.setattr(LogHead, "_commit", careless)
    with pytest.raises((AssertionError, BookKeeperError, pytest.fail.Exception)):
        play(story, bookies=4)
