"""The bookie command: signals, and what it says."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from typing import Any

import pytest

from bookkeeper.bookie.node.exit_code import ExitCode
from bookkeeper.cli import server
from bookkeeper.config import ServerConfiguration
from bookkeeper.runtime.real import RealRuntime


class FakeBookie:
    """Starts when it is let, stops when it is asked."""

    bookie_id = "fake"
    hangs = False
    code = ExitCode.OK
    failure: BaseException | None = None

    def __init__(self, *, starts: bool, error: OSError | None = None) -> None:
        self.events: list[str] = []
        self._may_start = asyncio.Event()
        self._stopped = asyncio.Event()
        self._error = error
        if starts:
            self._may_start.set()

    async def start(self) -> None:
        self.events.append("start")
        if self._error is not None:
            raise self._error
        try:
            await self._may_start.wait()
        except asyncio.CancelledError:
            self.events.append("cleaned up")
            raise
        self.events.append("serves")

    async def stop(self) -> None:
        self.events.append("stop")
        self._stopped.set()

    async def wait_stopped(self) -> ExitCode:
        await self._stopped.wait()
        return self.code

    def exit_code_of(self, _error: BaseException) -> ExitCode:
        return ExitCode.SERVER_EXCEPTION

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        loop.default_exception_handler(context)


async def run(bookie: FakeBookie, *signals: signal.Signals) -> ExitCode:
    """Run until it has come as far as it does, send the signals, wait for the end."""
    fake: Any = bookie
    running = asyncio.ensure_future(server._run(RealRuntime(), fake, ServerConfiguration(), lambda _: None))
    while not bookie.events and not running.done():
        await asyncio.sleep(0)
    for number in signals:
        await asyncio.sleep(0)
        os.kill(os.getpid(), number)
    async with asyncio.timeout(20):
        return await running


@pytest.fixture(autouse=True)
async def signals_as_before() -> Any:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    loop = asyncio.get_running_loop()
    for number in (*before, signal.SIGQUIT):
        loop.remove_signal_handler(number)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_stops_a_bookie_that_serves_and_one_that_still_starts(number: signal.Signals) -> None:
    serving, starting = FakeBookie(starts=True), FakeBookie(starts=False)
    assert await run(serving, number) is ExitCode.OK
    assert serving.events == ["start", "serves", "stop"]
    assert await run(starting, number) is ExitCode.OK
    assert starting.events == ["start", "cleaned up"]


async def test_quit_prints_tasks_and_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    bookie = FakeBookie(starts=True)
    assert await run(bookie, signal.SIGQUIT, signal.SIGTERM) is ExitCode.OK
    assert bookie.events == ["start", "serves", "stop"]
    assert "Stack for <Task" in capsys.readouterr().err


async def test_a_full_disk_at_the_start_is_told_with_its_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "/data/l1/current/0.log")
    monkeypatch.setattr(server, "Bookie", lambda *_, **__: FakeBookie(starts=False, error=error))
    assert await server._serve(RealRuntime(), ServerConfiguration()) is ExitCode.SERVER_EXCEPTION
    assert capsys.readouterr().err == "error: /data/l1/current/0.log: No space left on device\n"


async def test_a_bookie_that_cannot_be_closed_is_ended_with_its_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bookie = FakeBookie(starts=True)
    bookie.hangs = True
    bookie.code = ExitCode.BOOKIE_EXCEPTION
    bookie.failure = OSError(5, "Input/output error", "/journal/1.txn")
    await bookie.stop()
    monkeypatch.setattr(server, "Bookie", lambda *_, **__: bookie)
    ended: list[int] = []
    runtime: Any = RealRuntime()
    runtime.end_process = ended.append
    await server._serve(runtime, ServerConfiguration())
    assert ended == [5]
    assert capsys.readouterr().err == "error: /journal/1.txn: Input/output error\n", "the reason is said last"


def test_times_have_milliseconds_and_a_zone() -> None:
    record = logging.LogRecord("name", logging.INFO, "path", 1, "text", (), None)
    record.created, record.msecs = 0.0, 7.9
    text = server._Formatter("%(asctime)s").format(record)
    assert text.startswith(("1970-01-01T", "1969-12-31T"))
    assert ".007+" in text or ".007-" in text


def test_a_bookie_has_a_way_to_others_unless_it_never_needs_one() -> None:
    for settings, expected in (
        ({}, True),
        ({"localRepairQueueSize": "0"}, False),
        ({"localRepairQueueSize": "0", "dataIntegrityChecking": "true"}, True),
    ):
        config = ServerConfiguration.from_mapping(settings)
        assert (server._way_to_peers(config) is not None) == expected
