"""The queue of appends between threads and the loop, without threads (`bookkeeper.sync.appends`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import BackpressureError, ClientClosedError, LedgerClosedError
from bookkeeper.runtime.loop_thread import LoopEnded, LoopThread
from bookkeeper.sync.appends import TURN_ENTRIES, AppendQueue, Post, chunks
from bookkeeper.sync.blocking import Deadline
from tests.support.waiting import loop_turns


class Here:
    """A `LoopThread` that is this one."""

    inside = False
    ended = False

    def check_process(self) -> None: ...

    def follow(self, follower: object) -> None: ...

    def call_soon(self, call: Callable[..., object], *args: Any) -> None:
        if self.ended:
            raise LoopEnded
        asyncio.get_running_loop().call_soon(call, *args)


class FakeWriter:
    """A `Target`: takes `room` entries, acknowledges them when told to."""

    def __init__(self, room: int = 1_000_000) -> None:
        self.room = room
        self.taken: list[tuple[bytes, asyncio.Future[int]]] = []
        self.more = asyncio.Event()
        self.refusal: Exception | None = None

    def start(self, post: Post) -> asyncio.Future[int]:
        if self.refusal is not None:
            raise self.refusal
        if len(self.taken) >= self.room:
            raise BackpressureError
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        assert isinstance(post.payload, bytes)
        self.taken.append((post.payload, future))
        return future

    async def start_when_there_is_room(self, post: Post) -> asyncio.Future[int]:
        while len(self.taken) >= self.room:
            await self.more.wait()
        return self.start(post)

    async def send_many(self, payloads: list[bytes], ids: list[int]) -> None:
        for payload in payloads:
            ids.append(len(self.taken))
            await self.start_when_there_is_room(Post(payload))

    async def confirm_many(self, ids: list[int]) -> None: ...

    def acknowledge(self) -> None:
        for entry_id, (_, future) in enumerate(self.taken):
            if not future.done():
                future.set_result(entry_id)


def queue_of(writer: FakeWriter, thread: Here | None = None, *, ordered: bool = True, **settings: Any) -> AppendQueue:
    config = ClientConfiguration.from_mapping(settings)
    return AppendQueue(cast(LoopThread, thread or Here()), writer, config, 1000, ordered=ordered)


async def test_while_entries_are_taken_over_the_loop_does_other_things_too() -> None:
    writer = FakeWriter()
    queue = queue_of(writer)
    for _ in range(10 * TURN_ENTRIES):
        queue.post(Post(b""))
    seen = []
    while len(writer.taken) < 10 * TURN_ENTRIES:
        queue.post(Post(b""))  # somebody posts all the time
        await asyncio.sleep(0)
        seen.append(len(writer.taken))
    assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) <= TURN_ENTRIES


async def test_what_was_accepted_is_never_refused_for_lack_of_room() -> None:
    writer = FakeWriter(room=3)
    queue = queue_of(writer)
    posts = [Post(b"%d" % i) for i in range(10)]
    for post in posts:
        queue.post(post)
    await loop_turns()
    assert [payload for payload, _ in writer.taken] == [b"0", b"1", b"2"]
    many = Post([b"10", b"11"])
    queue.post(many)
    writer.room = 100
    writer.more.set()
    await loop_turns()
    assert [payload for payload, _ in writer.taken] == [b"%d" % i for i in range(12)]
    writer.acknowledge()
    await loop_turns()
    assert [post.future.result(0) for post in posts] == list(range(10))
    assert many.future.result(0) == [10, 11]
    assert queue._in_entries == queue._out_entries == 12
    assert not queue._begun


async def test_an_advanced_writers_entries_do_not_wait_for_each_other() -> None:
    writer = FakeWriter(room=0)
    queue = queue_of(writer, ordered=False, maxPendingAddEntries=3)
    behind = [Post(b"behind %d" % i, i) for i in range(1, 4)]
    for post in behind:
        queue.post(post)
    await loop_turns()
    first = Post(b"first", 0)
    with pytest.raises(BackpressureError):
        queue.post(first)
    queue.post(first, urgent=True)
    writer.room = 1  # for the one that is next only
    await loop_turns()
    assert [payload for payload, _ in writer.taken] == [b"first"]
    writer.room = 10
    writer.more.set()
    await loop_turns()
    assert len(writer.taken) == 4


async def test_a_writer_that_has_ended_fails_what_is_posted_in_order() -> None:
    writer = FakeWriter()
    writer.refusal = LedgerClosedError(ledger_id=1)
    queue = queue_of(writer, maxPendingAddEntries=2)
    posts = [Post(b""), Post(b"")]
    for post in posts:
        queue.post(post)
    await loop_turns()
    assert [type(post.future.exception(0)) for post in posts] == [LedgerClosedError] * 2
    assert queue._in_entries == queue._out_entries


async def test_when_the_loop_has_ended_nobody_waits_any_more() -> None:
    thread = Here()
    writer = FakeWriter(room=1)
    queue = queue_of(writer, thread)
    posts = [Post(b"") for _ in range(4)]
    for post in posts[:3]:
        queue.post(post)
    await loop_turns()  # one taken, one waits at the writer, one behind it
    thread.ended = True
    queue.loop_ended()
    assert [type(post.future.exception(0)) for post in posts[:3]] == [ClientClosedError] * 3
    for refused in (
        lambda: queue.post(posts[3]),
        lambda: queue.post_when_there_is_room(posts[3], Deadline(None)),
        lambda: queue.pass_mark(Deadline(None)),
    ):
        with pytest.raises(ClientClosedError):
            refused()
    for task in list(queue._unsent):
        task.cancel()
    await loop_turns()


async def test_a_stopped_thread_refuses_at_once() -> None:
    thread = Here()
    queue = queue_of(FakeWriter(), thread)
    thread.ended = True
    for _ in range(3):
        with pytest.raises(ClientClosedError):
            queue.post(Post(b""))
    assert queue._in_entries == 0


def test_many_entries_are_cut_into_bounded_chunks() -> None:
    assert [len(chunk) for chunk in chunks([b""] * 2500, bytes)] == [1024, 1024, 452]
    assert [len(chunk) for chunk in chunks([bytes(400_000)] * 7, bytes)] == [3, 3, 1]
    assert list(chunks([], bytes)) == []
