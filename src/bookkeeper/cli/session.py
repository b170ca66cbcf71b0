"""How commands reach a cluster, and how they are stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Iterator

import bookkeeper

from ..client.client import RESERVED, BookKeeper
from ..client.reader import LedgerReader
from ..config import ClientConfiguration
from ..metadata import open_driver
from ..metadata.api import MetadataDriver
from ..metadata.ledger_metadata import LedgerMetadata
from ..runtime import Runtime


def connect(uri: str, runtime: Runtime, config: ClientConfiguration | None = None) -> BookKeeper:
    """A client for a command, not yet connected."""
    _quiet_libraries()
    return bookkeeper.connect(uri, config=config or ClientConfiguration(), runtime=runtime)


@contextlib.asynccontextmanager
async def driver_of(uri: str, runtime: Runtime, *, create: bool = False) -> AsyncIterator[MetadataDriver]:
    """A metadata driver for a command, connected. `create`: also to a store that is not there yet."""
    _quiet_libraries()
    driver = open_driver(uri, runtime)
    try:
        await driver.open(create=create)
        yield driver
    finally:
        await driver.close()


def _quiet_libraries() -> None:
    """kazoo logs every attempt to connect; a command reports the outcome, once."""
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)


async def open_reader(bk: BookKeeper, ledger_id: int, password: bytes, *, recover: bool = False) -> LedgerReader:
    """A ledger, to be read. Only with `recover` its writer is fenced and the ledger closed."""
    return await bk.open_ledger(ledger_id, password=password, recover=recover)


def is_reserved(record: LedgerMetadata) -> bool:
    """Whether the ledger is waiting for its writer."""
    return RESERVED in record.custom_metadata


class Stop:
    """A request to stop, by Ctrl-C or SIGTERM. A second one stops the command at once."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self.asked = asyncio.Event()

    @property
    def exit_code(self) -> int:
        """What a shell expects of a command that a signal ended; 0 if none did."""
        return 0 if self.signal is None else 128 + self.signal

    def by(self, number: signal.Signals) -> None:
        self.signal = number
        self.asked.set()


@contextlib.contextmanager
def stoppable(*more: signal.Signals) -> Iterator[Stop]:
    """While inside, the first Ctrl-C or SIGTERM sets the `Stop`, the second cancels the task that is inside.

    Signals that are ignored stay so: `nohup` and shells that start something in the background ask for that.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    stop = Stop()

    def asked(number: signal.Signals) -> None:
        if stop.signal is not None:
            task.cancel()
        stop.by(number)

    wanted = (signal.SIGINT, signal.SIGTERM, *more)
    numbers = [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]
    for number in numbers:
        loop.add_signal_handler(number, asked, number)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
