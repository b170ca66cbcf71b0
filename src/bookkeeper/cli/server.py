"""`bookkeeper bookie`: run a bookie."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from ..bookie.bookie import Bookie, ExitCode
from ..config import ServerConfiguration
from ..errors import BookKeeperError, ConfigurationError
from ..runtime import Runtime
from .output import console, execute, fail, notes, set_up_logging


def bookie(
    conf: Annotated[
        Path | None,
        typer.Option("--conf", "-c", help="Configuration file (bk_server.conf). Not needed where BK_<key> are set."),
    ] = None,
    port: Annotated[int | None, typer.Option("--bookieport", help="Overrides bookiePort.")] = None,
    journal: Annotated[str | None, typer.Option("--journal", "-j", help="Overrides journalDirectories.")] = None,
    ledgers: Annotated[str | None, typer.Option("--ledgerdirs", "-l", help="Overrides ledgerDirectories.")] = None,
    uri: Annotated[str | None, typer.Option("--uri", "-u", help="Overrides metadataServiceUri.")] = None,
    read_only: Annotated[bool, typer.Option("--readonly", "-r", help="Start read-only and stay so.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log everything.")] = False,
) -> None:
    """Run one bookie in the foreground.

    Settings come from the file, then from environment variables BK_<key>, then from options.
    SIGTERM and Ctrl-C stop it cleanly. Exit codes are BookKeeper's: 0 stopped, 1 bad configuration,
    2 could not start, 4 registration failed, 5 disk or journal failed.
    """
    set_up_logging(verbose)
    if conf is None and not any(name.startswith("BK_") for name in os.environ):
        fail("no settings: name a file with --conf, or set environment variables BK_<key>", ExitCode.INVALID_CONF)
    try:
        text = conf.read_text() if conf is not None else ""
    except OSError as error:
        fail(f"cannot read {conf}: {error.strerror}", ExitCode.INVALID_CONF)
    try:
        config = ServerConfiguration.from_file(
            str(conf or "environment"),
            text=text,
            environ=os.environ,
            bookiePort=port,
            journalDirectories=journal,
            ledgerDirectories=ledgers,
            metadataServiceUri=uri,
            forceReadOnlyBookie=read_only or None,
        )
    except ConfigurationError as error:
        fail(str(error), ExitCode.INVALID_CONF)
    raise typer.Exit(int(execute(lambda runtime: _serve(runtime, config))))


async def _serve(runtime: Runtime, config: ServerConfiguration) -> ExitCode:
    server = Bookie(runtime, config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await server.start()
    except ConfigurationError as error:
        notes.print(f"error: {error}", markup=False, soft_wrap=True)
        return ExitCode.INVALID_CONF
    except (BookKeeperError, OSError) as error:
        notes.print(f"error: {error}", markup=False, soft_wrap=True)
        return server.exit_code_of(error)
    console.print(f"bookie {server.bookie_id} serves", markup=False)
    ended = asyncio.ensure_future(server.wait_stopped())
    asked = asyncio.ensure_future(stop.wait())
    await asyncio.wait([ended, asked], return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not ended.done():
        await server.stop()
    return await ended
