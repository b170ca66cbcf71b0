"""Keeps bookies that fail much out of new ensembles for a while (spec client §12.3).

Every `bookieHealthCheckIntervalSeconds` the errors of each bookie are counted anew. A bookie with at least
`bookieErrorThresholdPerInterval` of them is quarantined for `bookieQuarantineTimeSeconds`, with a probability of
`bookieQuarantineRatio`, so that not all clients turn away from it at once. An operator can end that for the whole
cluster with a switch in the metadata store.

Quarantine is a preference: placement takes such a bookie where there are not enough others, and ensembles that have it
keep it. Errors that say nothing about a bookie's health do not count; a lost connection is none, because restarts are
normal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ...config import ClientConfiguration
from ...errors import (
    BookieUnavailableError,
    DuplicateEntryIdError,
    LedgerExistError,
    LedgerFencedError,
    MetadataError,
    NoSuchEntryError,
    NoSuchLedgerError,
    WriteOnReadOnlyError,
)
from ...runtime import Runtime, guarded
from ...types import BookieId

log = logging.getLogger(__name__)

_EXPECTED = frozenset(
    error.code
    for error in (
        NoSuchEntryError,
        NoSuchLedgerError,
        LedgerFencedError,
        LedgerExistError,
        DuplicateEntryIdError,
        WriteOnReadOnlyError,
    )
)


class Quarantine:
    """The bookies in quarantine: `bookie in quarantine`. Empty unless `bookieHealthCheckEnabled`."""

    def __init__(self, runtime: Runtime, config: ClientConfiguration, allowed: Callable[[], Awaitable[bool]]) -> None:
        """`allowed` asks for the switch in the metadata store."""
        self._runtime = runtime
        self._random = runtime.random("quarantine")
        self._config = config
        self._allowed = allowed
        self._uncounted = _EXPECTED
        if not config.bookieConnectionErrorQuarantineEnabled:
            self._uncounted |= {BookieUnavailableError.code}
        self._errors: dict[BookieId, int] = {}  # in this interval
        self._until: dict[BookieId, float] = {}

    def __contains__(self, bookie: object) -> bool:
        until = self._until.get(bookie, 0.0)  # type: ignore[call-overload]
        return bool(until > self._runtime.now())

    def failed(self, bookie: BookieId, code: int, count: int = 1) -> None:
        """So many requests to a bookie failed with a result code: answered so, or not in time. BookieUnavailable only
        where it could not be connected to."""
        if self._config.bookieHealthCheckEnabled and code not in self._uncounted:
            self._errors[bookie] = self._errors.get(bookie, 0) + count

    async def run(self) -> None:
        """Check at intervals, for ever."""
        while True:
            await asyncio.sleep(self._config.bookieHealthCheckIntervalSeconds)
            with guarded("health check of bookies"):
                await self.check()

    async def check(self) -> None:
        """An interval is over."""
        errors, self._errors = self._errors, {}
        threshold = self._config.bookieErrorThresholdPerInterval
        faulty = [bookie for bookie, count in errors.items() if count >= threshold]
        if not faulty:
            return
        try:
            allowed = await self._allowed()
        except MetadataError as error:
            log.warning("health check: the metadata store does not say whether it is enabled: %s", error)
            return
        if not allowed:
            self._until.clear()
            return
        for bookie in faulty:
            if bookie not in self and self._random.random() < self._config.bookieQuarantineRatio:
                log.warning("bookie %s is quarantined: %d errors", bookie, errors[bookie])
                self._until[bookie] = self._runtime.now() + self._config.bookieQuarantineTimeSeconds
