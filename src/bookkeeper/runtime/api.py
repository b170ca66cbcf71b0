"""The one seam between the program and the world.

Everything that a bookie or client does to the world outside its own memory goes through a `Runtime`:
clock, randomness, network, files, the key-value index, blocking work on background threads. There are two:
`RealRuntime` (this package) and the simulated one (`bookkeeper.simulation`), which runs a whole cluster in
one process and in virtual time, from a seed. Nothing else in the package may import `time`, `random`,
`socket`, `threading` or open a file; a test enforces it.

Theory of operation

- There is one asyncio event loop, and it owns all mutable state. Use asyncio's tasks, futures, events and
  `asyncio.sleep` freely: the simulation replaces the loop itself, so they run in virtual time.
- Blocking calls (file system, key-value index) are made by functions handed to `Workers`. Such a function gets
  its input as arguments, does blocking things through `Files` and `KeyValueStore`, and returns a result that
  is delivered on the loop. It touches no state of the loop. Between construction and serving (boot, replay,
  offline tools) blocking calls may be made directly; and a journal makes small writes on the loop, which only reach
  the page cache (`bookie.journal.lanes`).
- A `Workers` of one is a lane: its calls run strictly one after the other, in the order they were handed in.
- In the simulation a worker's function runs at some virtual moment in one piece, unless the simulated machine
  crashes in it: then it is cut at one of its file calls, and its result is never delivered.
- Nothing may depend on the iteration order of sets of objects, on `id()` or on `hash()` of strings: the
  same seed must give the same run. Iterate dicts and lists.
"""

from __future__ import annotations

