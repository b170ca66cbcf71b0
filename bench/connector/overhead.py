"""What a batch of a streaming query costs by itself: a few rows of a stream, beside a few of Spark's `rate` source.

Both queries write to `noop`, and begin a batch as soon as there are rows. What Spark says each took is its own, too:
offsets and commits that are written to the checkpoint, a plan, tasks. The difference is what the source adds.
"""

from __future__ import annotations

import asyncio
import statistics
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bookkeeper import open_namespace

from .systems import OURS, started

BATCHES = 30
WARM = 10
PAUSE = 0.1
"""Seconds between appends: each is a batch, or several together are one."""
PATIENCE = 120.0
"""Seconds for all batches."""

Durations = dict[str, float]
"""Milliseconds, by the name that Spark gives to a part of a batch."""


def measure(spark: SparkSession, directory: Path) -> dict[str, Durations]:
    """The median batch of each source."""
    rate = spark.readStream.format("rate").option("rowsPerSecond", 10).option("numPartitions", 1).load()
    found = {"rate": median(_batches(rate, directory / "rate"))}
    with started(OURS, directory / "batches") as system:
        uri = system.followed("few")["uri"]
        stop = threading.Event()
        writer = threading.Thread(target=lambda: asyncio.run(_write(uri, "few", stop)))
        asyncio.run(_create(uri, "few"))
        writer.start()
        try:
            found["stream"] = median(_batches(system.follow(spark, "few"), directory / "few"))
        finally:
            stop.set()
            writer.join()
    return found


async def _create(uri: str, name: str) -> None:
    async with open_namespace(uri, create=True) as namespace:
        await namespace.create(name)


async def _write(uri: str, name: str, stop: threading.Event) -> None:
    async with open_namespace(uri) as namespace, namespace.open_writer(name) as writer:
        while not stop.is_set():
            await writer.append(b"a few bytes")
            await asyncio.sleep(PAUSE)


def _batches(frame: DataFrame, checkpoint: Path) -> list[Durations]:
    """What batches with rows took, after the first ones. Raises `RuntimeError` if they take too long."""
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    seen: dict[int, Durations] = {}
    enough, waited = WARM + BATCHES, threading.Event()
    for _ in range(round(PATIENCE / PAUSE)):
        waited.wait(PAUSE)
        for progress in query.recentProgress:
            if progress["numInputRows"]:
                seen[progress["batchId"]] = dict(progress["durationMs"])
        if len(seen) >= enough or not query.isActive:
            break
    query.stop()
    if len(seen) < enough:
        raise RuntimeError(f"{len(seen)} batches in {PATIENCE:g} s: {query.exception()}")
    return [seen[number] for number in sorted(seen)][WARM:]


def median(batches: list[Durations]) -> Durations:
    names = sorted({name for each in batches for name in each})
    return {name: statistics.median(each.get(name, 0.0) for each in batches) for name in names}


def beyond(found: Mapping[str, Durations]) -> float:
    """Milliseconds that a batch of a stream takes beyond one of Spark's own source."""
    return found["stream"]["triggerExecution"] - found["rate"]["triggerExecution"]


def lines(found: Mapping[str, Durations]) -> Iterator[str]:
    """For the screen; none if nothing was measured."""
    for source, durations in found.items():
        parts = ", ".join(f"{name} {ms:.0f}" for name, ms in durations.items() if name != "triggerExecution")
        yield f"a batch of {source}: {durations['triggerExecution']:.0f} ms ({parts})"
    if found:
        yield f"beyond Spark's own: {beyond(found):.0f} ms"
