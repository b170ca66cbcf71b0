"""A real ZooKeeper server for tests, and ways to make trouble between it and a driver.

One server serves a whole test run; each test gets a root of its own in it. The server's event loop is in a thread of
its own, as it outlives the loops of the tests. Without a JDK 17+ the tests that ask for it fail and say so.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from bookkeeper.metadata import open_driver
from bookkeeper.metadata.zookeeper import ZooKeeperDriver
from bookkeeper.metadata.zookeeper.local_server import LocalZooKeeper
from bookkeeper.runtime.real import RealRuntime
from tests.support.waiting import until

T = TypeVar("T")

SESSION_MS = 30_000
"""Session timeout where no test waits for it: longer than a server takes to come back on a machine with much to do."""


class ServerThread:
    """A `LocalZooKeeper` with a loop of its own; its methods may be used from any loop."""

    def __init__(self, directory: Path) -> None:
        self.server = LocalZooKeeper(directory, durable=False)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="zookeeper-server", daemon=True)
        self._thread.start()
        self._roots = itertools.count(1)
        self._call(self.server.start())

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def start(self) -> None:
        await self.run(self.server.start())

    async def stop(self) -> None:
        await self.run(self.server.stop())

    async def kill(self) -> None:
        await self.run(self.server.kill())

    async def restart(self) -> None:
        await self.run(self.server.restart())

    def pause(self) -> None:
        self.server.pause()

    def resume(self) -> None:
        self.server.resume()

    async def command(self, word: str) -> str:
        return await self.run(self.server.command(word))

    def close(self) -> None:
        self._call(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def new_root(self) -> str:
        """A ledgers root path nobody has used."""
        return f"/test{next(self._roots)}"

    def uri(self, root: str, *, scheme: str = "zk", address: str | None = None) -> str:
        return f"{scheme}://{address or self.server.address}{root}"


def zookeeper_driver(uri: str, **conf: Any) -> ZooKeeperDriver:
    """A driver, not yet open, with retries quick enough for tests."""
    settings = {"zkTimeout": SESSION_MS, "zkRetryBackoffStartMs": 100, "zkRetryBackoffMaxMs": 1000, **conf}
    driver = open_driver(uri, RealRuntime(), settings)
    assert isinstance(driver, ZooKeeperDriver)
    return driver


# --- trouble ---------------------------------------------------------------------------------------


async def expire_session(driver: ZooKeeperDriver) -> None:
    """End the driver's session at the server, as its timeout would; returns when the driver has a new one."""
    generation = driver.zk.generation
    twin = KazooClient(hosts=driver.zk.addresses, client_id=driver.zk._kazoo.client_id, timeout=10.0)

    def end() -> None:
        twin.start()
        twin.stop()
        twin.close()

    await asyncio.to_thread(end)
    await until(lambda: driver.zk.generation > generation and driver.zk.connected, "a new session")


async def abandon(driver: ZooKeeperDriver) -> None:
    """What the death of the driver's process is to the server: silence. The session ends by its timeout."""
    zk = driver.zk
    zk._closing = True
    kazoo = zk._kazoo

    def vanish() -> None:
        kazoo._stopped.set()
        kazoo._connection._socket.shutdown(socket.SHUT_RDWR)
        kazoo._connection._write_sock.send(b"\0")
        kazoo._safe_close()
        kazoo.close()

    await asyncio.to_thread(vanish)
    await driver._tasks.close()
    assert zk._lane is not None
    await zk._tasks.close()
    await zk._lane.close()
    driver._opened = False


@dataclass
class _Loss:
    method: str
    path: Callable[[str], bool]
    applied: bool


class LossyKazoo:
    """kazoo's client, between which and the server answers or requests get lost when told so."""

    def __init__(self, driver: ZooKeeperDriver) -> None:
        self._real = driver.zk._kazoo
        self._planned: list[_Loss] = []
        self.lost = 0
        driver.zk._kazoo = self

    def lose(self, method: str, *, applied: bool, path: Callable[[str], bool] = lambda path: True) -> None:
        """The next `method` (such as "create") for such a path has no answer.

        `applied`: the server does it (a refusal is not lost: then it is the next one's turn); else nobody hears of it.
        """
        self._planned.append(_Loss(method + "_async", path, applied))

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        if name == "transaction":
            return self._transaction
        if not name.endswith("_async"):
            return real

        def call(path: str, *args: Any, **kwargs: Any) -> Any:
            for loss in self._planned:
                if loss.method == name and loss.path(path):
                    self._planned.remove(loss)
                    return self._lossy(loss, real, path, *args, **kwargs)
            return real(path, *args, **kwargs)

        return call

    def _transaction(self) -> Any:
        transaction = self._real.transaction()
        commit = transaction.commit_async
        loss = next((loss for loss in self._planned if loss.method == "commit_async"), None)
        if loss is not None:
            self._planned.remove(loss)
            transaction.commit_async = lambda: self._lossy(loss, commit)
        return transaction

    def _lossy(self, loss: _Loss, real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = self._real.handler.async_result()

        def answered(done: Any) -> None:
            if done.exception is not None:
                self._planned.append(loss)
            else:
                self.lost += 1
            result.set_exception(done.exception or ConnectionLoss())

        if loss.applied:
            real(*args, **kwargs).rawlink(answered)
        else:
            self.lost += 1
            result.set_exception(ConnectionLoss())
        return result


class Proxy:
    """A TCP relay in front of the server, to cut one driver off."""

    def __init__(self, target: int, port: int = 0) -> None:
        self._target = target
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None
        self._cut = False
        self._refuse = False
        self.silent = 0
        """So many connections are taken, and nothing passes on them."""
        self.port = port

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def drop(self) -> None:
        """Break the connections there are; new ones are possible."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def cut(self) -> None:
        """Nothing passes any more, and nobody is told."""
        self._cut = True

    def refuse(self) -> None:
        """Break the connections there are and all new ones."""
        self._refuse = True
        self.drop()

    def heal(self) -> None:
        """Let new connections pass; the old ones are dead."""
        self._cut = self._refuse = False
        self.drop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuse:
            writer.transport.abort()
            return
        self._writers.append(writer)
        if self.silent:
            self.silent -= 1
            return
        if self._cut:
            return
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers.append(up_writer)
        for source, sink in ((reader, up_writer), (up_reader, writer)):
            self._tasks.append(asyncio.get_running_loop().create_task(self._relay(source, sink)))

    async def _relay(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                if not self._cut:
                    sink.write(data)
        except OSError:
            pass
        finally:
            if not self._cut:
                sink.transport.abort()
