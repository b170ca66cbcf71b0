"""The cookies of a stopped bookie: another id, a look, away with them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ....bookie.file_names import VERSION_FILE, current
from ....bookie.node.cookies import check_cookies
from ....bookie.offline.renaming import rename
from ....config import ServerConfiguration
from ....errors import InvalidCookieError
from ....metadata.api import ANY
from ....metadata.formats.cookie import Cookie, parse_cookie
from ....runtime import Runtime
from ...options import JsonOption
from ...output import EXIT_USAGE, execute, fail, print_json
from ..common import sure
from ..places import configured
from .place import BookieConf, Place, place_of

HOSTNAME = "hostname"
IP = "ip"


def updatecookie(
    word: Annotated[str | None, typer.Argument(help="`force`, behind -delete: do not ask.")] = None,
    conf: BookieConf = None,
    bookie_id: Annotated[
        str | None,
        typer.Option(
            "--bookieId", "-bookieId", "-b", help="`hostname` or `ip`, as useHostNameAsBookieID in the settings says."
        ),
    ] = None,
    expand: Annotated[
        bool,
        typer.Option("--expandstorage", "-expandstorage", "-e", help="Accept new, empty directories of the settings."),
    ] = False,
    list_: Annotated[bool, typer.Option("--list", "-list", "-l", help="Print the cookies that there are.")] = False,
    delete: Annotated[
        bool, typer.Option("--delete", "-delete", "-d", help="Remove the cookies from the directories and the store.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Change the cookies of a stopped bookie, print them, or remove them.

    With -b the cookies in the directories and in the store name the bookie as its settings do now, by its host's name
    or its address; `updateledgers` does the same for the metadata of ledgers. With -e directories are added, where the
    storage can have more (DbLedgerStorage cannot).
    """
    if [bookie_id is not None, expand, list_, delete].count(True) != 1:
        fail("say one of -bookieId, -expandstorage, -list, -delete", EXIT_USAGE)
    if word is not None and not (delete and word == "force"):
        fail(f"{word}: only `force` may stand there, behind -delete", EXIT_USAGE)
    config = configured(conf, allowStorageExpansion=True if expand else None)
    if bookie_id is not None:
        _check_naming(bookie_id, config)
    if delete and word is None and not sure("Are you sure to delete the bookie's cookies?"):
        fail("nothing was changed")

    async def change(runtime: Runtime) -> dict[str, Any]:
        async with place_of(runtime, config) as place:
            if list_:
                return await _list(runtime, place)
            await place.check_stopped()
            if bookie_id is not None:
                old = await rename(runtime.files, place.driver, place.directories, place.identity)
                return {"bookie": place.identity.bookie_id, "was": old}
            return await (_delete(runtime, place) if delete else _expand(runtime, place))

    _print(execute(change), as_json)


def _check_naming(named: str, config: ServerConfiguration) -> None:
    if named not in (HOSTNAME, IP):
        fail(f"-bookieId {named}: say {HOSTNAME} or {IP}", EXIT_USAGE)
    if config.useHostNameAsBookieID is not (named == HOSTNAME):
        wanted = str(named == HOSTNAME).lower()
        fail(f"-bookieId {named} needs useHostNameAsBookieID={wanted} in the settings", EXIT_USAGE)


async def _list(runtime: Runtime, place: Place) -> dict[str, Any]:
    found = {f"store:{name}": _about(parse_cookie(data)) for name, data in (await place.cookies()).items()}
    for root in place.directories.all:
        path = f"{current(root)}/{VERSION_FILE}"
        if runtime.files.exists(path):
            found[path] = _about(parse_cookie(runtime.files.read_bytes(path)))
    return {"bookie": place.identity.bookie_id, "cookies": found}


def _about(cookie: Cookie) -> dict[str, Any]:
    return {
        "bookie": cookie.bookie_id,
        "journal": cookie.journal_dir,
        "ledger": list(cookie.ledger_dir_names()),
        "index": list(cookie.index_dir_names()),
        "instance_id": cookie.instance_id,
    }


async def _expand(runtime: Runtime, place: Place) -> dict[str, Any]:
    name = place.identity.bookie_id
    if name not in await place.cookies():
        raise InvalidCookieError(f"the metadata store has no cookie of {name}: there is no storage to expand")
    place.directories.prepare(
        runtime.files, allow_shared_partition=place.config.allowMultipleDirsUnderSameDiskPartition
    )
    await check_cookies(runtime.files, place.driver, place.config, place.directories, place.identity)
    return {"bookie": name, "directories": list(place.directories.all)}


async def _delete(runtime: Runtime, place: Place) -> dict[str, Any]:
    removed = []
    for root in place.directories.all:
        path = f"{current(root)}/{VERSION_FILE}"
        if runtime.files.exists(path):
            runtime.files.unlink(path)
            runtime.files.fsync_dir(current(root))
            removed.append(path)
    for name in await place.cookies():
        await place.driver.cookies.remove(name, ANY)
        removed.append(f"store:{name}")
    if not removed:
        raise InvalidCookieError(f"there is no cookie of {place.identity.bookie_id}")
    return {"bookie": place.identity.bookie_id, "deleted": removed}


def _print(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    if "was" in found:
        print(f"The cookies name {found['bookie']}" + (f" instead of {found['was']}" if found["was"] else " already"))
    elif "deleted" in found:
        print("\n".join(f"deleted {place}" for place in found["deleted"]))
    elif "directories" in found:
        print(f"The cookies of {found['bookie']} name {', '.join(found['directories'])}")
    elif not found["cookies"]:
        print("No cookie exists!")
    for where, cookie in found.get("cookies", {}).items():
        print(f"{where}: " + ", ".join(f"{key}={value}" for key, value in cookie.items()))
