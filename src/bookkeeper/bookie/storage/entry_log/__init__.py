"""Entry logs: the files that entries end up in (spec bookie-storage §5).

format      header, records, locations, ledgers map, file names
writer      appending, rolling, sealing
page_cache  which entries a flush writes past the system's page cache
reader      records by location, and whole logs from end to end
"""