import asyncio
import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random as Random
from typing import Any, NoReturn, Protocol, TypeVar

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""`errno` of the `OSError` that a full disk raises, or a used-up quota."""


class TimerHandle(Protocol):
    """A call that was put off; see `Runtime.call_later`."""

    def cancel(self) -> None: ...


class Workers(ABC):
    """A named group of background threads for blocking calls. With `count` 1 it keeps order: a lane."""

    name: str
    count: int

    @abstractmethod
    def post(
        self, call: Callable[..., T], args: tuple[Any, ...], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Run `call(*args)` on a worker, then `done(result, error)` on the loop. The cheap form: no future.

        May be called from another worker's call too, so that one lane can hand on to the next.
        """

    def submit(self, call: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Run `call(*args)` on a worker; the future is resolved on the loop.

        Cancelling the future does not stop the call.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(result: T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        self.post(call, args, done)
        return future

    @abstractmethod
    async def close(self) -> None:
        """Finish the calls already handed in, then end the threads. Idempotent."""


class BackgroundSync(ABC):
    """Has the system sync a file while the loop goes on, without a thread of this process; one at a time."""

    @abstractmethod
    def start(self, file: File, done: Callable[[OSError | None], None]) -> bool:
        """Begin to make durable what is written to `file` by now, as `File.fdatasync` does; then `done(error)` on the
        loop, never before this has returned.

        False if the system does not take it: nothing has begun.
        """

    @abstractmethod
    async def close(self) -> None:
        """Wait for what was begun; nothing can be begun any more. Idempotent."""


class File(ABC):
    """An open file. All calls block; offsets and sizes are in bytes. Failures are `OSError`."""

    path: str

    @abstractmethod
    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    @abstractmethod
    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of `data` at `offset`."""

    @abstractmethod
    def pwritev(self, pieces: Sequence[Buffer], offset: int) -> int:
        """Write all pieces one after the other at `offset`; returns the number of bytes."""

    def write_through(self, pieces: Sequence[Buffer], offset: int) -> None:
        """As `pwritev`, for what is not read again soon: past the system's cache where that can be.

        For one thread at a time. It takes the time that the disk takes, and is durable only after a sync.
        """
        self.pwritev(pieces, offset)

    def start_writeback(self, size: int, offset: int) -> None:  # noqa: B027
        """Let the disk begin with what was written there, if the system can be told; it is durable only after a sync.

        A sync of much at once holds up those of other files on the disk for as long. An error is told by the next sync.
        """

    @abstractmethod
    def fdatasync(self) -> None:
        """Make written data, and the size needed to read it, durable. A failure must be treated as fatal."""

    @abstractmethod
    def fsync(self) -> None:
        """`fdatasync`, and all of the file's attributes."""

    @abstractmethod
    def size(self) -> int: ...

    @abstractmethod
    def truncate(self, size: int) -> None: ...

    @abstractmethod
    def allocate(self, offset: int, size: int) -> None:
        """Reserve disk space (zeros) where the file system can; extends the file."""

    @abstractmethod
    def drop_cache(self, offset: int, size: int) -> None:
        """Tell the system that this range will not be read again soon. Never fails."""

    @abstractmethod
    def close(self) -> None:
        """Idempotent."""

    def __enter__(self) -> File:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Space of the file system that holds a path."""

    total: int
    usable: int
    device: int
    """Identifies the file system; equal for two paths on the same one."""


class Files(ABC):
    """The file system. Paths are strings. All calls block. Failures are `OSError`."""

    @abstractmethod
    def open(self, path: str, mode: str = "r") -> File:
        """Open a file: "r" read, "r+" read and write, "w+" create or empty, "x+" create, must not exist."""

    @abstractmethod
    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    @abstractmethod
    def exists(self, path: str) -> bool: ...

    @abstractmethod
    def is_dir(self, path: str) -> bool: ...

    @abstractmethod
    def size(self, path: str) -> int: ...

    @abstractmethod
    def makedirs(self, path: str) -> None:
        """Create a directory and its parents; existing ones are fine."""

    @abstractmethod
    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old`."""

    @abstractmethod
    def link(self, old: str, new: str) -> None: ...

    @abstractmethod
    def unlink(self, path: str) -> None: ...

    @abstractmethod
    def remove_tree(self, path: str) -> None: ...

    @abstractmethod
    def fsync_dir(self, path: str) -> None:
        """Make creations, renames and removals in this directory durable."""

    @abstractmethod
    def disk_usage(self, path: str) -> DiskUsage: ...

    def read_bytes(self, path: str) -> bytes:
        with self.open(path) as file:
            return file.pread(file.size(), 0)

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace a small file by `data`: after a crash it has the old or the new content, never a mix."""
        temporary = path + ".tmp"
        with self.open(temporary, "w+") as file:
            file.pwrite(data, 0)
            file.fsync()
        self.rename(temporary, path)
        self.fsync_dir(path.rpartition("/")[0] or "/")


class KeyValueBatch(ABC):
    """Changes that a `KeyValueStore` applies together or not at all."""

    @abstractmethod
    def put(self, key: bytes, value: bytes) -> None: ...

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """`put` for each pair."""
        for key, value in zip(keys, values, strict=True):
            self.put(key, value)

    @abstractmethod
    def delete(self, key: bytes) -> None: ...

    @abstractmethod
    def delete_range(self, start: bytes, end: bytes) -> None:
        """Delete all keys in [start, end)."""

    @abstractmethod
    def __len__(self) -> int: ...


class KeyValueStore(ABC):
    """An ordered map from bytes to bytes on disk (RocksDB). Keys order as unsigned bytes. All calls block.

    Opening one raises `CorruptStorageError` if something is missing or damaged that was durable.
    """

    generation = 0
    """Grows when changes may have been lost that were visible, but never durable: after a write without space."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None: ...

    @abstractmethod
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    @abstractmethod
    def batch(self) -> KeyValueBatch: ...

    @abstractmethod
    def write(self, batch: KeyValueBatch, *, sync: bool) -> None:
        """Apply the batch; with `sync`, it and everything written before it is durable at return.

        Raises `OSError`. After `ENOSPC` all that is not durable may vanish with the next write: do it again.
        """

    @abstractmethod
    def iterate(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with start <= key < end, ascending."""

    @abstractmethod
    def last_in(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """The pair with the greatest key of those with start <= key < end."""

    @abstractmethod
    def compact(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Idempotent."""


class ServiceListener(ABC):
    """A listening socket."""

    host: str
    port: int

    @abstractmethod
    async def close(self) -> None:
        """Stop listening. Connections already accepted go on. Idempotent."""


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """Options of a TCP connection; None leaves the system's default."""

    nodelay: bool = True
    keepalive: bool = True
    keep_idle: int | None = None
    keep_interval: int | None = None
    keep_count: int | None = None
    send_buffer: int | None = None
    receive_buffer: int | None = None
    user_timeout_ms: int | None = None


DEFAULT_OPTIONS = SocketOptions()


PauseAfter = Callable[[str], float]
"""Told the address of a peer."""


def no_pause(_: str) -> float:
    """The next one at once."""
    return 0.0


class Network(ABC):
    """TCP. The vocabulary is asyncio's: protocols and transports."""

    @abstractmethod
    async def connect(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.Protocol],
        *,
        timeout: float | None,
        options: SocketOptions = DEFAULT_OPTIONS,
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Open a connection. Raises `OSError` (`TimeoutError` when `timeout` seconds pass; None: no limit)."""

    @abstractmethod
    async def listen(
        self,
        host: str | None,
        port: int,
        protocol_factory: Callable[[], asyncio.Protocol],
        *,
        backlog: int = 1024,
        options: SocketOptions = DEFAULT_OPTIONS,
        pause_after: PauseAfter = no_pause,
    ) -> ServiceListener:
        """Listen on `host` (None: all addresses) and `port` (0: any free one). Raises `OSError`.

        After a connection from an address the next one is accepted `pause_after(address)` seconds later.
        """

    @abstractmethod
    async def resolve(self, host: str) -> str:
        """The IP address of a host name. Raises `OSError`."""

    async def host_name(self, address: str) -> str:
        """The name of an IP address; the address itself if it has none. Raises `OSError`."""
        return address

    def interface_address(self, name: str) -> str:
        """The first address of a network interface. Raises `OSError`."""
        raise OSError(f"there is no network interface {name}")


class Runtime(ABC):
    """A machine's clock, dice, network, disks and threads; one per bookie or client."""

    files: Files
    network: Network
    services: dict[str, Any]
    """Services inside this process by address, such as `memory://name`. Runtimes that share them share this table."""

    # --- time ---

    @abstractmethod
    def now(self) -> float:
        """Seconds on a clock that never goes back; comparable only within this runtime."""

    @abstractmethod
    def wall_ms(self) -> int:
        """Milliseconds since 1970. May jump."""

    def call_later(self, delay: float, call: Callable[..., object], *args: Any) -> TimerHandle:
        """Run `call` on the loop after `delay` seconds."""
        return asyncio.get_running_loop().call_later(delay, call, *args)

    # --- chance ---

    @abstractmethod
    def random(self, purpose: str) -> Random:
        """A source of random numbers of its own for each purpose; the same object for the same purpose."""

    @abstractmethod
    def uuid(self) -> str:
        """A new random UUID, 36 characters."""

    def buggify(self, name: str, probability: float = 0.05) -> bool:  # noqa: ARG002
        """True now and then in the simulation, to do something legal but rare; never in production."""
        return False

    # --- blocking work ---

    @abstractmethod
    def workers(self, name: str, count: int = 1) -> Workers:
        """New background threads. The caller closes them."""

    def background_sync(self) -> BackgroundSync | None:
        """Syncs without a thread, if the system has that. The caller closes it."""
        return None

    @abstractmethod
    def open_key_value(self, path: str, options: Mapping[str, Any] | None = None) -> KeyValueStore:
        """Open or create a key-value store in directory `path`; blocks.

        Options (all optional): `compression` "lz4"|"snappy"|"none", `block_size`, `bloom_bits`,
        `block_cache` (bytes), `write_buffer` (bytes), `max_write_buffers`, `target_file_size`,
        `level0_files` (how many are merged), `max_level1` (bytes), `read_only` (bool).
        """

    def give_way(self, seconds: float = 0.0) -> None:  # noqa: B027 - where workers do not share an interpreter lock
        """For a worker between two pieces of long Python work: lets the event loop have the interpreter, for so long at
        least."""

    def worked_seconds(self) -> float:
        """Processor time that this thread has used, without the kernel's: others may have the interpreter then."""
        return 0.0

    def collect_young(self, after: float = 0.0) -> None:  # noqa: B027 - a simulated world collects between its runs
        """Free what was dropped lately and refers to itself, now or so many seconds later. What is left then counts as
        old. A little now is a shorter standstill than much later."""

    def freeze_memory(self) -> None:  # noqa: B027 - a simulated world has several machines
        """What there is now stays: no collection needs to look through it again. Takes as long as a full collection."""

    def settle_memory(self) -> None:  # noqa: B027 - a simulated world has several machines
        """`freeze_memory`, as this process serves from now on: pauses matter more than their sum."""

    # --- tasks ---

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start a task. Its creator owns it: awaits it, or cancels and awaits it (see `TaskScope`)."""
        return asyncio.get_running_loop().create_task(work, name=name)

    # --- the process ---

    def end_process(self, code: int) -> NoReturn:
        """End the process at once, whatever still runs in it: nothing is waited for, closed or written."""
        raise SystemExit(code)

    async def run_program(self, arguments: Sequence[str], *, timeout: float) -> bytes:  # noqa: ARG002
        """Run a program to its end; what it printed.

        Raises `OSError` when it cannot be started, ends with an exit code other than 0, or takes longer than `timeout`
        seconds.
        """
        raise FileNotFoundError(f"there is no program {arguments[0]}")

    @abstractmethod
    def hostname(self) -> str: ...

    @abstractmethod
    def environ(self) -> Mapping[str, str]: ...

    @abstractmethod
    def physical_memory(self) -> int:
        """Bytes of memory this process may use."""

    def keep_freed_memory(self) -> None:  # noqa: B027  # a world without a heap of its own has nothing to do
        """Let this process keep memory that it freed, for what comes next (`runtime.heap`). Idempotent."""

    def open_files_limit(self) -> int:
        """How many files and connections this process may have open. Raises the limit as far as the system lets it."""
        return 1 << 20
