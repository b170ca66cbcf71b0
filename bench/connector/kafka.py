"""Spark's Kafka connector, as Maven has it: that of the Spark that is installed, else the newest one that fits it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyspark

ARTIFACT = "org.apache.spark:spark-sql-kafka-0-10_2.13"
OLDER = ("4.2.0",)
"""Releases to be tried when there is none of the version of the Spark that is installed."""

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bookkeeper.bench</groupId><artifactId>spark-kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>
  </dependencies>
</project>
"""
_OF_SPARK = ("hadoop-", "scala-", "slf4j-", "jsr305-", "spark-tags_")
"""Beginnings of the names of jars that Spark has, in the version that it wants."""


def connector() -> tuple[str, list[Path]]:
    """The version of the connector, and the jars that Spark needs for it; fetched the first time.

    Raises `RuntimeError` if Maven is not there, or has none of the versions.
    """
    why = ""
    for version in (pyspark.__version__, *OLDER):
        try:
            return version, needed(_fetched(version))
        except subprocess.CalledProcessError as error:
            why = (error.stdout or "")[-1000:]
    raise RuntimeError(f"{ARTIFACT} could not be fetched, neither {pyspark.__version__} nor {', '.join(OLDER)}: {why}")


def _fetched(version: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "bookkeeper-interop" / f"spark-kafka-{version}"
    if (folder / ".complete").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    group, artifact = ARTIFACT.split(":")
    pom = folder / "pom.xml"
    pom.write_text(_POM.format(group=group, artifact=artifact, version=version))
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    try:
        subprocess.run([*command, f"-DoutputDirectory={folder}"], check=True, text=True, stdout=subprocess.PIPE)
    except FileNotFoundError:
        raise RuntimeError("Maven is needed to fetch Spark's Kafka connector: install `mvn`") from None
    (folder / ".complete").touch()
    return folder


def needed(folder: Path) -> list[Path]:
    """Those that Spark does not bring along."""
    own = {jar.name for jar in Path(pyspark.__file__).with_name("jars").glob("*.jar")}
    wanted = [jar for jar in sorted(folder.glob("*.jar")) if not jar.name.startswith(_OF_SPARK)]
    libraries = {jar.name.rpartition("-")[0] for jar in (Path(name) for name in own)}
    return [jar for jar in wanted if jar.name.rpartition("-")[0] not in libraries]
