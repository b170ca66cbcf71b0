"""Records that were given to a writer without waiting for them (spec streams §15.6).

They are taken over in pieces, in the order of the calls, by whoever holds the writer's lane next: so a record that is
appended in any way comes behind all that were given before. Each has a future for its position.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from ..errors import BackpressureError, StreamError
from .dlsn import DLSN

PIECE_RECORDS = 4096
PIECE_BYTES = 1 << 20
"""So much is taken over at a time."""


def pieces(payloads: Iterable[bytes]) -> Iterator[list[bytes]]:
    """All of them in order, as much at a time as is taken over at a time."""
    piece: list[bytes] = []
    size = 0
    for payload in payloads:
        piece.append(payload)
        size += len(payload)
        if len(piece) == PIECE_RECORDS or size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


class Post(NamedTuple):
    """A record on its way."""

    payload: bytes
    txid: int
    future: asyncio.Future[DLSN]


class Pending:
    """What a writer has been given and has not acknowledged yet."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._posts: deque[Post] = deque()
        self._under_way: dict[asyncio.Future[DLSN], None] = {}
        self._bytes = 0
        self.posted = 0
        """Records that were ever given."""

    def __len__(self) -> int:
        """Records that were not taken over yet."""
        return len(self._posts)

    @property
    def last_txid(self) -> int | None:
        """Of the newest one that was not taken over yet."""
        return self._posts[-1].txid if self._posts else None

    def post(self, payload: bytes, txid: int) -> asyncio.Future[DLSN]:
        """Take a record. Raises `BackpressureError` if too much is under way; one always has room."""
        if not self._has_room(len(payload)):
            raise BackpressureError(
                f"{self._bytes} bytes of the stream are not acknowledged yet, {self._most_bytes} may be (pending_bytes)"
            )
        future: asyncio.Future[DLSN] = asyncio.get_running_loop().create_future()
        self._posts.append(Post(payload, txid, future))
        self._bytes += len(payload)
        self.posted += 1
        return future

    def _has_room(self, size: int) -> bool:
        return not self._bytes or self._bytes + size <= self._most_bytes

    async def room(self, size: int) -> None:
        """Wait until a record of this size has room."""
        while not self._has_room(size):
            oldest = next(iter(self._under_way), None) or self._posts[0].future
            await asyncio.wait([oldest])

    def take(self, before: int) -> list[Post]:
        """The next ones in order, of those given when `posted` was `before`; without those that their owner has
        cancelled. Empty: there are none left."""
        left = before - (self.posted - len(self._posts))
        taken: list[Post] = []
        size = 0
        while left > 0 and len(taken) < PIECE_RECORDS and size < PIECE_BYTES:
            post = self._posts.popleft()
            left -= 1
            if post.future.cancelled():
                self._bytes -= len(post.payload)
                continue
            taken.append(post)
            self._under_way[post.future] = None
            size += len(post.payload)
        return taken

    def settle(self, taken: list[Post], positions: Iterator[DLSN]) -> None:
        """They are acknowledged."""
        for post, position in zip(taken, positions, strict=True):
            self._leave(post)
            if not post.future.done():
                post.future.set_result(position)

    def refuse(self, taken: list[Post], error: BaseException) -> None:
        """They failed, or may have."""
        for post in taken:
            self._leave(post)
            _fail(post.future, error)

    def _leave(self, post: Post) -> None:
        self._bytes -= len(post.payload)
        del self._under_way[post.future]

    def fail(self, error: StreamError) -> None:
        """The writer has failed: those that were not taken over will not be."""
        while self._posts:
            post = self._posts.popleft()
            self._bytes -= len(post.payload)
            _fail(post.future, error)

    async def settled(self) -> None:
        """Wait until every one has its outcome."""
        waited = list(chain(self._under_way, (post.future for post in self._posts)))
        if waited:
            await asyncio.wait(waited)


def _fail(future: asyncio.Future[DLSN], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # whoever waits hears of it; nobody may
