"""The pipeline of `bookkeeper spark demo-pipeline`: what its input is, what its driver does, what must come of it.

Theory of operation

Lines of text, each with its number before it, lie in files. Three steps follow, each exactly once by itself:

    files --ingest--> stream `lines` --windowed aggregation--> stream `counts` --file sink--> Parquet

The number of a line is its event time, in milliseconds. So the windows of the aggregation are known beforehand, and a
record that came twice, late or never would show in them. The files are ingested in order, a few at a time, and the
watermark waits for longer than these few span: no line is ever late. Last comes one more record, whose time
closes the windows before it.

All three run in one driver, `drive`, until it is killed. Started again, it goes on by its checkpoints.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bookkeeper.spark

from ...spark.launch import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTS = 30
"""Files that the input is cut into, and windows."""
PARTS_AT_ONCE = 3
"""Files of a batch of the ingest."""
LATE_PARTS = 2 * PARTS_AT_ONCE
"""For which the watermark waits."""
BATCHES = 12
"""Of the aggregation, at least: there must be time to kill something."""
MOST_LINES = 400_000
"""Of the input; what is beyond is left out."""
KINDS = ("def", "class", "import", "from", "return", "if", "for")
"""First words of lines that are counted each by itself."""
OTHER = "other"
FILE_TIME = 1_700_000_000
"""When the first file was made, by its inode: Spark reads files by age."""

LOOK_SECONDS = 1
"""How often the driver looks whether a query has ended."""

LINES, COUNTS = "lines", "counts"
"""The streams, and the sinks that write them."""

WindowCount = tuple[str, int, int, int]
"""Kind, first number of the window, lines, bytes."""


@dataclass
class PipelineInput:
    """The input, and what must be in `lines` and in `counts` at the end."""

    records: Counter[bytes] = field(default_factory=Counter)
    windows: Counter[WindowCount] = field(default_factory=Counter)
    count: int = 0
    part: int = 1
    """Lines of a file, and of a window."""

    @classmethod
    def of(cls, lines: Iterable[bytes], directory: Path) -> PipelineInput:
        """Number the lines, and write them to files below `directory`, with what the driver must know."""
        numbered = [b"%d\t%s" % (n, line.rstrip(b"\n")) for n, line in enumerate(islice(lines, MOST_LINES))]
        made = cls(count=len(numbered), part=-(-len(numbered) // PARTS) or 1)
        last = b"%d\tthe end" % (made.count + (LATE_PARTS + 2) * made.part)
        made.records.update(numbered)
        made.records[last] += 1
        made.windows = _windows(numbered, made.part)
        _write_files(directory / "input", _parts(numbered, made.part))
        _write_files(directory / "end", [[last]])
        (directory / "plan.json").write_text(json.dumps({"count": made.count, "part": made.part}))
        return made


def _windows(numbered: Iterable[bytes], part: int) -> Counter[WindowCount]:
    lines: Counter[tuple[str, int]] = Counter()
    sizes: Counter[tuple[str, int]] = Counter()
    for record in numbered:
        number, line = record.split(b"\t", 1)
        key = kind_of(line), int(number) // part * part
        lines[key] += 1
        sizes[key] += len(record)
    return Counter((kind, start, count, sizes[kind, start]) for (kind, start), count in lines.items())


def kind_of(line: bytes) -> str:
    """What a line is counted as: its first word, if that is one of `KINDS`."""
    word = re.match(rb"[ \t]*([A-Za-z_0-9]*)", line)
    assert word is not None
    found = word[1].decode()
    return found if found in KINDS else OTHER


def _parts(numbered: list[bytes], part: int) -> Iterator[list[bytes]]:
    for start in range(0, len(numbered), part):
        yield numbered[start : start + part]


def _write_files(directory: Path, parts: Iterable[list[bytes]]) -> None:
    directory.mkdir(parents=True)
    for number, lines in enumerate(parts):
        path = directory / f"{number:03}.txt"
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        os.utime(path, (FILE_TIME + number, FILE_TIME + number))


# --- the driver ---


def drive(uri: str, directory: Path) -> None:
    """All steps of the pipeline, in this process, until it is killed. `uri`: of the namespace."""
    plan = json.loads((directory / "plan.json").read_text())
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stopTimeout": "60s",
    }
    with spark_session("bookkeeper demo-pipeline", "local[2,8]", settings) as spark:
        counting = _aggregate(spark, uri, directory, plan["count"], plan["part"])
        counting.processAllAvailable()  # each starts processes of its own, one after the other; raises if it has failed
        keeping = _archive(spark, uri, directory)
        keeping.processAllAvailable()
        for name in ("input", "end"):
            bookkeeper.spark.ingest(
                spark,
                uri,
                LINES,
                str(directory / name),
                checkpoint=str(directory / "checkpoints" / name),
                sink_id=name,
                reading={"lineSep": "\n", "maxFilesPerTrigger": str(PARTS_AT_ONCE)},
                commitTimeout="60",
            )
        while not any(query.awaitTermination(LOOK_SECONDS) for query in (counting, keeping)):
            pass  # the first that fails ends this process


def _followed(spark: SparkSession, uri: str, stream: str, **options: Any) -> DataFrame:
    return (
        spark.readStream.format("bookkeeper")
        .options(uri=uri, stream=stream, startingOffsets="earliest", **options)
        .load()
    )


def _aggregate(spark: SparkSession, uri: str, directory: Path, count: int, part: int) -> Any:
    """`lines` -> lines and bytes of each kind in each window -> `counts`."""
    from pyspark.sql import functions as F  # noqa: N812

    known = ", ".join(f"'{kind}'" for kind in KINDS)
    lines = (
        _followed(spark, uri, LINES, maxRecordsPerTrigger=max(1, count // BATCHES))
        .selectExpr("payload", "cast(payload as string) as text")
        .selectExpr(
            r"timestamp_millis(cast(regexp_extract(text, r'^([0-9]+)\t', 1) as bigint)) as at",
            r"regexp_extract(text, r'^[0-9]+\t[ \t]*([A-Za-z_0-9]*)', 1) as word",
            "length(payload) as size",
        )
        .selectExpr("at", "size", f"if(word in ({known}), word, '{OTHER}') as kind")
    )
    windows = (
        lines.withWatermark("at", f"{LATE_PARTS * part} milliseconds")
        .groupBy("kind", F.window("at", f"{part} milliseconds"))
        .agg(F.count(F.lit(1)).alias("lines"), F.sum("size").alias("bytes"))
    )
    return (
        windows.selectExpr("to_json(struct(kind, unix_millis(window.start) as start, lines, bytes)) as payload")
        .writeStream.format("bookkeeper")
        .options(uri=uri, stream=COUNTS, sinkId=COUNTS, commitTimeout="60")
        .option("checkpointLocation", str(directory / "checkpoints" / COUNTS))
        .start()
    )


def _archive(spark: SparkSession, uri: str, directory: Path) -> Any:
    """`counts` -> Parquet. The stream is there before the aggregation writes: a query follows only what exists."""
    rows = _followed(spark, uri, COUNTS).selectExpr(
        "from_json(cast(payload as string), 'kind string, start bigint, lines bigint, bytes bigint') as row"
    )
    return (
        rows.select("row.*")
        .coalesce(1)
        .writeStream.format("parquet")
        .option("path", str(directory / "parquet"))
        .option("checkpointLocation", str(directory / "checkpoints" / "parquet"))
        .start()
    )


# --- what came of it ---


def archived(directory: Path) -> Counter[WindowCount]:
    """The rows of the Parquet files that the file sink has committed, by its log; others are of tasks that died."""
    import pyarrow.parquet as pq

    names = set()
    for log in (directory / "parquet" / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            names.add(json.loads(line)["path"].removeprefix("file://"))
    rows: Counter[WindowCount] = Counter()
    for name in names:
        table = pq.read_table(name, partitioning=None)
        rows.update((each["kind"], each["start"], each["lines"], each["bytes"]) for each in table.to_pylist())
    return rows


def window_count(payload: bytes) -> WindowCount:
    """What a record of `counts` says."""
    row = json.loads(payload)
    return row["kind"], row["start"], row["lines"], row["bytes"]
