"""Writing a ledger: append, force, close (spec client §5 to §8, §14.3).

A writer owns an add pipeline and does for it what it cannot do itself: put another ensemble into the metadata, and end
the ledger.

How a ledger ends

- `close`: pending appends fail with LedgerClosed (with `drain` they are awaited first), then the metadata is closed
  at the last confirmed entry.
- A failure that the writer cannot get over (fenced, not enough bookies, no ack quorum in time, ...) ends it the same
  way, by itself: pending appends fail with that error, later ones with LedgerClosed. A fenced writer too tries to
  close at its own LAC: all above was never acknowledged, and whoever recovers the ledger adopts what it finds closed.
- Met with a ledger that is in recovery, when changing its ensemble, the writer withdraws: it fails its appends
  and leaves the metadata to the recoverer. So it does when the client is closed: whoever waits hears ClientClosed, and
  the ledger stays open for recovery.

`failure` is why a writer ended by itself; every LedgerClosed that comes later has it as its cause. `close` of such a
writer succeeds when the metadata was closed where this writer would have closed it, whoever did it: nothing that was
acknowledged is missing.

Closing happens once; every caller of `close` gets the one outcome. Only where the metadata store could not be reached
the next caller tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
from copy import copy
from types import TracebackType
from typing import ClassVar, Self

from ..errors import (
    BackpressureError,
    BKError,
    BookKeeperError,
    ClientClosedError,
    IllegalOpError,
    IncorrectParameterError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataError,
    MetadataVersionError,
    MetaStoreError,
    NotEnoughBookiesError,
    UnexpectedError,
    ZKError,
    from_code,
)
from ..metadata.api import Versioned
from ..metadata.ledger_metadata import LedgerMetadata
from ..metadata.update import update_ledger
from ..protocol.digest import Digest
from ..protocol.limits import largest_payload
from ..protocol.messages import V3, ForceLedgerRequest, Operation
from ..quorum.ensemble import AskForChange, GiveUp, replace_failed
from ..types import BookieId, LedgerState, WriteFlag
from .adds.explicit_lac import ExplicitLac
from .adds.gate import AppendGate
from .adds.pipeline import AddPipeline, add_encoder
from .arguments import Payload, check_integer, check_payloads, payload_bytes
from .context import ClientContext
from .readable import ReadableLedger
from .store import wrong_loop
from .wire.results import OK, default_code, from_metadata_error, result_code

log = logging.getLogger(__name__)

_get_running_loop = asyncio._get_running_loop
"""None where no loop runs, as in a forked process."""

TURN_BYTES = 64 * 1024
"""Appends let the loop turn, and so the frames go out, after this much. Otherwise a writer that is far ahead would
fill its whole window before the first byte leaves, and bookies and writer would take turns instead of working at the
same time."""


class _Writer(ReadableLedger):
    """What both kinds of writers share. An `AddOwner`."""

    _chooses_ids: ClassVar[bool] = False
    """The caller chooses the ids of entries."""

    def __init__(
        self,
        context: ClientContext,
        metadata: Versioned[LedgerMetadata],
        digest: Digest,
        master_key: bytes,
        *,
        write_flags: WriteFlag = WriteFlag.NONE,
    ) -> None:
        """A writer of a ledger just created: nobody else has written to it."""
        super().__init__(context, metadata, digest, master_key)
        self._loop = asyncio.get_running_loop()
        self._write_flags = write_flags
        self._impossible: IllegalOpError | None = None  # said by the first append, as BookKeeper does
        version = self._add_version(write_flags)
        self._adds = AddPipeline(
            context,
            self._ledger_id,
            self._distribution,
            metadata.value.last_ensemble[1],
            self,
            add_encoder(version, self._ledger_id, digest, master_key, write_flags=write_flags),
            version=version,
            write_flags=write_flags,
            quorum_timeout=context.config.addEntryQuorumTimeoutSec,
        )
        adds = self._adds
        self._outbox = adds.outbox
        self._gate = AppendGate(context.runtime, context.config, adds.window, lambda: adds.outbox.writable)
        adds.on_progress = self._gate.progress
        self._largest_payload = largest_payload(context.config.nettyMaxFrameSizeBytes, version, digest.size)
        self._new_future: Callable[[], asyncio.Future[int]] = self._loop.create_future
        self._drains = 0  # calls of `close` that wait for what is pending
        self._plain = self._plain_payload()  # bytes; a larger payload needs a closer look
        self._change: asyncio.Task[None] | None = None  # the running ensemble change
        self._sealing: asyncio.Task[BKError | None] | None = None  # the one close; its result is everybody's
        self._withdrawn = OK  # code, set instead of `_sealing` when the metadata is left alone
        self._end = (-1, 0)  # last entry id and length to close at; set before `_sealing`
        self._ended = asyncio.Event()  # `_withdrawn` is set, or `_sealing` has come to an end
        self._explicit_lac = ExplicitLac(
            context,
            self._ledger_id,
            self._distribution,
            digest,
            master_key,
            adds,
        )
        self._explicit_lac.start()

    # --- what it knows ---

    @property
    def last_add_confirmed(self) -> int:
        """The last entry that is sure to be readable; -1 if none. With DEFERRED_SYNC only `force` moves it."""
        if self.metadata.closed:
            return self.metadata.last_entry_id
        return self._adds.window.lac

    @property
    def last_add_pushed(self) -> int:
        """The highest entry id handed out; -1 if none."""
        return self._adds.window.lap

    @property
    def length(self) -> int:
        """Payload bytes of the ledger, pending appends included."""
        return self.metadata.length if self.metadata.closed else self._adds.window.length

    @property
    def closed(self) -> bool:
        """Whether this writer takes no more appends, or knows the ledger to be sealed."""
        return self._adds.stopped is not None or super().closed

    @property
    def failure(self) -> BKError | None:
        """Why this writer ended by itself; None while it works, and when it or its client was closed."""
        return self._adds.failure

    async def wait_closed(self) -> None:
        """Wait until the writer has ended: closed, or ended by itself (see `failure`) and its ledger sealed if that was
        possible."""
        await self._ended.wait()

    def _more(self) -> str:
        return f"{super()._more()}, last add pushed {self.last_add_pushed}"

    def _heard_of_lac(self, lac: int, length: int) -> None:
        """Bookies cannot know more than the writer does."""

    async def _newest_lac(self) -> int:
        return self.last_add_confirmed

    # --- appending ---

    @property
    def largest_payload(self) -> int:
        """Bytes that fit into an entry (`nettyMaxFrameSizeBytes`)."""
        return self._largest_payload

    def _add_version(self, write_flags: WriteFlag) -> int:
        try:
            return self._context.bookies.add_version(write_flags)
        except IllegalOpError as error:
            self._impossible = error
            return V3

    def _plain_payload(self) -> int:
        """The largest payload that may surely be appended now; -1 where appends are impossible, or while draining."""
        return self._largest_payload if self._impossible is None and not self._drains else -1

    def _checked(self, data: Payload) -> bytes:
        """The payload as it will be sent, if it may be."""
        # To ask for the running loop is a system call in some Pythons: once in a turn of the loop is enough.
        if not self._outbox.bytes and _get_running_loop() is not self._loop:
            raise wrong_loop()
        if type(data) is not bytes:
            data = payload_bytes(data)
        if self._impossible is not None and self._adds.stopped is None:
            self.give_up(self._impossible.code, withdraw=False)
            raise self._impossible
        if len(data) > self._largest_payload:
            raise IncorrectParameterError(
                f"a payload of {len(data)} bytes does not fit into a frame: the limit is {self._largest_payload} "
                "(nettyMaxFrameSizeBytes)",
                ledger_id=self._ledger_id,
            )
        if self._drains:
            raise LedgerClosedError(ledger_id=self._ledger_id)
        return data

    def _refuse_for_now(self) -> None:
        if self._adds.stopped is None:
            raise BackpressureError(ledger_id=self._ledger_id)

    async def _enter(self, size: int, entry_id: int | None = None) -> None:
        if self._adds.stopped is None:
            await self._gate.enter(size, entry_id)

    async def flush(self) -> int:
        """Wait until everything pushed before this call is acknowledged; returns the id of the last entry pushed.

        On an advanced writer that means that all gaps below it are filled. Raises the error of the first append that
        failed, also when it failed before this call.
        """
        self._context.home.check()
        adds = self._adds
        if adds.stopped is not None and adds.failed_entries:
            raise adds.error_of_first()
        return await adds.confirmed(adds.window.lap)

    async def force(self) -> None:
        """Make everything acknowledged before this call durable on all bookies of the ensemble (DEFERRED_SYNC).

        Then, and only then, the LAC covers it. Raises `LedgerClosedError`, or the first bookie's error: then call it
        again. Waits `addEntryTimeoutSec` seconds for a bookie.
        """
        self._context.home.check()
        adds = self._adds
        if adds.stopped is not None:
            raise adds.refusal()
        head = adds.window.head
        if head < 0:
            return
        for error in await asyncio.gather(*(self._force_one(bookie) for bookie in adds.keeper.ensemble)):
            if error is not None:
                raise error
        if adds.stopped is not None:
            raise adds.refusal()
        adds.window.synced(head)
        self._explicit_lac.progress()

    async def _force_one(self, bookie: BookieId) -> BKError | None:
        request = ForceLedgerRequest(self._ledger_id, version=V3)
        try:
            response = await self._context.bookies.request(bookie, request)
        except BKError as error:
            return error
        code = result_code(response.status, default_code(Operation.FORCE_LEDGER))
        return None if code == OK else from_code(code, ledger_id=self._ledger_id, bookie=bookie)

    # --- ensemble changes ---

    def change_ensemble(self, change: AskForChange) -> None:
        """Called by the pipeline: put an ensemble without these bookies into the metadata."""
        if self._context.closed:
            self.give_up(ClientClosedError.code, withdraw=False)
            return
        self._change = self._context.tasks.spawn(
            self._change_ensemble(change), name=f"ensemble change of ledger {self._ledger_id}"
        )

    async def _change_ensemble(self, change: AskForChange) -> None:
        adds = self._adds
        failed = change.failed

        def needs(metadata: LedgerMetadata) -> bool:
            if metadata.state is not LedgerState.OPEN or adds.stopped is not None:
                return False
            _, ensemble = metadata.last_ensemble
            return any(ensemble[index] == bookie for index, bookie in failed.items())

        def transform(metadata: LedgerMetadata) -> LedgerMetadata:
            _, ensemble = metadata.last_ensemble
            new = replace_failed(ensemble, failed, self._choose, change.avoid)
            return metadata.with_ensemble(adds.window.lac + 1, new)

        try:
            try:
                stored = await self._update_metadata(needs, transform)
            except NotEnoughBookiesError as error:
                # What we know of the bookies may be a moment behind; a ledger must not end for that.
                if not await self._context.placement.refresh():
                    log.warning("ledger %d: bookies %s failed: %s", self._ledger_id, ", ".join(failed.values()), error)
                    raise
                stored = await self._update_metadata(needs, transform)
        except BKError as error:
            adds.carry_out(GiveUp(error.code))
            return
        except MetadataError as error:
            adds.carry_out(GiveUp(from_metadata_error(error).code))
            return
        except asyncio.CancelledError:  # with all the client's tasks, or because the ledger is being sealed
            adds.carry_out(GiveUp(ClientClosedError.code))
            raise
        except Exception:
            adds.carry_out(GiveUp(UnexpectedError.code))
            raise
        self.adopt_metadata(stored)
        if adds.stopped is not None:
            return
        if stored.value.state is LedgerState.OPEN:
            first, ensemble = stored.value.last_ensemble
            log.info(
                "ledger %d: bookies %s failed; from entry %d on its ensemble is %s",
                self._ledger_id,
                ", ".join(failed.values()),
                first,
                ", ".join(ensemble),
            )
            adds.carry_out(adds.keeper.on_changed(ensemble))
        else:
            adds.carry_out(adds.keeper.on_refused(stored.value.state))

    async def _update_metadata(
        self, needs: Callable[[LedgerMetadata], bool], transform: Callable[[LedgerMetadata], LedgerMetadata]
    ) -> Versioned[LedgerMetadata]:
        if self._context.runtime.buggify("ensemble change hesitates", 0.2):
            await asyncio.sleep(0.1)
        return await update_ledger(self._context.driver.ledgers, self._ledger_id, self._versioned, needs, transform)

    def _choose(self, ensemble: Sequence[BookieId], index: int, excluded: Sequence[BookieId]) -> BookieId:
        metadata = self.metadata
        return self._context.placement.replace(metadata.quorums, metadata.custom_metadata, ensemble, index, excluded)

    # --- the end ---

    def give_up(self, code: int, withdraw: bool) -> None:
        """Called by the pipeline: it cannot go on."""
        if withdraw or code == ClientClosedError.code:
            self._withdraw(code)
        else:
            self._seal(code)

    def _withdraw(self, code: int) -> None:
        if self._sealing is None and self._withdrawn == OK:
            self._withdrawn = code
            self._stop(code)
            self._ended.set()

    def _stop(self, code: int) -> None:
        """Nothing is appended any more; what is pending fails with `code`."""
        self._explicit_lac.stop()
        self._adds.stop(code)
        self._gate.close(self._adds.refusal)

    def _seal(self, code: int) -> None:
        """End the ledger: stop, and close the metadata at the last confirmed entry. Happens once."""
        if self._sealing is not None or self._withdrawn != OK:
            return
        if self._context.closed:
            self._withdraw(ClientClosedError.code)
            return
        self._stop(code)
        self._end = (self._adds.window.lac, self._adds.window.length)
        self._begin_sealing()

    def _begin_sealing(self) -> None:
        self._sealing = self._context.tasks.spawn(
            self._close_metadata(*self._end), name=f"close of ledger {self._ledger_id}"
        )
        self._sealing.add_done_callback(lambda _: self._ended.set())

    def _must_try_again(self) -> bool:
        """Whether the metadata store could not be reached when the ledger was to be closed."""
        sealing = self._sealing
        if sealing is None or not sealing.done() or sealing.cancelled() or self._context.closed:
            return False
        return isinstance(sealing.result(), ZKError | MetaStoreError)

    async def _close_metadata(self, last_entry_id: int, length: int) -> BKError | None:
        """Returns the error instead of raising it: it belongs to whoever calls `close`, if anybody does."""
        change = self._change
        if change is not None and not change.done():
            change.cancel()
            await asyncio.wait([change])

        def needs(metadata: LedgerMetadata) -> bool:
            if not metadata.closed:
                return True
            if (metadata.last_entry_id, metadata.length) == (last_entry_id, length):
                return False
            raise MetadataVersionError(
                f"the ledger was closed by somebody else with last entry {metadata.last_entry_id} and length "
                f"{metadata.length}, not {last_entry_id} and {length}",
                ledger_id=self._ledger_id,
            )

        try:
            stored = await update_ledger(
                self._context.driver.ledgers,
                self._ledger_id,
                self._versioned,
                needs,
                lambda metadata: metadata.close(last_entry_id, length),
            )
        except BKError as error:
            return error
        except BookKeeperError as error:
            return from_metadata_error(error, self._ledger_id)
        except Exception as error:
            log.exception("closing ledger %d: unexpected error", self._ledger_id)
            return UnexpectedError(f"closing failed: {error!r}", ledger_id=self._ledger_id)
        self.adopt_metadata(stored)
        return None

    async def close(self, *, drain: bool = False) -> None:
        """Seal the ledger at its last confirmed entry.

        - `drain`: wait for pending appends first; the error of one that fails is raised after the ledger is sealed.
          Without it they fail with `LedgerClosedError`.

        A second call waits for, and reports, the outcome of the first.

        When the metadata store could not be reached the next call tries again. Cancelled while it drains, the writer is
        as it was.

        Raises `MetadataVersionError` when another client closed the ledger at another entry, `LedgerFencedError` when
        another client is recovering it, `MetadataStoreError`.
        """
        self._context.home.check()
        failure = await self._drain() if drain else None
        if self._must_try_again():
            self._begin_sealing()
        self._seal(LedgerClosedError.code)
        if self._withdrawn == ClientClosedError.code:
            raise ClientClosedError(ledger_id=self._ledger_id)
        if self._withdrawn != OK:
            raise LedgerFencedError("another client is recovering", ledger_id=self._ledger_id)
        sealing = self._sealing
        assert sealing is not None
        try:
            error = await asyncio.shield(sealing)
        except asyncio.CancelledError:
            if sealing.cancelled():  # with all the client's tasks
                raise ClientClosedError(ledger_id=self._ledger_id) from None
            raise
        if error is not None:
            raise copy(error)  # each caller has his own
        if failure is not None:
            raise failure

    async def _drain(self) -> BKError | None:
        """Wait for everything that waits at the gate or is in flight without a gap before it."""
        adds = self._adds
        self._drains += 1
        self._plain = self._plain_payload()
        try:
            await self._drained()
        except BKError as error:
            if not adds.failed_entries:
                return error
        except asyncio.CancelledError:
            self._drains -= 1
            self._plain = self._plain_payload()
            raise
        if adds.stopped is not None and adds.failed_entries:
            return adds.error_of_first()
        return None

    async def _drained(self) -> None:
        adds = self._adds
        window = adds.window
        while adds.stopped is None:
            if self._gate.next_is_waiting():
                await self._gate.enter(0, window.head + 1 if self._chooses_ids else None)  # behind it
                await asyncio.sleep(0)  # it was let in, and runs now
            elif window.head + 1 in window.open:
                await adds.confirmed(window.head + 1)
            else:
                return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Seal the ledger: after a normal exit everything pending is awaited first, after an error it fails."""
        if error is not None:
            await self._close_after_an_error()
            return
        try:
            await self.close(drain=True)
        except asyncio.CancelledError:
            if self._sealing is None:  # cancelled while it drained
                await self._close_after_an_error()
            raise

    async def _close_after_an_error(self) -> None:
        try:
            await self.close()
        except BKError as also:
            log.warning("closing ledger %d after an error failed: %s", self._ledger_id, also)

    def __del__(self) -> None:
        adds = getattr(self, "_adds", None)
        if adds is None or adds.stopped is not None:
            return
        warnings.warn(
            f"writer of ledger {self._ledger_id} was dropped without close(): the ledger stays open until it is "
            "recovered",
            ResourceWarning,
            source=self,
            stacklevel=1,
        )
        if _get_running_loop() is self._loop:
            _abandon(self._explicit_lac, adds)
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nothing runs there any more
            self._loop.call_soon_threadsafe(_abandon, self._explicit_lac, adds)  # any thread may collect garbage


