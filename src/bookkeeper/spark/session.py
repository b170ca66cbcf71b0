"""One client per process and cluster, on a loop of its own: what Spark's workers read with. Namespaces likewise.

A Python worker of Spark runs one task after the other, each of which is synchronous. Connecting for each of them would
cost more than many of them read. So the process keeps a client, and its loop's thread, for each metadata service and
settings it was used with, and closes it when it was idle for a minute. Workers are forked: a client belongs to the
process that made it, and nothing exists before the first use.

Workers handle data by the megabyte: from the first session on their process keeps the memory that it frees. And after
each task Spark has Python collect garbage in all that there is, which with the libraries loaded takes longer than a
small task does. So what a process of Spark has loaded by its first session is left out of that.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from ..client import client as aio
from ..config import ClientConfiguration
from ..errors import ZKError
from ..runtime.loop_thread import LoopThread
from ..runtime.real import RealRuntime
from ..streams.ledgers import Replication
from ..streams.namespace import Namespace
from ..streams.opening import open_namespace

T = TypeVar("T")


class Client(Protocol):
    """What a session keeps open."""

    async def close(self) -> None: ...


C = TypeVar("C", bound=Client)

IDLE_SECONDS = 60.0


class Connected(Generic[C]):
    """A client and its loop, for callers that have none."""

    def __init__(self, uri: str, opening: Awaitable[C], timeout: float) -> None:
        self._thread = LoopThread("bookkeeper-spark")
        try:
            self.client = self.run(_within(timeout, f"{uri} does not answer", opening))
        except BaseException:
            self._thread.stop()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it."""
        future = self._thread.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stream(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        """The items of an asynchronous generator, which is closed however the caller ends."""
        try:
            while (got := self.run(_next(items))) is not None:
                yield got
        finally:
            self.run(items.aclose())

    def close(self) -> None:
        """End the client and the thread."""
        self.run(self.client.close())
        self._thread.stop()


Session = Connected[aio.BookKeeper]


async def _within(timeout: float, what: str, work: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(timeout):
            return await work
    except TimeoutError:
        raise ZKError(f"{what} within {timeout:g} s") from None


async def _next(items: AsyncGenerator[T, None]) -> T | None:
    async for item in items:
        return item
    return None


@contextmanager
def session_once(uri: str, config: ClientConfiguration, timeout: float) -> Iterator[Session]:
    """A client for one piece of work, closed behind it: for drivers, which have long pauses."""
    once = Connected(uri, aio.connect(uri, config=config), timeout)
    try:
        yield once
    finally:
        once.close()


class _Kept:
    """A session, who uses it, and the timer that ends it."""

    def __init__(self, session: Connected[Any]) -> None:
        self.session = session
        self.users = 1
        self.timer: threading.Timer | None = None


class _Cache:
    """The sessions of one process. Used from any of its threads."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._kept: dict[tuple[object, ...], _Kept] = {}
        self._to_freeze = _is_of_spark()

    @contextmanager
    def lease(self, key: tuple[object, ...], make: Callable[[], Connected[C]]) -> Iterator[Connected[C]]:
        if self._owner != os.getpid():
            self.__init__()  # type: ignore[misc]  # forked: the parent's loops do not run here
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                kept = self._kept[key] = _Kept(make())
                self._freeze()
            else:
                kept.users += 1
                if kept.timer is not None:
                    kept.timer.cancel()
                    kept.timer = None
        try:
            yield kept.session
        finally:
            with self._lock:
                kept.users -= 1
                if kept.users == 0:
                    kept.timer = threading.Timer(IDLE_SECONDS, self._expire, (key, kept))
                    kept.timer.daemon = True
                    kept.timer.start()

    def _freeze(self) -> None:
        """Once only: what was kept from the collector is not freed if it refers to itself."""
        if self._to_freeze:
            self._to_freeze = False
            RealRuntime().freeze_memory()

    def _expire(self, key: tuple[object, ...], kept: _Kept) -> None:
        with self._lock:
            if kept.users or self._kept.get(key) is not kept:
                return
            del self._kept[key]
        kept.session.close()

    def close(self) -> None:
        """End the sessions that are not in use."""
        with self._lock:
            idle = [key for key, kept in self._kept.items() if not kept.users]
            sessions = [self._kept.pop(key) for key in idle]
        for kept in sessions:
            if kept.timer is not None:
                kept.timer.cancel()
            kept.session.close()


def _is_of_spark() -> bool:
    """Whether Spark started this process for its work. Else it is a program that uses Spark: its memory is its own."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


_CACHE = _Cache()


@contextmanager
def session(uri: str, config: ClientConfiguration, timeout: float) -> Iterator[Session]:
    """A connected client of this process. Raises `MetadataStoreError` when the metadata service does not answer within
    `timeout` seconds, `ConfigurationError` for an address that is none."""
    key = (uri, timeout, config.model_dump_json())
    with _CACHE.lease(key, lambda: Connected(uri, aio.connect(uri, config=config), timeout)) as leased:
        yield leased


@contextmanager
def namespace_session(
    where: str, config: ClientConfiguration, timeout: float, replication: Replication | None = None
) -> Iterator[Connected[Namespace]]:
    """A namespace of streams, with its client, of this process. Raises as `session`, and `NamespaceNotBoundError`.

    - `replication`: as for `open_namespace`.
    """

    def opened() -> Connected[Namespace]:
        opening = open_namespace(where, config=config, replication=replication)
        return Connected(where, opening, timeout)

    with _CACHE.lease((where, timeout, config.model_dump_json(), replication), opened) as leased:
        yield leased


def close_idle() -> None:
    """Close the clients of this process that are not in use."""
    _CACHE.close()
