"""The real world: asyncio (uvloop), clock and operating system; its parts are `disk`, `network`, `threads` and
`rocks`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
import resource
import socket
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from . import heap
from .api import (
    BackgroundSync,
    KeyValueStore,
    Runtime,
    Workers,
)
from .disk.files import RealFiles
from .disk.kernel_sync import KernelSync
from .network import RealNetwork
from .threads import Threads

T = TypeVar("T")

_OF_THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)  # Linux has it

SWITCH_INTERVAL_SECONDS = 0.00005
"""How long one thread may hold the interpreter while another wants it. With Python's default of 5 ms an index flush
would add that to every answer. It must be shorter than the loop goes without a system call, too: a thread that waits
asks for the interpreter only when it was held for so long without a pause. At 0.5 ms the journal's thread, beside a
loop that sends and receives all the time, waited some 10 ms for its turn."""

GIVE_WAY_SECONDS = 0.00005
"""Pause of a worker that gives way. A waiting thread needs about this long to wake up and take the interpreter."""

GC_THRESHOLDS = (10_000, 1, 5_000)
"""Entries in flight are many small objects, none of them in a cycle. The first two bound the longest pause but that of
a full collection, which looks at up to two rounds of 10,000 objects; the last makes full collections rare. Python's
default (700, 10, 10) would look through all objects several times a second. In rounds of 2,000 most of what a client
reads was still in use when it was looked at, which took a tenth of its time."""
SERVER_GC_THRESHOLDS = (2_000, 1, 5_000)
"""Of a bookie. With rounds of 10,000 its pauses were 3 to 7 ms while hundreds of connections asked for much, and the
slowest answers of all others came from that; with these they are below 1 ms, and the collector takes no more time in
all, as what is looked at twice is left alone from then on."""


class RealRuntime(Runtime):
    """This process, its clock, its threads and its disks."""

    def __init__(self, *, services: dict[str, Any] | None = None) -> None:
        self.files = RealFiles()
        self.network = RealNetwork()
        self.services = {} if services is None else services
        self._random: dict[str, random.Random] = {}

    now = staticmethod(time.monotonic)  # without a call between

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
        return Threads(name, count, asyncio.get_running_loop())

    def background_sync(self) -> BackgroundSync | None:
        return KernelSync.open(asyncio.get_running_loop())

    def open_key_value(self, path: str, options: Mapping[str, Any] | None = None) -> KeyValueStore:
        from .rocks import RocksStore

        return RocksStore(path, options or {}, self.files)

    def give_way(self, seconds: float = 0.0) -> None:
        time.sleep(max(seconds, GIVE_WAY_SECONDS))

    def worked_seconds(self) -> float:
        return time.thread_time() if _OF_THREAD is None else resource.getrusage(_OF_THREAD).ru_utime

    def collect_young(self, after: float = 0.0) -> None:
        if after > 0:
            asyncio.get_running_loop().call_later(after, gc.collect, 1)
        else:
            gc.collect(1)

    def keep_freed_memory(self) -> None:
        heap.keep_freed_memory()

    def freeze_memory(self) -> None:
        gc.collect()
        gc.freeze()

    def settle_memory(self) -> None:
        self.freeze_memory()
        gc.set_threshold(*SERVER_GC_THRESHOLDS)

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


def new_event_loop() -> asyncio.AbstractEventLoop:
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
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main(RealRuntime()))
