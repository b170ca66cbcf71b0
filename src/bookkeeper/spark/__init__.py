"""Ledgers in Apache Spark: a data source and jobs over whole clusters (docs/spark.md).

    df = spark.read.format("bookkeeper").option("uri", "zk://zk1:2181/ledgers").option("ledgers", "5,10-20").load()

    import bookkeeper.spark
    bookkeeper.spark.enable(spark)                                   # filters on ids are applied before reading
    bookkeeper.spark.export(spark, uri, "all", "s3://archive/ledgers")
    report = bookkeeper.spark.scrub(spark, uri)

Needs `pip install 'bookkeeper[spark]'` and a Java 17 or newer.
"""

from __future__ import annotations
