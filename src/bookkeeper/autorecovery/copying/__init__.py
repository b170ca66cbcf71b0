"""Copying entries from bookies that have them to those that need them.

copy  which entries are read from whom and written to whom, in stretches
pace  how fast: by a rate, or for a share of the time
"""
