"""The storage server.

bookie      the order in which a bookie starts, and how its end begins
life        its phases, which follows which, and the exit code that each fails with
parts       what it is made of
shutdown    in which order all that is closed, and for how long that is waited for
ground      what serving requests stands on
requests/   from a client's bytes to what is done, and back
journal/    what makes a write durable
integrity/  what is done when entries may have been lost
scrub/      looking for damage on its own disks, and mending it
storage/    where entries live
checkpoint  moving what the journals hold into the storage for good
ledgers     what is known about the ledgers in use: key, fence, last add confirmed
sharing/    what there is only so much of, and who gets it
offline/    work on the files of a stopped bookie, for operators
node/       the bookie as a member of the cluster, its directories and disks
file_names  what its files are called
stats       what it counts, under BookKeeper's names
"""
