"""Who is measured: how it is started, written and read.

All get the same rows from the same two tasks, and are read by as many. Bookies and brokers have three copies of each
record, and acknowledge it when two of them have it; a bookie has synced it then, a broker only with `synced`. A topic
has a partition for each task, as a stream has a segment of each. Kafka's producer and consumer get what is usually
advised for throughput; all else is at its default.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bookkeeper import open_namespace

from ..kafka import brokers
from ..kafka.__main__ import bookies

TASKS = 2
"""That write or read at a time."""

OURS, SYNCED, UNSYNCED, PARQUET, JSON = "ours", "Kafka, synced", "Kafka, not synced", "Parquet", "JSON lines"

PRODUCER = {"kafka.acks": "all", "kafka.linger.ms": "5", "kafka.batch.size": "1000000"}
CONSUMER = {"kafka.max.poll.records": "20000", "kafka.fetch.min.bytes": "100000", "minPartitions": str(TASKS)}


@dataclass(frozen=True)
class System:
    """One that is up."""

    format: str
    written: Callable[[str], Mapping[str, str]]
    """Options of a sink, by the name of what is written."""
    followed: Callable[[str], Mapping[str, str]]
    """Options of a streaming source, by the same name."""
    schema: str | None = None

    def write(self, frame: DataFrame, name: str) -> None:
        """All rows, in one go."""
        frame.write.format(self.format).options(**self.written(name)).mode("append").save()

    def follow(self, spark: SparkSession, name: str) -> DataFrame:
        """What was written, as a streaming query reads it."""
        reader = spark.readStream.format(self.format).options(**self.followed(name))
        return (reader.schema(self.schema) if self.schema is not None else reader).load()


@contextlib.contextmanager
def _ours(directory: Path) -> Iterator[System]:
    with bookies(directory) as cluster:
        where = f"distributedlog-{cluster}?namespace=/bench"
        asyncio.run(_bind(where))
        common = {"uri": where}
        # An epoch of a sink is written once, however often tasks and driver are repeated: exactly once is on.
        yield System(
            "bookkeeper",
            lambda name: {**common, "stream": name, "sinkId": name, "epoch": "0"},
            lambda name: {**common, "stream": name, "rowMode": "kafka", "startingOffsets": "earliest"},
        )


async def _bind(where: str) -> None:
    async with open_namespace(where, create=True):
        pass


@contextlib.contextmanager
def _kafka(directory: Path, *, sync: bool) -> Iterator[System]:
    with brokers.running(directory, sync=sync, partitions=TASKS) as bootstrap:
        common = {"kafka.bootstrap.servers": bootstrap}
        yield System(
            "kafka",
            lambda name: {**common, **PRODUCER, "topic": name},
            lambda name: {**common, **CONSUMER, "subscribe": name, "startingOffsets": "earliest"},
        )


@contextlib.contextmanager
def _files(directory: Path, kind: str) -> Iterator[System]:
    def path(name: str) -> Mapping[str, str]:
        return {"path": str(directory / name)}

    yield System(kind, path, path, "value binary" if kind == "parquet" else "value string")


def started(system: str, directory: Path) -> AbstractContextManager[System]:
    """One of the above, with its data in a directory. Raises `RuntimeError` if it does not start."""
    return {
        OURS: lambda: _ours(directory),
        SYNCED: lambda: _kafka(directory, sync=True),
        UNSYNCED: lambda: _kafka(directory, sync=False),
        PARQUET: lambda: _files(directory, "parquet"),
        JSON: lambda: _files(directory, "json"),
    }[system]()
