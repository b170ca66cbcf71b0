"""Starting Spark from a command: what must be installed, and a quiet session."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ..version import install_hint
from .errors import MissingRequirementError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("pyspark", "pyarrow", "numpy")
JAVA_VERSION = 17

_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
"""
"""Errors only; the command itself reports failing tasks."""


def require_packages(*more: str) -> None:
    """Raises `MissingRequirementError` if a Python package is missing."""
    missing = [name for name in (*PACKAGES, *more) if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingRequirementError(
            f"Spark support needs the Python package{'s' if len(missing) > 1 else ''} {', '.join(missing)}:"
            f" {install_hint('spark')}"
        )


def require_java() -> str:
    """The Java that Spark will start. Raises `MissingRequirementError` if there is none, or it is too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    advice = f"install a JDK {JAVA_VERSION} or newer (for example openjdk-17-jre-headless), or set JAVA_HOME"
    if java is None or not os.access(java, os.X_OK):
        where = f"JAVA_HOME={home} has no java" if home else "there is no java command"
        raise MissingRequirementError(f"Spark needs Java, and {where}: {advice}")
    answer = subprocess.run([java, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    if version is None or int(version[1]) < JAVA_VERSION:
        raise MissingRequirementError(f"Spark needs Java {JAVA_VERSION}, and {java} is another one: {advice}")
    return java


@contextmanager
def spark_session(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None, *, verbose: bool = False
) -> Iterator[SparkSession]:
    """A Spark session for a command, stopped at the end. `master` None: what MASTER says, else `local[*]`.

    A session that this process has already is used as it is, and goes on; `JobError` if another one is asked for.

    Unless `verbose`, what the Java process prints goes to a file of its own, whose end is shown if it does not start.

    Raises `MissingRequirementError`, and `JobError` when Spark does not start.
    """
    require_packages()
    require_java()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from .errors import JobError

    if (running := SparkSession.getActiveSession()) is not None:
        where = running.sparkContext.master
        if settings or (master or where) != where:
            raise JobError(f"this process has a Spark session on {where} already, which cannot become another: stop it")
        yield running
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="bookkeeper-spark-") as directory:
        logging = Path(directory, "log4j2.properties")
        logging.write_text(_LOGGING)
        defaults = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()}",
            "spark.sql.shuffle.partitions": "8",
        }
        master = master or os.environ.get("MASTER")
        if master is None or master.startswith("local"):
            defaults["spark.driver.host"] = "127.0.0.1"
            defaults["spark.driver.bindAddress"] = "127.0.0.1"
        builder = SparkSession.builder.appName(name).master(master or "local[*]")
        for key, value in {**defaults, **(settings or {})}.items():
            builder = builder.config(key, value)
        log = Path(directory, "spark.log")
        try:
            with nullcontext() if verbose else _stderr_to(log):
                spark = builder.getOrCreate()
        except (PySparkException, Py4JError) as error:
            raise JobError(f"Spark did not start: {_reason(error, log)}") from error
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """What this process, and those it starts, write to stderr goes to a file; those keep it when this ends."""
    sys.stderr.flush()
    kept = os.dup(2)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(target, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)


def _reason(error: Exception, log: Path) -> str:
    """One line: the first exception in the log of the Java process, else the error's own first line."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    causes = [line for line in lines if "Exception" in line or "Error" in line]
    return (causes or str(error).splitlines() or [type(error).__name__])[0].strip()
