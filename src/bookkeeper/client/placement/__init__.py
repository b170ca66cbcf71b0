"""Which bookies get a ledger, and which to ask first for an entry of it (spec client §9.5, §11).

topology       where bookies stand: `/rack`, or `/region/rack`
resolver       who knows where: a script, the operator's own class
locations      the location of each bookie of the cluster, looked up when it appears
draw           chance: each bookie equally likely, or by free space
policy         what every policy can answer
adhering       moving an ensemble that does not stand as it should
default        any writable bookie
rackaware, regionaware, zoneaware   the policies: pure decisions over a topology
read_order     the order in which replicas are asked
bookie_watcher  which bookies there are, and how they fare
quarantine     keeps bookies that fail much out for a while
free_space     asks bookies for theirs now and then
placement      keeps the topology up to date, and asks the policy: the client's `Placement`
"""
