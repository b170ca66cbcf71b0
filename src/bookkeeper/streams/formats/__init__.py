"""The formats of streams: bytes from and to values, no I/O (spec streams §4, §5).

binding      the record of a namespace
segment      the record of a segment
entry        an entry: its envelope, and which records it must hold
records      records in an entry
stored       what is in an entry, in columns
keyed        records with keys and headers
record_set   many payloads in one record
lz4          compressed blocks
codec        which codecs there are, by number
"""
