"""How commands are stopped, and what they do not show."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

import pytest

from bookkeeper.cli.session import Stop, connect, stoppable
from bookkeeper.runtime.real import RealRuntime


async def asked(stop: Stop) -> None:
    async with asyncio.timeout(60):
        await stop.asked.wait()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
async def test_the_first_signal_asks_and_the_second_does_not_wait(number: signal.Signals, code: int) -> None:
    async def command() -> None:
        with stoppable(signal.SIGHUP) as stop:
            assert (stop.signal, stop.exit_code) == (None, 0)
            os.kill(os.getpid(), number)
            await asked(stop)
            assert (stop.signal, stop.exit_code) == (number, code)
            os.kill(os.getpid(), number)
            await asyncio.sleep(60)

    running = asyncio.ensure_future(command())
    await asyncio.wait([running], timeout=50)
    assert running.cancelled()


async def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stoppable(signal.SIGHUP) as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            await asked(stop)
            assert stop.signal is signal.SIGTERM
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_a_command_does_not_show_every_attempt_of_kazoo_to_connect() -> None:
    logger = logging.getLogger("kazoo")
    before = logger.level
    try:
        connect("zk://127.0.0.1:1/ledgers", RealRuntime())
        assert not logging.getLogger("kazoo.client").isEnabledFor(logging.WARNING)
    finally:
        logger.setLevel(before)
