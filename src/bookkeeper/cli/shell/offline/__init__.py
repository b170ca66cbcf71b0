"""Verbs of the shell for the files of a bookie that is stopped (spec autorecovery-admin §8.4).

begin    before a bookie's first start, and before it begins anew: initbookie, bookieformat
renames  its cookies get another id, or are looked at or removed: updatecookie
looks    which files there are, and what is in them: listfilesondisc, activeledgers
checks   is the index right: localconsistencycheck, check-db-ledgers-index
mending  an index built anew: rebuild-db-ledger-locations-index, rebuild-db-ledgers-index
place    what they share: the bookie's settings, and its id and metadata store
"""
