"""What the commands of the shell share: where the cluster is, and asking before something is destroyed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ...errors import ConfigurationError, NotInitialized
from ...metadata import configured_service_uri
from ...metadata.api import MetadataDriver
from ...runtime import Runtime
from ..output import EXIT_USAGE, execute, fail
from ..session import driver_of
from ..settings import bookie_settings

UriOption = Annotated[
    str | None,
    typer.Option(
        "--uri",
        "-u",
        "-uri",
        envvar="BOOKKEEPER_URI",
        help="Metadata service: zk+hierarchical://host:2181/ledgers or sqlite:///path/meta.db",
    ),
]
ConfOption = Annotated[
    Path | None,
    typer.Option(
        "--conf",
        "-c",
        "-conf",
        envvar="BOOKIE_CONF",
        help="Or a bk_server.conf that says where it is. BK_<key> count too.",
    ),
]


def service_uri(uri: str | None, conf: Path | None) -> str:
    """The metadata service's address, said directly or by a configuration. Ends the command if there is none."""
    if uri:
        return uri
    try:
        return configured_service_uri(bookie_settings(conf, EXIT_USAGE))
    except ConfigurationError as error:
        fail(f"{error}; say --uri, or --conf with a bk_server.conf", EXIT_USAGE)


def with_store(uri: str, work: Callable[[MetadataDriver], Awaitable[Any]], *, create: bool = False) -> Any:
    """Run `work` on the metadata store at `uri`; returns what it returns. `create`: the store may be made for it."""

    async def main(runtime: Runtime) -> Any:
        async with driver_of(uri, runtime, create=create) as driver:
            return await work(driver)

    return execute(main)


async def require_cluster(driver: MetadataDriver, uri: str) -> None:
    """Raises `NotInitialized`."""
    if not await driver.admin.exists():
        raise NotInitialized(
            f"there is no cluster in the metadata store {uri}: `bookkeeper shell initnewcluster` makes one"
        )


def sure(question: str) -> bool:
    """Ask yes or no; the end of input is a no."""
    while True:
        try:
            answer = input(f"{question} (Y or N) ").strip().lower()
        except EOFError:
            return False
        if answer in ("y", "yes"):
            return True
        if answer in ("n", "no"):
            return False
        print(f"Invalid input: {answer}")
