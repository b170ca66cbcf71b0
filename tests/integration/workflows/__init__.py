"""What operators do, step by step, on real bookie processes: the workflows of spec autorecovery-admin §11.

operator   a cluster, the commands that docs/operations.md prints, and what must hold in the end
shell      the commands as processes, started quickly
test_*     a test for each workflow, under its number
"""
