"""Jobs of `bookkeeper spark` that change what is stored: each says what it would do, and does it with `--apply`.

mending      what a scrub found, written again
offload      segments of streams, to Parquet files
rebuild      records that the metadata store has lost
rereplicate  what lost bookies held, to others
scrub        every copy of every entry, looked at
"""
