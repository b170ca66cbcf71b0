"""Carries out the recovery of a ledger: talks to bookies and metadata store for `quorum.recovery`, which decides.

Write-backs go through an add pipeline like a writer's, with RECOVERY_ADD, so that ack quorums and replaced bookies work
the same way; only that replacements are kept in memory until the ledger is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ..errors import (
    BKError,
    BookKeeperError,
    DigestMismatchError,
    LedgerClosedError,
    MetadataError,
    NotEnoughBookiesError,
    ReadError,
    UnexpectedError,
    from_code,
)
from ..metadata.api import Versioned
from ..metadata.ledger_metadata import LedgerMetadata
from ..metadata.update import update_ledger
from ..protocol.digest import Digest
from ..protocol.messages import Flags, ReadRequest, ReadResponse, Request, Response
from ..quorum.distribution import Distribution
from ..quorum.ensemble import AskForChange, GiveUp, replace_failed
from ..quorum.recovery import (
    Action,
    Close,
    Fail,
    Fence,
    LedgerRecovery,
    Phase,
    ReadFrom,
    WriteBack,
    closing_ensembles,
)
from ..runtime.api import TimerHandle
from ..types import LAST_ADD_CONFIRMED, BookieId, LedgerState, WriteFlag
from .adds.encoding import add_encoder
from .adds.pipeline import AddPipeline, new_keeper
from .context import ClientContext
from .reads.speculation import Speculation
from .wire.results import OK, from_metadata_error

log = logging.getLogger(__name__)

LENGTH_UNKNOWN = "ledger %d ends at entry %d, which cannot be read now: its length is recorded as %d, an estimate"

READS_AT_ONCE = 128
"""Entries that are read together at most, unless `recoveryReadBatchSize` is more. All but the first few of a long tail
cost no round trip of their own then; behind the end of the ledger, where the last batch asks, it is not many either."""

_OnAnswer = Callable[[int, Response | None], None]
"""Result code, and the response if there was one."""


async def recover_ledger(
    context: ClientContext, metadata: Versioned[LedgerMetadata], digest: Digest, master_key: bytes
) -> Versioned[LedgerMetadata]:
    """Bring a ledger to its end: fence its writer off, find and secure its last entries, close it.

    Returns the metadata of the closed ledger, closed by this client or another. Raises the `BKError` that stopped it
    (`UnauthorizedError`, `RequestTimeoutError`, `ReadError`, `NotEnoughBookiesError`, `MetadataStoreError`, ...); then
    the ledger stays in recovery, and the next attempt begins anew.
    """
    store = context.driver.ledgers
    ledger_id = metadata.value.ledger_id
    try:
        begun = await update_ledger(
            store,
            ledger_id,
            metadata,
            lambda record: record.state is LedgerState.OPEN,
            lambda record: record.in_recovery(),
        )
        if begun.value.closed:
            return begun
        attempt = _Attempt(context, begun.value, digest, master_key)
        close = await attempt.run()
        if not close.length_known:
            log.warning(LENGTH_UNKNOWN, ledger_id, close.last_entry_id, close.length)
        if context.runtime.buggify("recovery hesitates", 0.2):
            await asyncio.sleep(0.1)
        recovered = attempt.recovery.recovered

        def closed(record: LedgerMetadata) -> LedgerMetadata:
            closing_ensembles(record.ensembles, recovered)
            for first, ensemble in recovered.items():
                record = record.with_ensemble(first, ensemble)
            return record.close(close.last_entry_id, close.length)

        ended = await update_ledger(
            store, ledger_id, begun, lambda record: record.state is LedgerState.IN_RECOVERY, closed
        )
    except MetadataError as error:
        raise from_metadata_error(error, ledger_id) from error
    if not ended.value.closed:
        raise UnexpectedError("the ledger was opened again while it was being recovered", ledger_id=ledger_id)
    log.info("ledger %d recovered: last entry %d", ledger_id, ended.value.last_entry_id)
    return ended


class _Attempt:
    """One run of the state machine. An `AddOwner`."""

    def __init__(self, context: ClientContext, metadata: LedgerMetadata, digest: Digest, master_key: bytes) -> None:
        config = context.config
        self._context = context
        self._metadata = metadata
        self._ledger_id = metadata.ledger_id
        self._digest = digest
        self._master_key = master_key
        self._distribution = Distribution(*metadata.quorums)
        self._loop = asyncio.get_running_loop()
        self._result: asyncio.Future[Close] = self._loop.create_future()
        self._speculation = Speculation.for_reads(config)
        self._timers: dict[int, TimerHandle] = {}  # of entries being read: when to ask one more replica
        self._adds: AddPipeline | None = None  # made for the first entry to write back
        self.recovery = LedgerRecovery(
            self._distribution,
            metadata.ensembles,
            batch_size=config.recoveryReadBatchSize,
            max_batch_size=min(READS_AT_ONCE, config.readEntriesWindow),
            max_write_backs=config.maxPendingAddEntries,
            max_write_back_bytes=config.maxPendingAddBytes,
            order=self._read_order,
        )

    async def run(self) -> Close:
        """How the ledger is to be closed. Raises the `BKError` that recovery failed with."""
        self._do(self.recovery.start_fencing())
        try:
            return await self._result
        finally:
            self.recovery.phase = Phase.DONE  # answers still to come mean nothing
            for timer in self._timers.values():
                timer.cancel()
            if self._adds is not None:
                self._adds.stop(LedgerClosedError.code)

    def _read_order(self, _entry_id: int, ensemble: Sequence[BookieId], write_set: Sequence[int]) -> Sequence[int]:
        if not self._context.config.reorderReadSequenceEnabled:
            return write_set
        return self._context.placement.reorder_read(ensemble, write_set)

    def _on_answer(self, take: Callable[[int, Response | None], Sequence[Action]]) -> _OnAnswer:
        """Do what follows from an answer. An unexpected error is the end of this attempt, and of nothing else."""

        def on_answer(code: int, response: Response | None) -> None:
            try:
                self._do(take(code, response))
            except Exception as error:
                self._failed(error)

        return on_answer

    def _failed(self, error: Exception) -> None:
        log.warning("recovery of ledger %d: unexpected error", self._ledger_id, exc_info=error)
        if not self._result.done():
            why = f"recovery failed: {error!r}"
            self._result.set_exception(UnexpectedError(why, ledger_id=self._ledger_id))

    def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if self._result.done():
                return
            match action:
                case Fence():
                    self._fence(action)
                case ReadFrom():
                    self._read(action)
                case WriteBack():
                    self._write_back(action)
                case Close():
                    self._result.set_result(action)
                case Fail():
                    error = from_code(action.code, "recovery failed", ledger_id=self._ledger_id)
                    self._result.set_exception(error)

    def _send(self, bookie: BookieId, message: Request, on_answer: _OnAnswer) -> None:
        try:
            self._context.bookies.call(bookie, message, None, on_answer)
        except BookKeeperError as error:
            self._loop.call_soon(on_answer, getattr(error, "code", ReadError.code), None)

    # --- fencing and reading ---

    def _fence(self, action: Fence) -> None:
        request = ReadRequest(
            self._ledger_id, LAST_ADD_CONFIRMED, flags=int(Flags.DO_FENCING), master_key=self._master_key
        )

        def take(code: int, response: Response | None) -> Sequence[Action]:
            lac, length = -1, 0
            if code == OK:
                try:
                    lac, length, _ = self._verified(None, response)
                except DigestMismatchError as error:
                    log.warning("bookie %s fenced, but its last entry is damaged: %s", action.bookie, error)
            return self.recovery.on_fence_answer(action.index, code, lac, length)

        self._send(action.bookie, request, self._on_answer(take))

    def _read(self, action: ReadFrom) -> None:
        flags = int(Flags.HIGH_PRIORITY | Flags.DO_FENCING)
        request = ReadRequest(self._ledger_id, action.entry_id, flags=flags, master_key=self._master_key)
        if self._speculation is not None and action.entry_id not in self._timers:
            self._speculate_after(action.entry_id, self._speculation.first)

        def take(code: int, response: Response | None) -> Sequence[Action]:
            length, payload = 0, b""
            if code == OK:
                try:
                    _, length, payload = self._verified(action.entry_id, response)
                except DigestMismatchError as error:
                    log.warning("bookie %s returned a damaged entry: %s", action.bookie, error)
                    code = error.code
            actions = self.recovery.on_read_answer(action.entry_id, action.index, code, payload, length)
            if not self.recovery.reading(action.entry_id) and action.entry_id in self._timers:
                self._timers.pop(action.entry_id).cancel()
            return actions

        self._send(action.bookie, request, self._on_answer(take))

    def _speculate_after(self, entry_id: int, delay: float) -> None:
        self._timers[entry_id] = self._context.runtime.call_later(delay, self._speculate, entry_id, delay)

    def _speculate(self, entry_id: int, delay: float) -> None:
        try:
            actions = self.recovery.speculate(entry_id)
            if actions and self._speculation is not None:
                self._speculate_after(entry_id, self._speculation.after(delay))
                self._do(actions)
        except Exception as error:
            self._failed(error)

    def _verified(self, entry_id: int | None, response: Response | None) -> tuple[int, int, bytes]:
        """LAC, length and payload of the entry in a good answer."""
        entry = response.entry if isinstance(response, ReadResponse) else None
        return self._digest.verify(self._ledger_id, entry_id, entry or b"")

    # --- writing back ---

    def _write_back(self, action: WriteBack) -> None:
        adds = self._adds
        if adds is None:
            adds = self._adds = self._new_pipeline()
        adds.window.length = action.length - len(action.payload)
        try:
            entry_id = adds.push(action.payload)
        except LedgerClosedError:
            # A bookie had to be replaced first and could not be: `give_up` has reported it.
            assert self._result.done()
            return
        assert entry_id == action.entry_id

    def _new_pipeline(self) -> AddPipeline:
        context = self._context
        version = context.bookies.add_version(WriteFlag.NONE)
        encode = add_encoder(version, self._ledger_id, self._digest, self._master_key, recovery=True)
        fenced_lac = self.recovery.start

        def encode_with_fenced_lac(ledger_id: int, entry_id: int, _lac: int, length: int, payload: bytes) -> bytes:
            return encode(ledger_id, entry_id, fenced_lac, length, payload)

        ensemble = self._metadata.last_ensemble[1]
        return AddPipeline(
            context,
            self._ledger_id,
            self._distribution,
            new_keeper(context.config, self._distribution, ensemble, last_entry_id=fenced_lac),
            self,
            encode_with_fenced_lac,
            version=version,
            on_confirmed=self._on_confirmed,
        )

    def _on_confirmed(self, entries: range) -> None:
        self._do(self.recovery.on_written_back(len(entries)))

    def change_ensemble(self, change: AskForChange) -> None:
        """Called by the pipeline: replace bookies, in memory."""
        adds = self._adds
        assert adds is not None
        try:
            new = replace_failed(adds.keeper.ensemble, change.failed, self._choose, change.avoid)
        except NotEnoughBookiesError as error:
            adds.carry_out(GiveUp(error.code))
            return
        except Exception as error:  # a placement policy may raise anything
            log.warning("ledger %d: no bookie was chosen to replace one", self._ledger_id, exc_info=True)
            adds.carry_out(GiveUp(error.code if isinstance(error, BKError) else UnexpectedError.code))
            return
        if new != adds.keeper.ensemble:
            self.recovery.on_ensemble_changed(adds.window.head + 1, new)
        adds.carry_out(adds.keeper.on_changed(new))

    def _choose(self, ensemble: Sequence[BookieId], index: int, excluded: Sequence[BookieId]) -> BookieId:
        metadata = self._metadata
        return self._context.placement.replace(metadata.quorums, metadata.custom_metadata, ensemble, index, excluded)

    def give_up(self, code: int, withdraw: bool) -> None:  # noqa: ARG002
        """Called by the pipeline: an entry cannot be brought to its ack quorum."""
        assert self._adds is not None
        self._adds.stop(code)
        self._do(self.recovery.on_write_back_failed(code))

    def rest(self) -> bool:
        """Called by the pipeline: recovery will go on soon, or end."""
        return False
