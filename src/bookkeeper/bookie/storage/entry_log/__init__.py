"""Entry logs: the files that entries end up in (spec bookie-storage §5).

format  header, records, locations, ledgers map, file names
writer  appending, rolling, sealing
reader  records by location, and whole logs from end to end
"""
