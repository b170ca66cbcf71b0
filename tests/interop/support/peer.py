"""The Java peer: Apache BookKeeper itself, started by `tests/interop/java/peer`.

`JavaSession` is a JVM with Java's client in it that takes commands, one line each (java/src/Session.java): a test's
operation costs milliseconds instead of the start of a JVM. So does DistributedLog's library (java/src/Streams.java).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

JAVA = Path(__file__).parent.parent / "java"
SCRIPT = JAVA / "peer"

SMALL_JVM = "-Xmx256m -XX:MaxDirectMemorySize=256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""A JVM that starts soon and takes little; for tests, not for measuring."""

KILL = signal.SIGKILL


def version() -> str:
    """The Java version under test; PEER_VERSION selects another one."""
    return subprocess.run([SCRIPT, "version"], check=True, capture_output=True, text=True).stdout.strip()


def set_up(java_version: str = "") -> None:
    """Fetch the jars and compile the drivers, unless that was done before."""
    done = subprocess.run([SCRIPT, "setup"], capture_output=True, text=True, env=environment(java_version=java_version))
    if done.returncode:
        raise RuntimeError(f"the Java peer cannot be set up (a JDK 17+ and Maven are needed): {done.stderr[-2000:]}")


def environment(java_options: str = SMALL_JVM, java_version: str = "") -> dict[str, str]:
    """Of a Java process; without a version it is the one that is selected for all (`version`)."""
    selected = {"PEER_VERSION": java_version} if java_version else {}
    return {**os.environ, "PEER_JAVA_OPTS": java_options, **selected}


@dataclass(frozen=True)
class Answer:
    """What a Java tool said."""

    code: int
    text: str


class Tools:
    """A JVM that runs Java's own shell, one command after the other. Started with the first one."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, conf: Path, *words: str) -> Answer:
        """One of Java's admin or offline tools, by its name in `bookkeeper shell`. Blocks."""
        with self._lock:
            process = self._process = self._process or self._spawn()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\t".join([str(conf), *words]).encode() + b"\n")
            process.stdin.flush()
            lines: list[bytes] = []
            while line := process.stdout.readline():
                if line.startswith(b"\texit\t"):
                    return Answer(int(line.split()[1]), b"".join(lines).decode(errors="replace"))
                lines.append(line)
        raise RuntimeError(f"Java's shell ended at {words}: {b''.join(lines[-20:])!r}; see {self._log}")

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [SCRIPT, "tools"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(SMALL_JVM + " -Dpeer.log=info"),
                start_new_session=True,
            )

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()


class Refused(Exception):
    """A client refused an operation; `code` is BookKeeper's result code (-999: none)."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class JavaSession:
    """A JVM with Java's client, or another library that takes commands (java/src/Commands.java).

    Commands are taken one at a time; from any thread or loop.
    """

    def __init__(self, log: Path, program: str = "session") -> None:
        """`program`: a word of `peer`, `session` or `streams`."""
        self._log = log.open("ab")
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [SCRIPT, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment(),
            start_new_session=True,
        )

    def call(self, command: str, **arguments: object) -> dict[str, Any]:
        """Run a command and return its answer. Raises `Refused`. An underscore in a name stands for a dot."""
        words = [f"{name.replace('__', '.')}={_spell(value)}" for name, value in arguments.items() if value is not None]
        line = " ".join([command, *words]) + "\n"
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
            while True:
                answer = self._process.stdout.readline()
                if not answer:
                    raise RuntimeError(f"the Java client ended at {line!r}: see {self._log.name}")
                if answer.startswith(b"{"):
                    break
                self._log.write(answer)  # the client's own log lines
                self._log.flush()
        found: dict[str, Any] = json.loads(answer)
        if not found.pop("ok"):
            raise Refused(int(found.get("code", -999)), f"{found['error']} {found['message']}")
        return found

    async def ask(self, command: str, **arguments: object) -> dict[str, Any]:
        """`call` without blocking the loop."""
        return await asyncio.to_thread(self.call, command, **arguments)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def kill(self) -> None:
        """The end of the client as a crash is: no goodbye."""
        self._process.kill()
        self._process.wait()
        self.close()


def _spell(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return quote(str(value), safe="")
