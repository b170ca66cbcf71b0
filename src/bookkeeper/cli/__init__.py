"""Commands.

main       entry point
app        all commands, by name
options    what commands are told: options that several share
output     how commands speak: tables, plain columns, JSON, one line for an error
session    how commands reach a cluster, and how they are stopped
server     `bookie`: run a bookie; settings are its settings
instances  `bookie --instances`: several, and who looks after them
bookies    `bookies ...`: which there are
ledger     `ledger ...`; append is what its `append` does
shell/     `shell ...`: BookKeeper's admin shell
local/     clusters on this machine, and demonstrations
bench      `bench ...`: how fast a cluster is; latency keeps its histogram
spark      `spark ...`: jobs over many ledgers; jobs has their options and their progress
upkeep/    jobs of `spark` that change what is stored
reference  writes the reference pages from the program itself
"""
