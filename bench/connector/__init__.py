"""Streams as Spark's source and sink, beside Spark's own for Apache Kafka and for files: `make bench-spark`.

data      rows that are written and read, and what they add up to
systems   who is measured: how it is started, written and read
kafka     Spark's Kafka connector, fetched with Maven
measuring one row of figures: all rows written in one go, all rows read by a streaming query
overhead  what a batch of a streaming query costs, beside Spark's own `rate` source
planning  how long the driver takes for very many segments or ledgers: metadata only
volume    gigabytes in and out through a stream: rows, sums and order
report    the figures as JSON, table and picture
"""
