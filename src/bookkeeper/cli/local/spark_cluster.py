"""A standalone Spark cluster on this machine, for trying things out: a master, and workers that register with it.

Master and workers are the classes that Spark's own scripts start. Each is a child that ends when this process ends,
however it ends; a worker ends its executors. What they print goes to a file each:

    DIR/spark/master.log  DIR/spark/worker1.log  DIR/spark/work/...
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from ...runtime.ports import HOST, free_port
from .cluster import LOOK_SECONDS, ClusterError

START_TIMEOUT_SECONDS = 120.0
STOP_TIMEOUT_SECONDS = 30.0
WORKER_MEMORY = "1g"
"""For executors of one worker."""


@dataclass
class LocalSpark:
    """A master and `workers` workers, which share the machine's cores."""

    directory: Path
    workers: int
    url: str = ""
    """What to give as `--master`; known when it has started."""
    page: str = ""
    """The master's web page."""
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    async def start(self) -> None:
        """Start all, and wait until every worker is registered. Raises `ClusterError` when one ends instead."""
        self.directory.mkdir(parents=True, exist_ok=True)
        port = free_port(2)
        page = port + 1
        self.url, self.page = f"spark://{HOST}:{port}", f"http://{HOST}:{page}"
        self._spawn("master", "Master", "--host", HOST, "--port", str(port), "--webui-port", str(page))
        cores = max(1, len(os.sched_getaffinity(0)) // self.workers)
        shape = ("--host", HOST, "--webui-port", "0", "--cores", str(cores), "--memory", WORKER_MEMORY)
        try:
            async with asyncio.timeout(START_TIMEOUT_SECONDS):
                await self._until_alive(0)
                for number in range(1, self.workers + 1):
                    self._spawn(f"worker{number}", "Worker", *shape, self.url)
                await self._until_alive(self.workers)
        except TimeoutError:
            raise ClusterError(f"Spark did not start within {START_TIMEOUT_SECONDS:.0f} s: {self.directory}") from None

    async def stop(self) -> None:
        """Stop all; kill those that do not end in time."""
        loop = asyncio.get_running_loop()
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            try:
                await loop.run_in_executor(None, process.wait, STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                await loop.run_in_executor(None, process.wait)

    def ended(self) -> list[str]:
        """Names of those that have ended by themselves."""
        return [name for name, process in self._processes.items() if process.poll() is not None]

    def log(self, name: str) -> Path:
        """Where a process prints."""
        return self.directory / f"{name}.log"

    def _spawn(self, name: str, kind: str, *arguments: str) -> None:
        home = _home()
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_WORKER_DIR": str(self.directory / "work"),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind.lower()}.{kind}", *arguments]
        with self.log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "bookkeeper.cli.local.child", str(os.getpid()), "--exec", *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def _until_alive(self, workers: int) -> None:
        """Until the master says that so many workers are alive."""
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, self._alive) < workers:
            if ended := self.ended():
                raise ClusterError(f"{ended[0]} of Spark has ended: see {self.log(ended[0])}")
            await asyncio.sleep(LOOK_SECONDS)

    def _alive(self) -> int:
        """Workers that the master counts; -1: it does not answer yet."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.page}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
        return -1


def _home() -> Path:
    """Where PySpark is installed, with all of Spark."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None, "the caller has looked"
    assert found.origin is not None
    return Path(found.origin).parent
