"""The classes of Spark's Java process, loaded once and kept in an archive, which halves the start of every later one.

    python -m tests.support.java_classes ARCHIVE

Tests start dozens of such processes, each of which would unpack and check the same ten thousand classes. Java maps
them from the archive instead, if it is the same Java with the same libraries; otherwise it passes over the archive
without a word.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java processes of tests live for seconds: what the second compiler and parallel collectors would gain, they would not
see."""

SILENT = "-Xlog:disable"
"""Nothing is printed about an archive that does not fit."""

TOLERANT = "-XX:+IgnoreUnrecognizedVMOptions"
"""Not every Java has such archives."""

ARCHIVE = Path(sys.prefix, ".spark.jsa")
"""Where `make test` keeps it."""


def java_options() -> str:
    """What the Java processes of tests are started with."""
    if not ARCHIVE.exists():
        return QUICK_START
    return f"{QUICK_START} {SILENT} {TOLERANT} -XX:SharedArchiveFile={ARCHIVE}"


def exercise() -> None:
    """Have Spark load what tests need: files, streams, sources in Python. Returns when its Java process has ended."""
    from pyspark.sql import functions
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    from bookkeeper.spark.launch import spark_session

    class Reader(DataSourceReader):
        def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
            yield (1,)

    class Source(DataSource):
        def schema(self) -> str:
            return "number int"

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    with spark_session("classes", "local[2]") as spark, tempfile.TemporaryDirectory() as directory:
        spark.dataSource.register(Source)
        frame = spark.read.format("Source").load().withColumn("text", functions.lit("a"))
        for kind in ("parquet", "json"):
            frame.write.format(kind).save(f"{directory}/{kind}")
            counted = spark.read.format(kind).load(f"{directory}/{kind}").groupBy("text").agg(functions.sum("number"))
            assert counted.join(frame, "text").orderBy("text").toPandas().shape == (1, 3)
        schema = spark.read.parquet(f"{directory}/parquet").schema
        stream = spark.readStream.schema(schema).parquet(f"{directory}/parquet").groupBy("text").count()
        query = stream.writeStream.format("memory").queryName("counts").outputMode("complete")
        query.option("checkpointLocation", f"{directory}/checkpoint").trigger(
            availableNow=True
        ).start().awaitTermination()
        java = spark.sparkContext._gateway.proc
    java.stdin.close()  # it ends with its standard input
    java.wait()


def main() -> None:
    archive = Path(sys.argv[1])
    archive.unlink(missing_ok=True)
    os.environ["JDK_JAVA_OPTIONS"] = f"{QUICK_START} {SILENT} {TOLERANT} -XX:ArchiveClassesAtExit={archive}"
    exercise()


if __name__ == "__main__":
    main()
