"""Which bookies there are, what they say of themselves, and how the cluster stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ...admin.overview import cluster_info
from ...admin.sizes import size_text
from ...client.client import BookieInfo, BookKeeper
from ...errors import MetadataError
from ...metadata.api import BookieServiceInfo, Endpoint, MetadataDriver, Mode
from ...runtime import Runtime
from ...types import BookieId
from ..options import JsonOption, grouped
from ..output import EXIT_USAGE, console, fail, print_json, remark
from .common import ClusterOptions, in_cluster, timed_in_cluster, with_client


@grouped
def listbookies(
    cluster: ClusterOptions,
    readwrite: Annotated[
        bool, typer.Option("--readwrite", "-readwrite", "-rw", help="Those that take writes.")
    ] = False,
    readonly: Annotated[
        bool, typer.Option("--readonly", "-readonly", "-ro", help="Those that only serve reads.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", "-all", "-a", help="All that have a cookie, running or not.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List bookies and their addresses: say one of -rw, -ro and -a."""
    if readwrite + readonly + every != 1:
        fail("say one of -rw, -ro and -a", EXIT_USAGE)

    async def look(runtime: Runtime, driver: MetadataDriver) -> list[Place]:
        discovery = driver.discovery
        if every:
            found = await discovery.list_all()
        else:
            found = await discovery.list(Mode.WRITABLE if readwrite else Mode.READ_ONLY)
        return [await _place(runtime, driver, bookie) for bookie in sorted(found.value)]

    rows = timed_in_cluster(cluster, look)
    if as_json:
        print_json([{"bookie": row.bookie, "host": row.host, "port": row.port} for row in rows])
        return
    if not rows:
        console.print("No bookie exists!")
        return
    console.print("ReadWrite Bookies :" if readwrite else "Readonly Bookies :" if readonly else "All Bookies :")
    for row in rows:
        console.print(str(row), markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Place:
    """Where a bookie serves; nothing is known of the address of one that does not run."""

    bookie: BookieId
    host: str | None = None
    """As it is published."""
    port: int | None = None
    ip: str = "UNKNOWN"
    name: str = "UNKNOWN"

    def __str__(self) -> str:
        return f"BookieID:{self.bookie}, IP:{self.ip}, Port:{self.port or 0}, Hostname:{self.name}"


async def _place(runtime: Runtime, driver: MetadataDriver, bookie: BookieId) -> Place:
    try:
        at = (await driver.discovery.info(bookie)).bookie_rpc()
    except MetadataError:
        at = None
    if at is None:
        return Place(bookie)
    try:
        address = await runtime.network.resolve(at.host)
        named = await runtime.network.host_name(address) if address == at.host else at.host
    except OSError:
        return Place(bookie, at.host, at.port)
    return Place(bookie, at.host, at.port, address, named)


@grouped
def bookieinfo(cluster: ClusterOptions, as_json: JsonOption = False) -> None:
    """Ask all bookies that run how much space their disks have."""

    async def look(
        runtime: Runtime, driver: MetadataDriver, client: BookKeeper
    ) -> tuple[list[Place], dict[BookieId, BookieInfo]]:
        running = sorted(await client.writable_bookies() | await client.readonly_bookies())
        return [await _place(runtime, driver, bookie) for bookie in running], await client.bookie_info()

    places, space = with_client(cluster, look)
    free, total = sum(info.free for info in space.values()), sum(info.total for info in space.values())
    if as_json:
        bookies = [{"bookie": bookie, "free": info.free, "total": info.total} for bookie, info in space.items()]
        print_json({"bookies": bookies, "free": free, "total": total})
        return
    console.print("Free disk space info:")
    for place in places:
        if (info := space.get(place.bookie)) is None:
            remark(f"{place.bookie} does not answer")
        else:
            typer.echo(f"{place}:\tFree: {size_text(info.free)}\tTotal: {size_text(info.total)}")
    typer.echo(f"Total free disk space in the cluster:\t{size_text(free)}")
    typer.echo(f"Total disk capacity in the cluster:\t{size_text(total)}")


@grouped
def clusterinfo(cluster: ClusterOptions, as_json: JsonOption = False) -> None:
    """Say how the cluster stands: its auditor, whether ledgers wait for repair, how many bookies there are."""

    found = in_cluster(cluster, cluster_info)
    if not as_json:
        console.print("--------- Cluster Info ---------")
    print_json(found)


@grouped
def endpointinfo(
    bookie: Annotated[str, typer.Option("--bookieid", "-bookieid", "-b", help="The bookie's id, host:port.")],
    cluster: ClusterOptions,
    as_json: JsonOption = False,
) -> None:
    """Print what a running bookie publishes of itself: where it serves, and how."""

    async def look(driver: MetadataDriver) -> BookieServiceInfo:
        try:
            return await driver.discovery.info(BookieId(bookie))
        except MetadataError as error:
            fail(f"{bookie} is not there: {error}")

    info = in_cluster(cluster, look)
    if as_json:
        print_json(
            {"bookie": bookie, "properties": dict(info.properties), "endpoints": list(map(_described, info.endpoints))}
        )
        return
    lines = [f"BookiedId: {bookie}"]
    if info.properties:
        lines += ["Properties", *(f"{key} : {value}" for key, value in info.properties.items())]
    for at in info.endpoints:
        lines += [
            f"Endpoint: {at.id}",
            f"Protocol: {at.protocol}",
            f"Address: {at.host} : {at.port}",
            f"Auth: [{', '.join(at.auth)}]",
            f"Extensions: [{', '.join(at.extensions)}]",
        ]
    console.print("\n".join(lines), markup=False, soft_wrap=True)


def _described(at: Endpoint) -> dict[str, Any]:
    names = ("id", "protocol", "host", "port")
    return {**{name: getattr(at, name) for name in names}, "auth": list(at.auth), "extensions": list(at.extensions)}
