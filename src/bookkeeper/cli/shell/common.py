"""What the commands of the shell share: where the cluster is, and asking before something is destroyed."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ...autorecovery.daemon import connected
from ...client.client import BookKeeper
from ...config import ServerConfiguration
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


def conf_option(help: str) -> Any:
    """The option for a bookie's settings; `help` says what of them is used."""
    return typer.Option("--conf", "-c", "-conf", envvar="BOOKIE_CONF", help=f"{help} BK_<key> count too.")


ConfOption = Annotated[Path | None, conf_option("Or a bk_server.conf that says where it is.")]


@dataclass(frozen=True)
class ClusterOptions:
    """Which cluster is meant: its metadata service's address, directly or by a configuration."""

    uri: UriOption = None
    conf: ConfOption = None

    def address(self) -> str:
        """The address. Ends the command if there is none."""
        if self.uri:
            return self.uri
        try:
            return configured_service_uri(bookie_settings(self.conf, EXIT_USAGE))
        except ConfigurationError as error:
            fail(f"{error}; say --uri, or --conf with a bk_server.conf", EXIT_USAGE)


def with_store(uri: str, work: Callable[[MetadataDriver], Awaitable[Any]], *, create: bool = False) -> Any:
    """Run `work` on the metadata store at `uri`; returns what it returns. `create`: the store may be made for it."""

    async def main(runtime: Runtime) -> Any:
        async with driver_of(uri, runtime, create=create) as driver:
            return await work(driver)

    return execute(main)


def in_cluster(cluster: ClusterOptions, work: Callable[[MetadataDriver], Awaitable[Any]]) -> Any:
    """The same on the store of a cluster. Ends the command if there is no cluster in it."""
    return timed_in_cluster(cluster, lambda _runtime, driver: work(driver))


def timed_in_cluster(cluster: ClusterOptions, work: Callable[[Runtime, MetadataDriver], Awaitable[Any]]) -> Any:
    """The same for work that needs a clock."""
    where = cluster.address()

    async def main(runtime: Runtime) -> Any:
        async with driver_of(where, runtime, create=False) as driver:
            if not await driver.admin.exists():
                raise NotInitialized(
                    f"there is no cluster in the metadata store {where}: `bookkeeper shell initnewcluster` makes one"
                )
            return await work(runtime, driver)

    return execute(main)


def with_client(cluster: ClusterOptions, work: Callable[[Runtime, MetadataDriver, BookKeeper], Awaitable[Any]]) -> Any:
    """Run `work` with a client of the cluster, which may open any ledger; returns what it returns.

    Bookies are asked as `--conf` says, if that is given.
    """
    uri = cluster.address()
    config = bookie_settings(cluster.conf, EXIT_USAGE) if cluster.conf else ServerConfiguration.from_mapping({})

    async def main(runtime: Runtime) -> Any:
        async with connected(runtime, config, uri) as (driver, client):
            return await work(runtime, driver, client)

    return execute(main)


def agreed(question: str) -> bool:
    """Ask if there is somebody to ask: what Java's shell does without a question is done so in scripts."""
    return not sys.stdin.isatty() or sure(question)


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
