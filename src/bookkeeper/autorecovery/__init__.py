"""Re-replication: the copies that lost bookies held are made again on others (spec autorecovery-admin §3 to §6).

Decisions, without I/O:

fragments  the parts of a ledger, and what each of their bookies must hold
losses     which bookies are lost, and when to act on it
moves      where copies go, and what the ledger's record becomes

What acts on them:

checker    which copies of a ledger are not where its record says
copying    entries, from bookies that have them to those that need them, and how fast
repair     one ledger: copies first, then its record
worker     takes marked ledgers one by one
audits     walks over all ledgers that mark those which are not whole
placement  another walk: ledgers that do not lie where the placement policy wants them
auditor    when audits are due; one in a cluster
diagnosis  why an entry can or cannot be read: what its bookies say
renames    another id for a bookie that kept its entries, in all records
manual     recover and decommission, for operators
stats      what auditor and worker count
daemon     both together, as a process takes part
"""
