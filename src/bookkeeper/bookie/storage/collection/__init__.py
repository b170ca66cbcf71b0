"""Parts of garbage collection (`..garbage`): what is deleted, and when logs are compacted.

ledgers    ledgers that no longer exist
times      when compaction is due
"""
