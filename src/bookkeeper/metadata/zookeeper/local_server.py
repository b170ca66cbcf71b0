"""A ZooKeeper server of one's own, for `localbookie --zookeeper` and for tests.

ZooKeeper itself comes with PySpark: its jars are all that is needed besides a Java 17 or newer. Nothing in the package
imports this module except the command line, as it starts a process and waits for it; both go through asyncio.

    directory/zoo.cfg     ports and timing
    directory/log4j2.xml  warnings to stderr
    directory/server.log  what the server says
    directory/data        its snapshots and logs: a server started again finds its nodes
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shutil
import signal
from pathlib import Path

from ...errors import ConfigurationError, ServiceUnavailable
from ...runtime.ports import free_port

JAVA_VERSION = 17
"""The oldest Java that PySpark's jars run on."""

TICK_MS = 200
"""ZooKeeper's unit of time: sessions end at the next tick after their timeout."""

MIN_SESSION_MS = 2 * TICK_MS
MAX_SESSION_MS = 60_000

MAX_HEAP_MB = 256

START_SECONDS = 60.0
"""How long a server may take until it answers."""

STOP_SECONDS = 10.0
"""How long a server may take to stop when asked to; then it is killed."""

_PROBE_SECONDS = 0.05
_PROBE_LIMIT_SECONDS = 1.0

_JARS = (
    "zookeeper-",
    "slf4j-api-",
    "log4j-api-",
    "log4j-core-",
    "log4j-slf4j2-impl-",
    "netty-buffer-",
    "netty-codec-",
    "netty-common-",
    "netty-handler-",
    "netty-resolver-",
    "netty-transport-",
    "metrics-core-",
    "snappy-java-",
    "commons-io-",
    "commons-cli-",
    "audience-annotations-",
)

_LOGGING = """\
<Configuration status="off">
  <Appenders><Console name="err" target="SYSTEM_ERR"><PatternLayout pattern="%d %p %c: %m%n"/></Console></Appenders>
  <Loggers><Root level="warn"><AppenderRef ref="err"/></Root></Loggers>
</Configuration>
"""


def find_java() -> str:
    """The `java` command: that of JAVA_HOME, else the first in the path. Raises `ConfigurationError`."""
    home = os.environ.get("JAVA_HOME")
    if home and os.access(os.path.join(home, "bin", "java"), os.X_OK):
        return os.path.join(home, "bin", "java")
    found = shutil.which("java")
    if found is None:
        raise ConfigurationError(
            f"no java command: a ZooKeeper server needs a JDK {JAVA_VERSION} or newer; install one, or set JAVA_HOME"
        )
    return found


def find_jars() -> list[str]:
    """ZooKeeper and what it needs, from the PySpark package. Raises `ConfigurationError`."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigurationError("ZooKeeper's jars come with PySpark: pip install pyspark")
    directory = Path(spec.origin).parent / "jars"
    jars = sorted(str(jar) for jar in directory.glob("*.jar") if jar.name.startswith(_JARS))
    if not any("zookeeper-" in jar for jar in jars):
        raise ConfigurationError(f"there is no ZooKeeper among the jars in {directory}: pip install 'pyspark>=4.0'")
    return jars


async def check_java(java: str) -> None:
    """Raises `ConfigurationError` if this Java is too old or does not run."""
    process = await asyncio.create_subprocess_exec(
        java,
        "-version",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    text = output.decode(errors="replace")
    match = re.search(r'version "(\d+)', text)
    if match is None or int(match[1]) < JAVA_VERSION:
        raise ConfigurationError(
            f"{java} is not Java {JAVA_VERSION} or newer ({text.strip()[:80]!r}): install a JDK, or set JAVA_HOME"
        )


class LocalZooKeeper:
    """One standalone server on the loopback interface. Started again, it has its old port and data.

    Without `durable` it does not wait for the disk: its data survives its own death, but not the machine's.
    """

    def __init__(self, directory: str | Path, port: int = 0, *, durable: bool = True) -> None:
        self.directory = Path(directory).absolute()
        self.port = port or free_port()
        self._durable = durable
        self._process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def uri(self) -> str:
        """A metadata service address in this server."""
        return f"zk://{self.address}/ledgers"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> str:
        """Start and wait until it answers; returns `uri`. Raises `ConfigurationError`, `ServiceUnavailable`."""
        if self.running:
            return self.uri
        java = find_java()
        await check_java(java)
        argv = [*self._jvm(java), "-cp", os.pathsep.join(find_jars()), *self._server()]
        self._process = await self._spawn(argv)
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._until_it_answers(self._process)
        except TimeoutError:
            await self.kill()
            raise ServiceUnavailable(f"ZooKeeper did not answer in {START_SECONDS:g} s: {self._last_words()}") from None
        except BaseException:
            await self.kill()
            raise
        return self.uri

    async def _spawn(self, argv: list[str]) -> asyncio.subprocess.Process:
        with (self.directory / "server.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *argv,
                cwd=self.directory,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the command, which stops the server itself
            )

    def _jvm(self, java: str) -> list[str]:
        return [
            java,
            f"-Xmx{MAX_HEAP_MB}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={self.directory / 'log4j2.xml'}",
            f"-Dzookeeper.forceSync={'yes' if self._durable else 'no'}",
        ]

    def _server(self) -> list[str]:
        """Write the configuration; returns the main class and its argument."""
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j2.xml").write_text(_LOGGING)
        config = self.directory / "zoo.cfg"
        config.write_text(
            f"dataDir={data}\n"
            f"clientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\n"
            f"tickTime={TICK_MS}\n"
            f"minSessionTimeout={MIN_SESSION_MS}\n"
            f"maxSessionTimeout={MAX_SESSION_MS}\n"
            "maxClientCnxns=0\n"
            "4lw.commands.whitelist=srvr,ruok,wchc,wchs,cons\n"
        )
        return ["org.apache.zookeeper.server.ZooKeeperServerMain", str(config)]

    async def _until_it_answers(self, process: asyncio.subprocess.Process) -> None:
        while "Mode:" not in await self.command("srvr"):
            if process.returncode is not None:
                raise ServiceUnavailable(f"ZooKeeper ended with code {process.returncode}: {self._last_words()}")
            await asyncio.sleep(_PROBE_SECONDS)

    async def command(self, word: str) -> str:
        """The answer to one of ZooKeeper's four letter words; empty if there is none within a second.

        A server that is just starting may take a connection and never answer on it.
        """
        try:
            async with asyncio.timeout(_PROBE_LIMIT_SECONDS):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                try:
                    writer.write(word.encode())
                    return (await reader.read()).decode(errors="replace")
                finally:
                    writer.close()
        except OSError:
            return ""

    def _last_words(self) -> str:
        text = (self.directory / "server.log").read_text(errors="replace")
        return text.strip()[-500:] or "it said nothing"

    async def stop(self) -> None:
        """Stop in an orderly way; kill it if it takes too long. Idempotent."""
        if self._process is None or not self.running:
            return
        self.resume()
        self._process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """As a power failure of the process: kill -9. Idempotent."""
        if self._process is not None and self.running:
            self._process.kill()
            await self._process.wait()

    async def restart(self) -> None:
        """Stop and start, with the same data."""
        await self.stop()
        await self.start()

    def pause(self) -> None:
        """Stop answering, without closing connections."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Go on after `pause`."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGCONT)
