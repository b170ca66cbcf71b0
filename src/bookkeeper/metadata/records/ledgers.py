"""Ledger records and ledger ids."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from ...errors import CorruptMetadata, LedgerExists, LedgerIdOverflow, MetadataError, NoSuchLedger, VersionConflict
from ...types import MAX_LEDGER_ID
from ..api import ANY, LedgerRange, Version, Versioned
from ..formats import ledger as ledger_serde
from ..ledger_metadata import LedgerMetadata
from .store import Record, Topic, Transaction
from .store_client import StoreClient

log = logging.getLogger(__name__)

ID_COUNTER = "idgen"
"""Key of the next ledger id, decimal, in topic CLUSTER."""

TOKEN_VERSION = 3
"""First metadata format version that has a creation token."""


def ledger_key(ledger_id: int) -> str:
    """The key of a ledger's records: 19 digits, so that keys order as ids."""
    return f"{ledger_id:019d}"


def _parse(ledger_id: int, record: Record) -> LedgerMetadata:
    return ledger_serde.parse(record.data, ledger_id, record.ctime_ms)


class Ledgers:
    """Component `ledgers` (see `metadata.api.LedgerStore`)."""

    def __init__(self, link: StoreClient) -> None:
        self._link = link
        self._random = link.runtime.random("ledger-ctoken")

    async def create(self, ledger_id: int, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        """Raises `LedgerExists`.

        A record of format 3 gets a random token, by which an attempt of ours that was applied without an answer is told
        from another client's record. Older formats have none: there an existing record is always another client's.
        """
        token = 0
        if metadata.format_version >= TOKEN_VERSION:
            token = self._random.randrange(MAX_LEDGER_ID)
            metadata = replace(metadata, ctoken=token)
        key, data = ledger_key(ledger_id), ledger_serde.serialize(metadata)

        def create(tx: Transaction) -> Version:
            if tx.get(Topic.LEDGERS, key) is not None:
                raise LedgerExists(f"ledger {ledger_id} exists")
            return tx.put(Topic.LEDGERS, key, data)

        def ours(tx: Transaction, conflict: MetadataError) -> Version:
            record = tx.get(Topic.LEDGERS, key)
            if record is not None and token and _parse(ledger_id, record).ctoken == token:
                return record.version
            raise conflict

        return Versioned(metadata, await self._link.change("ledgers.create", create, resolve=ours))

    async def read(self, ledger_id: int) -> Versioned[LedgerMetadata]:
        """Raises `NoSuchLedger`, `CorruptMetadata`."""
        key = ledger_key(ledger_id)
        record = await self._link.read("ledgers.read", lambda tx: tx.get(Topic.LEDGERS, key))
        if record is None:
            raise NoSuchLedger(f"there is no ledger {ledger_id}")
        return Versioned(_parse(ledger_id, record), record.version)

    async def write(self, ledger_id: int, metadata: LedgerMetadata, expected: Version) -> Versioned[LedgerMetadata]:
        """Compare-and-set. Raises `VersionConflict`, `NoSuchLedger`."""
        key, data = ledger_key(ledger_id), ledger_serde.serialize(metadata)

        def write(tx: Transaction) -> Version:
            _check(tx, ledger_id, key, expected)
            return tx.put(Topic.LEDGERS, key, data)

        def ours(tx: Transaction, conflict: MetadataError) -> Version:
            # Equal records mean the same state, so it does not matter whose write it was.
            record = tx.get(Topic.LEDGERS, key)
            if record is not None and record.data == data:
                return record.version
            raise conflict

        return Versioned(metadata, await self._link.change("ledgers.write", write, resolve=ours))

    async def remove(self, ledger_id: int, expected: Version = ANY) -> None:
        """Absent: success. Raises `VersionConflict`."""
        key = ledger_key(ledger_id)

        def remove(tx: Transaction) -> None:
            if tx.get(Topic.LEDGERS, key) is not None:
                _check(tx, ledger_id, key, expected)
                tx.delete(Topic.LEDGERS, key)

        await self._link.change("ledgers.remove", remove)

    async def watch(self, ledger_id: int) -> AsyncGenerator[Versioned[LedgerMetadata] | None, None]:
        """The record and its changes; None once when it is absent, then the end. An unreadable record is skipped."""
        key = ledger_key(ledger_id)

        def look(tx: Transaction) -> tuple[Version, Record | None]:
            record = tx.get(Topic.LEDGERS, key)
            return (record.version if record is not None else ANY), record

        async with aclosing(self._link.follow("ledgers.watch", Topic.LEDGERS, key, look)) as following:
            async for version, record in following:
                if record is None:
                    yield None
                    return
                try:
                    metadata = _parse(ledger_id, record)
                except CorruptMetadata as error:
                    log.error("%s", error)
                    continue
                yield Versioned(metadata, version)

    async def ranges(self, op_timeout: float | None = None) -> AsyncGenerator[LedgerRange, None]:  # noqa: ARG002
        """All ids in pages, ascending."""
        after = ""
        while True:
            page = await self._link.read("ledgers.ranges", partial(_ids_after, after))
            if not page:
                return
            yield LedgerRange(tuple(map(int, page)))
            after = page[-1]


def _ids_after(after: str, tx: Transaction) -> list[str]:
    return [record.key for record in tx.scan(Topic.LEDGERS, after=after)]


def _check(tx: Transaction, ledger_id: int, key: str, expected: Version) -> None:
    record = tx.get(Topic.LEDGERS, key)
    if record is None:
        raise NoSuchLedger(f"there is no ledger {ledger_id}")
    if expected not in (ANY, record.version):
        raise VersionConflict(f"ledger {ledger_id} has version {record.version}, not {expected}")


class LedgerIds:
    """Component `ids`: a counter."""

    def __init__(self, link: StoreClient) -> None:
        self._link = link

    async def allocate(self) -> int:
        """The next id. An attempt without an answer may cost one. Raises `LedgerIdOverflow`."""

        def allocate(tx: Transaction) -> int:
            record = tx.get(Topic.CLUSTER, ID_COUNTER)
            next_id = int(record.data) if record is not None else 0
            if next_id > MAX_LEDGER_ID:
                raise LedgerIdOverflow("all ledger ids are used up")
            tx.put(Topic.CLUSTER, ID_COUNTER, b"%d" % (next_id + 1))
            return next_id

        return await self._link.change("ids.allocate", allocate)
