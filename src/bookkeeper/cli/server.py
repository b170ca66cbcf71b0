"""`bookkeeper bookie` and `bookkeeper autorecovery`: what runs as a service."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from ..bookie.bookie import Bookie, ExitCode
from ..bookie.integrity.peers import OpenPeers, Peers
from ..bookie.node.identity import identify
from ..bookie.scrub.scrubber import wanted
from ..config import ServerConfiguration
from ..errors import BookKeeperError, ConfigurationError
from ..runtime import Runtime
from ..types import BookieId
from .output import console, execute, fail, notes, text_of
from .settings import bookie_settings

log = logging.getLogger(__name__)


Told = Callable[[Any], None]
"""Who hears of autorecovery when it begins in this process."""


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


ServerConfOption = Annotated[
    Path | None,
    typer.Option("--conf", "-c", help="Configuration file (bk_server.conf). Not needed where BK_<key> are set."),
]
LogLevelOption = Annotated[LogLevel, typer.Option("--log-level", help="What is logged, to stderr.")]
MAX_INSTANCES = 64
"""More bookies than a machine has cores are of no use."""

VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="The same as --log-level DEBUG.")]


def bookie(
    conf: ServerConfOption = None,
    port: Annotated[int | None, typer.Option("--bookieport", help="Overrides bookiePort.")] = None,
    journal: Annotated[str | None, typer.Option("--journal", "-j", help="Overrides journalDirectories.")] = None,
    ledgers: Annotated[str | None, typer.Option("--ledgerdirs", "-l", help="Overrides ledgerDirectories.")] = None,
    uri: Annotated[str | None, typer.Option("--uri", "-u", help="Overrides metadataServiceUri.")] = None,
    read_only: Annotated[bool, typer.Option("--readonly", "-r", help="Start read-only and stay so.")] = False,
    with_autorecovery: Annotated[
        bool, typer.Option("--withAutoRecovery", "-withAutoRecovery", help="Overrides autoRecoveryDaemonEnabled.")
    ] = False,
    instances: Annotated[
        int | None,
        typer.Option(
            "--instances",
            min=1,
            max=MAX_INSTANCES,
            help="Run so many bookies, a process each, as one uses one core. They get bookiePort and the ports that "
            "follow, and folders instance-1, instance-2, ... below each directory.",
        ),
    ] = None,
    log_level: LogLevelOption = LogLevel.INFO,
    verbose: VerboseOption = False,
) -> None:
    """Run one bookie in the foreground, or with --instances several.

    Settings come from the file, then from environment variables BK_<key>, then from options.
    SIGTERM, SIGHUP and Ctrl-C stop it cleanly, also while it starts. SIGQUIT prints what all its threads and
    tasks are doing, and it goes on. Exit codes are BookKeeper's: 0 stopped, 1 bad configuration, 2 could not
    start or not stop in time, 4 registration failed, 5 disk or journal failed.

    With --instances, one that ends before it has served ends all, with its exit code; later it is started again, and
    the others serve on. A ledger never has two copies on one machine, unless clients set allowCopiesOnOneHost.
    """
    level = LogLevel.DEBUG if verbose else log_level
    _log_to_stderr(level)
    overrides = {
        "bookiePort": port,
        "journalDirectories": journal,
        "ledgerDirectories": ledgers,
        "metadataServiceUri": uri,
        "forceReadOnlyBookie": read_only or None,
        "autoRecoveryDaemonEnabled": with_autorecovery or None,
    }
    config = _settings(conf, **overrides)
    if instances is None:
        raise typer.Exit(int(execute(lambda runtime: _serve(runtime, config))))
    _run_instances(conf, config, instances, overrides, level)


def _run_instances(
    conf: Path | None, config: ServerConfiguration, count: int, overrides: Mapping[str, Any], level: LogLevel
) -> NoReturn:
    from .instances import run_instances

    command = ["bookie", *(("--conf", str(conf)) if conf is not None else ()), "--log-level", level.value]
    shared = {key: value for key, value in overrides.items() if value is not None}

    async def run(runtime: Runtime) -> int:
        try:
            return await run_instances(runtime, config, count, command, shared)
        except ConfigurationError as error:
            fail(str(error), ExitCode.INVALID_CONF)

    raise typer.Exit(execute(run))


def autorecovery(
    conf: ServerConfOption = None,
    uri: Annotated[str | None, typer.Option("--uri", "-u", help="Overrides metadataServiceUri.")] = None,
    log_level: LogLevelOption = LogLevel.INFO,
    verbose: VerboseOption = False,
) -> None:
    """Make the copies of lost bookies again, for as long as this runs.

    One process of a cluster is elected to look for lost bookies and damaged ledgers (`bookkeeper shell whoisauditor`);
    all of them share the copying. Run it on several machines, or in bookies (autoRecoveryDaemonEnabled). While the
    metadata store cannot be reached it tries again. SIGTERM, SIGHUP and Ctrl-C stop it.
    """
    _log_to_stderr(LogLevel.DEBUG if verbose else log_level)
    config = _settings(conf, metadataServiceUri=uri, allowLoopback=True, autoRecoveryDaemonEnabled=True)
    execute(lambda runtime: _recover(runtime, config))


def _settings(conf: Path | None, **overrides: Any) -> ServerConfiguration:
    """The settings of a service. Ends the command if they are not right."""
    if (
        conf is None
        and not overrides.get("metadataServiceUri")
        and not any(name.startswith("BK_") for name in os.environ)
    ):
        fail("no settings: name a file with --conf, or set environment variables BK_<key>", ExitCode.INVALID_CONF)
    try:
        config = bookie_settings(conf, ExitCode.INVALID_CONF, **overrides)
        if config.autoRecoveryDaemonEnabled or config.dataIntegrityChecking or wanted(config):
            config.client_settings()  # its own client could not begin with wrong ones
        return config
    except ConfigurationError as error:
        fail(str(error), ExitCode.INVALID_CONF)


async def _recover(runtime: Runtime, config: ServerConfiguration) -> None:
    """Take part in autorecovery until asked to stop."""
    from ..autorecovery.daemon import run_autorecovery

    stop = asyncio.Event()
    _listen_to_signals(stop)
    own = (await identify(runtime, config)).bookie_id
    async with _published(runtime, config, None) as told:
        working = runtime.spawn(run_autorecovery(runtime, config, own, told), name="autorecovery")
        console.print(f"autorecovery runs as {own}", markup=False, soft_wrap=True)
        asked = runtime.spawn(stop.wait(), name="asked to stop")
        await asyncio.wait([working, asked], return_when=asyncio.FIRST_COMPLETED)
        for task in (working, asked):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working


async def _serve(runtime: Runtime, config: ServerConfiguration) -> ExitCode:
    if config.allocatorPoolingPolicy == "PooledDirect":  # batches and answers are large, and there is always a next one
        runtime.keep_freed_memory()
    server = Bookie(runtime, config, open_peers=_way_to_peers(config))
    try:
        async with _published(runtime, config, server) as told:
            code = await _run(runtime, server, config, told)
    except (BookKeeperError, OSError) as error:
        code = server.exit_code_of(error)
        notes.print(f"error: {text_of(error)}", markup=False, soft_wrap=True)
    else:
        log.info("ended with exit code %d", code)
        if server.failure is not None:
            notes.print(f"error: {text_of(server.failure)}", markup=False, soft_wrap=True)
    if server.hangs:
        runtime.end_process(code)
    return code


def _way_to_peers(config: ServerConfiguration) -> OpenPeers | None:
    """The client is loaded by bookies when they need it: most never meet damage."""
    if not config.dataIntegrityChecking and not config.localRepairQueueSize:
        return None

    def open_peers(runtime: Runtime, config: ServerConfiguration, own: BookieId) -> AbstractAsyncContextManager[Peers]:
        from .. import peers

        return peers.open_peers(runtime, config, own)

    return open_peers


@contextlib.asynccontextmanager
async def _published(runtime: Runtime, config: ServerConfiguration, server: Bookie | None) -> AsyncIterator[Told]:
    """HTTP, as far as it is asked for; loaded by those that need it. Gives who is told of autorecovery in here."""
    if not config.httpServerEnabled and not (config.statsProviderClass and config.prometheusStatsHttpEnable):
        yield lambda _: None
        return
    from ..admin.service import serving

    async with serving(runtime, config, server) as told:
        yield told


async def _run(runtime: Runtime, server: Bookie, config: ServerConfiguration, told: Told) -> ExitCode:
    """Start, serve until something ends it, stop. A request to stop is heard at any time. Raises what `start` does."""
    stop = asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(server.on_loop_error)
    _listen_to_signals(stop)
    asked = runtime.spawn(stop.wait(), name="asked to stop")
    starting = runtime.spawn(server.start(), name="start")
    await asyncio.wait([asked, starting], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        log.info("asked to stop while it starts")
        starting.cancel()
    try:
        await starting
    except asyncio.CancelledError:
        return ExitCode.OK
    finally:
        asked.cancel()
    console.print(f"bookie {server.bookie_id} serves", markup=False, soft_wrap=True)
    healing = _heal(runtime, server, config, told)
    ended = runtime.spawn(server.wait_stopped(), name="end")
    asked = runtime.spawn(stop.wait(), name="asked to stop")
    await asyncio.wait([ended, asked], return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if healing is not None:
        healing.cancel()
        await asyncio.wait([healing])
    if not ended.done():
        await server.stop()
    return await ended


def _heal(runtime: Runtime, server: Bookie, config: ServerConfiguration, told: Told) -> asyncio.Task[None] | None:
    """Autorecovery in the bookie's process, if it is asked for. It is loaded by bookies that need it."""
    if not config.autoRecoveryDaemonEnabled:
        return None
    from ..autorecovery.daemon import run_autorecovery

    work = run_autorecovery(runtime, config, server.bookie_id, told)
    return runtime.spawn(work, name="autorecovery")


def _listen_to_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue  # under nohup
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGQUIT, _print_tasks)
    with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr may be no file
        faulthandler.register(signal.SIGQUIT, all_threads=True, chain=True)


def _print_tasks() -> None:
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)


class _Formatter(logging.Formatter):
    """Times with milliseconds and zone: logs of several machines are read together."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        return super().formatTime(record, f"%Y-%m-%dT%H:%M:%S.{int(record.msecs):03d}%z")


def _log_to_stderr(level: LogLevel) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level.value, handlers=[handler])
    if level is LogLevel.INFO:
        logging.getLogger("kazoo").setLevel(logging.WARNING)
