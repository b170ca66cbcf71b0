"""A ledger that this client writes: what both kinds of writers share (spec client §5 to §8, §14.3).

A writer owns an add pipeline and does for it what it cannot do itself: put another ensemble into the metadata, and end
the ledger. `adds.life` says which states a writer goes through, `adds.appending` what it has while it appends and what
while it rests.

How a ledger ends

- `close`: pending appends fail with LedgerClosed (with `drain` they are awaited first), then the metadata is closed
  at the last confirmed entry.
- A failure that the writer cannot get over (fenced, not enough bookies, no ack quorum in time, ...) ends it the same
  way: pending appends fail with that error, later ones with LedgerClosed. A fenced writer too tries to close at its own
  LAC: all above was never acknowledged, and a recovering client adopts what it finds closed.
- When the writer changes its ensemble and finds the ledger in recovery, it withdraws: it fails its appends and leaves
  the metadata to the recovering client. It does so too when the client is closed: callers that wait get ClientClosed,
  and the ledger stays open for recovery.

`failure` is why a writer ended by itself; every later LedgerClosed has it as its cause. `close` of such a writer
succeeds when the metadata is closed where this writer would have closed it, by any client: nothing that was
acknowledged is missing.

Closing happens once; every caller of `close` gets the one outcome. Only where the metadata store could not be reached,
the next caller tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
from collections.abc import Sequence
from copy import copy
from types import TracebackType
from typing import ClassVar, Self

from ..errors import (
    BackpressureError,
    BKError,
    ClientClosedError,
    IllegalOpError,
    IncorrectParameterError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataError,
    MetaStoreError,
    UnexpectedError,
    ZKError,
    from_code,
)
from ..metadata.api import Versioned
from ..metadata.ledger_metadata import LedgerMetadata
from ..protocol.digest import Digest
from ..protocol.limits import largest_payload
from ..protocol.messages import V3, ForceLedgerRequest, Operation
from ..quorum.ensemble import AskForChange, GiveUp
from ..types import BookieId, LedgerState, WriteFlag
from .adds.appending import Appending
from .adds.life import WRITER_LIFE, WriterEvent, WriterState
from .adds.metadata_changes import EnsembleChange, close_metadata
from .adds.pipeline import AddPipeline, new_keeper
from .arguments import Payload, payload_bytes
from .context import ClientContext
from .readable import ReadableLedger
from .store import wrong_loop
from .wire.results import OK, default_code, from_metadata_error, result_code

log = logging.getLogger(__name__)

_get_running_loop = asyncio._get_running_loop
"""None where no loop runs, as in a forked process."""


class WritableLedger(ReadableLedger):
    """See the module. An `AddOwner`."""

    __slots__ = ("_awake", "_loop", "_plain")  # what each append needs lies together

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
        """A writer of a ledger just created: no other client has written to it."""
        super().__init__(context, metadata, digest, master_key)
        self._loop = asyncio.get_running_loop()
        self._state = WriterState.OPEN
        self._unable: IllegalOpError | None = None  # why; the first append raises it, as in BookKeeper
        self._write_flags = write_flags
        self._version = self._add_version(write_flags)
        ensemble = metadata.value.last_ensemble[1]
        self._keeper = new_keeper(context.config, self._distribution, ensemble, write_flags=write_flags)
        self._window = self._keeper.window
        self._awake: Appending | None = None  # it rests
        self._largest_payload = largest_payload(context.config.nettyMaxFrameSizeBytes, self._version, digest.size)
        self._plain = -1  # a larger payload needs a closer look
        self._drains = 0  # calls of `close` that wait for what is pending
        self._end = (-1, 0)  # last entry id and length to close at; set before `_sealing`
        self._ended_with: int | None = None  # what pending entries failed with
        self._sealing: asyncio.Task[BKError | None] | None = None  # the last attempt; its result is every caller's
        self._change: asyncio.Task[None] | None = None  # the running ensemble change
        self._has_ended = False  # withdrawn, or an attempt to seal is over
        self._end_heard: asyncio.Event | None = None  # made for those that wait for it
        context.resting.add(self)

    # --- rest ---

    @property
    def _appending(self) -> Appending:
        """What it appends with. A writer that rests wakes up."""
        return self._awake or self._wake()

    @property
    def _adds(self) -> AddPipeline:
        return self._appending.adds

    def _wake(self) -> Appending:
        awake = self._awake = Appending(
            self._context,
            self._ledger_id,
            self._distribution,
            self._keeper,
            self,
            self._digest,
            self._master_key,
            version=self._version,
            write_flags=self._write_flags,
        )
        self._context.resting.discard(self)
        self._plain = self._plain_payload()
        if self._ended_with is not None:
            awake.stop(self._ended_with)
        return awake

    def rest(self) -> bool:
        """Called by the pipeline: nothing was appended for a while. Whether the writer rests now."""
        awake = self._awake
        if awake is None or self._state is not WriterState.OPEN or self._context.closed or not awake.at_rest:
            return False
        awake.give_up()
        self._awake = None
        self._plain = self._plain_payload()
        self._context.resting.add(self)
        return True

    def client_closed(self) -> None:
        """Called when the client ends while this writer rests."""
        self.give_up(ClientClosedError.code, withdraw=False)

    # --- what it knows ---

    @property
    def last_add_confirmed(self) -> int:
        """The last entry that is sure to be readable; -1 if none. With DEFERRED_SYNC only `force` moves it."""
        if self.metadata.closed:
            return self.metadata.last_entry_id
        return self._window.lac

    @property
    def last_add_pushed(self) -> int:
        """The highest entry id handed out; -1 if none."""
        return self._window.lap

    @property
    def length(self) -> int:
        """Payload bytes of the ledger, pending appends included."""
        return self.metadata.length if self.metadata.closed else self._window.length

    @property
    def closed(self) -> bool:
        """Whether this writer takes no more appends, or knows the ledger to be sealed."""
        return self._state.ended or super().closed

    @property
    def failure(self) -> BKError | None:
        """Why this writer ended by itself; None while it works, and when it or its client was closed."""
        return self._awake.adds.end.failure if self._awake is not None else None

    async def wait_closed(self) -> None:
        """Wait until the writer has ended: closed, or ended by itself (see `failure`) and its ledger sealed if that was
        possible."""
        if not self._has_ended:
            self._end_heard = self._end_heard or asyncio.Event()
            await self._end_heard.wait()

    def _tell_end(self) -> None:
        self._has_ended = True
        if self._end_heard is not None:
            self._end_heard.set()

    def _happened(self, event: WriterEvent) -> None:
        self._state = WRITER_LIFE.after(self._state, event)
        self._plain = self._plain_payload()

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
            self._state = WriterState.UNABLE
            self._unable = error
            return V3

    def _plain_payload(self) -> int:
        """The largest payload that may be appended without a look at the state; -1: look."""
        return self._largest_payload if self._awake is not None and self._state is WriterState.OPEN else -1

    def _checked(self, data: Payload) -> bytes:
        """The payload as it will be sent, if it may be."""
        # To ask for the running loop is a system call in some Pythons: once in a turn of the loop is enough.
        context = self._context
        in_turn = context.departures.due and context.home.thread.runs_here() and self._loop.is_running()
        if not in_turn and _get_running_loop() is not self._loop:
            raise wrong_loop()
        if type(data) is not bytes:
            data = payload_bytes(data)
        if len(data) > self._plain:
            self._look_closer(data)
        return data

    def _look_closer(self, data: bytes) -> None:
        """Raises why a payload cannot be appended. (Of a writer that has ended, the pipeline says why.)"""
        if self._state is WriterState.UNABLE:
            assert self._unable is not None
            self.give_up(self._unable.code, withdraw=False)
            raise self._unable
        if len(data) > self._largest_payload:
            raise IncorrectParameterError(
                f"a payload of {len(data)} bytes does not fit into a frame: the limit is {self._largest_payload} "
                "(nettyMaxFrameSizeBytes)",
                ledger_id=self._ledger_id,
            )
        if self._state is WriterState.DRAINING:
            raise LedgerClosedError(ledger_id=self._ledger_id)

    def _refuse_for_now(self) -> None:
        if not self._state.ended:
            raise BackpressureError(ledger_id=self._ledger_id)

    async def _enter(self, size: int, entry_id: int | None = None) -> None:
        if not self._state.ended:
            await self._appending.gate.enter(size, entry_id)

    async def flush(self) -> int:
        """Wait until everything pushed before this call is acknowledged; returns the id of the last entry pushed.

        On an advanced writer that means that all gaps below it are filled. Raises the error of the first append that
        failed, also when it failed before this call.
        """
        self._context.home.check()
        if self._awake is None and not self._state.ended:
            return self._window.lap  # it rests: nothing is under way
        adds = self._adds
        if self._state.ended and adds.end.failed_entries:
            raise adds.error_of_first()
        return await adds.confirmed(self._window.lap)

    async def force(self) -> None:
        """Make everything acknowledged before this call durable on all bookies of the ensemble (DEFERRED_SYNC).

        Then, and only then, the LAC covers it. Raises `LedgerClosedError`, or the first bookie's error: then call it
        again. Waits `addEntryTimeoutSec` seconds for a bookie.
        """
        self._context.home.check()
        if self._state.ended:
            raise self._adds.refusal()
        head = self._window.head
        if head < 0:
            return
        for error in await asyncio.gather(*(self._force_one(bookie) for bookie in self._keeper.ensemble)):
            if error is not None:
                raise error
        if self._state.ended:
            raise self._adds.refusal()
        explicit_lac = self._appending.explicit_lac  # knows how far the bookies were told so far
        self._window.synced(head)
        explicit_lac.progress()

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
        try:
            stored = await EnsembleChange(self._context, self, adds, change, self._choose).store()
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
        if self._state.ended:
            return
        if stored.value.state is not LedgerState.OPEN:
            adds.carry_out(adds.keeper.on_refused(stored.value.state))
            return
        first, ensemble = stored.value.last_ensemble
        log.info(
            "ledger %d: bookies %s failed; from entry %d on its ensemble is %s",
            self._ledger_id,
            ", ".join(change.failed.values()),
            first,
            ", ".join(ensemble),
        )
        adds.carry_out(adds.keeper.on_changed(ensemble))

    def _choose(self, ensemble: Sequence[BookieId], index: int, excluded: Sequence[BookieId]) -> BookieId:
        metadata = self.metadata
        return self._context.placement.replace(metadata.quorums, metadata.custom_metadata, ensemble, index, excluded)

    # --- the end ---

    def give_up(self, code: int, withdraw: bool) -> None:
        """Called by the pipeline: it cannot go on."""
        if self._state.ended:
            return
        if withdraw or code == ClientClosedError.code:
            self._withdraw(code)
        else:
            self._seal(code)

    def _withdraw(self, code: int) -> None:
        self._happened(WriterEvent.WITHDRAW)
        self._stop(code)
        self._tell_end()

    def _stop(self, code: int) -> None:
        """Nothing is appended any more; what is pending fails with `code`."""
        self._ended_with = code
        self._context.resting.discard(self)
        if self._awake is not None:
            self._awake.stop(code)
        elif code not in (LedgerClosedError.code, ClientClosedError.code):
            self._wake()  # to be stopped at once: it says what failed

    def _seal(self, code: int) -> None:
        """Stop, and close the metadata at the last confirmed entry: once, or until the metadata store answers."""
        before = self._state
        if self._context.closed:
            if not before.ended:
                self._withdraw(ClientClosedError.code)
            return
        self._happened(WriterEvent.SEAL)
        if not before.ended:
            self._stop(code)
            self._end = (self._window.lac, self._window.length)
        if self._state is not before and self._state is WriterState.SEALING:
            self._sealing = self._context.tasks.spawn(
                self._close_metadata(*self._end), name=f"close of ledger {self._ledger_id}"
            )
            self._sealing.add_done_callback(self._tried_to_seal)

    async def _close_metadata(self, last_entry_id: int, length: int) -> BKError | None:
        change = self._change
        if change is not None and not change.done():
            change.cancel()
            await asyncio.wait([change])
        outcome = await close_metadata(self._context, self, last_entry_id, length)
        if isinstance(outcome, BKError):
            return outcome
        self.adopt_metadata(outcome)
        return None

    def _tried_to_seal(self, attempt: asyncio.Task[BKError | None]) -> None:
        self._tell_end()  # first: what an unexpected error would skip is waited for by others
        if attempt.cancelled():  # with all the client's tasks
            self._happened(WriterEvent.WITHDRAW)
        elif (error := attempt.result()) is None:
            self._happened(WriterEvent.STORED)
        else:
            away = isinstance(error, ZKError | MetaStoreError)
            self._happened(WriterEvent.NO_STORE if away else WriterEvent.REFUSED)

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
        self._seal(LedgerClosedError.code)
        sealing = self._sealing
        if sealing is None:  # withdrawn
            if self._ended_with == ClientClosedError.code:
                raise ClientClosedError(ledger_id=self._ledger_id)
            raise LedgerFencedError("another client is recovering", ledger_id=self._ledger_id)
        try:
            error = await asyncio.shield(sealing)
        except asyncio.CancelledError:
            if sealing.cancelled():  # with all the client's tasks
                raise ClientClosedError(ledger_id=self._ledger_id) from None
            raise
        if error is not None:
            raise copy(error)  # each caller has one of its own
        if failure is not None:
            raise failure

    async def _drain(self) -> BKError | None:
        """Wait for everything that waits at the gate or is in flight without a gap before it."""
        self._happened(WriterEvent.DRAIN)
        self._drains += 1
        try:
            await self._drained()
        except BKError as error:
            if not self._adds.end.failed_entries:
                return error
        except asyncio.CancelledError:
            self._drains -= 1
            if not self._drains and self._state is WriterState.DRAINING:
                self._happened(WriterEvent.STAY)
            raise
        if self._state.ended and self._adds.end.failed_entries:
            return self._adds.error_of_first()
        return None

    async def _drained(self) -> None:
        window = self._window
        while not self._state.ended and (awake := self._awake) is not None:
            if awake.gate.next_is_waiting():
                await awake.gate.enter(0, window.head + 1 if self._chooses_ids else None)  # behind it
                await asyncio.sleep(0)  # it was let in, and runs now
            elif window.head + 1 in window.open:
                await awake.adds.confirmed(window.head + 1)
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
            if not self._state.ended:  # cancelled while it drained
                await self._close_after_an_error()
            raise

    async def _close_after_an_error(self) -> None:
        try:
            await self.close()
        except BKError as also:
            log.warning("closing ledger %d after an error failed: %s", self._ledger_id, also)

    def __del__(self) -> None:
        if not hasattr(self, "_end_heard") or self._state.ended:  # it was not even made, or needs no one any more
            return
        warnings.warn(
            f"writer of ledger {self._ledger_id} was dropped without close(): the ledger stays open until it is "
            "recovered",
            ResourceWarning,
            source=self,
            stacklevel=1,
        )
        awake = self._awake
        if awake is None:
            return
        if _get_running_loop() is self._loop:
            _abandon(awake)
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nothing runs there any more
            self._loop.call_soon_threadsafe(_abandon, awake)  # any thread may collect garbage


def _abandon(awake: Appending) -> None:
    """The end of a writer that was collected as garbage, on its loop."""
    awake.explicit_lac.stop()
    awake.adds.abandon()
