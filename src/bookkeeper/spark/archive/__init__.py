"""Segments of streams as Parquet files (spec streams §18). `jobs.offloading` makes them, `streaming` reads them.

sums          checksums of rows
segment_file  one file: a segment, read back before it gets its name
ranges        what a task reads of such a file; pure
"""
