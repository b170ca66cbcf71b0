"""`bookkeeper bookie --instances`: processes that are started, killed and stopped."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import bookkeeper
from bookkeeper.metadata import open_driver
from bookkeeper.runtime.ports import free_port
from bookkeeper.runtime.real import RealRuntime

from .test_commands import conf, run, start

SECONDS = 60.0
INSTANCES = 2
ANY_DISK = {"diskUsageThreshold": 0.999, "diskUsageWarnThreshold": 0.998}
"""No test here asks how full the machine is."""


class Running:
    """The command, and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[str] = []
        self._open = 2
        self._heard = asyncio.Condition()
        assert process.stdout is not None
        assert process.stderr is not None
        self.readers = [asyncio.ensure_future(self._read(stream)) for stream in (process.stdout, process.stderr)]

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            async with self._heard:
                self.said.append(line.decode().rstrip())
                self._heard.notify_all()
        async with self._heard:
            self._open -= 1
            self._heard.notify_all()

    async def says(self, pattern: str, times: int = 1) -> None:
        """Wait until it has said that so many times."""

        def heard() -> bool:
            return sum(bool(re.search(pattern, line)) for line in self.said) >= times

        try:
            async with asyncio.timeout(SECONDS), self._heard:
                await self._heard.wait_for(lambda: heard() or not self._open)
        except TimeoutError:
            raise AssertionError(f"{pattern!r} was not said in {SECONDS:g} s, but {self.said}") from None
        assert heard(), f"{pattern!r} was never said, but {self.said}"

    async def ended(self) -> int:
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*self.readers)
            return await self.process.wait()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def new_cluster(tmp_path: Path) -> str:
    uri = f"sqlite://{tmp_path}/meta.db"
    driver = open_driver(uri, RealRuntime())
    await driver.open(create=True)
    await driver.admin.init_new_cluster()
    await driver.close()
    return uri


@asynccontextmanager
async def instances(path: Path) -> AsyncIterator[Running]:
    running = Running(await start("bookie", "--instances", INSTANCES, "--conf", path))
    try:
        yield running
    finally:
        if running.process.returncode is None:
            running.process.terminate()
            await running.ended()


async def test_they_serve_one_is_killed_and_comes_back_and_all_are_stopped(tmp_path: Path) -> None:
    uri, port = await new_cluster(tmp_path), free_port(INSTANCES)
    async with instances(conf(tmp_path, uri, port, **ANY_DISK)) as running:
        await running.says("^all 2 instances serve$")
        for number in range(INSTANCES):
            assert f"[{port + number}] bookie 127.0.0.1:{port + number} serves" in running.said
            assert (tmp_path / "ledgers" / f"instance-{number + 1}" / "current").is_dir()
        async with bookkeeper.connect(uri) as bk:
            async with bk.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2) as ledger:
                await ledger.append(b"on both")
            pids = children(running.process.pid)
            assert len(pids) == INSTANCES
            os.kill(pids[0], signal.SIGKILL)
            await running.says(r"error: bookie on port \d+ was ended by SIGKILL: it is started again in 1 s")
            await running.says("^all 2 instances serve$", times=2)
            async with bk.open_ledger(ledger.id) as reader:
                assert [entry.data async for entry in reader.entries()] == [b"on both"]
        pids = children(running.process.pid)
        assert len(pids) == INSTANCES
        running.process.terminate()
        assert await running.ended() == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


async def test_when_the_supervisor_is_killed_the_bookies_stop_in_order(tmp_path: Path) -> None:
    uri, port = await new_cluster(tmp_path), free_port(INSTANCES)
    async with instances(conf(tmp_path, uri, port, **ANY_DISK)) as running:
        await running.says("^all 2 instances serve$")
        pids = children(running.process.pid)
        running.process.kill()
        await running.ended()
        async with asyncio.timeout(SECONDS):
            while any(Path(f"/proc/{pid}").exists() for pid in pids):
                await asyncio.sleep(0.05)
    for number in (1, 2):
        dirty = tmp_path / "ledgers" / f"instance-{number}" / "current" / "DIRTY"
        assert not dirty.exists(), "an orderly end removes it"


async def test_one_that_cannot_start_ends_all_with_its_code(tmp_path: Path) -> None:
    uri, port = await new_cluster(tmp_path), free_port(INSTANCES)
    (tmp_path / "ledgers").mkdir()
    (tmp_path / "ledgers" / "instance-2").write_text("no folder")
    async with instances(conf(tmp_path, uri, port, **ANY_DISK)) as running:
        code = await running.ended()
    assert code != 0
    (said,) = [line for line in running.said if line.startswith("error: ")]
    assert f"bookie on port {port + 1} ended with exit code {code} before it served: all are stopped" in said


async def test_settings_that_do_not_go_together_are_one_line(tmp_path: Path) -> None:
    path = conf(tmp_path, f"sqlite://{tmp_path}/meta.db", 4000, bookieId="mine")
    result = await run("bookie", "--instances", 2, "--conf", path)
    assert result.code == 1
    assert "remove bookieId" in result.error
