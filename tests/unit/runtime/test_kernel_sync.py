"""Syncs by the kernel's asynchronous I/O. Where the system does not have it only the refusals are tested."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from bookkeeper.runtime.disk import kernel_sync
from bookkeeper.runtime.disk.files import RealFile
from bookkeeper.runtime.disk.kernel_sync import KernelSync


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    loop: asyncio.AbstractEventLoop = request.param()
    yield loop
    loop.close()


@pytest.fixture
def sync(loop: asyncio.AbstractEventLoop) -> Iterator[KernelSync]:
    sync = KernelSync.open(loop)
    if sync is None:
        pytest.skip("this system does not sync in the background")
    yield sync
    loop.run_until_complete(sync.close())


@pytest.fixture
def file(tmp_path: Path) -> Iterator[RealFile]:
    file = RealFile(str(tmp_path / "file"), "x+")
    yield file
    file.close()


def test_it_tells_when_a_file_is_synced_and_takes_the_next(
    loop: asyncio.AbstractEventLoop, sync: KernelSync, file: RealFile
) -> None:
    async def program() -> None:
        for number in range(20):
            file.pwrite(b"record", 6 * number)
            told: asyncio.Future[OSError | None] = loop.create_future()
            assert sync.start(file, told.set_result)
            assert not told.done(), "never before `start` has returned"
            assert not sync.start(file, lambda _: None), "one at a time"
            assert await told is None

    loop.run_until_complete(asyncio.wait_for(program(), 30))


def test_the_next_may_begin_when_one_is_told(loop: asyncio.AbstractEventLoop, sync: KernelSync, file: RealFile) -> None:
    left = 5
    all_told: asyncio.Future[None] = loop.create_future()

    def done(error: OSError | None) -> None:
        nonlocal left
        assert error is None
        left -= 1
        if not left:
            all_told.set_result(None)
        else:
            assert sync.start(file, done)

    loop.call_soon(lambda: sync.start(file, done))
    loop.run_until_complete(asyncio.wait_for(all_told, 30))


def test_a_failure_names_file_and_reason(
    loop: asyncio.AbstractEventLoop, sync: KernelSync, file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = sync._call

    def fails(number: int, *arguments: Any) -> int:
        result = int(call(number, *arguments))
        if number == sync._calls.getevents:
            sync._outcome.result = -errno.EIO
        return result

    async def program() -> None:
        told: asyncio.Future[OSError | None] = loop.create_future()
        monkeypatch.setattr(sync, "_call", fails)
        assert sync.start(file, told.set_result)
        error = await told
        assert error is not None
        assert (error.errno, error.filename) == (errno.EIO, file.path)

    loop.run_until_complete(asyncio.wait_for(program(), 30))


def test_an_outcome_that_cannot_be_had_is_a_failure(
    loop: asyncio.AbstractEventLoop, sync: KernelSync, file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = sync._call

    def lost(number: int, *arguments: Any) -> int:
        result = int(call(number, *arguments))
        return -1 if number == sync._calls.getevents else result

    async def program() -> None:
        told: asyncio.Future[OSError | None] = loop.create_future()
        monkeypatch.setattr(sync, "_call", lost)
        assert sync.start(file, told.set_result)
        assert await told is not None

    loop.run_until_complete(asyncio.wait_for(program(), 30))


def test_what_cannot_be_synced_is_refused_from_then_on(
    loop: asyncio.AbstractEventLoop, sync: KernelSync, file: RealFile
) -> None:
    nothing = RealFile(os.devnull, "r+")
    assert not sync.start(nothing, lambda _: None)
    assert not sync.start(file, lambda _: None)
    nothing.close()


def test_close_waits_for_what_was_begun(loop: asyncio.AbstractEventLoop, file: RealFile) -> None:
    before = len(os.listdir("/proc/self/fd"))
    sync = KernelSync.open(loop)
    if sync is None:
        pytest.skip("this system does not sync in the background")
    told: list[OSError | None] = []

    async def program() -> None:
        assert sync.start(file, told.append)
        await asyncio.gather(sync.close(), sync.close())
        assert told == [None]
        await sync.close()
        assert not sync.start(file, told.append)

    loop.run_until_complete(asyncio.wait_for(program(), 30))
    assert len(os.listdir("/proc/self/fd")) == before


def test_there_is_none_where_the_system_refuses(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(kernel_sync.platform, "machine", lambda: "abacus")
    assert KernelSync.open(loop) is None
    monkeypatch.setattr(kernel_sync.platform, "machine", lambda: "x86_64")
    unknown = kernel_sync._Calls(9999, 9999, 9999, 9999)
    monkeypatch.setattr(kernel_sync, "_CALLS_OF", {"x86_64": unknown})
    assert KernelSync.open(loop) is None
    assert len(os.listdir("/proc/self/fd")) == before
