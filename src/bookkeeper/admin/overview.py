"""How a cluster stands, in a few numbers."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from ..metadata.api import MetadataDriver, Mode


async def cluster_info(driver: MetadataDriver) -> dict[str, Any]:
    """Java's object of that name (spec autorecovery-admin §9.3). Raises `MetadataError`."""
    known = (await driver.discovery.list_all()).value
    writable = (await driver.discovery.list(Mode.WRITABLE)).value
    read_only = (await driver.discovery.list(Mode.READ_ONLY)).value
    auditor = await driver.auditor.current()
    return {
        "auditorElected": auditor is not None,
        "auditorId": auditor or "",
        "clusterUnderReplicated": await _is_marked(driver),
        "ledgerReplicationEnabled": await driver.underreplication.is_enabled(),
        "totalBookiesCount": len(known),
        "writableBookiesCount": len(writable),
        "readonlyBookiesCount": len(read_only),
        "unavailableBookiesCount": len(known - writable - read_only),
    }


async def _is_marked(driver: MetadataDriver) -> bool:
    """Whether a ledger waits for repair."""
    async with aclosing(driver.underreplication.list()) as marks:
        async for _ in marks:
            return True
    return False
