"""The two databases of a ledger directory (spec bookie-storage §6).

locations    (ledger, entry) -> where in the entry logs
ledgers      attributes of ledgers: fence, key, limbo
ledger_data  keys and values of the latter
rebuild      locations built anew from the entry logs
"""
