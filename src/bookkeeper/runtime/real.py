"""The real world: asyncio (uvloop), the operating system's files and threads, RocksDB."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import fcntl
import gc
import logging
import os
import queue
import random
import resource
import shutil
import socket
import struct
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

from ..errors import WrongLoopError
from .api import (
    DEFAULT_OPTIONS,
    Buffer,
    DiskUsage,
    File,
    Files,
    KeyValueStore,
    Network,
    Runtime,
    ServiceListener,
    SocketOptions,
    Workers,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

SWITCH_INTERVAL_SECONDS = 0.00005
"""How long one thread may hold the interpreter while another wants it. With Python's default of 5 ms an index flush
would add that to every answer. It must be shorter than the loop goes without a system call, too: a thread that waits
asks for the interpreter only when it was held for so long without a pause. At 0.5 ms the journal's thread, beside a
loop that sends and receives all the time, waited some 10 ms for its turn."""

GIVE_WAY_SECONDS = 0.00005
"""Pause of a worker that gives way. A waiting thread needs about this long to wake up and take the interpreter."""

GC_THRESHOLDS = (20_000, 5, 200)
"""Entries in flight are many small objects, none of them in a cycle. With Python's default (700, 10, 10) the collector
would look through all of them several times a second; with 4,000 appends were 5 % slower. The second number bounds the
longest pause but that of a full collection: 20 rounds of 20,000 objects took 100 ms together, 5 take 20."""

ACCEPTED_AT_ONCE = 4
"""Connections in one turn of the loop."""

ACCEPT_PAUSE_SECONDS = 1.0
"""After a failure, for want of file descriptors above all, no connection is accepted for so long."""

_IOV_MAX = 1024
_SIOCGIFADDR = 0x8915
_OPEN_FLAGS = {
    "r": os.O_RDONLY,
    "r+": os.O_RDWR,
    "w+": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    "x+": os.O_RDWR | os.O_CREAT | os.O_EXCL,
}


class _RealFile(File):
    """Its errors name the file, which those of the system do not once it is open."""

    _fd = -1  # until it is open

    def __init__(self, path: str, mode: str) -> None:
        self.path = path
        self._fd = os.open(path, _OPEN_FLAGS[mode] | os.O_CLOEXEC, 0o644)

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        pieces = [data]
        got = len(data)
        while got < size and data:
            data = os.pread(self._fd, size - got, offset + got)
            pieces.append(data)
            got += len(data)
        return b"".join(pieces)

    def pwrite(self, data: Buffer, offset: int) -> None:
        try:
            written = os.pwrite(self._fd, data, offset)
            if written == len(data):
                return
            view = memoryview(data)
            while written < len(view):
                written += os.pwrite(self._fd, view[written:], offset + written)
        except OSError as error:
            self._name(error)
            raise

    def pwritev(self, pieces: Sequence[Buffer], offset: int) -> int:
        total = 0
        for start in range(0, len(pieces), _IOV_MAX):
            group = pieces[start : start + _IOV_MAX]
            size = sum(map(len, group))
            try:
                written = os.pwritev(self._fd, group, offset + total)
            except OSError as error:
                self._name(error)
                raise
            if written != size:
                self.pwrite(memoryview(b"".join(group))[written:], offset + total + written)
            total += size
        return total

    def fdatasync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self._name(error)
            raise

    def fsync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            self._name(error)
            raise

    def _name(self, error: OSError) -> None:
        error.filename = self.path

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, offset: int, size: int) -> None:
        try:
            os.posix_fallocate(self._fd, offset, size)
        except OSError as error:
            self._name(error)
            raise

    def drop_cache(self, offset: int, size: int) -> None:
        with contextlib.suppress(OSError):
            os.posix_fadvise(self._fd, offset, size, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class RealFiles(Files):
    """The operating system's files."""

    def open(self, path: str, mode: str = "r") -> File:
        return _RealFile(path, mode)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def makedirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def link(self, old: str, new: str) -> None:
        os.link(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def disk_usage(self, path: str) -> DiskUsage:
        stat = os.statvfs(path)
        return DiskUsage(
            total=stat.f_frsize * stat.f_blocks,
            usable=stat.f_frsize * stat.f_bavail,
            device=os.stat(path).st_dev,
        )


class _Threads(Workers):
    """Threads fed by one queue. A result travels back with one `call_soon_threadsafe`."""

    def __init__(self, name: str, count: int, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self.count = count
        self._loop = loop
        self._queue: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...], Callable[..., None]] | None]
        self._queue = queue.SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{i}" if count > 1 else name, daemon=True)
            for i in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def post(
        self, call: Callable[..., T], args: tuple[Any, ...], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        if self._closed:
            raise RuntimeError(f"workers {self.name} are closed")
        self._queue.put((call, args, done))

    def _run(self) -> None:
        get = self._queue.get
        while (item := get()) is not None:
            call, args, done = item
            result: Any = None
            error: BaseException | None = None
            try:
                result = call(*args)
            except BaseException as failure:
                error = failure
            try:
                self._loop.call_soon_threadsafe(done, result, error)
            except RuntimeError:
                return  # the loop is closed: nobody is left to hear the result
            del item, call, args, done, result, error

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            for _ in self._threads:
                self._queue.put(None)
        loop = asyncio.get_running_loop()
        for thread in self._threads:
            while thread.is_alive():
                await loop.run_in_executor(None, thread.join, 1.0)


class _Listener(ServiceListener):
    """Accepts connections, a few in a turn of the loop: those that are served already do not wait for a thousand new
    ones. The rest stay in the backlog of the socket."""

    def __init__(self, sock: socket.socket, protocol_factory: Callable[[], asyncio.Protocol]) -> None:
        self._sock = sock
        self._protocol_factory = protocol_factory
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[Any]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self.host, self.port = sock.getsockname()[:2]
        self._loop.add_reader(sock, self._accept_some)

    def _accept_some(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("no connections are accepted for %g s: %s", ACCEPT_PAUSE_SECONDS, error.strerror or error)
                self._loop.remove_reader(self._sock)
                self._pause = self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._go_on)
                return
            connection.setblocking(False)
            begin = self._loop.create_task(self._begin(connection), name="accepted connection")
            self._beginning.add(begin)
            begin.add_done_callback(self._beginning.discard)

    def _go_on(self) -> None:
        self._pause = None
        self._loop.add_reader(self._sock, self._accept_some)

    async def _begin(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._protocol_factory, connection)
        except OSError as error:  # the peer is gone already
            log.debug("a connection ended before it began: %s", error)
            connection.close()

    async def close(self) -> None:
        if self._sock.fileno() < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()
        if self._beginning:
            await asyncio.wait(self._beginning)


def _apply(sock: socket.socket, options: SocketOptions) -> None:
    choices = [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, int(options.nodelay)),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(options.keepalive)),
        (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", None), options.keep_idle),
        (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPINTVL", None), options.keep_interval),
        (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPCNT", None), options.keep_count),
        (socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer),
        (socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer),
        (socket.IPPROTO_TCP, getattr(socket, "TCP_USER_TIMEOUT", None), options.user_timeout_ms),
    ]
    for level, name, value in choices:
        if name is not None and value is not None and value >= 0:
            sock.setsockopt(level, name, value)


class RealNetwork(Network):
    """TCP through the running event loop."""

    async def connect(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.Protocol],
        *,
        timeout: float | None,
        options: SocketOptions = DEFAULT_OPTIONS,
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout):
            transport, protocol = await loop.create_connection(protocol_factory, host, port)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            _apply(sock, options)
        return transport, protocol

    async def listen(
        self,
        host: str | None,
        port: int,
        protocol_factory: Callable[[], asyncio.Protocol],
        *,
        backlog: int = 1024,
        options: SocketOptions = DEFAULT_OPTIONS,
    ) -> ServiceListener:
        family = socket.AF_INET if host is None or ":" not in host else socket.AF_INET6
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _apply(sock, options)  # accepted connections inherit them
            sock.bind((host or "0.0.0.0", port))
            sock.setblocking(False)
            sock.listen(backlog)
            return _Listener(sock, protocol_factory)
        except BaseException:
            sock.close()
            raise

    async def resolve(self, host: str) -> str:
        infos = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return str(infos[0][4][0])

    async def host_name(self, address: str) -> str:
        name, _ = await asyncio.get_running_loop().getnameinfo((address, 0))
        return name

    def interface_address(self, name: str) -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        return socket.inet_ntoa(answer[20:24])


class RealRuntime(Runtime):
    """This process, its clock, its threads and its disks."""

    def __init__(self, *, services: dict[str, Any] | None = None) -> None:
        self.files = RealFiles()
        self.network = RealNetwork()
        self.services = {} if services is None else services
        self._random: dict[str, random.Random] = {}

    def now(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def random(self, purpose: str) -> random.Random:
        source = self._random.get(purpose)
        if source is None:
            source = self._random[purpose] = random.SystemRandom()
        return source

    def uuid(self) -> str:
        return str(uuid.uuid4())

    def workers(self, name: str, count: int = 1) -> Workers:
        return _Threads(name, count, asyncio.get_running_loop())

    def open_key_value(self, path: str, options: Mapping[str, Any] | None = None) -> KeyValueStore:
        from .rocks import RocksStore

        return RocksStore(path, options or {}, self.files)

    def give_way(self) -> None:
        time.sleep(GIVE_WAY_SECONDS)

    async def run_program(self, arguments: Sequence[str], *, timeout: float) -> bytes:
        process = await asyncio.create_subprocess_exec(
            *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(timeout):
                output, _ = await process.communicate()
        except TimeoutError:
            raise TimeoutError(f"{arguments[0]} took longer than {timeout:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise OSError(f"{arguments[0]} ended with exit code {process.returncode}")
        return output

    def end_process(self, code: int) -> NoReturn:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    def hostname(self) -> str:
        return socket.gethostname()

    def environ(self) -> Mapping[str, str]:
        return os.environ

    def physical_memory(self) -> int:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError), open(limit) as file:
                total = min(total, int(file.read()))
        return total

    def open_files_limit(self) -> int:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
                soft = hard
        return soft if soft != resource.RLIM_INFINITY else super().open_files_limit()


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """The fastest event loop there is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(main: Callable[[Runtime], Any]) -> Any:
    """Run `await main(runtime)` to its end on the fastest event loop there is, in this thread."""
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        return runner.run(main(RealRuntime()))


class LoopEnded(RuntimeError):
    """The loop of a `LoopThread` was stopped."""


class Follower(Protocol):
    """Something that depends on a `LoopThread`, and hears of its end."""

    def loop_ended(self) -> None:
        """Nothing runs on the loop any more. Called from its thread."""


_forks = 0
"""How often this process's line was forked: threads of before do not run here."""


def _forked() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class LoopThread:
    """An event loop on a thread of its own, for callers that have none. Its methods may be called from any thread.

    What was accepted before `stop` runs; what comes later is refused with `LoopEnded`. A forked process has the object
    but not the thread: there everything is refused with `WrongLoopError`, before a lock is touched that nobody would
    ever release.
    """

    def __init__(self, name: str) -> None:
        self._loop = _new_event_loop()
        self._forks = _forks
        self._lock = threading.RLock()  # reentrant: a finalizer may call in the middle of a call
        self._ended = False
        self._followers: weakref.WeakSet[Follower] = weakref.WeakSet()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_end_all_tasks())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()
            with self._lock:
                followers = list(self._followers)
            for follower in followers:
                follower.loop_ended()

    def check_process(self) -> None:
        """Raises `WrongLoopError` in a process that was forked after this thread was made."""
        if self._forks != _forks:
            raise WrongLoopError("this client belongs to the process that this one was forked from: connect anew here")

    @property
    def inside(self) -> bool:
        """Whether the caller runs on this thread, where waiting for it would be for ever."""
        return threading.current_thread() is self._thread

    @property
    def ended(self) -> bool:
        """Whether `stop` was called."""
        return self._ended

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine on the loop. Raises `LoopEnded`, `WrongLoopError`."""
        try:
            self.check_process()
            with self._lock:
                self._check_running()
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException:
            work.close()
            raise

    def call_soon(self, call: Callable[..., object], *args: Any) -> None:
        """Run a function on the loop. Raises `LoopEnded`, `WrongLoopError`."""
        self.check_process()
        with self._lock:
            self._check_running()
            self._loop.call_soon_threadsafe(call, *args)

    def _check_running(self) -> None:
        if self._ended:
            raise LoopEnded("the event loop was stopped")

    def follow(self, follower: Follower) -> None:
        """Tell it when the loop has ended, if it is still there then."""
        self.check_process()
        with self._lock:
            self._check_running()
            self._followers.add(follower)

    def stop(self) -> None:
        """Cancel what still runs on the loop, wait for it, end loop and thread. Idempotent."""
        self.check_process()
        with self._lock:
            if not self._ended:
                self._ended = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def new_lock() -> threading.Lock:
    """A lock for what threads share with a loop. Held for a few steps only, never while waiting."""
    return threading.Lock()


async def _end_all_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
