"""`bookkeeper bookie --instances N`: several bookies of one configuration on one machine, and who looks after them.

A bookie uses about one core, whatever the machine has. So a machine runs several, each a process with what is its own:

    port          bookiePort, bookiePort + 1, ...; so with httpServerPort and prometheusStatsHttpPort
    directories   `instance-1`, `instance-2`, ... below each configured directory
    id            its address, as of every bookie without a bookieId
    memory        directMemoryBudgetMb, if it is not set: an equal share of what one bookie would take

Theory of operation

- Nothing is started before all is settled: what cannot be is refused in one line.
- Until it has served for the first time, an instance that ends ends all: the settings or the machine are wrong. The
  others are stopped, and its exit code is the command's.
- Later, an instance that ends is started again, after a pause that grows while that keeps happening, and each time this
  is said. The others serve on: a ledger has one copy on a machine at most, so one instance is no reason to lose all.
- SIGTERM, SIGINT and SIGHUP stop all of them in order; SIGQUIT is passed on. If this process is killed, the kernel
  sends them SIGTERM (`local.child`). Each bookie ends within a bounded time, so they are waited for without one.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from ..bookie.file_names import current
from ..bookie.storage.db_storage import MIB, memory_budget
from ..config import ServerConfiguration
from ..errors import ConfigurationError
from ..runtime import Files, Runtime
from ..runtime.waiting.backoff import Backoff, Pauses

FOLDER = "instance-"

DIRECTORIES = ("journalDirectories", "ledgerDirectories", "indexDirectories")

LARGEST_PORT = 65535

PAUSES = Backoff(first=1.0, longest=60.0)
"""Before an instance is started again."""

LINE_BYTES = 1 << 20
"""The longest line of an instance that is passed on."""

SERVES = re.compile(rb"bookie \S+ serves")


@dataclass
class Instance:
    """One of the bookies."""

    port: int
    settings: Mapping[str, str]
    """What is its own, above the settings that all of them have."""
    pauses: Pauses = field(default_factory=lambda: Pauses(PAUSES))
    process: Process | None = None
    has_served: bool = False
    """Whether any run of it came up."""


def instances_of(config: ServerConfiguration, count: int, budget_mb: int) -> list[Instance]:
    """What each is given. `budget_mb`: memory that one bookie would take by default.

    Raises `ConfigurationError` for settings that do not go with several bookies.
    """
    if config.bookieId is not None:
        raise ConfigurationError(
            "--instances with bookieId: several bookies cannot have one id; remove bookieId, their addresses will do"
        )
    if config.bookiePort == 0:
        raise ConfigurationError("--instances with bookiePort=0: set the first port, the others get those that follow")
    ports = {"bookiePort": config.bookiePort}
    if config.httpServerEnabled:
        ports["httpServerPort"] = config.httpServerPort
    elif config.statsProviderClass and config.prometheusStatsHttpEnable:
        ports["prometheusStatsHttpPort"] = config.prometheusStatsHttpPort
    _check_ports(ports, count)
    found = []
    for number in range(count):
        own = {key: str(port + number) for key, port in ports.items()}
        for key in DIRECTORIES:
            if roots := getattr(config, key):
                own[key] = ",".join(f"{root.rstrip('/')}/{FOLDER}{number + 1}" for root in roots)
        caches = (config.directMemoryBudgetMb, config.dbStorage_writeCacheMaxSizeMb)
        if (*caches, config.dbStorage_readAheadCacheMaxSizeMb) == (None, None, None):
            own["directMemoryBudgetMb"] = str(max(1, budget_mb // count))
        found.append(Instance(config.bookiePort + number, own))
    return found


def _check_ports(ports: Mapping[str, int], count: int) -> None:
    taken: dict[int, str] = {}
    for key, first in ports.items():
        if first + count - 1 > LARGEST_PORT:
            raise ConfigurationError(f"{key}={first}: {count} instances need ports up to {first + count - 1}")
        for port in range(first, first + count):
            if port in taken:
                raise ConfigurationError(
                    f"{key}={first} and {taken[port]}={ports[taken[port]]}: {count} instances would need port {port} "
                    f"twice; set them {count} apart"
                )
            taken[port] = key


def check_directories(config: ServerConfiguration, files: Files) -> None:
    """Raises `ConfigurationError` where a bookie without --instances has its data."""
    for key in DIRECTORIES:
        for root in getattr(config, key) or ():
            if files.is_dir(current(root)):
                raise ConfigurationError(
                    f"{key}: {root} has the data of a bookie that ran without --instances: start it as before, or "
                    "give other directories"
                )


def left_out(config: ServerConfiguration, files: Files, count: int) -> list[str]:
    """Folders of instances beyond `count`, of an earlier start: their entries are not served."""
    wanted = {f"{FOLDER}{number}" for number in range(1, count + 1)}
    roots = [root for root in config.ledgerDirectories if files.is_dir(root)]
    return [
        f"{root}/{name}"
        for root in roots
        for name in files.listdir(root)
        if name.startswith(FOLDER) and name not in wanted
    ]


def as_environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings as variables BK_<key>."""
    return {
        f"BK_{key}": str(value).lower() if isinstance(value, bool) else str(value) for key, value in settings.items()
    }


