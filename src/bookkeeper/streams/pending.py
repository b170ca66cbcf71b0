"""Records that were given to a writer without waiting for them (spec streams §15.6).

They are taken over in pieces, in the order of the calls, by whoever holds the writer's lane next: so a record that is
appended in any way comes behind all that were given before. Each has a future for its position.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, compress

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


class Piece:
    """Records in a row, and the futures of their positions."""

    __slots__ = ("futures", "payloads", "size", "txids")

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.txids: list[int] = []
        self.futures: list[asyncio.Future[DLSN]] = []
        self.size = 0
        """Bytes of the payloads."""

    @property
    def full(self) -> bool:
        return len(self.payloads) >= PIECE_RECORDS or self.size >= PIECE_BYTES

    def split(self, count: int) -> Piece:
        """Its first ones, which leave it."""
        first = Piece()
        first.payloads, self.payloads = self.payloads[:count], self.payloads[count:]
        first.txids, self.txids = self.txids[:count], self.txids[count:]
        first.futures, self.futures = self.futures[:count], self.futures[count:]
        first.size = sum(map(len, first.payloads))
        self.size -= first.size
        return first

    def drop_cancelled(self) -> None:
        """Without those that their owner has taken back."""
        if any(map(asyncio.Future.cancelled, self.futures)):
            kept = [not future.cancelled() for future in self.futures]
            self.payloads = list(compress(self.payloads, kept))
            self.txids = list(compress(self.txids, kept))
            self.futures = list(compress(self.futures, kept))
            self.size = sum(map(len, self.payloads))


class Pending:
    """What a writer has been given and has not acknowledged yet."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._pieces: deque[Piece] = deque()
        """Not taken over yet; records are added to the last one."""
        self._under_way: dict[Piece, None] = {}
        self._bytes = 0
        self.posted = 0
        """Records that were ever given."""
        self._taken = 0
        """Of them, those that were taken over, or taken back by their owner before."""

    def __len__(self) -> int:
        """Records that were not taken over yet."""
        return self.posted - self._taken

    @property
    def last_txid(self) -> int | None:
        """Of the newest one that was not taken over yet."""
        return self._pieces[-1].txids[-1] if self._pieces else None

    def post(self, payload: bytes, txid: int) -> asyncio.Future[DLSN]:
        """Take a record. Raises `BackpressureError` if too much is under way; one always has room."""
        size = len(payload)
        if self._bytes + size > self._most_bytes and self._bytes:
            raise BackpressureError(
                f"{self._bytes} bytes of the stream are not acknowledged yet, {self._most_bytes} may be (pending_bytes)"
            )
        if not self._pieces or self._pieces[-1].full:
            self._pieces.append(Piece())
        piece = self._pieces[-1]
        future: asyncio.Future[DLSN] = asyncio.get_running_loop().create_future()
        piece.payloads.append(payload)
        piece.txids.append(txid)
        piece.futures.append(future)
        piece.size += size
        self._bytes += size
        self.posted += 1
        return future

    async def room(self, size: int) -> None:
        """Wait until a record of this size has room."""
        while self._bytes and self._bytes + size > self._most_bytes:
            oldest = next(chain(self._under_way, self._pieces))
            await asyncio.wait([oldest.futures[-1]])

    def take(self, before: int) -> Piece | None:
        """The next ones in order, of those given when `posted` was `before`; without those that their owner has
        cancelled. None: there are none left."""
        while (left := before - self._taken) > 0:
            piece = self._pieces[0]
            if len(piece.payloads) > left:
                piece = piece.split(left)
            else:
                self._pieces.popleft()
            self._taken += len(piece.payloads)
            self._bytes -= piece.size
            piece.drop_cancelled()
            self._bytes += piece.size
            if piece.payloads:
                self._under_way[piece] = None
                return piece
        return None

    def settle(self, taken: Piece, positions: Iterable[DLSN]) -> None:
        """They are acknowledged."""
        self._leave(taken)
        for future, position in zip(taken.futures, positions, strict=True):
            if not future.done():
                future.set_result(position)

    def refuse(self, taken: Piece, error: BaseException) -> None:
        """They failed, or may have."""
        self._leave(taken)
        _fail(taken, error)

    def _leave(self, taken: Piece) -> None:
        del self._under_way[taken]
        self._bytes -= taken.size

    def fail(self, error: StreamError) -> None:
        """The writer has failed: those that were not taken over will not be."""
        self._taken = self.posted
        while self._pieces:
            piece = self._pieces.popleft()
            self._bytes -= piece.size
            _fail(piece, error)

    async def settled(self) -> None:
        """Wait until every one has its outcome."""
        waited = [future for piece in chain(self._under_way, self._pieces) for future in piece.futures]
        if waited:
            await asyncio.wait(waited)


def _fail(piece: Piece, error: BaseException) -> None:
    for future in piece.futures:
        if not future.done():
            future.set_exception(error)
            future.exception()  # whoever waits hears of it; nobody may
