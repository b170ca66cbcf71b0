"""Another id in a bookie's cookies: its host's name instead of its address, or the other way round (spec metadata §8).

The order makes a crash harmless. First the directories get the new cookie, then the store does, last the old one goes
from the store. Wherever that is cut short, doing it again ends it.
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import CookieNotFound, InvalidCookieError
from ...metadata.api import MetadataDriver, Versioned
from ...metadata.formats.cookie import encode_cookie, parse_cookie
from ...runtime import Files
from ...types import BookieId
from ..file_names import VERSION_FILE, current
from ..node.directories import Directories
from ..node.identity import Identity


async def rename(files: Files, driver: MetadataDriver, directories: Directories, identity: Identity) -> BookieId | None:
    """Let the cookies name the bookie as the settings do now; returns the old id, None if there was nothing to do.

    Raises `InvalidCookieError` if there is no cookie to change, `MetadataError`, `OSError`.
    """
    new = identity.bookie_id
    old = await _old_cookie(driver, identity)
    if old is None:
        if await _stored(driver, new) is None:
            names = ", ".join(identity.candidates)
            raise InvalidCookieError(f"the metadata store has no cookie of this bookie under any of {names}")
        return None
    name, found = old
    data = encode_cookie(replace(parse_cookie(found.value), bookie_id=new))
    for root in directories.all:
        _check_directory(files, root, (name, new))
    for root in directories.all:
        files.write_atomically(f"{current(root)}/{VERSION_FILE}", data)
    if await _stored(driver, new) is None:
        await driver.cookies.create(new, data)
    await driver.cookies.remove(name, found.version)
    return name


async def _old_cookie(driver: MetadataDriver, identity: Identity) -> tuple[BookieId, Versioned[bytes]] | None:
    for name in identity.candidates:
        if name != identity.bookie_id and (found := await _stored(driver, name)) is not None:
            return name, found
    return None


async def _stored(driver: MetadataDriver, name: BookieId) -> Versioned[bytes] | None:
    try:
        return await driver.cookies.read(name)
    except CookieNotFound:
        return None


def _check_directory(files: Files, root: str, names: tuple[BookieId, BookieId]) -> None:
    path = f"{current(root)}/{VERSION_FILE}"
    if not files.exists(path):
        raise InvalidCookieError(f"there is no cookie {path}: is a disk missing?")
    found = parse_cookie(files.read_bytes(path)).bookie_id
    if found not in names:
        raise InvalidCookieError(f"{path} is the cookie of {found}, not of {names[0]}")
