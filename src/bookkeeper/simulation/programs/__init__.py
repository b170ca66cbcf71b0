"""What runs on the machines of a run.

workload    keeps the programs going
users       write, recover, follow, browse, delete
claims      several clients want to be the one writer
impatience  whatever it waits for may be cancelled
"""
