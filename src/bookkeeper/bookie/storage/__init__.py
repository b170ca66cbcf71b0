"""Where a bookie keeps entries: one interface (`api.LedgerStorage`), several engines."""