def _abandon(explicit_lac: ExplicitLac, adds: AddPipeline) -> None:
    """The end of a writer that nobody has any more, on its loop."""
    explicit_lac.stop()
    adds.abandon()


class LedgerWriter(_Writer):
    """The writer of one ledger; ids count up from 0. Make one with `BookKeeper.create_ledger`.

    As an async context manager it seals the ledger at the end. Cancelling an `append` does not withdraw the entry: it
    has its id and may become part of the ledger.
    """

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
        if not self._gate.try_enter():
            await self._enter(len(payload))
        future = self._new_future()
        self._adds.push(payload, future)
        return await future

    def append_nowait(self, data: bytes | bytearray | memoryview) -> asyncio.Future[int]:
        """Append an entry; the future gets its id when it is acknowledged, or the error that `append` would raise.

        The entry has its id when this returns: order of calls is order of ids. Raises `BackpressureError` when
        `append` would wait, and at once what `append` raises for its `data`.
        """
        adds = self._adds
        if type(data) is not bytes or not self._outbox.bytes or len(data) > self._plain:
            data = self._checked(data)
        if not self._gate.try_enter():
            self._refuse_for_now()
        future = self._new_future()
        adds.push(data, future)
        return future

    async def append_soon(self, data: bytes | bytearray | memoryview) -> asyncio.Future[int]:
        """Wait only until there is room, then append; the future gets the entry's id when it is acknowledged.

        For many appends in flight: `append_nowait` that waits instead of raising `BackpressureError`. `data` as in
        `append`. Raises what `append` raises before anything is sent; the future has the rest.
        """
        payload = self._checked(data)
        if not self._gate.try_enter():
            await self._enter(len(payload))
        future = self._new_future()
        self._adds.push(payload, future)
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
        adds = self._adds
        with self._telling(ids):
            for data in payloads:
                payload = self._checked(data)  # `_send`, without a coroutine for each entry
                if self._outbox.bytes > TURN_BYTES:
                    await asyncio.sleep(0)
                if not self._gate.try_enter():
                    await self._enter(len(payload))
                ids.append(adds.push(payload))

    async def confirm_many(self, ids: list[int]) -> None:
        """The second half: wait until they are acknowledged."""
        with self._telling(ids):
            if ids:
                await self._adds.confirmed(ids[-1])

    @contextlib.contextmanager
    def _telling(self, ids: list[int]) -> Iterator[None]:
        """An error tells which of these are safe."""
        adds = self._adds
        try:
            yield
        except BKError as caught:
            head = adds.window.head
            error = caught
            if isinstance(caught, LedgerClosedError) and adds.stopped is not None and ids and ids[-1] > head:
                error = adds.error_of_first()  # it failed before: the rest could not even be sent
            error.acknowledged = [entry_id for entry_id in ids if entry_id <= head]
            raise error from (None if error is not caught else caught.__cause__)

    async def _send(self, data: Payload) -> int:
        """Push an entry once there is room; its id."""
        payload = self._checked(data)
        if self._outbox.bytes > TURN_BYTES:
            await asyncio.sleep(0)
        if not self._gate.try_enter():
            await self._enter(len(payload))
        return self._adds.push(payload)


class LedgerAdvWriter(_Writer):
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
        if not self._gate.try_enter(entry_id):
            await self._enter(len(payload), entry_id)
        future = self._new_future()
        self._push_at(entry_id, payload, future)
        return future

    def write_nowait(self, entry_id: int, data: bytes | bytearray | memoryview) -> asyncio.Future[int]:
        """As `write`, but without waiting: the future gets the id, or the error that `write` would raise.

        Raises `BackpressureError` when `write` would wait to be sent.
        """
        check_integer("the entry id", entry_id)
        payload = self._checked(data)
        if not self._gate.try_enter(entry_id):
            self._refuse_for_now()
        future = self._new_future()
        self._push_at(entry_id, payload, future)
        return future

    def _push_at(self, entry_id: int, payload: bytes, future: asyncio.Future[int]) -> None:
        code = self._adds.window.check_id(entry_id)
        if code != OK and self._adds.stopped is None:
            raise from_code(code, ledger_id=self._ledger_id, entry_id=entry_id)
        self._adds.push(payload, future, entry_id)
