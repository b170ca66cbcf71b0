"""A cluster as a whole: make, format, remove, name."""

from __future__ import annotations

from typing import Annotated

import typer

from ...metadata.api import MetadataDriver
from ...metadata.uri import parse_service_uri
from ..options import JsonOption, grouped
from ..output import EXIT_USAGE, console, fail, print_json
from .common import ClusterOptions, in_cluster, sure, with_store

NO_CLUSTER = ""


@grouped
def initnewcluster(cluster: ClusterOptions, as_json: JsonOption = False) -> None:
    """Make a new cluster in an empty metadata store. Refuses where there is one."""
    where = cluster.address()

    async def make(driver: MetadataDriver) -> tuple[bool, str | None]:
        return await driver.admin.init_new_cluster(), await driver.admin.instance_id()

    made, instance_id = with_store(where, make, create=True)
    if not made:
        fail(f"there is a cluster at {where} already (instance id {instance_id}); nothing was changed")
    if as_json:
        print_json({"uri": where, "instance_id": instance_id})
    else:
        console.print(f"Successfully initialized new cluster at {where} InstanceId: {instance_id}", soft_wrap=True)


@grouped
def metaformat(
    cluster: ClusterOptions,
    non_interactive: Annotated[
        bool, typer.Option("--nonInteractive", "-nonInteractive", "-n", help="Do not ask; needs --force.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", "-force", "-f", help="With -n: format though there is data.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Forget all ledgers and bookies of a cluster: all data is lost. Makes the cluster if there is none.

    Stop its bookies first: they keep their directories, and refuse to start until those are removed.
    """
    where = cluster.address()

    async def has_data(driver: MetadataDriver) -> bool:
        return await driver.admin.prepare_format()

    async def format_(driver: MetadataDriver) -> str | None:
        await driver.admin.format()
        return await driver.admin.instance_id()

    if with_store(where, has_data, create=True):
        if non_interactive and not force:
            fail(f"there is a cluster at {where}: --nonInteractive formats it only with --force")
        if not non_interactive and not sure(
            f"Ledger root already exists at {where}. Are you sure to format bookkeeper metadata? "
            "This may cause data loss."
        ):
            fail("nothing was changed")
    instance_id = with_store(where, format_)
    if as_json:
        print_json({"uri": where, "instance_id": instance_id})
    else:
        console.print(f"Bookkeeper metadata formatted successfully InstanceId: {instance_id}")


@grouped
def nukeexistingcluster(
    cluster: ClusterOptions,
    root: Annotated[
        str | None,
        typer.Option(
            "--zkledgersrootpath",
            "-zkledgersrootpath",
            "-p",
            help="The path of the metadata service's address, once more, to be sure.",
        ),
    ] = None,
    instance_id: Annotated[
        str | None,
        typer.Option("--instanceid", "-instanceid", "-i", help="The cluster's instance id, to be sure."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", "-force", "-f", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove a cluster from its metadata store, with all its ledgers. Refuses while a bookie is registered.

    Say which cluster is meant by --instanceid (see `whatisinstanceid`), or say --force; otherwise it is asked.
    """
    where = cluster.address()
    if force and instance_id is not None:
        fail("--instanceid and --force exclude each other", EXIT_USAGE)
    if root is not None and root.rstrip("/") != parse_service_uri(where).path:
        fail(f"--zkledgersrootpath {root} is not the path of {where}: nothing was changed")
    found = with_store(where, _instance_id)
    if found == NO_CLUSTER:
        _print_nuked(where, None, f"there is no cluster at {where}", as_json)
        return
    if instance_id is not None and instance_id != found:
        fail(f"the cluster at {where} has instance id {found}, not {instance_id}: nothing was changed")
    certain = force or instance_id is not None
    if not certain and not sure(f"Remove the cluster at {where} (instance id {found}) with all its ledgers?"):
        fail("nothing was changed")
    if not with_store(where, _nuke):
        fail(f"the cluster at {where} has registered bookies, or something unknown beside it: nothing was changed")
    _print_nuked(where, found, "Successfully nuked existing cluster", as_json)


def _print_nuked(where: str, instance_id: str | None, text: str, as_json: bool) -> None:
    """`instance_id`: of the cluster that was removed, None if there was none."""
    if as_json:
        print_json({"uri": where, "removed": instance_id})
    else:
        console.print(text, markup=False, soft_wrap=True)


async def _instance_id(driver: MetadataDriver) -> str | None:
    """The cluster's; `NO_CLUSTER` if there is none, None if it has no id."""
    return await driver.admin.instance_id() if await driver.admin.exists() else NO_CLUSTER


async def _nuke(driver: MetadataDriver) -> bool:
    return await driver.admin.nuke()


@grouped
def whatisinstanceid(cluster: ClusterOptions, as_json: JsonOption = False) -> None:
    """Print the cluster's instance id."""

    async def look(driver: MetadataDriver) -> str | None:
        return await driver.admin.instance_id()

    where, found = cluster.address(), in_cluster(cluster, look)
    if as_json:
        print_json({"uri": where, "instance_id": found})
    else:
        console.print(f"Metadata Service Uri: {where} InstanceId: {found}", markup=False, soft_wrap=True)
