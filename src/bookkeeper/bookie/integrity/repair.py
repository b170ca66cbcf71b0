"""When the full check runs: beside serving, in rounds, until nothing is left (spec bookie-server §5.6)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ...config import ServerConfiguration
from ...errors import BKError, MetadataError
from ...metadata.api import MetadataDriver
from ...runtime import NO_SPACE, Runtime
from ...types import BookieId
from ..storage.api import LedgerStorage
from .full_check import FullCheck
from .peers import OpenPeers

log = logging.getLogger(__name__)

ROUND_SECONDS = 3.0
"""Between two rounds."""


async def repair(
    runtime: Runtime,
    config: ServerConfiguration,
    driver: MetadataDriver,
    storage: LedgerStorage,
    bookie_id: BookieId,
    open_peers: OpenPeers,
    may_write: Callable[[], bool],
) -> None:
    """Repair what was lost; returns when all is whole, at once if nothing is flagged. Runs while the bookie serves.

    Waits while `may_write` is false: a full disk is not for copies. Raises `FatalBookieError`.
    """
    while await storage.needs_integrity_check():
        try:
            async with open_peers(runtime, config, bookie_id) as peers:
                check = FullCheck(runtime, config, driver.ledgers, storage, bookie_id, peers)
                while True:
                    if may_write() and await check.round():
                        return
                    await asyncio.sleep(ROUND_SECONDS)
        except (MetadataError, BKError) as error:
            log.warning("lost entries cannot be looked for now: %s", error)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            log.warning("lost entries have no room now: %s", error)
        await asyncio.sleep(ROUND_SECONDS)
