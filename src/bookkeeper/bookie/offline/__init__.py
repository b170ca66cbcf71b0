"""Work on the files of a bookie that is stopped, for operators (spec autorecovery-admin §8.4, bookie-storage §12).

contents     what data is in the directories, and emptying them
renaming     another id in the cookies, after the host got a name
ledgers      the `ledgers` database built anew: from entry logs, journals and the metadata store
consistency  is every entry where the index says?

The location index is built anew in `storage.index.rebuild`, as at a start that finds it damaged.

A database of the index is locked while a bookie has it open, so nothing here that opens one runs beside a bookie.
"""
