"""Asking the bookies for the last add confirmed (spec client §9.8).

    operation     request to all of the current ensemble    done when
    LacRead       READ_LAC, or READ_ENTRY -1 (v2)           no unheard ack quorum is left (`quorum.coverage`)
    TryLacRead    READ_ENTRY -1                             the first answer above the LAC known, or all have answered

Every valid answer raises the handle's LAC, also one that comes after the operation is done. An answer with a bad
digest says nothing about its bookie.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from ...errors import (
    BKError,
    ClientClosedError,
    DigestMismatchError,
    IllegalOpError,
    LedgerRecoveryError,
    TooManyRequestsError,
    UnauthorizedError,
    from_code,
)
from ...protocol.messages import ReadLacRequest, ReadLacResponse, ReadRequest, ReadResponse, Request, Response
from ...quorum.coverage import CoverageSet, is_known
from ...types import INVALID_ENTRY_ID, LAST_ADD_CONFIRMED
from ..wire.results import DIGEST_MISMATCH, OK, READ, UNAUTHORIZED
from .ledger_reads import LedgerReads


class _EnsembleRead(ABC):
    """One question to every bookie of the current ensemble."""

    def __init__(self, reads: LedgerReads) -> None:
        self._reads = reads
        self._ensemble = reads.current_metadata().last_ensemble[1]
        self._waiting = len(self._ensemble)
        self._lac = INVALID_ENTRY_ID
        """The highest one heard."""
        self._done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        """The LAC that was found. Raises `BKError`."""
        for index, bookie in enumerate(self._ensemble):
            try:
                self._reads.context.bookies.call(
                    bookie,
                    self._question(),
                    None,
                    lambda code, response, index=index: self._answered(index, code, response),  # type: ignore[misc]
                )
            except (ClientClosedError, TooManyRequestsError, IllegalOpError) as error:
                asyncio.get_running_loop().call_soon(self._answered, index, error.code, None)
        return await self._done

    @abstractmethod
    def _question(self) -> Request:
        """The request; a new object for each bookie."""

    def _answered(self, index: int, code: int, response: Response | None) -> None:
        self._waiting -= 1
        if code == OK and response is not None:
            try:
                lac, length = self._lac_in(response)
            except DigestMismatchError:
                code = DIGEST_MISMATCH
            else:
                self._lac = max(self._lac, lac)
                self._reads.raise_lac(lac, length)
        if self._done.done():
            return
        if code == UNAUTHORIZED:
            self._fail(UnauthorizedError(ledger_id=self._reads.ledger_id, bookie=self._ensemble[index]))
        elif code == ClientClosedError.code:
            self._fail(ClientClosedError(ledger_id=self._reads.ledger_id))
        else:
            self._heard(index, code)

    def _lac_in(self, response: Response) -> tuple[int, int]:
        """LAC and ledger length that an answer shows (length 0: none). Raises `DigestMismatchError`."""
        digest = self._reads.digest
        ledger_id = self._reads.ledger_id
        lac, length = INVALID_ENTRY_ID, 0
        if isinstance(response, ReadLacResponse):
            if response.lac_body:
                lac = digest.verify_lac(ledger_id, response.lac_body)
            if response.last_entry:
                lac = max(lac, digest.verify(ledger_id, None, response.last_entry)[0])
        elif isinstance(response, ReadResponse):
            lac, length, _ = digest.verify(ledger_id, None, response.entry or b"")
        return lac, length

    @abstractmethod
    def _heard(self, index: int, code: int) -> None:
        """Decide whether that is enough."""

    def _succeed(self) -> None:
        self._done.set_result(self._lac)

    def _fail(self, error: BKError) -> None:
        self._done.set_exception(error)


class LacRead(_EnsembleRead):
    """The LAC that no ack quorum can contradict."""

    def __init__(self, reads: LedgerReads, *, explicit: bool) -> None:
        """`explicit`: with READ_LAC, which also finds a LAC that the writer sent by itself."""
        super().__init__(reads)
        self._explicit = explicit
        self._coverage = CoverageSet(reads.distribution)
        self._last_error = READ

    def _question(self) -> Request:
        ledger_id = self._reads.ledger_id
        return ReadLacRequest(ledger_id) if self._explicit else ReadRequest(ledger_id, LAST_ADD_CONFIRMED)

    def _heard(self, index: int, code: int) -> None:
        self._coverage.add(index, code)
        if not is_known(code):
            self._last_error = code
        if self._coverage.covered:
            self._succeed()
        elif self._waiting == 0:
            self._fail(from_code(self._last_error, ledger_id=self._reads.ledger_id))


class TryLacRead(_EnsembleRead):
    """A LAC above the one known, from the bookie that says so first."""

    def __init__(self, reads: LedgerReads, known: int) -> None:
        super().__init__(reads)
        self._known = known
        self._valid = False

    def _question(self) -> Request:
        return ReadRequest(self._reads.ledger_id, LAST_ADD_CONFIRMED)

    def _heard(self, index: int, code: int) -> None:  # noqa: ARG002
        self._valid = self._valid or is_known(code)
        if self._lac > self._known or (self._waiting == 0 and self._valid):
            self._succeed()
        elif self._waiting == 0:
            self._fail(
                LedgerRecoveryError("no bookie of the ensemble gave a valid answer", ledger_id=self._reads.ledger_id)
            )
