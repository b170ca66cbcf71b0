"""What is wrong with a cluster, and what to do about it. Beyond what Java has.

A cluster is looked at once, by reading: nothing is fenced, marked or changed. What follows is found by pure functions,
one for each thing that can be wrong.

picture   what was seen of a cluster
copies    how many copies the parts of a ledger have left
look      sees it
findings  what follows from it
"""
