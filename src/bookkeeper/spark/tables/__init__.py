"""Metadata as tables: `spark.read.format("bookkeeper").option("table", "ledgers")` (spec streams §17.2).

schemas   which tables there are, and what their columns mean
rows      from records of the metadata to rows; pure
scanning  which task reads which of them, and how
"""
