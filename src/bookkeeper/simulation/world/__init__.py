"""The simulated world, in which the shipped code runs: one clock, one seed.

loop      an event loop in virtual time
world     machines, and what happens to them
disk      a disk, with what real disks do at a crash
keyvalue  a key-value store, with RocksDB's promises at a crash
keyvalue_state  what its folder holds
odds      how long things take, and how often chance makes them odd
network   TCP: latency, fragments, back-pressure, partitions, resets
trace     what a run shows
"""
