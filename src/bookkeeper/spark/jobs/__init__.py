"""Jobs over many ledgers, each a function of an `options.ReadOptions`, and into streams; `bookkeeper.spark` has their
short forms.

export   ledgers as Parquet files; export_file is one of them, export_manifest what there are, export_check
         whether they are what was planned
ingest   files, and tables of other databases, into streams
rereplicate  what lost bookies held, to others; repairing is what its tasks repair with
offloading  segments of streams as Parquet files, which may leave the cluster then
rebuild  records that the metadata store has lost; inference is what lists of entries tell
scrub    every copy of every entry against the metadata; mending writes again what it found bad
scrubbing/ which part of them a scrub looks at, and where it keeps how far it is
usage    entries and bytes of each ledger on each bookie
running  how jobs run: a task for each unit of work, progress, plain errors
"""
