"""The two kinds of writers: ids given by the writer, or by the caller (spec client §5.8, §14.3).

Here are the ways to append; how a writer works and ends is said in `writable`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, Iterable, Iterator

from ..errors import BKError, LedgerClosedError, from_code
from ..runtime.loop_thread import thread_ident
from .arguments import Payload, check_integer, check_payloads
from .wire.results import OK
from .writable import WritableLedger

TURN_BYTES = 64 * 1024
"""Many appends in one call let the loop turn, and so the frames go out, after this much. Otherwise a writer that is far
ahead would fill its whole window before the first byte leaves, and bookies and writer would take turns instead of
working at the same time."""

ENTRY_BYTES = 64
"""What a frame has beside its payload, about."""


class LedgerWriter(WritableLedger):
    """The writer of one ledger; ids count up from 0. Make one with `BookKeeper.create_ledger`.

    As an async context manager it seals the ledger at the end. Cancelling an `append` does not withdraw the entry: it
    has its id and may become part of the ledger.
    """

    _ahead = 0  # bytes sent since many appends last let the loop turn

    async def append(self, data: bytes | bytearray | memoryview) -> int:
        """Append an entry and wait until its ack quorum has it, and all before it; returns its id.

        - `data`: the payload, `largest_payload` bytes at most; may be empty. What is not `bytes` is copied, so the
          caller may change it afterwards.

        Waits, first come first served, while `maxPendingAddEntries` or `maxPendingAddBytes` are in flight. A bookie
        that fails or is late (`addEntryTimeoutSec` seconds) is replaced meanwhile. It has no time limit of its own: use
        `asyncio.timeout`, or `addEntryQuorumTimeoutSec` seconds, which ends the writer.

        Raises `IncorrectParameterError` for what is too large, `WrongTypeError` for what is no payload; no id was used,
        and the writer goes on. All others end the writer: `LedgerFencedError` (another client recovers the ledger),
        `NotEnoughBookiesError`, `AddEntryQuorumTimeoutError`, `WriteError`, `UnauthorizedError`, `IllegalOpError`;
        afterwards `LedgerClosedError`. An entry that failed so may still be part of the ledger.
        """
        payload = self._checked(data)
        awake = self._appending
        if not awake.gate.try_enter():
            await self._enter(len(payload))
        future: asyncio.Future[int] = self._loop.create_future()
        awake.adds.push(payload, future)
        return await future

    def append_nowait(self, data: bytes | bytearray | memoryview) -> asyncio.Future[int]:
        """Append an entry; the future gets its id when it is acknowledged, or the error that `append` would raise.

        The entry has its id when this returns: order of calls is order of ids. Raises `BackpressureError` when
        `append` would wait, and at once what `append` raises for its `data`.
        """
        context = self._context
        if (  # `_checked`, without a call
            type(data) is not bytes
            or len(data) > self._plain
            or not context.departures.due
            or thread_ident() != context.home.thread.ident
            or not self._loop.is_running()
        ):
            data = self._checked(data)
        awake = self._awake or self._wake()
        if not awake.gate.try_enter():
            self._refuse_for_now()
        future: asyncio.Future[int] = self._loop.create_future()
        awake.adds.push(data, future)
        return future

    async def append_soon(self, data: bytes | bytearray | memoryview) -> asyncio.Future[int]:
        """Wait only until there is room, then append; the future gets the entry's id when it is acknowledged.

        For many appends in flight: `append_nowait` that waits instead of raising `BackpressureError`. `data` as in
        `append`. Raises what `append` raises before anything is sent; the future has the rest.
        """
        payload = self._checked(data)
        awake = self._appending
        if not awake.gate.try_enter():
            await self._enter(len(payload))
        future: asyncio.Future[int] = self._loop.create_future()
        awake.adds.push(payload, future)
        return future

    async def append_many(self, payloads: Iterable[Payload] | AsyncIterable[Payload]) -> list[int]:
        """Append many entries, sending without waiting for each; returns their ids when all are acknowledged.

        - `payloads`: what `append` takes, many of it, from an iterable or an asynchronous one. It is read as there is
          room, so it may be endless.

        Raises the error of the first that fails, with its id as `entry_id`; its `acknowledged` are the ids of those
        before it, which are safe. Raises `LedgerClosedError` when the ledger ended with all that were sent acknowledged
        and some not yet sent. When `payloads` itself raises, gives something that is no payload, or this is cancelled,
        what came before is on its way with ids of its own; `flush` waits for it.
        """
        check_payloads(payloads)
        ids: list[int] = []
        if isinstance(payloads, AsyncIterable):
            with self._telling(ids):
                async for data in payloads:
                    ids.append(await self._send(data))  # noqa: PERF401 - those before a failure count
        else:
            await self.send_many(payloads, ids)
        await self.confirm_many(ids)
        return ids

    async def send_many(self, payloads: Iterable[Payload], ids: list[int]) -> None:
        """The first half of `append_many`, for `bookkeeper.sync`: everything is on its way; `ids` gets the ids."""
        with self._telling(ids):
            for data in payloads:
                payload = self._checked(data)  # `_send`, without a coroutine for each entry
                if self._far_ahead(len(payload)):
                    await asyncio.sleep(0)
                awake = self._awake or self._wake()
                if not awake.gate.try_enter():
                    await self._enter(len(payload))
                ids.append(awake.adds.push(payload))

    async def confirm_many(self, ids: list[int]) -> None:
        """The second half: wait until they are acknowledged."""
        with self._telling(ids):
            if ids:
                await self._adds.confirmed(ids[-1])

    @contextlib.contextmanager
    def _telling(self, ids: list[int]) -> Iterator[None]:
        """An error tells which of these are safe."""
        try:
            yield
        except BKError as caught:
            head = self._window.head
            error = caught
            if isinstance(caught, LedgerClosedError) and self._state.ended and ids and ids[-1] > head:
                error = self._adds.error_of_first()  # it failed before: the rest could not even be sent
            error.acknowledged = [entry_id for entry_id in ids if entry_id <= head]
            raise error from (None if error is not caught else caught.__cause__)

    def _far_ahead(self, size: int) -> bool:
        """Before a payload of this size is sent: whether the loop is to turn first."""
        self._ahead += size + ENTRY_BYTES
        if self._ahead <= TURN_BYTES:
            return False
        self._ahead = 0
        return True

    async def _send(self, data: Payload) -> int:
        """Push an entry once there is room; its id."""
        payload = self._checked(data)
        if self._far_ahead(len(payload)):
            await asyncio.sleep(0)
        awake = self._appending
        if not awake.gate.try_enter():
            await self._enter(len(payload))
        return awake.adds.push(payload)


class LedgerAdvWriter(WritableLedger):
    """The writer of a ledger whose entry ids are chosen by the caller. Make one with `create_ledger_adv`.

    Ids may come in any order; an entry is acknowledged when all ids below it are. While too much is in flight the
    lowest id that waits is sent next, and the one that all others wait for at once. The lengths recorded in entries
    follow the order of sending.
    """

    _chooses_ids = True

    async def write(self, entry_id: int, data: bytes | bytearray | memoryview) -> int:
        """Write an entry and wait until it and all below it are acknowledged; returns its id.

        - `entry_id`: 0 or more, each once, in any order. An entry is acknowledged when all below it are: a gap holds
          back everything above it.
        - `data`: as in `LedgerWriter.append`.

        Raises as `LedgerWriter.append`, and `DuplicateEntryIdError`, and `IncorrectParameterError` for a negative id.
        """
        return await (await self.write_soon(entry_id, data))

    async def write_soon(self, entry_id: int, data: bytes | bytearray | memoryview) -> asyncio.Future[int]:
        """Wait only until there is room, then write; the future gets the id when it and all below are acknowledged.

        For keeping many writes in flight without holding back the caller: `write_nowait` that waits instead of raising
        `BackpressureError`.
        """
        check_integer("the entry id", entry_id)
        payload = self._checked(data)
        if not self._appending.gate.try_enter(entry_id):
            await self._enter(len(payload), entry_id)
        future: asyncio.Future[int] = self._loop.create_future()
        self._push_at(entry_id, payload, future)
        return future

    def write_nowait(self, entry_id: int, data: bytes | bytearray | memoryview) -> asyncio.Future[int]:
        """As `write`, but without waiting: the future gets the id, or the error that `write` would raise.

        Raises `BackpressureError` when `write` would wait to be sent.
        """
        check_integer("the entry id", entry_id)
        payload = self._checked(data)
        if not self._appending.gate.try_enter(entry_id):
            self._refuse_for_now()
        future: asyncio.Future[int] = self._loop.create_future()
        self._push_at(entry_id, payload, future)
        return future

    def _push_at(self, entry_id: int, payload: bytes, future: asyncio.Future[int]) -> None:
        code = self._window.check_id(entry_id)
        if code != OK and not self._state.ended:
            raise from_code(code, ledger_id=self._ledger_id, entry_id=entry_id)
        self._adds.push(payload, future, entry_id)
