"""Before a bookie's first start, and before it begins anew."""

from __future__ import annotations

from typing import Annotated

import typer

from ....bookie.offline import contents
from ....errors import BookieError, CookieNotFound, MetadataError
from ....metadata.api import ANY
from ....runtime import Runtime
from ...options import JsonOption
from ...output import execute, fail, print_json
from ..common import sure
from ..places import configured, directories
from .place import BookieConf, place_of


def initbookie(conf: BookieConf = None, as_json: JsonOption = False) -> None:
    """Say whether a new bookie with these settings may be started: whether nothing of an older one is left.

    Its directories must be empty, it must not be registered, and the store must not have a cookie of it. Nothing is
    made: the first start does that.
    """
    config = configured(conf)

    async def check(runtime: Runtime) -> str:
        async with place_of(runtime, config) as place:
            full = contents.with_data(runtime.files, place.directories.all)
            if full:
                raise BookieError(f"not empty: {', '.join(full)}; `bookkeeper shell bookieformat` empties them")
            await place.check_stopped()
            for name in await place.cookies():
                raise MetadataError(
                    f"the store has a cookie of {name}: `bookkeeper shell cookie_delete {name}` removes it"
                )
            return place.identity.bookie_id

    name = execute(check)
    if as_json:
        print_json({"bookie": name, "may_start": True})
    else:
        print(f"Bookie {name} may be started for the first time")


def bookieformat(
    conf: BookieConf = None,
    non_interactive: Annotated[
        bool, typer.Option("--nonInteractive", "-nonInteractive", "-n", help="Do not ask; needs --force.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", "-force", "-f", help="With -n: format though there is data.")
    ] = False,
    delete_cookie: Annotated[
        bool,
        typer.Option("--deleteCookie", "-deleteCookie", "-d", help="Remove the bookie's cookie from the store, too."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove all data of a stopped bookie: it begins anew, and what it held is missing.

    The data in its journal, ledger and index directories goes. With -d the cookie in the store goes afterwards; without
    it the bookie does not start again. Copies elsewhere come back by re-replication: see `decommissionbookie`.
    """
    config = configured(conf)
    places = directories(conf)

    async def look(runtime: Runtime) -> list[str]:
        async with place_of(runtime, config) as place:
            await place.check_stopped()
            return contents.with_data(runtime.files, places.all)

    full = execute(look)
    if full and non_interactive and not force:
        fail(f"there is data in {', '.join(full)}: --nonInteractive formats it only with --force")
    if full and not non_interactive and not sure(f"Are you sure to format Bookie data in {', '.join(full)}?"):
        fail("nothing was changed")

    async def format_(runtime: Runtime) -> str:
        async with place_of(runtime, config) as place:
            await place.check_stopped()
            contents.empty(runtime.files, places.all)
            name = place.identity.bookie_id
            if delete_cookie:
                try:
                    await place.driver.cookies.remove(name, ANY)
                except CookieNotFound:
                    raise MetadataError(f"the directories are empty; the store had no cookie of {name}") from None
            return name

    name = execute(format_)
    if as_json:
        print_json({"bookie": name, "emptied": full, "cookie_deleted": delete_cookie})
    else:
        print(f"Bookie {name} is formatted" + (", and its cookie deleted" if delete_cookie else ""))
