"""What Spark does wrong today. A test here turns red when Spark mends it: then our way around it can go. And
what we know its processes by."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition, LessThan


class Hundred(DataSource):
    """Numbers 0 to 99 in pure PySpark, which takes `n < ...` from the query."""

    @classmethod
    def name(cls) -> str:
        return "hundred"

    def schema(self) -> str:
        return "n int"

    def reader(self, schema: object) -> DataSourceReader:
        return HundredReader()


class HundredReader(DataSourceReader):
    end = 100

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for one in filters:
            if isinstance(one, LessThan):
                self.end = min(self.end, one.value)
            else:
                yield one

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self.end)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield from ((n,) for n in range(partition.value))


def test_spark_gives_one_querys_filter_to_the_next(spark: SparkSession) -> None:
    """Right would be 100. So `BatchReader` must not have `pushFilters`, and there is `where`, at load time."""
    session = spark.newSession()
    session.dataSource.register(Hundred)
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    frame = session.read.format("hundred").load()
    assert frame.where("n < 10").count() == 10
    assert frame.count() == 10
    session.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def test_spark_starts_its_processes_as_modules_of_its_own(spark: SparkSession) -> None:
    """By that `spark/session.py` knows that it is in one of them."""

    def started_as(_: int) -> str | None:
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        return spec.name if spec is not None else None

    found = spark.sparkContext.parallelize([0], 1).map(started_as).collect()
    assert found == ["pyspark.daemon"]
