"""Ways to read a ledger (spec client §9).

ledger_reads  what all reads of one open ledger share: which bookie to ask first, what was learnt
range         a range of entries, a request for each
single        one entry, as cheaply as may be
budget        how much such a read may ask for
waves         when what it asked for is looked at again
batch         consecutive entries with one request
read_ahead    a long range in order, ahead of the caller
replicas      every copy of an entry by itself: is it there, is it good
scan          packed entries, for readers of whole ledgers
columns       packed entries to arrays; needs numpy, so it is imported only where columns are wanted
arrow         ranges as record batches of such arrays
lac           the last add confirmed
long_poll     the LAC and the entry behind it, when there is something new
speculation   when to ask the next replica
"""
