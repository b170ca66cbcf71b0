"""What the verbs for a stopped bookie share: its settings, its id, its metadata store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ....bookie.integrity.duties import names
from ....bookie.node.directories import Directories
from ....bookie.node.identity import Identity, identify
from ....config import ServerConfiguration
from ....errors import BookieError, CookieNotFound, CorruptMetadata
from ....metadata import configured_service_uri
from ....metadata.api import MetadataDriver, Mode
from ....metadata.ledger_metadata import LedgerMetadata
from ....metadata.walking import records
from ....runtime import Runtime
from ....types import BookieId
from ...output import progress_bar
from ...session import driver_of
from ..common import conf_option

BookieConf = Annotated[Path | None, conf_option("The bookie's bk_server.conf.")]

SHOWN_LETTERS = 60
"""Of what is being read, at the end of a progress line."""


@dataclass(frozen=True)
class Place:
    """A bookie that is not running, and the store of its cluster."""

    config: ServerConfiguration
    driver: MetadataDriver
    identity: Identity

    @property
    def directories(self) -> Directories:
        return Directories.of(self.config)

    async def check_stopped(self) -> None:
        """Raises `BookieError` if it is registered: it runs, or did until a moment ago."""
        for mode in (Mode.WRITABLE, Mode.READ_ONLY):
            here = (await self.driver.discovery.list(mode)).value
            for name in self.identity.candidates:
                if name in here:
                    raise BookieError(f"{name} is running: stop it first (a killed one is missed after zkTimeout)")

    async def cookies(self) -> dict[BookieId, bytes]:
        """Those that the store has under the ids that this bookie may have had."""
        found = {}
        for name in self.identity.candidates:
            with suppress(CookieNotFound):
                found[name] = (await self.driver.cookies.read(name)).value
        return found

    async def ledgers(self) -> dict[int, LedgerMetadata]:
        """The metadata of all ledgers that name the bookie. Raises `MetadataError`; `CorruptMetadata` for a record that
        cannot be read: it may name it."""
        found = {}
        async for ledger_id, record in records(self.driver.ledgers):
            if isinstance(record, CorruptMetadata):
                raise record
            if names(record, self.identity.bookie_id):
                found[ledger_id] = record
        return found


@asynccontextmanager
async def place_of(runtime: Runtime, config: ServerConfiguration) -> AsyncIterator[Place]:
    """Where a bookie with these settings is. Raises `ConfigurationError`, `MetadataError`."""
    identity = await identify(runtime, config)
    async with driver_of(configured_service_uri(config), runtime, create=False) as driver:
        yield Place(config, driver, identity)


@asynccontextmanager
async def telling(what: str) -> AsyncIterator[Callable[[str], None]]:
    """Shows on a terminal what is being read; to be called from a worker, too."""
    with progress_bar() as bar:
        task = bar.add_task(what, total=None)
        yield lambda name: bar.update(task, description=f"{what} {name[-SHOWN_LETTERS:]}")
