"""Makes `spark.read.format("bookkeeper")` known to PySpark, which looks for packages named `pyspark_*` by itself."""

from bookkeeper.spark.source import BookKeeperDataSource as DefaultSource

__all__ = ["DefaultSource"]
