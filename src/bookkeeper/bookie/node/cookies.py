"""The cookie check at start: do directories, configuration and metadata store belong together (spec metadata §8.4).

The decision is made in `metadata.formats.cookie`; here the facts are gathered and the decision is carried out. Nothing
of the bookie's data is opened before this has passed.

With `dataIntegrityChecking` cookies may be missing, which tells that data may be, too. Then they are written not here
but later, with `Stamp`: when what may have been lost is protected (`bookie.integrity`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ...config import ServerConfiguration
from ...errors import CookieNotFound, CorruptMetadata, InvalidCookieError, NotInitialized
from ...metadata.api import MetadataDriver, Version, Versioned
from ...metadata.formats.cookie import (
    Cookie,
    DirectoryFacts,
    StartAction,
    StartDecision,
    decide_data_integrity_start,
    decide_start,
    encode_cookie,
    parse_cookie,
)
from ...runtime import Files
from ...types import BookieId
from ..file_names import VERSION_FILE, current
from ..storage.engines import finds_ledgers_by_place
from .directories import Directories
from .identity import Identity

log = logging.getLogger(__name__)

LEFT_OVER = f"{VERSION_FILE}.tmp"
"""What a first start leaves behind that is killed while it writes a cookie; no data."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """Cookies that are yet to be written."""

    files: Files
    driver: MetadataDriver
    bookie_id: BookieId
    directories: Directories
    decision: StartDecision

    async def write(self) -> None:
        """Write them. Raises `MetadataError`, `OSError`; then the next start finds them missing again."""
        await _carry_out(self.files, self.driver, self.bookie_id, self.directories, self.decision)


async def check_cookies(
    files: Files, driver: MetadataDriver, config: ServerConfiguration, directories: Directories, identity: Identity
) -> Stamp | None:
    """Check, and for a new bookie or an allowed expansion write, the cookies. Returns what is to be written later.

    Raises `InvalidCookieError` when the bookie must not start, `NotInitialized` without a cluster.
    """
    if not await driver.admin.exists():
        raise NotInitialized(
            f"there is no cluster in the metadata store {config.metadataServiceUri}: "
            "run `bookkeeper shell initnewcluster` first"
        )
    if config.dataIntegrityChecking:
        await _catch_up(driver, identity.bookie_id)
    master = Cookie.build(
        identity.bookie_id,
        journal_dirs=config.journalDirectories,
        ledger_dirs=config.ledgerDirectories,
        index_dirs=config.indexDirectories,
        instance_id=await driver.admin.instance_id(),
    )
    stored = [found for bookie_id in identity.candidates if (found := await _stored(driver, bookie_id)) is not None]
    facts = [_facts(files, root) for root in directories.all]
    if config.dataIntegrityChecking:
        decision = decide_data_integrity_start(
            master, stored, facts, stamp_missing=config.dataIntegrityStampMissingCookies
        )
        if decision.action is StartAction.NOTHING:
            return None
        return Stamp(files, driver, identity.bookie_id, directories, decision)
    decision = decide_start(
        master,
        stored,
        facts,
        allow_expansion=config.allowStorageExpansion,
        fixed_places=finds_ledgers_by_place(config),
    )
    await _carry_out(files, driver, identity.bookie_id, directories, decision)
    return None


async def _catch_up(driver: MetadataDriver, bookie_id: BookieId) -> None:
    """See from now on everything that was stored before: what is listed for `bookie.integrity` must not be old.

    A replica of the store may lag behind, and not show the youngest ledgers. A write does not return before the replica
    that this session speaks to has seen all that came before it; so the cookie is written as it is. Without a cookie
    nothing was ever stored for this bookie.
    """
    try:
        cookie = await driver.cookies.read(bookie_id)
    except CookieNotFound:
        return
    await driver.cookies.write(bookie_id, cookie.value, cookie.version)


async def _stored(driver: MetadataDriver, bookie_id: BookieId) -> Versioned[Cookie] | None:
    try:
        found = await driver.cookies.read(bookie_id)
    except CookieNotFound:
        return None
    try:
        return Versioned(parse_cookie(found.value), found.version)
    except CorruptMetadata as error:
        raise InvalidCookieError(f"the cookie of {bookie_id} in the metadata store: {error}") from None


def _facts(files: Files, root: str) -> DirectoryFacts:
    path = current(root)
    version_file = f"{path}/{VERSION_FILE}"
    empty = all(name in (VERSION_FILE, LEFT_OVER) for name in files.listdir(path))
    if not files.exists(version_file):
        return DirectoryFacts(root, None, empty)
    try:
        return DirectoryFacts(root, parse_cookie(files.read_bytes(version_file)), empty)
    except CorruptMetadata as error:
        raise InvalidCookieError(f"{version_file}: {error}") from None


async def _carry_out(
    files: Files, driver: MetadataDriver, bookie_id: BookieId, directories: Directories, decision: StartDecision
) -> None:
    if decision.action is StartAction.NOTHING:
        return
    data = encode_cookie(decision.cookie)
    log.info("writing the cookie of %s (%s)", bookie_id, decision.action.value)
    if decision.store_first:
        await _write_to_store(driver, bookie_id, data, decision.store_version)
    for root in directories.all:
        files.write_atomically(f"{current(root)}/{VERSION_FILE}", data)
    if not decision.store_first:
        await _write_to_store(driver, bookie_id, data, decision.store_version)


async def _write_to_store(driver: MetadataDriver, bookie_id: BookieId, data: bytes, version: Version | None) -> None:
    if version is None:
        await driver.cookies.create(bookie_id, data)
    else:
        await driver.cookies.write(bookie_id, data, version)
