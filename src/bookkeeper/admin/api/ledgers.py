"""`/api/v1/ledger/...`: which ledgers there are, and what is in them (spec autorecovery-admin §9.2, §9.3)."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from ...metadata.formats.ledger import serialize
from ...metadata.ledger_metadata import LedgerMetadata
from ...metadata.walking import records
from ...types import LedgerState
from ..http.messages import Handler, Reply, Request, as_json, text
from .access import Access

LEDGERS_A_PAGE = 100
ENTRIES_A_PAGE = 1000

NOT_GET = text("Not found method. Should be GET method", 404)


def described(record: LedgerMetadata) -> dict[str, Any]:
    """Java's object of a ledger, without its password."""
    closed = record.state is LedgerState.CLOSED
    return {
        "ledgerId": record.ledger_id,
        "metadataFormatVersion": record.format_version,
        "ensembleSize": record.ensemble_size,
        "writeQuorumSize": record.write_quorum,
        "ackQuorumSize": record.ack_quorum,
        "state": record.state.name,
        "length": record.length,
        "lastEntryId": record.last_entry_id,
        "ctime": record.ctime,
        "digestType": record.digest_type.value if record.digest_type else None,
        "customMetadata": {
            key: base64.b64encode(value).decode("ascii") for key, value in record.custom_metadata.items()
        },
        "closed": closed,
        "allEnsembles": {
            str(first): [{"id": member} for member in members] for first, members in record.ensembles.items()
        },
        "ctoken": record.ctoken,
    }


class LedgerEndpoints:
    """Those of ledgers."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def handlers(self) -> Mapping[str, Handler]:
        """By path."""
        return {
            "/api/v1/ledger/delete": self.delete,
            "/api/v1/ledger/list": self.list,
            "/api/v1/ledger/metadata": self.metadata,
            "/api/v1/ledger/read": self.read,
        }

    async def delete(self, request: Request) -> Reply:
        if request.method != "DELETE":
            return text("Not found method. Should be DELETE method", 404)
        if "ledger_id" not in request.parameters:
            return text("Not ledger found. Should provide ledger_id=<id>", 404)
        ledger_id = int(request.parameters["ledger_id"])
        await (await self._access.client()).delete_ledger(ledger_id)
        return as_json(f"Deleted ledger: {ledger_id}")

    async def list(self, request: Request) -> Reply:
        if request.method != "GET":
            return NOT_GET
        driver = await self._access.driver()
        if not request.flag("print_metadata"):
            found = [str(ledger_id) async for bucket in driver.ledgers.ranges() for ledger_id in bucket.ids]
            return as_json(dict.fromkeys(found))
        page = int(request.parameters.get("page", "-1"))
        decoded = request.flag("decode_meta")
        shown = {}
        async with aclosing(self._of_page(page)) as ledgers:
            async for record in ledgers:
                value = described(record) if decoded else serialize(record).decode("utf-8", "replace")
                shown[str(record.ledger_id)] = value
        return as_json(shown)

    async def _of_page(self, page: int) -> AsyncGenerator[LedgerMetadata, None]:
        """All of them without a page. The first page is one short, as Java's."""
        number = 0
        async with aclosing(records((await self._access.driver()).ledgers)) as found:
            async for _, record in found:
                number += 1
                if page > 0 and number >= page * LEDGERS_A_PAGE:
                    return
                wanted = page <= 0 or number >= (page - 1) * LEDGERS_A_PAGE
                if wanted and isinstance(record, LedgerMetadata):
                    yield record

    async def metadata(self, request: Request) -> Reply:
        if request.method != "GET" or "ledger_id" not in request.parameters:
            return NOT_GET
        ledger_id = int(request.parameters["ledger_id"])
        record = (await (await self._access.driver()).ledgers.read(ledger_id)).value
        return as_json({str(ledger_id): described(record)})

    async def read(self, request: Request) -> Reply:
        given = request.parameters
        if request.method != "GET" or "ledger_id" not in given:
            return text("Not found method. Should be GET method, with ledger_id provided", 404)
        start, end = int(given.get("start_entry_id", "0")), int(given.get("end_entry_id", "-1"))
        page = int(given.get("page", "-1"))
        if page > 0 and ("start_entry_id" in given or "end_entry_id" in given):
            shown = given.get("start_entry_id", "-1"), given.get("end_entry_id", "-1")
            return text(
                f"parameter for start_entry_id: {shown[0]} and end_entry_id: {shown[1]} conflict with page={page}", 500
            )
        found = {}
        client = await self._access.client()
        async with client.open_ledger_as_admin(int(given["ledger_id"])) as reader:
            last = reader.last_add_confirmed
            if page > 0:
                found["Entries for page: "] = str(page)
                start, end = (page - 1) * ENTRIES_A_PAGE, page * ENTRIES_A_PAGE - 1
            end = min(end, last) if end >= 0 else last
            if start <= end:
                async with aclosing(reader.entries(start, end)) as entries:
                    async for entry in entries:
                        found[str(entry.entry_id)] = bytes(entry.data).decode("ascii", "replace")
        return as_json(found)