async def run_instances(
    runtime: Runtime, config: ServerConfiguration, count: int, command: Sequence[str], shared: Mapping[str, Any]
) -> int:
    """Run them until they are asked to stop; returns the exit code.

    `command` starts one, with `shared` settings beside its own. Raises `ConfigurationError`.
    """
    instances = instances_of(config, count, memory_budget(runtime, config) // MIB)
    check_directories(config, runtime.files)
    for path in left_out(config, runtime.files, count):
        _say(sys.stderr, f"warning: {path} is of an instance beyond {count}: it is not started")
    return await Supervisor(runtime, instances, command, as_environment(shared)).run()


class Supervisor:
    """See the module."""

    def __init__(
        self, runtime: Runtime, instances: Sequence[Instance], command: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        """`environment`: what all instances have beside the environment of this process."""
        self._runtime = runtime
        self._instances = instances
        self._command = command
        self._environment = environment
        self._stop = asyncio.Event()
        self._culprit: int | None = None
        """The exit code of the run that ended all."""
        self._codes: list[int] = []
        """Of runs that ended when they should."""

    async def run(self) -> int:
        """Until all have ended; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGQUIT, self._pass_on, signal.SIGQUIT)
        async with asyncio.TaskGroup() as group:
            for instance in self._instances:
                group.create_task(self._keep(instance))
            await self._stop.wait()
            self._pass_on(signal.SIGTERM)
        return max(self._codes, default=0) if self._culprit is None else self._culprit

    def _pass_on(self, number: signal.Signals) -> None:
        for instance in self._instances:
            if instance.process is not None and instance.process.returncode is None:
                instance.process.send_signal(number)

    async def _keep(self, instance: Instance) -> None:
        """Have it running, until all are to stop."""
        while not self._stop.is_set():
            code = await self._run_once(instance)
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            if self._stop.is_set():
                in_start = code == -signal.SIGTERM  # it was told to stop before it listened to that
                self._codes.append(0 if in_start else _exit_code(code))
                return
            if not instance.has_served:
                _say(sys.stderr, f"error: bookie on port {instance.port} {how} before it served: all are stopped")
                self._culprit = _exit_code(code)
                self._stop.set()
                return
            pause = instance.pauses.next()
            _say(sys.stderr, f"error: bookie on port {instance.port} {how}: it is started again in {pause:g} s")
            try:
                async with asyncio.timeout(pause):
                    await self._stop.wait()
            except TimeoutError:
                continue

    async def _run_once(self, instance: Instance) -> int:
        """Start it and wait for its end; returns its exit code, or minus the signal's number."""
        process = instance.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bookkeeper.cli.local.child", str(os.getpid()), *self._command,
            stdin=DEVNULL, stdout=PIPE, stderr=PIPE, limit=LINE_BYTES, start_new_session=True,
            env={**self._runtime.environ(), **self._environment, **as_environment(instance.settings)},
        )  # fmt: skip
        if self._stop.is_set():  # while it was being started
            process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stderr is not None
        await asyncio.gather(
            self._tell(instance, process.stdout, sys.stdout), self._tell(instance, process.stderr, sys.stderr)
        )
        return await process.wait()

    async def _tell(self, instance: Instance, lines: asyncio.StreamReader, out: TextIO) -> None:
        """Pass on what it says, with its port before it."""
        while True:
            try:
                line = await lines.readline()
            except ValueError:
                line = b"(a line too long to be passed on)\n"
            if not line:
                return
            _say(out, f"[{instance.port}] {line.decode(errors='replace').rstrip()}")
            if out is sys.stdout and SERVES.fullmatch(line.strip()):
                instance.has_served = True
                instance.pauses.reset()
                self._say_if_all_serve()

    def _say_if_all_serve(self) -> None:
        if all(one.has_served and one.process and one.process.returncode is None for one in self._instances):
            _say(sys.stdout, f"all {len(self._instances)} instances serve")


def _exit_code(code: int) -> int:
    """As a shell tells it."""
    return 128 - code if code < 0 else code


def _say(out: TextIO, line: str) -> None:
    out.write(line + "\n")
    out.flush()
