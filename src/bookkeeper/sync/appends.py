"""How appends of many threads come to the one writer on the loop: in order, in bulk, and never too many.

Theory of operation

- Going to the loop and back costs more than an append. So appends are put into a queue, and the loop is woken once to
  take over what has gathered. The order of the queue is the order of ids: an append of a thread comes behind all that
  this thread appended before, however it did.
- **Bounded.** What was posted and is not settled yet counts against `maxPendingAddEntries` and `maxPendingAddBytes`.
  Where there is no room, `post` refuses at the call (`BackpressureError`), and `post_when_there_is_room` waits, first
  come, first served. Nothing that was accepted is refused later because too much is under way: when the writer itself
  has no room for what is next (`throttle`, a slow connection), everything behind it waits with it. So an accepted
  append fails only with the writer, and all behind it fail too: there are no holes.
- **Fair to the loop.** It takes over a bounded number of entries, then looks after its connections, then takes more.
- A future that its owner cancels before the loop took it over is skipped.
- An advanced writer's entries have ids already, and one of them may fill the gap that all others wait for. They are not
  held up behind each other, and what is next in line (an id not above the last confirmed + 1) always has room.

One lock guards the queues. It is never held while waiting. The loop counts what is settled without it: it alone
writes those numbers.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any, Protocol

from ..client.arguments import Payload, payload_bytes, wrong_type
from ..config import ClientConfiguration
from ..errors import BackpressureError, BKError, ClientClosedError, IncorrectParameterError
from ..runtime.loop_thread import LoopEnded, LoopThread, new_lock
from .blocking import Blocking, Deadline, until_closed

TURN_ENTRIES = 512
TURN_BYTES = 256 * 1024
"""The loop takes over so much at a time."""

CHUNK_ENTRIES = 1024
CHUNK_BYTES = 1 << 20
"""`append_many` hands over its entries in pieces of this size."""


class Target(Protocol):
    """Where appends go: what differs between the two kinds of writers. Called on the loop."""

    def start(self, post: Post) -> asyncio.Future[int]:
        """Append without waiting. Raises `BackpressureError` when the writer has no room now."""

    async def start_when_there_is_room(self, post: Post) -> asyncio.Future[int]:
        """Append as soon as there is room."""

    async def send_many(self, payloads: list[bytes], ids: list[int]) -> None:
        """Append one after the other as soon as there is room; `ids` gets theirs."""

    async def confirm_many(self, ids: list[int]) -> None:
        """Wait until they are acknowledged."""


class Post:
    """Something on its way to the writer."""

    __slots__ = ("entries", "entry_id", "future", "payload", "place", "size")

    def __init__(self, payload: bytes | list[bytes] | None, entry_id: int | None = None) -> None:
        """One payload, many, or None: a mark that is reached when all before it has been taken over."""
        self.payload = payload
        self.entry_id = entry_id
        self.future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self.place: concurrent.futures.Future[None] | None = None  # done when there is room for it
        if isinstance(payload, list):
            self.entries = len(payload)
            self.size = sum(map(len, payload))
        else:
            self.entries = 0 if payload is None else 1
            self.size = 0 if payload is None else len(payload)


class AppendQueue(Blocking):
    """The queue of one writer. See the module."""

    def __init__(
        self, thread: LoopThread, target: Target, config: ClientConfiguration, largest: int, *, ordered: bool
    ) -> None:
        """`largest`: bytes that fit into an entry. Not `ordered`: entries have ids, and need not wait in line."""
        super().__init__(thread)
        self._target = target
        self._largest = largest
        self._ordered = ordered
        self._max_entries = config.maxPendingAddEntries
        self._max_bytes = config.maxPendingAddBytes
        self._lock = new_lock()
        self._posted: deque[Post] = deque()  # there is room for them; the loop has not come to them
        self._crowd: deque[Post] = deque()  # no room yet; a thread waits for each
        self._awake = False  # the loop will look at `_posted` again by itself
        self._ended = False  # the loop will not look at anything again
        self._begun: dict[Post, None] = {}  # taken over and not settled
        self._unsent: set[asyncio.Task[None]] = set()  # what waits for room at the writer
        self._in_entries = self._in_bytes = 0  # ever posted; changed with the lock
        self._out_entries = self._out_bytes = 0  # ever settled; changed by the loop alone
        with until_closed():
            thread.follow(self)

    # --- on the callers' threads ---

    def checked(self, data: Payload) -> bytes:
        """The payload, copied if it could still change. Raises `IncorrectParameterError`."""
        if type(data) is not bytes:
            data = payload_bytes(data)
        if len(data) > self._largest:
            raise IncorrectParameterError(
                f"a payload of {len(data)} bytes does not fit into a frame: the limit is {self._largest} "
                "(nettyMaxFrameSizeBytes)"
            )
        return data

    def post(self, post: Post, *, urgent: bool = False) -> None:
        """Hand it over now. Raises `BackpressureError` when there is no room, `ClientClosedError`."""
        self._thread.check_process()  # a forked process must not touch the lock
        with self._lock:
            if not urgent and (self._crowd or not self._has_room()):
                raise BackpressureError(
                    f"{self._in_entries - self._out_entries} entries are on their way: wait for appends to complete, "
                    "or use append_soon, which waits"
                )
            self._accept(post)

    def post_when_there_is_room(self, post: Post, deadline: Deadline) -> None:
        """Hand it over, waiting our turn. Raises `ClientClosedError`, `TimeoutError`: then it was not appended."""
        self._may_wait()
        with self._lock:
            if not self._crowd and self._has_room():
                self._accept(post)
                return
            if self._ended:
                raise ClientClosedError
            place = post.place = concurrent.futures.Future()
            self._crowd.append(post)
            self._admit()  # the loop may have settled something since we looked, and not have seen us
        try:
            self._wait(place, deadline, "there was no room for it, and it was not appended")
        except TimeoutError:
            if self.withdraw(post):
                raise  # else it got in at the last moment
        except BaseException:
            self.withdraw(post)
            raise

    def withdraw(self, post: Post) -> bool:
        """Take it back if the loop has not begun with it; whether that succeeded."""
        with self._lock:
            if post in self._crowd:
                self._crowd.remove(post)
                return True
        return post.future.cancel()

    def pass_mark(self, deadline: Deadline) -> None:
        """Wait until everything posted before has been taken over by the writer."""
        mark = Post(None)
        self._may_wait()
        with self._lock:
            if not self._awake and not self._posted:
                return
            self._accept(mark)  # who waits for room is not before us
        self._wait(mark.future, deadline, "entries appended before are still on their way to the writer")

    def _has_room(self) -> bool:
        return (
            self._in_entries - self._out_entries < self._max_entries
            and self._in_bytes - self._out_bytes < self._max_bytes
        )

    def _accept(self, post: Post) -> None:
        """With the lock."""
        if self._ended:
            raise ClientClosedError
        self._posted.append(post)
        if not self._awake:
            try:
                self._thread.call_soon(self._turn)
            except LoopEnded:
                self._posted.pop()
                raise ClientClosedError from None
            self._awake = True
        self._in_entries += post.entries
        self._in_bytes += post.size

    def _admit(self) -> None:
        """With the lock: let in those that there is room for."""
        crowd = self._crowd
        while crowd and self._has_room():
            post = crowd[0]
            assert post.place is not None
            try:
                self._accept(post)
            except ClientClosedError:
                return  # `loop_ended` tells them all
            crowd.popleft()
            post.place.set_result(None)

    # --- on the loop ---

    def _turn(self) -> None:
        """Take over what was posted, for one turn of the loop."""
        posted = self._posted
        entries = size = 0
        while entries < TURN_ENTRIES and size < TURN_BYTES:
            if not posted:
                with self._lock:
                    if not posted:
                        self._awake = False
                        return
            post = posted.popleft()
            entries += 1
            size += post.size
            if not post.future.set_running_or_notify_cancel():
                self._settle(post)
            elif not self._begin(post):
                return  # the task that it waits for goes on with the rest
        asyncio.get_running_loop().call_soon(self._turn)

    def _begin(self, post: Post) -> bool:
        """Give it to the writer; False if the writer is not ready for what comes behind it."""
        if post.payload is None:
            post.future.set_result(None)
            return True
        self._begun[post] = None
        if isinstance(post.payload, list):
            self._spawn(post, self._send_many(post))
            return False
        try:
            appending = self._target.start(post)
        except BackpressureError:
            self._spawn(post, self._send_later(post))
            return not self._ordered
        except BaseException as error:
            self._fail(post, error)
            return True
        appending.add_done_callback(partial(self._hand_over, post))
        return True

    async def _send_later(self, post: Post) -> None:
        appending = await self._target.start_when_there_is_room(post)
        appending.add_done_callback(partial(self._hand_over, post))
        if self._ordered:
            self._turn()

    async def _send_many(self, post: Post) -> None:
        assert isinstance(post.payload, list)
        ids: list[int] = []
        try:
            await self._target.send_many(post.payload, ids)
        finally:
            self._turn()
        await self._target.confirm_many(ids)
        post.future.set_result(ids)
        self._settle(post)

    def _spawn(self, post: Post, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="bookkeeper.sync append")
        self._unsent.add(task)
        task.add_done_callback(partial(self._spawned, post))

    def _spawned(self, post: Post, task: asyncio.Task[None]) -> None:
        self._unsent.discard(task)
        error = ClientClosedError() if task.cancelled() else task.exception()
        if error is None:
            return
        self._fail(post, error)
        if self._ordered and not isinstance(post.payload, list):
            self._turn()

    def _hand_over(self, post: Post, appending: asyncio.Future[int]) -> None:
        """Give the outcome of an append to its thread."""
        if appending.cancelled():
            self._fail(post, ClientClosedError())
            return
        error = appending.exception()
        if error is not None:
            self._fail(post, error)
        else:
            post.future.set_result(appending.result())
            self._settle(post)

    def _fail(self, post: Post, error: BaseException) -> None:
        if not post.future.done():  # `loop_ended` was faster
            post.future.set_exception(error)
        self._settle(post)

    def _settle(self, post: Post) -> None:
        """There is room again."""
        self._begun.pop(post, None)
        self._out_entries += post.entries
        self._out_bytes += post.size
        if self._crowd:
            with self._lock:
                self._admit()

    async def sent(self) -> None:
        """Wait until everything that was taken over has been sent."""
        while self._unsent:
            await asyncio.wait(set(self._unsent))

    def loop_ended(self) -> None:
        """Whatever has not been taken over never will be."""
        with self._lock:
            self._ended = True
            left = [*self._begun, *self._posted, *self._crowd]
            self._posted.clear()
            self._crowd.clear()
        for post in left:
            for future in (post.place, post.future):
                if future is not None and not future.done():
                    future.set_exception(ClientClosedError())


def chunks(payloads: Iterable[Payload], checked: Callable[[Payload], bytes]) -> Iterator[list[bytes]]:
    """The payloads in pieces that are not too large. An error of the iterable comes behind what it gave before."""
    chunk: list[bytes] = []
    size = 0
    try:
        for data in payloads:
            payload = checked(data)
            chunk.append(payload)
            size += len(payload)
            if len(chunk) >= CHUNK_ENTRIES or size >= CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
    except GeneratorExit:
        raise
    except BaseException:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def append_all(queue: AppendQueue, payloads: Iterable[Payload], deadline: Deadline) -> list[int]:
    """Post all payloads, consuming them on this thread, and wait until they are acknowledged; their ids."""
    if not isinstance(payloads, Iterable):
        wrong_type("the entries", "an iterable (asynchronous ones are for the asynchronous client)", payloads)
    ids: list[int] = []
    waiting: deque[Post] = deque()

    def collect(post: Post) -> None:
        try:
            ids.extend(queue._wait(post.future, deadline, "entries are on their way and may become part of the ledger"))
        except BKError as error:
            error.acknowledged = [*ids, *error.acknowledged]
            raise

    for chunk in chunks(payloads, queue.checked):
        post = Post(chunk)
        queue.post_when_there_is_room(post, deadline)
        waiting.append(post)
        while waiting and waiting[0].future.done():
            collect(waiting.popleft())
    for post in waiting:
        collect(post)
    return ids
