"""Where a bookie keeps entries: one interface (`api.LedgerStorage`), several engines.

api               the contract
engines           from `ledgerStorageClass` to an engine
db_storage        the engine with a RocksDB index: several ledger directories
db_directory      one ledger directory: flushing, deleting, reclaiming
directory_reads   reading from it
scattered_reads   reading entries far from each other
caches            what is in memory of it
directory_jobs    its blocking work, on threads
write_cache       entries that are not in the entry logs yet
read_cache        records read ahead from entry logs
entry_log/        the files that entries end up in
index/            the two databases beside them
garbage           gives disk space back: when, and what
ledger_collector  which local ledgers are to be deleted
examine           looking at entries where they lie, for damage
compaction        what is still alive in an entry log, and moving it
reserve           space kept for what must be written on a full disk
packing           many small fields at once
"""
