"""The storage server.

bookie      its parts, the order in which they start and stop, and how it ends
requests/   from a client's bytes to what is done, and back
journal/    what makes a write durable
storage/    where entries live
checkpoint  moving what the journals hold into the storage for good
ledgers     what is known about the ledgers in use: key, fence, last add confirmed
sharing/    what there is only so much of, and who gets it
node/       the bookie as a member of the cluster, its directories and disks
stats       what it counts, under BookKeeper's names
"""
