"""`bookkeeper localbookie`: a cluster of bookies on this machine, and of Spark, for as long as the command runs."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Annotated

import typer

from ...errors import ConfigurationError
from ...spark.launch import require_java, require_packages
from ...version import install_hint
from ..jobs import cli_errors
from ..output import EXIT_USAGE, console, counted, execute, fail, remark, set_up_logging
from ..session import Stop, stoppable
from .cluster import LocalCluster
from .spark_cluster import LocalSpark


def localbookie(
    count: Annotated[int, typer.Argument(min=1, max=64, help="Number of bookies.")] = 3,
    directory: Annotated[
        Path | None, typer.Option("--dir", "-d", help="Where the cluster lives; kept. Default: a temporary folder.")
    ] = None,
    port_base: Annotated[
        int, typer.Option("--port-base", min=0, max=65000, help="First port; the others follow. 0: free ones.")
    ] = 0,
    zookeeper: Annotated[
        bool, typer.Option("--zookeeper", help="Use a real ZooKeeper server (needs a JDK 17+, PySpark and kazoo).")
    ] = False,
    autorecovery: Annotated[
        bool, typer.Option("--autorecovery", help="Bookies make the copies of lost ones again.")
    ] = False,
    spark: Annotated[
        int,
        typer.Option("--spark", min=0, max=16, help="Also a Spark cluster: a master and so many workers (JDK 17+)."),
    ] = 0,
) -> None:
    """Run a cluster of bookies on this machine until it is stopped.

    It is up when it prints its metadataServiceUri, and with --spark the address of Spark's master. Ctrl-C stops it; one
    started with `&` is stopped by `kill %1`. Its bookies never outlive it.

    With --dir the cluster's data is kept, and the same command brings it up again, with more bookies if a larger number
    is given. To remove a cluster, stop it and delete the folder.
    """
    set_up_logging(False)
    with contextlib.ExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bookkeeper-")))
        chosen = directory
        settings = {"autoRecoveryDaemonEnabled": str(autorecovery).lower()}
        with cli_errors():
            if spark:
                require_packages()
                require_java()
        made = LocalSpark(chosen.absolute() / "spark", spark) if spark else None
        execute(
            lambda runtime: _local(
                lambda uri: LocalCluster(runtime, chosen, count, port_base, uri, settings), chosen, zookeeper, made
            )
        )


async def _local(
    make: Callable[[str], LocalCluster], directory: Path, zookeeper: bool, spark: LocalSpark | None
) -> None:
    with stoppable(signal.SIGHUP) as stop:
        async with _store(directory, zookeeper) as uri, contextlib.AsyncExitStack() as stack:
            cluster = make(uri)
            if not await _started(cluster.start(), stop, stack, cluster.stop):
                return
            if spark is not None and not await _started(spark.start(), stop, stack, spark.stop):
                return
            _introduce(cluster, spark)
            await _watch(cluster, spark, stop)


async def _started(
    start: Coroutine[None, None, None], stop: Stop, stack: contextlib.AsyncExitStack, end: Callable[[], Awaitable[None]]
) -> bool:
    """Start something, which is ended with the stack; False when asked to stop meanwhile."""
    stack.push_async_callback(end)
    starting = asyncio.ensure_future(start)
    asked = asyncio.ensure_future(stop.asked.wait())
    try:
        await asyncio.wait([starting, asked], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
        if starting.cancelled():
            return False
        starting.result()
    finally:
        asked.cancel()
    return True


@contextlib.asynccontextmanager
async def _store(directory: Path, zookeeper: bool) -> AsyncIterator[str]:
    """The address of the metadata store; "" for the embedded one."""
    if not zookeeper:
        yield ""
        return
    try:
        from ...metadata.zookeeper.local_server import LocalZooKeeper
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"--zookeeper needs the package {error.name}: {install_hint('zookeeper')}") from None
    store = LocalZooKeeper(directory.absolute() / "zookeeper")
    try:
        yield await store.start()
    finally:
        await store.stop()


def _introduce(cluster: LocalCluster, spark: LocalSpark | None) -> None:
    console.print(f"metadataServiceUri={cluster.uri}", markup=False, soft_wrap=True)
    if spark is not None:
        console.print(f"master={spark.url}", markup=False, soft_wrap=True)
    for name in cluster.left_out:
        remark(f"{name} of this folder is not started: entries that only it has cannot be read")
    remark(
        f"{counted(len(cluster.bookies), 'bookie serves', 'bookies serve')}: "
        f"{', '.join(bookie.id for bookie in cluster.bookies)}\n"
        f"connect with:  export BOOKKEEPER_URI='{cluster.uri}'{f' MASTER={spark.url}' if spark else ''}\n"
        + (f"Spark, {counted(spark.workers, 'worker')}: {spark.page}\n" if spark else "")
        + "Ctrl-C stops them (in the background: kill %1)."
    )


async def _watch(cluster: LocalCluster, spark: LocalSpark | None, stop: Stop) -> None:
    """Until asked to stop; says so when a bookie, or what belongs to Spark, ends by itself."""
    reported: set[str] = set()
    while not stop.asked.is_set():
        for member in cluster.bookies:
            if not member.running and member.name not in reported:
                reported.add(member.name)
                remark(f"bookie {member.id} {member.how_it_ended()}")
        for name in spark.ended() if spark is not None else ():
            if name not in reported:
                reported.add(name)
                remark(f"{name} of Spark has ended: see its log in {cluster.directory / 'spark'}")
        if all(bookie.name in reported for bookie in cluster.bookies):
            fail("all bookies have ended", EXIT_USAGE)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.asked.wait(), 0.5)
