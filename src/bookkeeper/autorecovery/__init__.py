"""Re-replication: the copies that lost bookies held are made again on others (spec autorecovery-admin §3 to §5).

fragments  the parts of a ledger, and what each of their bookies must hold: no I/O
losses     which bookies are lost, and when to act on it: no I/O
moves      where copies go, and what the ledger's record becomes: no I/O
"""
