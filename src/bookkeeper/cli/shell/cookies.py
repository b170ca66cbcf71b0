"""Cookies in the metadata store: look at, save, put back, take away.

A bookie starts only if the cookie in the store and those in its directories agree. To let a bookie begin anew after its
disks were replaced: stop it, empty all its directories, delete its cookie, start it. What it held is then missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...errors import ConfigurationError, CookieExists, CookieNotFound, CorruptMetadata, MetadataError
from ...metadata.api import ANY, MetadataDriver
from ...metadata.formats.cookie import Cookie, encode_cookie, parse_cookie
from ...types import BookieId, parse_bookie_id
from ..options import JsonOption, grouped
from ..output import EXIT_USAGE, console, fail, print_json
from .common import ClusterOptions, in_cluster

BookieArgument = Annotated[str, typer.Argument(help="The bookie's id, host:port.")]
FileOption = Annotated[Path, typer.Option("--cookie-file", "-cf", help="The cookie, as `cookie_get` prints it.")]


@grouped
def cookie_get(bookie: BookieArgument, cluster: ClusterOptions, as_json: JsonOption = False) -> None:
    """Print a bookie's cookie."""

    async def look(driver: MetadataDriver) -> bytes:
        try:
            return (await driver.cookies.read(BookieId(bookie))).value
        except CookieNotFound:
            raise _not_found(bookie) from None

    text = in_cluster(cluster, look).decode(errors="replace")
    if as_json:
        print_json({"bookie": bookie, "cookie": text})
        return
    console.print(f"Cookie for bookie '{bookie}' is:\n---\n{text}\n---", markup=False, soft_wrap=True)


@grouped
def cookie_create(
    bookie: BookieArgument, file: FileOption, cluster: ClusterOptions, as_json: JsonOption = False
) -> None:
    """Give a bookie a cookie. It must have none."""
    data = _read(file)

    async def create(driver: MetadataDriver) -> None:
        try:
            await driver.cookies.create(BookieId(bookie), data)
        except CookieExists:
            raise MetadataError(f"Cookie already exist for bookie '{bookie}'") from None

    in_cluster(cluster, create)
    _print_done(bookie, "created", as_json)


@grouped
def cookie_update(
    bookie: BookieArgument, file: FileOption, cluster: ClusterOptions, as_json: JsonOption = False
) -> None:
    """Replace a bookie's cookie. It must have one."""
    data = _read(file)

    async def update(driver: MetadataDriver) -> None:
        try:
            found = await driver.cookies.read(BookieId(bookie))
            await driver.cookies.write(BookieId(bookie), data, found.version)
        except CookieNotFound:
            raise _not_found(bookie) from None

    in_cluster(cluster, update)
    _print_done(bookie, "updated", as_json)


@grouped
def cookie_delete(bookie: BookieArgument, cluster: ClusterOptions, as_json: JsonOption = False) -> None:
    """Take a bookie's cookie away, so that a new one with this id may begin on empty directories."""

    async def delete(driver: MetadataDriver) -> None:
        try:
            await driver.cookies.remove(BookieId(bookie), ANY)
        except CookieNotFound:
            raise _not_found(bookie) from None

    in_cluster(cluster, delete)
    _print_done(bookie, "deleted", as_json)


@grouped
def cookie_generate(
    bookie: BookieArgument,
    journal_dirs: Annotated[
        str, typer.Option("--journal-dirs", "-journal-dirs", "-j", help="As the bookie's journalDirectories say.")
    ],
    ledger_dirs: Annotated[
        str, typer.Option("--ledger-dirs", "-ledger-dirs", "-l", help="As the bookie's ledgerDirectories say.")
    ],
    output: Annotated[Path, typer.Option("--output-file", "-output-file", "-o", help="Where the cookie is written.")],
    cluster: ClusterOptions,
    index_dirs: Annotated[
        str | None,
        typer.Option("--index-dirs", "-index-dirs", "-ix", help="indexDirectories, if the bookie has any of its own."),
    ] = None,
    instance_id: Annotated[
        str | None, typer.Option("--instance-id", "-instance-id", "-i", help="Default: the cluster's.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the cookie that a bookie with these directories would have to a file, for `cookie_create`."""
    try:
        named = parse_bookie_id(bookie)
    except ConfigurationError as error:
        fail(str(error), EXIT_USAGE)

    async def cluster_id(driver: MetadataDriver) -> str | None:
        return await driver.admin.instance_id()

    cookie = Cookie.build(
        named,
        journal_dirs=_listed(journal_dirs),
        ledger_dirs=_listed(ledger_dirs),
        index_dirs=_listed(index_dirs) if index_dirs is not None else None,
        instance_id=instance_id or in_cluster(cluster, cluster_id),
    )
    try:
        output.write_bytes(encode_cookie(cookie))
    except OSError as error:
        fail(f"cannot write {output}: {error.strerror}")
    if as_json:
        print_json({"bookie": bookie, "cookie": str(output)})
    else:
        console.print(f"Successfully saved the generated cookie to {output}", markup=False, soft_wrap=True)


def _listed(directories: str) -> list[str]:
    return [name for each in directories.split(",") if (name := each.strip())]


def _print_done(bookie: str, done: str, as_json: bool) -> None:
    """Java's shell says nothing of it."""
    if as_json:
        print_json({"bookie": bookie, "cookie": done})


def _not_found(bookie: str) -> MetadataError:
    return MetadataError(f"Cookie not found for bookie '{bookie}'")


def _read(file: Path) -> bytes:
    """A cookie from a file; what is none would keep the bookie from starting."""
    try:
        data = file.read_bytes()
        parse_cookie(data)
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}", EXIT_USAGE)
    except CorruptMetadata as error:
        fail(f"{file} is no cookie: {error}", EXIT_USAGE)
    return data
